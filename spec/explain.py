"""Facts become words here, and nowhere else: actions, answers, and what a broken rule's facts say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kvledger.spec.actions import (
    Abort,
    Action,
    Admit,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Defer,
    Evict,
    Extend,
    Finish,
    Flush,
    MatchPrefix,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import CACHED, FREE, PRIVATE

Facts: TypeAlias = Mapping[str, Any]


def action_in_words(act: Action) -> str:
    """One action, as short as a table column."""
    match act:
        case Submit(req, tokens, namespace, limit, publish, session):
            extras = f", session {session}" if session is not None else ""
            extras += f", namespace {namespace!r}" if namespace != 0 else ""
            extras += f", match <= {limit}" if limit is not None else ""
            extras += "" if publish else ", private"
            return f"submit {req} {_tokens(len(tokens))}{extras}"
        case Extend(batch):
            return "extend " + (", ".join(f"{req} to {upto}" for req, upto, _ in batch) or "nobody")
        case Decode(batch):
            return "decode " + (", ".join(req for req, _ in batch) or "nobody")
        case Checkpoint(req, upto):
            return f"checkpoint {req} to {upto}"
        case Finish(req, keep, publish):
            return f"finish {req}, keep {keep}{'' if publish else ', publish nothing'}"
        case Retract(who) | Abort(who) | Admit(who) | Defer(who) | Close(who):
            return f"{type(act).__name__.lower()} {who}"
        case MatchPrefix(req):
            return f"match {req}"
        case Reserve(req, n):
            return f"reserve {req} {n}"
        case Commit(req, tokens):
            return f"commit {req} {_tokens(len(tokens))}"
        case Evict(n):
            return f"evict {n}"
        case Flush():
            return "flush"


def answer_in_words(reply: Reply | Refused) -> str:
    """One answer, as short as a table column."""
    if isinstance(reply, Refused):
        return f"refused: no {reply.short}" if reply.short else "refused"
    if not isinstance(reply, Reply):
        return repr(reply)
    words = []
    if reply.rows:
        words.append(f"{'row' if len(reply.rows) == 1 else 'rows'} {listing(reply.rows)}")
    if any(reply.matched):
        words.append("hit " + " ".join(str(len(slots)) for slots in reply.matched))
    if any(reply.slots):
        words.append("slots " + " / ".join(listing(slots) for slots in reply.slots if slots))
    if reply.published:
        words.append("published " + ", ".join(f"{req} to {k}" for req, k in reply.published.items()))
    if reply.evicted:
        words.append("evicted " + listing(sorted(reply.evicted)))
    if isinstance(reply.freed, Freed) and reply.freed.pages:
        words.append("freed " + listing(reply.freed.pages))
    return ", ".join(words) or "ok"


def _tokens(number: int) -> str:
    return f"{number} {'token' if number == 1 else 'tokens'}"


def listing(numbers: Any) -> str:
    """Whole numbers, runs written as first..last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs) or "none"


def page_in_words(ledger: Ledger, page: int) -> str:
    """Who owns a page, as short as a table column."""
    if not 1 <= page <= ledger.world.pages:
        return "no page of the pool" if page else "padding"
    state = ledger.page(page)
    if state.kind == FREE:
        return "free"
    if state.kind != CACHED:
        return str(ledger.holder_of(state.owner))
    readers = sorted(holder for holder, pages in ledger.locks.items() if page in pages)
    return f"cached, {'+'.join(readers)}" if readers else "cached"


def row_in_words(ledger: Ledger, row: int) -> str:
    """Who holds a row, as short as a table column."""
    if not 1 <= row <= ledger.world.rows:
        return "no row of the pool" if row else "padding"
    holder = ledger.holder_of(row)
    return "free" if holder is None else holder


def because(rule: str, facts: Facts, ledger: Ledger) -> str:
    """What the facts of a broken rule say, in a sentence or two. ledger: as it was before the guilty step,
    or, where a view was compared, as the law has it after. No facts: a stored run does not hold them."""
    if not facts:
        return "What shows this is not stored: something raised, or stale lengths were read. The replay does."
    if "breaks" in facts:
        rest = {name: fact for name, fact in facts.items() if name != "breaks"}
        why = because(facts["breaks"], rest, ledger)
        return f"{why} It is so only if the stale lengths of released records are overwritten: something reads them."
    if "kind" in facts:
        return _difference(facts)
    return _SENTENCES[rule](facts, ledger)


