"""kvledger explain: what a stored run shows, in words, or as a pytest to keep; or what SGLang's leak line says."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import replace

from kvledger.spec.trace import HANGS, RAISES, Trace, judge, read
from kvledger.spec.world import World, WrongInput
from kvledger.tests.engines.venvs import Elsewhere
from kvledger.tests.kit.again import calls_stored
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Finding, named_in_drain
from kvledger.tests.report.leak import told
from kvledger.tests.report.leak_line import sums
from kvledger.tests.report.terminal import YOURS, Screen, show

NOT_STORED = (RAISES, HANGS, "REC-3")

HELP = """examples:
  kvledger explain .kvledger/page-6-7a3f.itf.json               the failure screen of a stored run, which says first
                                                                which of six places to look at
  kvledger explain --pytest .kvledger/page-6-7a3f.itf.json      a test that fails until it is fixed
  kvledger explain "pool memory leak detected! [full] total=65536, available=65520, evictable=32, protected=0, ..."
                                                                SGLang's leak line, of any generation: how far its sum
                                                                is off, how many pages, which rules and actions
  kvledger explain - --page-size 16 < server.log                of a whole log: of each pool the first sum that is off

A file, or what ends in .json, is a stored run; anything else is text with a leak line in it; - is standard input, with
as many lines as there are.
Exit 0: every rule holds that a stored run can show, or every sum is right. 1: a rule is broken, or a sum is off.
2: neither a stored run nor a leak line.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger explain`."""
    parser.add_argument("what", help="a stored run (.itf.json), a leak line of SGLang's, or - for standard input")
    parser.add_argument("--pytest", action="store_true", help="of a stored run: print a pytest instead")
    parser.add_argument("--page-size", type=int, metavar="N", help="of a leak line: slots of a page, if it is not said")


def run(args: argparse.Namespace) -> int:
    """Judge the stored answers once more, or read the line, and say what that shows. Exit 1 if anything is wrong."""
    if args.what != "-" and (args.what.endswith((".json", ".jsonl")) or os.path.exists(args.what)):
        if args.what.endswith(".jsonl"):
            raise WrongInput(f"{args.what}: expected a stored run (.itf.json); a recording is for kvledger audit")
        if args.page_size is not None:
            raise WrongInput(f"--page-size with {args.what}: a stored run has its sizes, expected a leak line")
        return _run_stored(args.what, args.pytest)
    if args.pytest:
        raise WrongInput(f"--pytest with {args.what!r:.40}: expected a stored run (.itf.json)")
    return _run_line(_standard_input() if args.what == "-" else args.what, args.page_size)


def _standard_input() -> str:
    """All of it: a log may hold bytes that are no text, and there may be none."""
    return sys.stdin.buffer.read().decode(errors="replace") if sys.stdin else ""


def _run_line(text: str, page_size: int | None) -> int:
    """What the sums in a text say."""
    if page_size is not None and page_size < 1:
        raise WrongInput(f"--page-size {page_size}: expected at least 1")
    found = sums(text, page_size)
    if not found:
        raise WrongInput(
            f"{text.strip()!r:.60}: expected a stored run (.itf.json), or a line of SGLang's leak check, which has "
            "available=, evictable=, ... and their total"
        )
    print(told(found))
    return 1 if any(each.off or each.impossible for each in found) else 0


def _run_stored(file: str, pytest: bool) -> int:
    """The failure screen of a stored run, or a pytest of it."""
    trace = read(file)
    if pytest:
        print(as_pytest(trace), end="")
        return 0
    finding = found_in(trace, file)
    if finding is None:
        print(f"{len(trace.steps)} actions: every rule that answers and views can show holds")
        return 0
    screen = Screen(
        world=trace.world,
        steps=trace.steps[: finding.step],
        finding=finding,
        command=shlex.join(["kvledger", "explain", file]),
        target=_who_answered(trace),
        trace=file,
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
