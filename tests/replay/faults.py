"""Faults on demand: which requests are aborted, retracted, or have their session closed too early, and when. One seed,
one choice, whatever the backend does.

Of a request all that is known is how many of its tokens have KV, so that is when a fault strikes: while it waits, in
the middle of its prompt, or as it decodes; a turn then has its session's record, or is about to take it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from kvledger.spec.world import World, WrongInput
from kvledger.tests.replay.request import TraceRequest


class Faults(NamedTuple):
    """Of a hundred requests, so many are aborted; retracted, once; have their session closed while they live, so that
    they end after it. The seed also decides how many drafts are accepted."""

    abort: int = 0
    retract: int = 0
    close_early: int = 0
    seed: int = 0


NO_FAULTS = Faults()


class Fate(NamedTuple):
    """At how many tokens with KV each fault strikes a request, at the next round; None: never."""

    abort: int | None = None
    retract: int | None = None
    close: int | None = None


def check_faults(faults: Faults, requests: Sequence[TraceRequest], world: World) -> None:
    """Raises WrongInput for what is no percentage, and for a fault that cannot be had in this run."""
    for name, value in zip(Faults._fields[:3], faults, strict=False):
        if not 0 <= value <= 100:
            raise WrongInput(f"{name} = {value}: expected a whole number from 0 to 100, of a hundred requests")
    if faults.close_early and not world.has("SESSIONS"):
        raise WrongInput(f"close_early = {faults.close_early}: {world.declared.name} does not declare SESSIONS")
    if faults.close_early and all(trace.session is None for trace in requests):
        raise WrongInput(f"close_early = {faults.close_early}: no request is a turn of a session, expected some")


def fate_of(trace: TraceRequest, faults: Faults) -> Fate:
    """What becomes of this request."""
    if faults[:3] == NO_FAULTS[:3]:
        return Fate()
    random = Random(f"{faults.seed} {trace.number}")

    def drawn(percent: int, least: int) -> int | None:
        moments = (least, random.randint(1, len(trace.prompt)), random.randint(len(trace.prompt), trace.positions))
        struck = random.randrange(100) < percent
        return random.choice(moments) if struck else None

    return Fate(drawn(faults.abort, 0), drawn(faults.retract, 1), drawn(faults.close_early, 0))