def sides(rule: str, facts: Facts, ledger: Ledger) -> tuple[str, str] | None:
    """What law and backend say of the one row or page that the finding is about, as short as a table column."""
    if not facts:
        return None
    rule = facts.get("breaks", rule)
    if "kind" in facts:
        about = str(facts["subject"]).startswith(("row ", "page "))
        return (str(facts["law"]), str(facts["backend"])) if about else None
    match rule:
        case "CACHE-5" if facts["own"] == facts["row_lists"]:
            return "free", str(facts["req"])
        case "PAGE-1" | "PAGE-3":
            return page_in_words(ledger, facts["page"]), str(facts["req"])
        case "ROW-1" | "ROW-2" if "row" in facts:
            return row_in_words(ledger, facts["row"]), str(facts["req"])
        case "NS-1" | "CACHE-4":
            return page_in_words(ledger, facts["page"]), f"read by {facts['req']}"
        case "LOCK-2" | "EVICT-1" | "EVICT-4" if facts["page"] is not None:
            return page_in_words(ledger, facts["page"]), "evicted"
    return None


def _difference(facts: Facts) -> str:
    subject, kind = str(facts["subject"]), str(facts["kind"])
    after = f"After {facts['by']}"
    if kind.startswith(("holds", "is on", "has")):
        return f"{after}, {subject} {kind}. The law says: {facts['law']}. The backend says: {facts['backend']}."
    return f"{after}, {subject}: {kind}. The law says: {facts['law']}. The backend says: {facts['backend']}."


def _owner(ledger: Ledger, page: int) -> str:
    words = page_in_words(ledger, page)
    return f"held by {words}" if ledger.page(page).kind == PRIVATE else words


def _row_refused(facts: Facts, _: Ledger) -> str:
    return f"Rows were refused: {facts['starting']} asked for, {facts['free']} free."


def _page_refused(facts: Facts, _: Ledger) -> str:
    asked, room, short = facts["demand"], facts["obtainable"], facts["short"]
    if not facts["members"]:
        return "It was refused, but it asks for no row and no page: it may not be."
    counts = f"{asked} {'page is' if asked == 1 else 'pages are'} needed, {room} can be had"
    if short == "rows":
        return f"Rows were refused, but this backend declares no ROWS ({counts})."
    if asked > room:
        return f"{counts}, but the answer names no cause: say that pages are short."
    lead = "Pages were" if short else "It was"
    batch = " An engine that takes one request a call declares max_batch = 1." if facts["members"] > 1 else ""
    return f"{lead} refused: {counts}. Either that is wrong, or pages were lost before.{batch}"


def _page_lost(facts: Facts, _: Ledger) -> str:
    return (
        f"Only the probe's own requests run and nothing is cached, so {facts['obtainable']} pages must be free; the "
        f"backend could not give {facts['demand']}. A page was lost before: a view shows where."
    )


def _page_one(facts: Facts, ledger: Ledger) -> str:
    if facts["twice"]:
        return f"Page {facts['page']} was handed out twice in one answer, the second time to {facts['req']}."
    return f"Page {facts['page']} was handed to {facts['req']}, but it is {_owner(ledger, facts['page'])}."


def _freed(facts: Facts, _: Ledger) -> str:
    said, law = facts["freed"], facts["law"]
    more = sorted((Counter(said.pages) - Counter(law.pages)).keys())
    less = sorted((Counter(law.pages) - Counter(said.pages)).keys())
    tail = ""
    if more:
        tail += f" Page {listing(more)} was given back too often."
    if less:
        tail += f" Page {listing(less)} was not given back."
    return (
        f"The answer says it freed pages {listing(said.pages)} and rows {listing(said.rows)}; "
        f"the law frees pages {listing(law.pages)} and rows {listing(law.rows)}.{tail}"
    )


def _reserved(facts: Facts, _: Ledger) -> str:
    row = f" The row ends at {facts['width']}." if facts["upto"] > facts["width"] else ""
    least, most = facts["least"], facts["most"]
    reach = f"exactly to {least}" if least == most else f"to {least} at least and {most} at most"
    return f"Slots of {facts['req']} reach to {facts['upto']} after reserve; they should reach {reach}.{row}"


def _kept(facts: Facts, _: Ledger) -> str:
    said, law = facts["freed"], facts["law"]
    rows = f" and row {listing(said.rows)}" if said.rows else ""
    held = f"The law frees pages {listing(law.pages)} and rows {listing(law.rows)}."
    return f"The answer says that pages {listing(said.pages)}{rows} went back. {held} The rest stays with its session."


