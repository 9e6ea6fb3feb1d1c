"""kvledger explain: what a stored run shows, in words; or as a pytest to keep."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path

from kvledger.spec.trace import HANGS, RAISES, Trace, judge, read
from kvledger.spec.world import World, WrongInput
from kvledger.tests.engines.venvs import Elsewhere
from kvledger.tests.kit.again import calls_stored
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Finding, named_in_drain
from kvledger.tests.report.terminal import YOURS, Screen, show

NOT_STORED = (RAISES, HANGS, "REC-3")

HELP = """examples:
  kvledger explain .kvledger/page-6-7a3f.itf.json               the failure screen of a stored run
  kvledger explain --pytest .kvledger/page-6-7a3f.itf.json      a test that fails until it is fixed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger explain`."""
    parser.add_argument("trace", help="a stored run (.itf.json)")
    parser.add_argument("--pytest", action="store_true", help="print a pytest instead")


def run(args: argparse.Namespace) -> int:
    """Judge the stored answers once more, and say what they show. Exit 1 if a rule is broken."""
    path = Path(args.trace)
    trace = read(path)
    if args.pytest:
        print(as_pytest(trace), end="")
        return 0
    finding = found_in(trace, str(path))
    if finding is None:
        print(f"{len(trace.steps)} actions: every rule that answers and views can show holds")
        return 0
    screen = Screen(
        world=trace.world,
        steps=trace.steps[: finding.step],
        finding=finding,
        command=shlex.join(["kvledger", "explain", args.trace]),
        target=_who_answered(trace),
        trace=args.trace,
        drained=_in_drain(trace, finding.step),
        limit_s=trace.limit_s,
        opening=trace.opening,
    )
    print(show(screen))
    return 1


def _who_answered(trace: Trace) -> str | None:
    """The backend that made the run, if it can be had here; a run that the law itself answered was made by none."""
    try:
        load_backend(trace.backend)
    except Elsewhere:  # whoever asks it again is led there
        pass
    except WrongInput:
        return None
    return trace.backend


def found_in(trace: Trace, file: str) -> Finding | None:
    """The first finding in what is stored. What was raised, or came of overwriting, is not: there the run's own word
    stands, if nothing breaks before."""
    at, rule = trace.at or 0, trace.rule or ""
    if rule in NOT_STORED and at <= len(trace.steps):
        before = replace(trace, steps=trace.steps[: at - 1], rule=None, at=None)
        if judge(before, file) is None:
            return Finding(rule, at, {})
    found = judge(trace, file)
    if found is None:
        return None
    step, rule, facts = found
    if _in_drain(trace, step):
        rule = named_in_drain(rule, trace.steps[step - 1].act)
    return Finding(rule, step, facts)


def _in_drain(trace: Trace, step: int) -> bool:
    return trace.draining_since is not None and step > trace.draining_since


def as_pytest(trace: Trace) -> str:
    """A test of its own: the world, the actions, and that nothing is found."""
    calls = calls_stored(trace)
    kinds = sorted({type(act).__name__ for act, _ in calls})
    rule = (trace.rule or "run").lower().replace("-", "_")
    lines = [f"        ({act!r}, {probe})," for act, probe in calls]
    backend = trace.backend or YOURS
    judged = {name: getattr(trace, name) for name in ("view", "content", "limit_s")}
    options = [f"{name}={value}" for name, value in judged.items() if value != getattr(Trace, name)]
    how = ", ".join([f"drain={trace.draining_since is not None}", *options])
    return "\n".join(
        [
            f'"""{trace.rule or "A stored run"}: found by kvledger check, kept so that it stays fixed."""',
            "",
            *([f"from kvledger.spec.actions import {', '.join(kinds)}"] if kinds else []),
            "from kvledger.spec.world import World",
            "from kvledger.tests.kit.again import first_finding",
            "",
            "",
            f"def test_{rule}():",
            f"    world = {_world(trace.world)}",
            "    calls = [  # an action, and whether it is a call that must be refused",
            *lines,
            "    ]",
            f"    finding = first_finding({backend!r}, world, calls, {how})",
            '    assert finding is None, f"{finding.rule} at step {finding.step}: {dict(finding.facts)}"',
            "",
        ]
    )


def _world(world: World) -> str:
    sizes = f"rows={world.rows}, context_len={world.context_len}, pages={world.pages}, page_size={world.page_size}"
    return f"World({sizes})"
