"""Every legal answer of a small world: the other half of the relation, which exploration and the duality test need.

judge says of one answer whether it is legal; what stands here builds them all, and a test holds one half against the
other. least: of all answers, one of each kind that matters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, permutations, product

from kvledger.spec.actions.back import NOTHING, Back, given_back, unlocked_by
from kvledger.spec.actions.giving import Publisher, frees
from kvledger.spec.actions.taking import Member, demand, obtainable, trimmed, trims
from kvledger.spec.answer import Granted, Published, Refused
from kvledger.spec.ledger import Ledger, Tag
from kvledger.spec.world import Holder, PageId, ReqId

GROWING = ("extend", "decode", "commit")  # actions after which a request goes on, and may publish more another time


def eviction_sets(
    ledger: Ledger,
    *,
    least: bool,
    reading: Collection[PageId] = (),
    leaving: Collection[Holder] = (),
    at_least: int = 0,
) -> Iterator[frozenset[PageId]]:
    """The sets of pages that may be evicted: of so many pages at least. least: of exactly so many. leaving: holders
    whose locks are dropped before."""
    fewest = max(0, at_least)
    if not fewest:
        yield frozenset()
        if least:
            return
    pages = sorted({*ledger.evictable(), *unlocked_by(ledger, leaving)}.difference(reading))
    for size in [fewest] if least else range(max(1, fewest), len(pages) + 1):
        for chosen in combinations(pages, size):
            if closed(ledger, frozenset(chosen)):
                yield frozenset(chosen)


def closed(ledger: Ledger, evicted: frozenset[PageId]) -> bool:
    """Whether what remains is closed under parents (always, without LEAF_FIRST). A key goes with its last page."""
    if not ledger.world.has("LEAF_FIRST"):
        return True
    gone = {key for key, entry in ledger.index.items() if entry.pages <= evicted}
    left = {entry.parent for key, entry in ledger.index.items() if key not in gone}
    return gone.isdisjoint(left)


def matches(ledger: Ledger, members: list[Member]) -> Iterator[tuple[tuple[PageId, ...], ...]]:
    """Each way in which the starting members can read their longest match: any page of each key."""

    def paths(keys: list[int]) -> Iterator[tuple[PageId, ...]]:
        if not keys:
            yield ()
            return
        for page in sorted(ledger.index[keys[0]].pages):
            for rest in paths(keys[1:]):
                yield (page, *rest)

    def of(starters: list[ReqId]) -> Iterator[tuple[tuple[PageId, ...], ...]]:
        if not starters:
            yield ()
            return
        if starters[0] in ledger.admitted:
            yield from ((ledger.admitted[starters[0]], *rest) for rest in of(starters[1:]))
            return
        request = ledger.requests[starters[0]]
        keys = [ledger.key(request, ordinal) for ordinal in range(ledger.longest_match(starters[0]))]
        for path in paths(keys):
            for rest in of(starters[1:]):
                yield (path, *rest)

    yield from of([member.req for member in members if member.starts])


def takings(ledger: Ledger, members: list[Member], least: bool) -> Iterator[Granted | Refused]:
    """Every way to take what the members need: matches, evictions, rows, pages; or to refuse with cause.

    least: evict only when short, the lowest rows and pages, no eviction before a refusal.
    """
    starters = [member for member in members if member.starts]
    sizes = demand(ledger, members)
    short = ["rows"] * (ledger.world.has("ROWS") and len(starters) > ledger.free_row_count())
    short += ["pages"] * (sum(sizes) > obtainable(ledger, members))
    trim = trims(ledger, members)
    back = given_back(ledger, trim) if trim.cut else None
    yield from (Refused(each, gone, back) for each in short for gone in eviction_sets(ledger, least=least))
    if "rows" in short:
        return
    most = ledger.world.rows if ledger.world.has("ROWS") else len(ledger.records) + len(starters)
    free_rows = [row for row in range(1, most + 1) if ledger.holder_of(row) is None]
    rows = [tuple(free_rows[: len(starters)])] if least else permutations(free_rows, len(starters))
    rows, cut_off = list(rows), trimmed(ledger, members)
    missing = sum(sizes) - ledger.free_page_count() - len(cut_off)
    for matched in matches(ledger, members):
        reading = {page for path in matched for page in path}
        for gone in eviction_sets(ledger, least=least, reading=reading, at_least=missing):
            free = [page for page in range(1, ledger.world.pages + 1) if ledger.is_free(page) or page in gone | cut_off]
            handed = [tuple(free[: sum(sizes)])] if least else permutations(free, sum(sizes))
            for flat in handed:
                pages, rest = [], flat
                for size in sizes:
                    pages.append(rest[:size])
                    rest = rest[size:]
                for row in rows:
                    yield Granted(rows=row, matched=matched, pages=tuple(pages), evicted=gone)


def givings(
    ledger: Ledger,
    kind: str,
    publishers: list[Publisher],
    granted: Granted,
    least: bool,
    back: Back = NOTHING,
) -> Iterator[Granted]:
    """Every way to publish and free after this grant. least: all there is, or, growing, any length; in batch order.
    Where a page goes whose lock is dropped here, nothing is published."""
    unlocks = any(ledger.page(page).locks for page in granted.evicted)
    if not publishers or unlocks or kind not in ledger.world.declared.publishes_on:
        yield replace(granted, freed=given_back(ledger, back))
        return
    orders = [publishers] if least else permutations(publishers)
    ways = (way for order in orders for way in publications(ledger, kind, list(order), granted, least, {}))
    for published in dict.fromkeys(ways):
        yield replace(granted, published=published, freed=frees(ledger, publishers, published, back))


def publications(
    ledger: Ledger,
    kind: str,
    publishers: list[Publisher],
    granted: Granted,
    least: bool,
    joined: Mapping[Tag, frozenset[PageId]],
) -> Iterator[Published]:
    """Every way in which these publish, one after another. joined: what stands under keys by this call already."""
    if not publishers:
        yield ()
        return
    who, *later = publishers
    request, first = who.request, who.protected // ledger.world.page_size
    for pages in stayings(ledger, kind, who, granted, least, joined):
        keys = (ledger.key(request, ordinal) for ordinal in range(first, first + len(pages)))
        mine = {key: joined.get(key, frozenset()) | {page} for key, page in zip(keys, pages, strict=True)}
        for rest in publications(ledger, kind, later, granted, least, {**joined, **mine}):
            yield ((who.req, pages), *rest) if pages else rest


def evictions(ledger: Ledger, least: bool, leaving: Collection[Holder] = ()) -> Iterator[Granted]:
    """The grants of an action that takes nothing: any backend may let cached pages go, those too that only such
    holders read as leave by it. least: none."""
    for gone in eviction_sets(ledger, least=least, leaving=leaving):
        yield Granted(evicted=gone)


def stayings(
    ledger: Ledger,
    kind: str,
    publisher: Publisher,
    granted: Granted,
    least: bool,
    joined: Mapping[Tag, frozenset[PageId]],
) -> Iterator[tuple[PageId, ...]]:
    """The pages that may stand under this publisher's keys afterwards: its own, or those that are there."""
    request, declared = publisher.request, ledger.world.declared
    first, most = publisher.protected // ledger.world.page_size, ledger.publishable(publisher.upto)
    if not ledger.may_publish(publisher.req, kind) or most <= first:
        yield ()
        return
    for upto in [most] if least and kind not in GROWING else range(first, most + 1):
        choices = []
        for ordinal in range(first, upto):
            key = ledger.key(request, ordinal)
            cached = ledger.index[key].pages - granted.evicted if key in ledger.index else frozenset()
            there = sorted(cached | joined.get(key, frozenset()))
            choices.append(there + [publisher.table[ordinal]] * (not there or declared.has("DUPLICATES")))
        yield from product(*choices)