def _goes_on(facts: Facts, _: Ledger) -> str:
    if "rows" in facts:
        return f"{facts['req']} goes on in its session's row; the answer hands out row {listing(facts['rows'])}."
    if "matched" in facts:
        return f"{facts['req']} goes on with its session's KV and matches nothing in the cache; the answer has a match."
    if "slots" in facts:
        new, said = facts["positions"], facts["slots"]
        return (
            f"{facts['req']} goes on with its session's KV at {facts['prefix']}, so {new} "
            f"{'position is' if new == 1 else 'positions are'} new; the answer gives {said} "
            f"{'slot' if said == 1 else 'slots'}."
        )
    return _kept(facts, _)


def _closed(facts: Facts, ledger: Ledger) -> str:
    said, law = facts["freed"], facts["law"]
    if Counter(law.rows) - Counter(said.rows) or Counter(law.pages) - Counter(said.pages):
        return f"The session is closed and no turn of it goes on, so all it has comes back. {_freed(facts, ledger)}"
    return _kept(facts, ledger)


def _emptied(facts: Facts, ledger: Ledger) -> str:
    if facts["holder"] in ledger.sessions:
        return f"The turn only waited, so session {facts['holder']} keeps what it has. {_kept(facts, ledger)}"
    return f"The aborted turn ran, so its session is left with nothing. {_freed(facts, ledger)}"


def _match_cap(facts: Facts, _: Ledger) -> str:
    return f"{facts['req']} matched {_tokens(facts['matched'])}; at most {facts['most']} may come from the cache."


def _longest(facts: Facts, _: Ledger) -> str:
    return f"{facts['req']} matched {_tokens(facts['matched'])}; {facts['longest']} could be had."


def _matched(facts: Facts, ledger: Ledger) -> str:
    if "tokens" in facts:
        return f"{facts['req']} matched {_tokens(facts['tokens'])}: that ends inside page {facts['page']}."
    return (
        f"{facts['req']} matched page {facts['page']} as page {facts['ordinal']} of its prefix, "
        f"but that page is {_owner(ledger, facts['page'])} and does not hold this prefix."
    )


def _namespace(facts: Facts, _: Ledger) -> str:
    return f"{facts['req']} matched page {facts['page']}, which another namespace published."


def _published(facts: Facts, ledger: Ledger) -> str:
    req, by = facts["req"], facts["by"]
    if facts.get("barred"):
        return f"{req} was published by {by}, which may not publish it."
    upto, most, record, size = facts["upto"], facts["most"], ledger.record(req), ledger.world.page_size
    if upto < record.protected_len or upto % size:
        return f"{req} is published up to {upto}: it was up to {record.protected_len}, and goes on by pages of {size}."
    why = "for they have KV" if most >= record.committed_len else f"for this {by} says so"
    pending = most < upto == len(ledger.requests[req].tokens)
    more = f" Token {upto} is pending: it was sampled last, and no KV is computed for it." if pending else ""
    return (
        f"{req} is published up to {upto}, but only its first {_tokens(most)} may be, {why}; in whole pages that is "
        f"{ledger.publishable(most) * size}.{more}"
    )


def _duplicate(facts: Facts, _: Ledger) -> str:
    cached = listing(facts["cached"])
    if facts["own"] == facts["row_lists"]:
        return (
            f"{facts['req']} publishes page {facts['own']}, whose prefix is cached already in page {cached}: page "
            f"{facts['own']} should be freed and the row should list {cached}, but it still lists {facts['own']}."
        )
    return f"After publishing, {facts['req']}'s row lists page {facts['row_lists']}; its prefix is cached in {cached}."


def _locked(facts: Facts, ledger: Ledger) -> str:
    if "admitted" in facts:
        was, reads = listing(facts["admitted"]), listing(facts["matched"])
        return f"{facts['req']} was admitted with pages {was} and holds their lock; it starts with pages {reads}."
    if facts["page"] is None:
        held = "KV" if all(map(ledger.holds_row, facts["holders"])) else "KV or the lock of an admission"
        return f"The cache was flushed while {', '.join(facts['holders'])} held {held}."
    readers = [holder for holder, pages in ledger.locks.items() if facts["page"] in pages]
    who = ", ".join(readers) or "a request that this very call has matched it for"
    return f"Page {facts['page']} was evicted while it is read by {who}."


