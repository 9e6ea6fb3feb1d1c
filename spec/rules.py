"""Every rule of the law: id, name, sentence, who owes it, what shows it, and where it comes from.

`need` is the only way a rule is broken. It takes facts and builds no text; spec/explain.py does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kvledger.spec.world import Declaration

# What can show a rule broken: an answer; an answer that says what it freed; a part of the view; content read back;
# the drain probe; a forbidden call's answer; answers that change when stale lengths are overwritten.
VIEW_PARTS = ("FREE_ROWS", "FREE_PAGES", "RECORDS", "TABLE", "CACHED", "TOTALS")
EVIDENCE = ("ANSWER", "FREED", *VIEW_PARTS, "CONTENT", "DRAIN", "PROBE", "SCRAMBLE")


class Rule(NamedTuple):
    """One rule. shown_by: the kinds of evidence that can show it broken. needs: capabilities without which it is
    not declared. implied_by: rules that would also be broken, should this one's own guards be off."""

    id: str
    name: str
    sentence: str
    owed_by: str
    shown_by: tuple[str, ...]
    must: bool
    source: str
    needs: tuple[str, ...] = ()
    implied_by: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Id and name, always printed together."""
        return f"{self.id} {self.name}"


class Broken(Exception):
    """A rule is broken. Accuses whom the rule's owed_by names. facts: what explain puts into words."""

    def __init__(self, rule: str, facts: Mapping[str, object]) -> None:
        super().__init__(rule)
        self.rule, self.facts = rule, facts


def need(ok: bool, rule: str, /, **facts: object) -> None:
    """Raise Broken(rule, facts) unless ok."""
    if not ok:
        raise Broken(rule, facts)


