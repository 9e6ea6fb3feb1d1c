"""How pages change hands and come back, for every action that publishes or frees: judged here once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvledger.spec.actions.back import NOTHING, Back, given_back, judge_freed
from kvledger.spec.actions.taking import Member
from kvledger.spec.answer import Freed, Granted, Published
from kvledger.spec.ledger import Ledger, Request, Tag
from kvledger.spec.page import pages_for
from kvledger.spec.rules import need
from kvledger.spec.world import PageId, ReqId


class Publisher(NamedTuple):
    """Who may publish in an action: [protected, upto) is its own and committed, in the pages of its table.

    request: with the tokens that the action brings.
    """

    req: ReqId
    protected: int
    upto: int
    table: tuple[PageId, ...]
    request: Request


def holding(ledger: Ledger, req: ReqId, upto: int) -> Publisher:
    """A request that holds a row, as the publisher of what it has committed below `upto`."""
    return Publisher(req, ledger.records[req].protected_len, upto, ledger.tables[req], ledger.requests[req])


def growing(ledger: Ledger, members: list[Member], answer: Granted) -> list[Publisher]:
    """The members of a grant, as publishers of what each has committed by its end, in its table by then."""
    matched = iter(answer.matched)
    found = []
    for (req, prefix, upto, starts), pages in zip(members, answer.pages, strict=True):
        table = next(matched) if starts else ledger.row_of(req)
        protected = prefix if starts else ledger.records[ledger.behind(req)].protected_len
        found.append(Publisher(req, protected, upto, table + pages, ledger.requests[req]))
    return found


def judge_length(ledger: Ledger, publisher: Publisher, upto: int, kind: str) -> None:
    """[0, upto) is published: no draft is among it, and nothing that has no KV."""
    size, record = ledger.world.page_size, ledger.record(publisher.req)
    reserved = pages_for(record.allocated_len, size) * size
    ahead = record.committed_len <= publisher.upto < record.allocated_len
    drafts = ahead and publisher.upto < upto <= reserved
    need(not drafts, "DRAFT-2", req=publisher.req, upto=upto, most=publisher.upto, by=kind)
    fits = upto // size <= ledger.publishable(publisher.upto)
    need(fits, "CACHE-3", req=publisher.req, upto=upto, most=publisher.upto, by=kind)


def judge_given(
    ledger: Ledger, kind: str, publishers: list[Publisher], answer: Granted, back: Back = NOTHING
) -> None:
    """What was published and what was freed: CACHE-3, CACHE-5, PAGE-6. back: what the action gives back."""
    size, declared = ledger.world.page_size, ledger.world.declared
    who = {publisher.req: publisher for publisher in publishers}
    joined: dict[Tag, set[PageId]] = {}
    for req, pages in answer.published:
        allowed = req in who and ledger.may_publish(req, kind) and kind in declared.publishes_on
        need(allowed, "CACHE-3", req=req, by=kind, barred=True)
        _, protected, _, table, request = who[req]
        first = protected // size
        judge_length(ledger, who[req], protected + len(pages) * size, kind)
        for ordinal, (own, stays) in enumerate(zip(table[first:], pages, strict=False), first):
            key = ledger.key(request, ordinal)
            there = joined.setdefault(key, set())
            if key in ledger.index:
                there |= ledger.index[key].pages - answer.evicted
            fits = stays in there if own != stays else not there or declared.has("DUPLICATES")
            need(fits, "CACHE-5", req=req, own=own, cached=tuple(sorted(there)), row_lists=stays)
            there.add(stays)
    if answer.freed is not None:
        judge_freed(ledger, answer.freed, back, frees(ledger, publishers, answer.published, back))


def frees(ledger: Ledger, publishers: Iterable[Publisher], published: Published, back: Back) -> Freed:
    """What the law frees: own pages that were merged, and what those who leave or are cut give back."""
    size, stays = ledger.world.page_size, dict(published)
    merged: list[PageId] = []
    passed: set[PageId] = set()
    for req, protected, _, table, _ in publishers:
        pairs = list(zip(table[protected // size :], stays.get(req, ()), strict=False))
        merged += [mine for mine, there in pairs if mine != there]
        passed.update(mine for mine, _ in pairs)
    pages, rows = given_back(ledger, back, passed)
    return Freed(tuple(sorted([*merged, *pages])), rows)
