"""A stored run once more: its actions on a backend, its answers judged anew; and the same as a pytest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kvledger.spec.actions import Action
from kvledger.spec.trace import Trace, read
from kvledger.spec.world import World
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Finding, Grade
from kvledger.tests.kit.shrink import Call, run_again
from kvledger.tests.report.terminal import Screen, show

DRAIN = "drain"  # the note of a trace whose finding came up in the drain probe


def replay_trace(path: str, backend: str | None, limit_s: float) -> int:
    """Drive `backend` (None: the one that made the run) with a stored run's actions. Prints the screen and returns 1
    if a rule breaks, else 0."""
    trace = read(Path(path))
    backend = backend or trace.backend or "reference"
    calls, drained = calls_of(trace)
    make = load_backend(backend)
    found, lockstep = run_again(make, trace.world, calls, grade=Grade(limit_s=limit_s), name=backend, drain=drained)
    if found is None:
        print(f"{len(lockstep.steps)} actions of {path} on {backend}: every rule holds")
        return 0
    screen = Screen(
        world=lockstep.world,
        steps=lockstep.steps,
        finding=found,
        command=f"kvledger replay {path} --backend {backend}",
        target=backend,
        trace=path,
        drained=lockstep.draining_since is not None,
        limit_s=limit_s,
    )
    print(show(screen))
    return 1


def calls_of(trace: Trace) -> tuple[list[Call], bool]:
    """The actions of a stored run, and whether its finding came up in the drain probe, which makes its own."""
    drained = trace.note == DRAIN
    steps = [step for step in trace.steps if not (drained and _of_drain(step.act))]
    return [(step.act, step.probe) for step in steps], drained


def _of_drain(act: Action) -> bool:
    return str(getattr(act, "req", "")).startswith(DRAIN) or any(
        str(member[0]).startswith(DRAIN) for member in getattr(act, "batch", ())
    )


def first_finding(backend: str, world: World, calls: Iterable[Call], *, drain: bool = False) -> Finding | None:
    """The first broken rule when `backend` (a name or module:function) performs these calls, or None.

    A call is an action, and whether it is a probe: one that the law forbids at its place.
    """
    found, _ = run_again(load_backend(backend), world, list(calls), grade=Grade(), name=backend, drain=drain)
    return found
