"""When two states of a search are one: when a renaming of pages, rows, tokens and requests turns one into the other.

`canon` writes a state down so that only such states look the same: the prefixes of all live requests and cached
keys as a tree without token names, each node with what ends or is cached there. What is free, private or locked,
and by whom, follows from that by the laws, so it need not be said.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import permutations
from typing import TypeAlias

from kvledger.spec.ledger import Ledger, Names, Tag
from kvledger.spec.world import PageId, ReqId

Mark: TypeAlias = tuple[int, ...]  # of a request, all that matters but its tokens; and its number, where asked for
Ends: TypeAlias = tuple[tuple[Tag, Mark], ...]
Cached: TypeAlias = frozenset[tuple[Tag, Hashable]]


def canon(ledger: Ledger) -> Hashable:
    """The state up to renaming."""
    return _renamed(ledger.names, with_tokens(ledger))


def remembering() -> Callable[[Ledger], Hashable]:
    """`canon` for one search, in which the same tokens come again and again: each is renamed once."""
    known: dict[Hashable, Hashable] = {}

    def state_of(ledger: Ledger) -> Hashable:
        forms = with_tokens(ledger)
        state = known.get(forms[0])
        if state is None:
            state = _renamed(ledger.names, forms)
            known.update(dict.fromkeys(forms, state))
        return state

    return state_of


def with_tokens(ledger: Ledger) -> list[tuple[Ends, Cached]]:
    """The state up to renaming, but for its tokens: where each request ends, and what is cached.

    A key with several pages has them told apart by who reads which. For that the requests have numbers, and there is
    one form for each way to number them; one form only without DUPLICATES.
    """
    ends = {req: (request.trail[-1], mark(ledger, req)) for req, request in ledger.requests.items()}
    if not ledger.world.has("DUPLICATES"):
        keys: dict[Tag, Hashable] = dict.fromkeys(ledger.index, ())
        return [(tuple(sorted(ends.values())), frozenset(keys.items()))]
    forms: list[tuple[Ends, Cached]] = []
    for reqs in permutations(ends):
        numbered = sorted((tag, (*each, reqs.index(req))) for req, (tag, each) in ends.items())
        readers: dict[PageId, list[int]] = {}
        for number, req in enumerate(reqs):
            for page in ledger.locks.get(req, ()):
                readers.setdefault(page, []).append(number)
        cached = ((key, sorted(readers.get(page, []) for page in entry.pages)) for key, entry in ledger.index.items())
        forms.append((tuple(numbered), frozenset((key, tuple(map(tuple, pages))) for key, pages in cached)))
    return forms


def _renamed(names: Names, forms: list[tuple[Ends, Cached]]) -> Hashable:
    """The first of the forms, each without the names of its tokens."""
    return min(_tree(names, *form) for form in forms)


def _tree(names: Names, ends: Ends, cached: Cached) -> tuple[Hashable, ...]:
    """The prefixes as a tree without token names, each node with what ends or is cached there."""
    ending: dict[Tag, list[Mark]] = {}
    for tag, each in ends:
        ending.setdefault(tag, []).append(each)
    pages = {key: (each,) for key, each in cached}
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


def exact(ledger: Ledger) -> Hashable:
    """The state with all its names: what an unreduced search goes by, to hold `canon` against it."""
    maps = (ledger.requests, ledger.records, ledger.tables, ledger.locks, ledger.pages, ledger.index)
    return tuple(frozenset(each.items()) for each in maps)
