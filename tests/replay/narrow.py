"""From a broken replay of thousands of calls to a few: whole requests go first, then what is left, member by member.

What remains still breaks the same rule. kit/shrink.py goes further, number by number and token by token: right for
the small programs of the search, hopeless for the long prompts of a trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from kvledger.spec.actions import Action, Close, Decode, Evict, Extend, Flush
from kvledger.spec.backend import Make
from kvledger.spec.trace import Step
from kvledger.spec.world import ReqId, World
from kvledger.tests.kit.deviations import Deviation
from kvledger.tests.kit.lockstep import Finding, Grade
from kvledger.tests.kit.shrink import Call, Shrunk, breaks_again

T = TypeVar("T")


class Part(NamedTuple):
    """What one call says about one request. call: which of the calls it belongs to."""

    call: int
    req: ReqId | None
    act: Action
    probe: bool


def narrow(
    make: Make,
    world: World,
    steps: Sequence[Step],
    finding: Finding,
    *,
    grade: Grade,
    name: str,
    drain: bool,
    known: Sequence[Deviation] = (),
    seconds: float = 30.0,
    progress: Callable[[int], None] = lambda length: None,
) -> Shrunk | None:
    """The shortest run found in about so many seconds. None: the backend does not repeat itself.

    drain: the finding came up in the drain probe; steps are then those before it. known: deviations that are no
    findings. progress: called after each trial
    with the length of the shortest run so far.
    """
    best: Shrunk | None = None
    deadline = time.monotonic() + seconds

    def breaks(parts: list[Part]) -> bool:
        nonlocal best
        if best and time.monotonic() > deadline:
            return False
        again = breaks_again(
            make, world, _calls(parts), finding.rule, grade=grade, name=name, drain=drain, known=known
        )
        if again and not (best and len(best.steps) < len(again[1].steps)):  # with less done, the rule may break later
            best = Shrunk(again[0], again[1].steps, again[1].draining_since)
        progress(len(best.steps if best else steps))
        return again is not None

    parts = [part for call, step in enumerate(steps) for part in _parts(call, step)]
    if not breaks(parts):
        return None
    requests = list(dict.fromkeys(part.req for part in parts))
    kept = _fewest(requests, lambda some: breaks([part for part in parts if part.req in some]))
    _fewest([part for part in parts if part.req in kept], breaks)
    return best


def _fewest(things: list[T], breaks: Callable[[list[T]], bool]) -> list[T]:
    """Drops halves, then quarters, and so on down to single things, as long as what is left breaks."""
    size = len(things) // 2
    while size:
        at = 0
        while at < len(things):
            fewer = things[:at] + things[at + size :]
            if breaks(fewer):
                things = fewer
            else:
                at += size
        size //= 2
    return things


def _parts(call: int, step: Step) -> list[Part]:
    act, probe = step.act, step.probe
    if isinstance(act, Extend):
        return [Part(call, member[0], Extend((member,)), probe) for member in act.batch]
    if isinstance(act, Decode):
        return [Part(call, member[0], Decode((member,)), probe) for member in act.batch]
    return [Part(call, None if isinstance(act, Evict | Flush | Close) else act.req, act, probe)]


def _calls(parts: list[Part]) -> list[Call]:
    """The parts of one call are one call again."""
    calls: list[Call] = []
    for _, group in groupby(parts, lambda part: part.call):
        first, *others = group
        act = first.act
        for other in others:
            if isinstance(act, Extend) and isinstance(other.act, Extend):
                act = Extend(act.batch + other.act.batch)
            elif isinstance(act, Decode) and isinstance(other.act, Decode):
                act = Decode(act.batch + other.act.batch)
        calls.append((act, first.probe))
    return calls