def _rules() -> dict[str, Rule]:
    table: list[Rule] = []

    def rule(title: str, shown_by: str, sentence: str, source: str, *,
             needs: str = "", implied_by: str = "", must: bool = True) -> None:  # fmt: skip
        ident, _, name = title.partition(" ")
        evidence, capabilities, others = (tuple(text.split()) for text in (shown_by, needs, implied_by))
        table.append(Rule(ident, name, sentence, "BACKEND", evidence, must, source, capabilities, others))

    # fmt: off
    rule("ROW-1 one-holder", "ANSWER FREE_ROWS DRAIN",
         "a row is free or held by exactly one record; a row handed out was free",
         "ReqToTokenPool.alloc and free; a row freed twice stands twice in SGLang's free list", needs="ROWS")
    rule("ROW-2 padding-row", "ANSWER FREE_ROWS",
         "row 0 is never handed out",
         "ReqToTokenPool: padded graph batches read and write row 0", needs="ROWS", implied_by="ROW-1")
    rule("ROW-3 row-stays", "RECORDS",
         "a held row does not change until it is released",
         "ReqToTokenPool.alloc: held rows are reused; an overwritten row number loses the first row", needs="ROWS")
    rule("ROW-4 rows-refused-with-cause", "ANSWER",
         "rows are refused only when more requests start than rows are free",
         "ReqToTokenPool.alloc returns None iff the free list is too short", needs="ROWS")
    rule("REC-1 held-means-allocated", "ANSWER RECORDS",
         "a row is held iff KV is allocated; only a record that carries allocated KV may reuse its row",
         "sglang#37167: a released row passed for a reused one on stale lengths")
    rule("REC-2 ladder", "ANSWER RECORDS",
         "protected <= committed <= allocated <= context_len, protected page-aligned, each as the actions say",
         "ReqKvInfo; SGLang's page check: 0 <= committed <= allocated <= width")
    rule("REC-3 ask-the-record", "SCRAMBLE",
         "after release nothing reads the other, stale, lengths: overwriting them changes no answer",
         "sglang#37167: kv_committed_len is not cleared by release", needs="SCRAMBLE", implied_by="REC-1")
    rule("TAB-1 geometry", "ANSWER TABLE",
         "position i lies at offset i mod page_size, and inside a page one slot after position i - 1",
         "alloc_extend's last_loc rule: the rest of a page is filled before a new one", needs="PAGED")
    rule("TAB-2 row-lists-its-pages", "TABLE",
         "columns [0, allocated) list the pages the record owns or borrows, in order",
         "write_cache_indices; attention reads the KV through this row")
    rule("TAG-1 own-content", "CONTENT",
         "every committed position reads the KV that was written for it",
         "the symptom users see: text of somebody else", needs="CONTENT")
    rule("PAGE-1 one-owner", "ANSWER FREE_PAGES DRAIN",
         "a page is free, private to one record, or cached; a page handed out was free or went in the same answer",
         "a double free hands one page to two requests")
    rule("PAGE-2 no-page-lost", "FREE_PAGES CACHED DRAIN",
         "what nobody owns is free, in the very action that ended the last owner",
         "the leak that SGLang's idle check reports as a sum")
    rule("PAGE-3 padding-page", "ANSWER FREE_PAGES",
         "page 0 is never handed out",
         "slot 0 takes the writes of padded lanes; vLLM's null block", implied_by="PAGE-1")
    rule("PAGE-4 exact-demand", "ANSWER",
         "a grant takes exactly the pages that its new positions need",
         "alloc_extend: ceil(seq / page) - ceil(prefix / page) new pages a request")
    rule("PAGE-5 refused-with-cause", "ANSWER DRAIN",
         "pages are refused only when demand exceeds free and evictable ones, matched and headroom pages aside",
         "alloc_for_extend evicts before it gives up; vLLM's watermark is the declared headroom")
    rule("PAGE-6 freed-exactly", "FREED",
         "what an answer says it freed is what the law frees, as often",
         "release_kv_cache; free() of a page twice goes unnoticed in SGLang's allocator")
    rule("CACHE-1 longest-match", "ANSWER",
         "a start takes the longest cached prefix it may take, less the declared back-off",
         "match_prefix; get_computed_blocks", needs="PREFIX_CACHE")
    rule("CACHE-2 leave-one-token", "ANSWER",
         "a match leaves at least one token to compute, and does not pass the request's match_limit",
         "the key is capped at len - 1: without a computed token there are no logits to sample from",
         needs="PREFIX_CACHE", implied_by="CACHE-1")
    rule("CACHE-3 publish-committed", "ANSWER CACHED",
         "only whole pages of committed KV are published, by the actions and requests that may publish",
         "cache_unfinished_req inserts floor(len); the pending token has no KV", needs="PREFIX_CACHE")
    rule("CACHE-4 unbroken", "ANSWER CACHED",
         "a match lists, page by page, pages cached under exactly that prefix",
         "RadixCache nodes; vLLM stops at the first missing hash", needs="PREFIX_CACHE")
    rule("CACHE-5 duplicates", "ANSWER",
         "publishing a cached key merges (own page freed, row repointed) or, with DUPLICATES, keeps; never both",
         "cache_unfinished_req frees the duplicate and repoints the row; vLLM keeps both blocks", needs="PREFIX_CACHE")
    rule("CACHE-6 publish-all", "ANSWER",
         "an action that publishes publishes all whole pages it may",
         "not owed: SGLang declines some insertions by policy", needs="PREFIX_CACHE", must=False)
    rule("NS-1 no-sharing-across-namespaces", "ANSWER CACHED",
         "KV is shared only inside one namespace",
         "extra_key, LoRA id, cache salt: equal tokens, different KV",
         needs="PREFIX_CACHE NAMESPACES", implied_by="CACHE-4")
    rule("LOCK-1 locks-counted", "CACHED",
         "a cached page's lock count is the number of holders that read it",
         "inc_lock_ref and dec_lock_ref; vLLM's ref_cnt", needs="PREFIX_CACHE")
    rule("LOCK-2 locked-stays", "ANSWER FREE_PAGES",
         "what a holder reads stays: no eviction takes it, and no flush is granted while a row is held",
         "evict takes leaves with lock_ref 0; sglang#12107: a flush while something lives", needs="PREFIX_CACHE")
    rule("EVICT-1 leaves-first", "ANSWER",
         "what remains cached is closed under parents",
         "RadixCache evicts leaves; a parent follows when it has become one", needs="PREFIX_CACHE LEAF_FIRST")
    rule("EVICT-2 enough", "ANSWER",
         "evict(n) takes at least n pages, or all that can go; a flush takes all",
         "RadixCache.evict: less than asked means nothing more is evictable", needs="PREFIX_CACHE")
    rule("EVICT-3 not-needlessly", "ANSWER",
         "a grant evicts only when free pages do not suffice",
         "not owed: SGLang's eviction is driven by an over-estimate", needs="PREFIX_CACHE", must=False)
    rule("EVICT-4 only-cached-goes", "ANSWER",
         "only cached pages are evicted",
         "a page that was free or private is nobody's to evict", needs="PREFIX_CACHE")
    rule("DRAFT-1 reserve-moves-allocated-only", "ANSWER RECORDS",
         "a reserve moves allocated_len only: at least as far as asked, at most to that page's end, never past the row",
         "alloc_for_spec_decode: page-aligned, and committed_len stays; sglang#22862 lost over-allocated slots",
         needs="DRAFTS")
    rule("DRAFT-2 never-publish-drafts", "ANSWER",
         "positions that are reserved and not committed are never published",
         "rejected drafts would be served as a prefix", needs="PREFIX_CACHE DRAFTS", implied_by="CACHE-3")
    rule("SES-1 session-takes-over", "FREED FREE_ROWS FREE_PAGES RECORDS CACHED",
         "when a turn ends or is retracted, its session holds row, lock and what is kept, and the request nothing",
         "SessionAwareCache, StreamingSession: the slot takes the record, and release_kv_cache frees nothing of it",
         needs="SESSIONS", implied_by="PAGE-6")
    rule("SES-2 turn-continues", "ANSWER FREED FREE_ROWS FREE_PAGES RECORDS CACHED",
         "a turn goes on in its session's row from min(committed, len - 1); only what lies beyond is freed",
         "StreamingSession.match_prefix frees the tail and asserts prefix >= protected",
         needs="SESSIONS", implied_by="PAGE-6 PAGE-4 REC-1")
    rule("SES-3 close-waits", "FREED FREE_ROWS FREE_PAGES RECORDS CACHED",
         "a close takes effect when no turn of the session lives: at once, or in the action that ends the turn",
         "sglang#37167: a close in mid-turn freed the row that the turn still had",
         needs="SESSIONS", implied_by="PAGE-6")
    rule("SES-4 aborted-turn-empties", "FREED FREE_ROWS FREE_PAGES RECORDS CACHED",
         "an aborted turn that ran leaves its session empty; one that only waited leaves it as it was",
         "SGLang 0.5.10 kept the aborted turn's record in the slot", needs="SESSIONS", implied_by="PAGE-6")
    rule("ATOM-1 refused-leaves-no-trace", "FREE_ROWS FREE_PAGES RECORDS TABLE CACHED TOTALS",
         "a refused call changes nothing that a holder could read; evictions and a turn's trimmed tail aside",
         "SGLang 0.5.23: out of memory in extend leaves a bound row; vLLM 0.11.0 leaves an empty one")
    rule("GUARD-1 forbidden-call-refused", "PROBE",
         "a call outside what the action requires is refused, and nothing changes",
         "double release, abort of an ended request: classes of real reports", needs="GUARDED")
    rule("LIVE-1 room-helps", "ANSWER",
         "after a refusal, making the room that was missing lets the same call succeed",
         "a request that is refused for ever starves", implied_by="ROW-4 PAGE-5")
    rule("CONS-1 totals", "TOTALS",
         "available + evictable + protected + private pages are all pages, each as the law counts it",
         "SGLang's own sum: available + evictable + protected + session_held + uncached == total")
    # fmt: on
    return {row.id: row for row in table}


RULES = _rules()


def declared(rule: Rule, declaration: Declaration) -> bool:
    """Whether a backend with this declaration owes the rule."""
    return all(declaration.has(capability) for capability in rule.needs)
