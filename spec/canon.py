"""When two states of a search are one: when a renaming of pages, rows, tokens and requests turns one into the other.

`canon` writes a state down so that only such states look the same: the prefixes of all live requests and cached
keys as a tree without token names, each node with what ends or is cached there. What is free, private or locked,
and by whom, follows from that by the laws, so it need not be said.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from kvledger.spec.ledger import Ledger, Names, Tag
from kvledger.spec.world import PageId, ReqId

Mark: TypeAlias = tuple[int, ...]
Ends: TypeAlias = tuple[tuple[Tag, Mark], ...]
Cached: TypeAlias = frozenset[tuple[Tag, Hashable]]


def canon(ledger: Ledger) -> Hashable:
    """The state up to renaming."""
    return _renamed(ledger.names, *with_tokens(ledger))


def remembering() -> Callable[[Ledger], Hashable]:
    """`canon` for one search, in which the same tokens come again and again: each is renamed once."""
    known: dict[Hashable, Hashable] = {}

    def state_of(ledger: Ledger) -> Hashable:
        form = with_tokens(ledger)
        state = known.get(form)
        if state is None:
            state = known[form] = _renamed(ledger.names, *form)
        return state

    return state_of


def with_tokens(ledger: Ledger) -> tuple[Ends, Cached]:
    """The state up to renaming, but for its tokens: where each request ends, and what is cached."""
    ends = [(request.trail[-1], mark(ledger, req)) for req, request in ledger.requests.items()]
    cached: dict[Tag, Hashable] = dict.fromkeys(ledger.index, ((),))
    if ledger.world.has("DUPLICATES"):
        readers = readers_of(ledger)
        for key, entry in ledger.index.items():
            cached[key] = tuple(sorted(readers.get(page, ()) for page in entry.pages))
    return tuple(sorted(ends)), frozenset(cached.items())


def _renamed(names: Names, ends: Ends, cached: Cached) -> Hashable:
    """The prefixes as a tree without token names, each node with what ends or is cached there."""
    ending: dict[Tag, list[Mark]] = {}
    for tag, each in ends:
        ending.setdefault(tag, []).append(each)
    pages = dict(cached)
    under: dict[Tag, set[Tag]] = {}  # 0: the roots
    for tag in {*ending, *pages}:
        while tag and tag not in under.setdefault(parent := names.before(tag), set()):
            under[parent].add(tag)
            tag = parent

    def tree(tag: Tag) -> tuple[Hashable, ...]:
        below = sorted(map(tree, under.get(tag, ())))
        return tuple(ending.get(tag, ())), pages.get(tag, ()), tuple(below)

    return tree(0)


def mark(ledger: Ledger, req: ReqId) -> Mark:
    """All that matters of a request but its tokens."""
    request, record = ledger.requests[req], ledger.record(req)
    limit = -1 if request.match_limit is None else request.match_limit
    return (record.holds_kv, record.protected_len, record.committed_len, record.allocated_len, limit, request.publish)


def readers_of(ledger: Ledger) -> dict[PageId, tuple[Mark, ...]]:
    """Who reads each page, when a key may have several: as marks, for holders have no names here."""
    readers: dict[PageId, list[Mark]] = {}
    for holder, pages in ledger.locks.items():
        for page in pages:
            readers.setdefault(page, []).append(mark(ledger, holder))
    return {page: tuple(sorted(marks)) for page, marks in readers.items()}


def exact(ledger: Ledger) -> Hashable:
    """The state with all its names: what an unreduced search goes by."""
    maps = (ledger.requests, ledger.records, ledger.tables, ledger.locks, ledger.pages, ledger.index)
    return tuple(frozenset(each.items()) for each in maps)
