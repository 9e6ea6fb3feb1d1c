"""A stored run once more: its actions, on a backend whose answers are judged as those of the run were.

For `kvledger replay`, and for the tests that `kvledger explain --pytest` writes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from kvledger.spec.trace import Trace, read
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.limit import LIMIT_S
from kvledger.tests.kit.load import ask_page_size, load_backend
from kvledger.tests.kit.lockstep import Finding, Grade
from kvledger.tests.kit.shrink import Call, calls_of, run_again
from kvledger.tests.report.terminal import Screen, show


def replay_trace(
    path: str, backend: str | None, report: dict[str, object], *, view: bool = False, limit_s: float | None = None
) -> str:
    """Drive `backend` (None: the one that made the run) with a stored run's actions; what is to be said of it.

    It is judged as the run was; view: its books and content in any case, limit_s: with this limit. The report gets the
    same for machines, with a finding if a rule breaks. Raises WrongInput.
    """
    trace = read(Path(path))
    if trace.opening is not None:
        raise WrongInput(f"{path}: a run from its middle on, expected one that a backend can perform from its start")
    backend = backend or trace.backend or "reference"
    ask_page_size(backend, trace.world.page_size)
    grade = grade_of(trace)
    if view:
        grade = grade._replace(view=True, content=True)
    if limit_s is not None:
        grade = grade._replace(limit_s=limit_s)
    calls = calls_stored(trace)
    drain = trace.draining_since is not None
    found, lockstep = run_again(load_backend(backend), trace.world, calls, grade=grade, name=backend, drain=drain)
    made = len(lockstep.steps[: lockstep.draining_since])
    report |= {"backend": backend, "name": lockstep.world.declared.name, "calls": len(calls), "made": made}
    if found is None:
        report["exit"] = 0
        return f"{_made(len(calls), made, path)} on {backend}: no rule breaks"
    words = ["kvledger", "replay", path, "--backend", backend, *["--view"] * view]
    words += [] if limit_s is None else [f"--limit={limit_s:g}"]
    screen = Screen(
        world=lockstep.world,
        steps=lockstep.steps,
        finding=found,
        command=shlex.join(words),
        target=backend,
        trace=path,
        drained=lockstep.draining_since is not None,
        limit_s=grade.limit_s,
    )
    text = show(screen)
    report |= {"exit": 1, "finding": {"rule": found.rule, "trace": path, "screen": text}}
    return text


def _made(calls: int, made: int, path: str) -> str:
    """How many calls of a run were made: on another backend some may not be allowed at their place."""
    words = f"{calls} {'call' if calls == 1 else 'calls'} of {path}"
    return words if made == calls else f"{made} of {words} could be made"


def calls_stored(trace: Trace) -> list[Call]:
    """The actions of a stored run; not those of the drain probe, which makes its own."""
    return calls_of(trace.steps[: trace.draining_since])


def grade_of(trace: Trace) -> Grade:
    """What was looked at when the run was made, and how long a call might take."""
    return Grade(trace.view, trace.content, limit_s=trace.limit_s or LIMIT_S)


def first_finding(
    backend: str,
    world: World,
    calls: Iterable[Call],
    *,
    drain: bool = False,
    view: bool = True,
    content: bool = True,
    limit_s: float = LIMIT_S,
) -> Finding | None:
    """The first broken rule when `backend` (a name or module:function) performs these calls, or None.

    A call is an action, and whether it is a probe: one that the law forbids at its place. drain: with the drain probe.
    view, content: whether the backend's are looked at. limit_s: seconds that one call may take.
    """
    grade = Grade(view, content, limit_s=limit_s)
    found, _ = run_again(load_backend(backend), world, list(calls), grade=grade, name=backend, drain=drain)
    return found
