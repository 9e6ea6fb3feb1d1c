"""How pages change hands and come back, for every action that publishes or frees: judged here once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvledger.spec.actions.taking import Member
from kvledger.spec.answer import Freed, Granted
from kvledger.spec.ledger import Ledger, Tag
from kvledger.spec.rules import need
from kvledger.spec.world import PageId, ReqId


class Publisher(NamedTuple):
    """Who may publish in an action: [protected, upto) is its own and committed, in the pages of its table."""

    req: ReqId
    protected: int
    upto: int
    table: tuple[PageId, ...]


def holding(ledger: Ledger, req: ReqId, upto: int) -> Publisher:
    """A request that holds a row, as the publisher of what it has committed below `upto`."""
    return Publisher(req, ledger.records[req].protected_len, upto, ledger.tables[req])


def growing(ledger: Ledger, members: list[Member], answer: Granted) -> list[Publisher]:
    """The members of a grant, as publishers of what each has committed by its end, in its table by then."""
    matched = iter(answer.matched)
    found = []
    for (req, prefix, upto, starts), pages in zip(members, answer.pages, strict=True):
        table = next(matched) if starts else ledger.tables[req]
        found.append(Publisher(req, prefix if starts else ledger.records[req].protected_len, upto, table + pages))
    return found


def judge_given(
    ledger: Ledger, kind: str, publishers: list[Publisher], answer: Granted, leaving: Iterable[ReqId] = ()
) -> None:
    """What was published and what was freed: CACHE-3, CACHE-5, PAGE-6. leaving: requests that give all back."""
    size, declared = ledger.world.page_size, ledger.world.declared
    who = {publisher.req: publisher for publisher in publishers}
    joined: dict[Tag, set[PageId]] = {}
    for req, pages in answer.published:
        allowed = req in who and ledger.requests[req].publish and kind in declared.publishes_on
        need(allowed, "CACHE-3", req=req, by=kind, barred=True)
        _, protected, most, table = who[req]
        first, upto = protected // size, protected + len(pages) * size
        need(first + len(pages) <= ledger.publishable(most), "CACHE-3", req=req, upto=upto, most=most, by=kind)
        for ordinal, (own, stays) in enumerate(zip(table[first:], pages, strict=False), first):
            key = ledger.key(ledger.requests[req], ordinal)
            there = joined.setdefault(key, set())
            if key in ledger.index:
                there |= ledger.index[key].pages - answer.evicted
            fits = stays in there if own != stays else not there or declared.has("DUPLICATES")
            need(fits, "CACHE-5", req=req, own=own, cached=tuple(sorted(there)), row_lists=stays)
            there.add(stays)
    if answer.freed is not None:
        law = frees(ledger, publishers, answer.published, leaving)
        need(answer.freed == law, "PAGE-6", freed=answer.freed, law=law)


def frees(
    ledger: Ledger,
    publishers: Iterable[Publisher],
    published: Iterable[tuple[ReqId, tuple[PageId, ...]]],
    leaving: Iterable[ReqId],
) -> Freed:
    """What the law frees: own pages that were merged, and of those who leave all that is private, and the row."""
    size, stays = ledger.world.page_size, dict(published)
    pages: list[PageId] = []
    for req, protected, _, table in publishers:
        own = table[protected // size :]
        pages += [mine for mine, there in zip(own, stays.get(req, ()), strict=False) if mine != there]
    rows = []
    for req in leaving:
        first = ledger.records[req].protected_len // size + len(stays.get(req, ()))
        pages += ledger.tables[req][first:]
        rows += [ledger.records[req].row or 0] if ledger.world.has("ROWS") else []
    return Freed(tuple(sorted(pages)), tuple(sorted(rows)))
