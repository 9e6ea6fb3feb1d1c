"""From a broken replay of thousands of calls to a few: whole requests go first, then blocks of calls.

What is left still breaks the same rule. kit/shrink.py goes further, number by number and token by token: right for
the small programs of the search, hopeless for prompts of a trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from kvledger.spec.actions import Action, Decode, Evict, Extend, Flush
from kvledger.spec.backend import Make
from kvledger.spec.trace import Step
from kvledger.spec.world import ReqId, World
from kvledger.tests.kit.lockstep import Finding, Grade
from kvledger.tests.kit.shrink import Call, Shrunk, run_again

Part = TypeVar("Part")


def narrow(
    make: Make,
    world: World,
    steps: Sequence[Step],
    finding: Finding,
    *,
    grade: Grade,
    name: str,
    drain: bool,
    seconds: float = 30.0,
) -> Shrunk | None:
    """The shortest run found in about so many seconds. None: the backend does not repeat itself.

    drain: the finding came up in the drain probe; steps are then those before it.
    """
    best: Shrunk | None = None
    runs, deadline = 0, time.monotonic() + seconds

    def breaks(calls: list[Call]) -> bool:
        nonlocal best, runs
        if best and time.monotonic() > deadline:
            return False
        runs += 1
        found, lockstep = run_again(make, world, calls, grade=grade, name=name, drain=drain)
        same = found is not None and found.rule == finding.rule and (lockstep.draining_since is not None) == drain
        if found and same:
            best = Shrunk(found, lockstep.steps, lockstep, runs)
        return same

    calls = [(step.act, step.probe) for step in steps]
    if not breaks(calls):
        return None
    requests = list(dict.fromkeys(req for act, _ in calls for req in _named(act)))
    kept = _fewest(requests, lambda some: breaks(_only(calls, set(some))))
    _fewest(_only(calls, set(kept)), breaks)
    return best


def _fewest(parts: list[Part], breaks: Callable[[list[Part]], bool]) -> list[Part]:
    """Drops halves, then quarters, and so on down to single parts, as long as what is left breaks."""
    size = len(parts) // 2
    while size:
        at = 0
        while at < len(parts):
            fewer = parts[:at] + parts[at + size :]
            if breaks(fewer):
                parts = fewer
            else:
                at += size
        size //= 2
    return parts


def _named(act: Action) -> list[ReqId]:
    """The requests that an action is about."""
    if isinstance(act, Extend | Decode):
        return [member[0] for member in act.batch]
    return [] if isinstance(act, Evict | Flush) else [act.req]


def _only(calls: list[Call], requests: set[ReqId]) -> list[Call]:
    """The calls about these requests; other members leave their batches."""
    left: list[Call] = []
    for act, probe in calls:
        if isinstance(act, Extend):
            act = Extend(tuple(member for member in act.batch if member[0] in requests))
        elif isinstance(act, Decode):
            act = Decode(tuple(member for member in act.batch if member[0] in requests))
        if requests.intersection(_named(act)):
            left.append((act, probe))
    return left
