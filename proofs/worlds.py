"""Every state of the named worlds: all are visited, and every law is looked at in each.

States are one where names alone tell them apart, and of all legal answers one of each kind is taken (spec/explore.py,
spec/canon.py). That neither loses a state is tested in worlds small enough to be searched without
(tests/unit/test_explore.py).
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from signal import SIG_IGN, SIGINT, signal
from typing import NamedTuple

from kvledger.proofs.verdict import Progress, Verdict
from kvledger.spec import invariants
from kvledger.spec.action import name_of
from kvledger.spec.actions import Action
from kvledger.spec.explore import Path, explore
from kvledger.spec.invariants import check_whole
from kvledger.spec.ledger import Ledger
from kvledger.spec.rules import RULES
from kvledger.spec.situations import SITUATIONS
from kvledger.spec.worlds import LARGE, WORLDS

LONG = ("SESSIONS", "SMALL", "BACKOFF")  # these are begun first: what is begun last should be short
CLAIM = "every law holds in every reachable state"
# The rules that are looked at after every move: those that spec/invariants.py names.
HELD = frozenset(re.findall(r"\b[A-Z]+-\d\b", inspect.getsource(invariants))) & RULES.keys()


class Searched(NamedTuple):
    """A world, its verdict, and the situations that it reaches."""

    verdict: Verdict
    reached: frozenset[str]


def settle(progress: Progress) -> Iterator[Verdict]:
    """One verdict a world, on every core at once; and that each situation is reached in some world."""
    order = [*LONG, *(name for name in WORLDS if name not in LONG)]
    reached: set[str] = set()
    cores, context = len(os.sched_getaffinity(0)), get_context("spawn")
    with ProcessPoolExecutor(cores, context, signal, (SIGINT, SIG_IGN)) as pool:  # who waits is interrupted
        begun = {name: pool.submit(search, f"worlds: {name}", name) for name in order}
        try:
            for name in WORLDS:
                progress(f"worlds: {name}")
                found = begun[name].result()
                reached |= found.reached
                yield found.verdict
        except BaseException:  # interrupted, or nobody asks on: the pool would search all worlds to their end
            for child in active_children():
                child.terminate()
            raise
    yield settle_situations(reached)


def search(asked: str, name: str) -> Searched:
    """Visit every state of this world. A law that fails is told with the action after which it does, and the shortest
    path to the state before."""
    began = time.process_time()
    world, scope = (WORLDS | LARGE)[name]
    path: Callable[[], Path] = tuple
    last: tuple[Action, Ledger] | None = None

    def on_state(_: Ledger, to_here: Callable[[], Path]) -> None:
        nonlocal path
        path = to_here

    def on_transition(_: Ledger, act: Action, __: object, after: Ledger) -> None:
        nonlocal last
        last = act, after

    try:
        found = explore(world, scope, on_transition=on_transition, on_state=on_state)
    except Exception as error:  # a law is broken, or its own code stumbles
        acts = ", ".join(_said(act) for act, _ in path()) or "nothing"
        told = f"in {_guilty(last)} after {acts}: {type(error).__name__}: {error}"
        spent = time.process_time() - began
        return Searched(Verdict(asked, CLAIM, f"a law fails in world {name}", False, spent, told), frozenset())
    words = (
        f"{found.states:,} states of world {name}, all; {found.transitions:,} transitions, depth {found.depth}, "
        f"{len(HELD)} rules, {len(found.reached)} situations"
    )
    return Searched(Verdict(asked, CLAIM, words, True, time.process_time() - began), frozenset(found.reached))


def settle_situations(reached: set[str]) -> Verdict:
    """That what must be reachable is reached: a law that never had a chance to break says nothing."""
    missing = [name for name in SITUATIONS if name not in reached]
    words = f"{len(SITUATIONS) - len(missing)} of {len(SITUATIONS)} situations, in some world"
    told = f"not reached: {', '.join(missing)}" if missing else ""
    return Verdict("worlds: situations", "every situation is reached", words, not missing, 0.0, told)


def _guilty(last: tuple[Action, Ledger] | None) -> str:
    """The last action that was written, if a law fails after it; else the one that could not be."""
    if last is not None:
        try:
            check_whole(last[1])
        except Exception:
            return _said(last[0])
    return "a step that stumbles,"


def _said(act: Action) -> str:
    """ "extend (('r0', 3, 'a'),)"."""
    return f"{name_of(act)} {' '.join(map(repr, act))}".strip()
