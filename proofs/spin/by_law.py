"""The three worlds of the Promela model, counted by the law: its requires, its answers, its effects.

proofs/spin/README.md defines worlds, moves and states. The law's explorer chooses its own moves, and takes the lowest
free row and page; so the search stands here, once more, and only what is legal and what follows from it is the law's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import NamedTuple

from kvledger.spec.action import apply, file_of
from kvledger.spec.actions import (
    Abort,
    Action,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Evict,
    Extend,
    Finish,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.invariants import check_whole
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import Declaration, ReqId, World

REQUESTS: tuple[ReqId, ...] = ("r0", "r1")
SESSION = "s"
LETTER = "a"
PLAIN = Declaration("spin")
WORLDS: dict[str, World] = {
    "A": World(2, 4, 3, 2, PLAIN),
    "B": World(2, 4, 3, 2, replace(PLAIN, capabilities=PLAIN.capabilities | {"DRAFTS"})),
    "C": World(2, 4, 3, 2, replace(PLAIN, capabilities=PLAIN.capabilities | {"SESSIONS"})),
}


class Count(NamedTuple):
    """States, the initial one included, and the moves between them."""

    states: int
    moves: int


def tried(ledger: Ledger, name: str) -> Iterator[Action]:
    """Every action that world `name` tries in this state, where the caller may call it."""
    for act in _tried(ledger, name):
        if file_of(act).requires(ledger, act) is None:
            yield act


def _tried(ledger: Ledger, name: str) -> Iterator[Action]:
    for req in REQUESTS:
        for length in (1, 3):
            for session in (None, SESSION) if name == "C" else (None,):
                yield Submit(req, (LETTER,) * length, "n", session=session)
        yield Abort(req)
        if req not in ledger.requests:
            continue
        yield from (Extend(((req, *each),)) for each in _ends(ledger, name, req))
        yield Decode(((req, LETTER),))
        yield Retract(req)
        if name == "A":
            yield from (Checkpoint(req, upto) for upto in (2, 4) if ledger.record(req).protected_len < upto)
        if name == "B":
            yield from (Reserve(req, n) for n in (1, 2))
            yield from (Commit(req, (LETTER,) * n) for n in (1, 2))
        yield from _finishes(ledger, name, req)
    if name == "C":
        yield Close(SESSION)
    if name != "B":
        yield Evict(1)


def _ends(ledger: Ledger, name: str, req: ReqId) -> Iterator[tuple[int, str | None]]:
    length, width = len(ledger.requests[req].tokens), ledger.world.context_len
    at_once = () if ledger.holds_row(req) else (min(length, width),)
    uptos = range(1, width + 1) if name == "A" else at_once
    yield from ((upto, LETTER if upto == length else None) for upto in uptos)


def _finishes(ledger: Ledger, name: str, req: ReqId) -> Iterator[Action]:
    record = ledger.record(req)
    if ledger.requests[req].session is not None:
        for keep in sorted({record.committed_len, max(record.protected_len, 1)}):
            yield Finish(req, keep, False)
        return
    yield Finish(req, record.committed_len, True)
    if name != "C":
        yield Finish(req, record.committed_len, False)


def answers(ledger: Ledger, act: Action) -> Iterator[Granted | Refused]:
    """Of the law's legal answers those of the README: any rows and pages, the fewest evictions, all published, and one
    refusal."""
    takes = isinstance(act, Extend | Decode | Reserve)  # elsewhere the law's `least` leaves out only what goes below
    legal = list(file_of(act).answers(ledger, act, not takes))
    yield from [answer for answer in legal if isinstance(answer, Refused) and not answer.evicted][:1]
    granted = [answer for answer in legal if isinstance(answer, Granted)]
    fewest = min((len(answer.evicted) for answer in granted), default=0)
    granted = [answer for answer in granted if len(answer.evicted) == fewest]
    most = max(map(_published, granted), default=0)
    yield from (answer for answer in granted if _published(answer) == most)


def _published(answer: Granted) -> int:
    return sum(len(pages) for _, pages in answer.published)


def state_of(ledger: Ledger) -> Hashable:
    """The state as the README has it; nothing is renamed."""
    requests = []
    for req in REQUESTS:
        request = ledger.requests.get(req)
        live = request and (1 + ledger.holds_row(req), len(request.tokens), request.session is not None)
        requests.append(live)
    session = ledger.sessions.get(SESSION)
    records = [(tuple(ledger.record(each)), ledger.tables.get(each, ())) for each in (*REQUESTS, SESSION)]
    chain = sorted((entry.parent != entry.root, tuple(entry.pages)) for entry in ledger.index.values())
    return tuple(requests), session and session.closing, tuple(records), tuple(chain)


def count(name: str) -> Count:
    """Visit every state of a world, and hold every law after each move. Raises SpecError where one fails."""
    start = Ledger.start(WORLDS[name])
    seen, todo, moves = {state_of(start)}, [start], 0
    while todo:
        ledger = todo.pop()
        for act in tried(ledger, name):
            for answer in answers(ledger, act):
                moves += 1
                after = apply(ledger, act, answer).commit()
                check_whole(after)  # also where the state was seen: it leaves out what follows by the laws
                state = state_of(after)
                if state not in seen:
                    seen.add(state)
                    todo.append(after)
    return Count(len(seen), moves)
