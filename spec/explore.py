"""Breadth-first search through every state of a small world, up to names: pages, rows, tokens, requests."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from itertools import combinations
from typing import NamedTuple, TypeAlias

from kvledger.spec.action import apply, file_of
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
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.canon import remembering
from kvledger.spec.invariants import check_whole
from kvledger.spec.ledger import Ledger
from kvledger.spec.situations import SITUATIONS, Moment, possible
from kvledger.spec.world import ReqId, Token, World, WrongInput
from kvledger.spec.worlds import LARGE, WORLDS, Scope

Answer: TypeAlias = Granted | Refused
Path: TypeAlias = tuple[tuple[Action, Answer], ...]


def moves(ledger: Ledger, scope: Scope) -> Iterator[Action]:
    """Every action that this scope tries in this state."""
    idle = [req for req in scope.requests if req not in ledger.requests]
    for prompt in scope.prompts if idle else ():
        for namespace in scope.namespaces:
            for limit in scope.match_limits:
                for publish in scope.publish:
                    for session in scope.sessions:
                        yield Submit(idle[0], prompt, namespace, limit, publish, session)
    to_the_end: list[tuple[ReqId, int, Token]] = []
    decoding: list[tuple[ReqId, Token]] = []
    for req, request in ledger.requests.items():
        length, caught_up = len(request.tokens), ledger.caught_up(req)
        for upto in range(ledger.prefix(req) + 1, 0 if caught_up else min(length, scope.max_kv) + 1):
            for letter in scope.letters if upto == length else (None,):
                yield Extend(((req, upto, letter),))
                if letter is not None:
                    to_the_end.append((req, upto, letter))
        if caught_up and ledger.records[req].committed_len < scope.max_kv:
            decoding += [(req, letter) for letter in scope.letters]
        if ledger.holds_row(req):
            committed = ledger.records[req].committed_len
            yield Checkpoint(req, committed)
            for keep in (committed, committed - 1):
                yield Finish(req, keep, True)
                yield Finish(req, keep, False)
            yield Retract(req)
            yield from (Reserve(req, n) for n in scope.drafts if committed < scope.max_kv)
            for n in range(1, min(ledger.records[req].allocated_len, scope.max_kv) - committed + 1):
                yield from (Commit(req, (letter,) * n) for letter in scope.letters)
        yield from (Admit(req), Defer(req), MatchPrefix(req)) if ledger.world.has("SPLIT_ADMIT") else ()
        yield Abort(req)
    yield from (Decode((member,)) for member in decoding)
    yield from (Extend(pair) for pair in combinations(to_the_end, 2) if pair[0][0] != pair[1][0])
    yield from (Decode(pair) for pair in combinations(decoding, 2) if pair[0][0] != pair[1][0])
    yield from (Close(session) for session in ledger.sessions)
    yield Evict(1)
    if ledger.index or ledger.records:
        yield Flush()


class Exploration(NamedTuple):
    """What a search saw. reached: the shortest path to each situation, its last step included."""

    states: int
    transitions: int
    depth: int
    reached: dict[str, Path]
    seen: set[Hashable]


OnTransition: TypeAlias = Callable[[Ledger, Action, Answer, Ledger], None]
OnState: TypeAlias = Callable[[Ledger, Callable[[], Path]], None]


def explore(
    world: World,
    scope: Scope,
    *,
    least: bool = True,
    laws: bool = True,
    state_of: Callable[[Ledger], Hashable] | None = None,
    on_transition: OnTransition | None = None,
    on_state: OnState | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Exploration:
    """Visit every state, check every law after each move, and note the shortest path to every situation.

    least: of all legal answers, one of each kind that matters; False: all of them. laws: False: for the states alone,
    no law is looked at. state_of: what tells states apart; `canon`, unless told. on_transition is called with the
    ledger before, the action, the answer and the ledger after; on_state with each state before its moves, nearest
    first, and what tells its shortest path. Raises SpecError where a law fails.
    """
    start, state_of = Ledger.start(world), state_of or remembering()
    seen: set[Hashable] = {state_of(start)}
    came: list[tuple[int, Action | None, Answer | None]] = [(0, None, None)]
    layer, depth, transitions = [(0, start)], 0, 0
    reached: dict[str, Path] = {}
    missing = possible(world)
    while layer:
        following = []
        for number, ledger in layer:
            if on_state is not None:
                on_state(ledger, partial(_path, came, number))
            for act in moves(ledger, scope):
                file = file_of(act)
                if file.requires(ledger, act) is not None:
                    continue
                for answer in file.answers(ledger, act, least):
                    transitions += 1
                    if missing:
                        moment = Moment(ledger, act, answer)
                        for name in [name for name, each in missing.items() if each.holds(moment)]:
                            reached[name] = (*_path(came, number), (act, answer))
                            del missing[name]
                    after = apply(ledger, act, answer).commit()
                    if on_transition is not None:
                        on_transition(ledger, act, answer, after)
                    if laws:
                        check_whole(after)  # also where the state was seen: that two are one rests on the laws
                    state = state_of(after)
                    if state not in seen:
                        seen.add(state)
                        came.append((number, act, answer))
                        following.append((len(came) - 1, after))
            if progress is not None:
                progress(len(seen), transitions)
        layer = following
        depth += bool(following)
    return Exploration(len(seen), transitions, depth, reached, seen)


def _path(came: list[tuple[int, Action | None, Answer | None]], number: int) -> Path:
    path: list[tuple[Action, Answer]] = []
    while number:
        number, act, answer = came[number]
        assert act is not None and answer is not None
        path.append((act, answer))
    return tuple(reversed(path))


HELP = """examples:
  kvledger explore                 every named world, but for the large one
  kvledger explore TINY_A          one of them
  kvledger explore THREE           three requests, a minute
  kvledger explore TINY_A --full   every legal answer, not one of each kind
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger explore`."""
    parser.add_argument("world", nargs="*", help=f"named worlds: {', '.join(WORLDS | LARGE)}")
    parser.add_argument("--full", action="store_true", help="every legal answer of each action")


def run(args: argparse.Namespace) -> int:
    """Explore the worlds named, and print what was seen."""
    for name in args.world:
        if name not in WORLDS | LARGE:
            raise WrongInput(f"world {name!r}: expected some of {', '.join(WORLDS | LARGE)}")
    reached: set[str] = set()
    transitions, seconds = 0, 0.0

    def progress(states: int, transitions: int) -> None:
        if sys.stderr.isatty() and states % 64 == 0:
            print(f"\r{states:,} states, {transitions:,} transitions", end="", file=sys.stderr, flush=True)

    print(f"{'world':12}{'states':>9}{'transitions':>13}{'depth':>7}{'CPU s':>7}  situations reached")
    for name in args.world or WORLDS:
        began = time.process_time()
        found = explore(*(WORLDS | LARGE)[name], least=not args.full, progress=progress)
        spent = time.process_time() - began
        clear = "\r" if sys.stderr.isatty() else ""
        print(f"{clear}{name:12}{found.states:>9,}{found.transitions:>13,}{found.depth:>7}{spent:>7.1f}"
              f"  {len(found.reached)} of {len(SITUATIONS)}")  # fmt: skip
        reached |= found.reached.keys()
        transitions, seconds = transitions + found.transitions, seconds + spent
    missing = [name for name in SITUATIONS if name not in reached]
    print(f"every law holds in every state; {len(reached)} of {len(SITUATIONS)} situations reached; "
          f"{transitions / max(seconds, 1e-9):,.0f} transitions a CPU second")  # fmt: skip
    for name in missing if not args.world else ():
        print(f"  not reached: {name}")
    return 0