def _leaves(facts: Facts, _: Ledger) -> str:
    return f"Page {facts['page']} was evicted, but a page that continues its prefix stays cached."


def _enough(facts: Facts, _: Ledger) -> str:
    if facts.get("refused"):
        return "The flush was refused, but no request is there that could be in its way."
    asked = "all" if facts["asked"] is None else facts["asked"]
    return f"Asked to evict {asked}; {facts['owed']} could go, {facts['evicted']} went."


def _not_cached(facts: Facts, ledger: Ledger) -> str:
    if facts.get("twice"):
        return f"Page {facts['page']} is named twice among the evicted."
    return f"Page {facts['page']} is named among the evicted, but it is {_owner(ledger, facts['page'])}."


def _row_one(facts: Facts, ledger: Ledger) -> str:
    if "row" not in facts:
        return _row_refused(facts, ledger)
    held = f"held by {facts['held_by']}" if facts["held_by"] is not None else "no free row"
    return f"Row {facts['row']} was handed to {facts['req']}, but it is {held}."


def _reused(facts: Facts, _: Ledger) -> str:
    starting, rows = facts["starting"], facts.get("rows", 0)
    if rows > starting:
        who = f"{starting or 'no'} {'request starts' if starting == 1 else 'requests start'}"
        return f"The answer hands out {rows} {'row' if rows == 1 else 'rows'}, but {who}: nobody else takes one."
    needs = "row of its own" if "rows" in facts else "match, if only of nothing"
    said = facts["rows"] if "rows" in facts else facts["matched"]
    return (
        f"{facts['req']} starts without KV and needs a {needs}; the answer has {said} of {starting}. "
        "A record that was released must not pass for one that holds a row."
    )


def _geometry(facts: Facts, _: Ledger) -> str:
    law, said = facts["law"], facts["slot"]
    return f"Position {facts['position']} of {facts['req']} should be slot {law}; the answer says {said}."


def _demand(facts: Facts, _: Ledger) -> str:
    if "slots" in facts:
        return f"{facts['req']} has {facts['positions']} new positions; the answer gives {facts['slots']} slots."
    return f"{facts['req']} needs {facts['demand']} new pages; the answer gives {facts['got']}."


def _content(facts: Facts, _: Ledger) -> str:
    if facts["page"] is not None:
        return f"{facts['req']} reads, at position {facts['position']} (page {facts['page']}), KV of something else."
    return f"{facts['req']} has {facts['law']} positions with KV; {facts['read']} were read."


_SENTENCES: dict[str, Callable[[Facts, Ledger], str]] = {
    "ROW-1": _row_one,
    "ROW-2": lambda facts, _: f"Row 0 was handed to {facts['req']}.",
    "ROW-4": _row_refused,
    "REC-1": _reused,
    "REC-2": lambda facts, _: (
        f"{facts['req']} has [0, {facts['protected']}) in the cache and publishes up to {facts['upto']}: "
        f"{facts['upto'] - facts['protected']} slots are listed from now on; the answer has {facts['slots']}."
    ),
    "TAB-1": _geometry,
    "TAG-1": _content,
    "PAGE-1": _page_one,
    "PAGE-2": _page_lost,
    "PAGE-3": lambda facts, _: (
        f"Page 0, the padding page, was handed to {facts['req']}. An adapter whose engine counts pages from 0 adds 1."
    ),
    "PAGE-4": _demand,
    "PAGE-5": _page_refused,
    "PAGE-6": _freed,
    "CACHE-1": _longest,
    "CACHE-2": _match_cap,
    "CACHE-3": _published,
    "CACHE-4": _matched,
    "CACHE-5": _duplicate,
    "DRAFT-1": _reserved,
    "DRAFT-2": _published,
    "SES-1": _kept,
    "SES-2": _goes_on,
    "SES-3": _closed,
    "SES-4": _emptied,
    "NS-1": _namespace,
    "LOCK-2": _locked,
    "EVICT-1": _leaves,
    "EVICT-2": _enough,
    "EVICT-4": _not_cached,
    "LIVE-1": lambda facts, ledger: (_row_refused if "starting" in facts else _page_refused)(facts, ledger),
    "GUARD-1": lambda facts, _: f"{facts['by']} is forbidden here, but it was not refused, or gave something up.",
    "RAISES": lambda facts, _: f"The backend's {facts['call']} raised {facts['error']} at {facts['place']}.",
    "HANGS": lambda facts, _: f"The backend did not answer within {facts['limit_s']} s.",
}
