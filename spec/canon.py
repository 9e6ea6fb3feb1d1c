"""When two states of a search are one: when a renaming of pages, rows, tokens and requests turns one into the other.

`canon` writes a state down so that only such states look the same: the prefixes of all live requests and cached
keys as a tree without token names, each node with what ends or is cached there. What is free, private or locked,
and by whom, follows from that by the laws, so it need not be said.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import permutations, repeat
from typing import TypeAlias

from kvledger.spec.ledger import Ledger, Names, Tag
from kvledger.spec.world import PageId, ReqId, SessionId

Mark: TypeAlias = tuple[int, ...]  # of a request or session, all that matters but its tokens; and its number, if asked
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
    """The state up to renaming, but for its tokens: where each request and session ends, and what is cached.

    Sessions have numbers, for their turns to name. A key with several pages has them told apart by who reads which: for
    that the requests have numbers as well. There is one form for each way to number them.
    """
    forms: list[tuple[Ends, Cached]] = []
    several = ledger.world.has("DUPLICATES")
    for sessions in permutations(ledger.sessions):
        ends = {req: (request.trail[-1], mark(ledger, req, sessions)) for req, request in ledger.requests.items()}
        idle = [_of_session(ledger, name, number) for number, name in enumerate(sessions)]
        if not several:
            forms.append((tuple(sorted([*ends.values(), *idle])), frozenset(zip(ledger.index, repeat(())))))
            continue
        for reqs in permutations(ends):
            numbered = sorted([*((tag, (*each, reqs.index(req))) for req, (tag, each) in ends.items()), *idle])
            readers: dict[PageId, list[int]] = {}
            for number, holder in enumerate((*reqs, *sessions)):
                for page in ledger.locks.get(holder, ()):
                    readers.setdefault(page, []).append(number)
            index = ledger.index.items()
            cached = ((key, sorted(readers.get(page, []) for page in entry.pages)) for key, entry in index)
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


def mark(ledger: Ledger, req: ReqId, sessions: tuple[SessionId, ...]) -> Mark:
    """All that matters of a request but its tokens. A session's place among them says whose turn it is."""
    request, record = ledger.requests[req], ledger.record(req)
    limit = -1 if request.match_limit is None else request.match_limit
    admitted = len(ledger.admitted[req]) if req in ledger.admitted else -1
    session = -1 if request.session is None else sessions.index(request.session)
    return record.holds_kv, *record[1:], limit, request.publish, admitted, session


def _of_session(ledger: Ledger, name: SessionId, number: int) -> tuple[Tag, Mark]:
    """Where what a session holds ends, and all that matters of it but tokens. 2: no request's mark begins so."""
    session, record = ledger.sessions[name], ledger.record(name)
    end = session.trail[-1] if session.trail else session.root
    return end, (2, *record[1:], session.turn is not None, session.settled, session.closing, number)


def exact(ledger: Ledger) -> Hashable:
    """The state with all its names: what an unreduced search goes by, to hold `canon` against it."""
    who = (ledger.requests, ledger.sessions, ledger.admitted, ledger.records)
    maps = (*who, ledger.tables, ledger.locks, ledger.pages, ledger.index)
    return tuple(frozenset(each.items()) for each in maps)
