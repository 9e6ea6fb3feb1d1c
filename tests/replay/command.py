"""`kvledger replay`: a recorded request trace through the driver, every action judged; or a stored run once more."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from kvledger.spec.actions import Action
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.backend import Make
from kvledger.spec.page import pages_for
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.again import replay_trace
from kvledger.tests.kit.calibration import calibrate
from kvledger.tests.kit.check import add_limit, ask_limit, shortened
from kvledger.tests.kit.limit import LIMIT_S
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Finding, Grade, Lockstep
from kvledger.tests.kit.shrink import Shrunk, confirmed
from kvledger.tests.kit.verdict import for_machines, spelled, verdicts
from kvledger.tests.replay.driver import Summary, drive
from kvledger.tests.replay.knobs import Knobs, positions
from kvledger.tests.replay.mooncake import TraceRequest, read
from kvledger.tests.replay.narrow import narrow
from kvledger.tests.replay.occupancy import Occupancy, ask
from kvledger.tests.replay.synthetic import write
from kvledger.tests.report import json_file
from kvledger.tests.report.terminal import Screen, show

HELP = """examples:
  kvledger replay --synthetic t.jsonl --requests 500 --seed 7   make up a trace, if you have none
  kvledger replay t.jsonl                                       replay it on the reference
  kvledger replay t.jsonl --backend my_adapter:make --view      on yours, its own books compared at every step
  kvledger replay t.jsonl --page-size 1 --pages 4096            a tight pool: evictions, refusals, retractions
  kvledger replay t.jsonl --pages 300 --plot occupancy.svg      whose the pages are, over the run
  kvledger replay .kvledger/row-1-7a3f.itf.json                 a run that was saved because it failed, once more,
                                                                on the backend that made it or on another

A trace is in the Mooncake format, one JSON object a line: timestamp, input_length, output_length, hash_ids.
Exit 0: every rule that was reached holds. 1: a rule is broken. 2: wrong input.
"""
SIZES: dict[str, tuple[int | None, str]] = {
    "requests": (300, "how many requests to take from the file, or to make up"),
    "block-tokens": (16, "tokens that stand for one block of 512 of the file, at most 512"),
    "pages": (4096, "pages of the pool"),
    "page-size": (16, "slots of a page"),
    "rows": (None, "rows of the table; default: running + 8"),
    "running": (32, "most requests that run at once"),
    "chunk": (256, "most new prompt tokens of one request in one round"),
    "context-len": (None, "columns of a row; default: the longest request, rounded up to whole pages"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `kvledger replay`."""
    parser.add_argument("file", help="a Mooncake trace (.jsonl) or a stored run (.json)")
    backend = "a name or module:function; default: reference, or whoever made the stored run"
    parser.add_argument("--backend", metavar="NAME", help=backend)
    for name, (default, sentence) in SIZES.items():
        shown = sentence if default is None else f"{sentence}; default: {default}"
        parser.add_argument(f"--{name}", type=int, metavar="N", help=shown)
    parser.add_argument("--view", action="store_true", help="compare the backend's own books and content at every step")
    add_limit(parser)
    parser.add_argument("--json", metavar="FILE", help="write the verdict there as well; - for standard output")
    parser.add_argument("--plot", metavar="FILE", help="draw whose the pages are, over the run: .svg or .png")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("--synthetic", action="store_true", help="write a made-up trace to the file; replay nothing")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the made-up trace; default: 0")


def run(args: argparse.Namespace) -> int:
    """Exit code 0: no rule is broken. 1: one is. Raises WrongInput for what the user got wrong."""
    if args.synthetic:
        _fill(args)
        write(args.file, args.requests, args.seed)
        print(f"wrote {args.file}: {args.requests:,} made-up requests, seed {args.seed}")
        return 0
    json_file.ask(args.json)
    ask(args.plot)
    report: dict[str, object] = {}
    text = _stored(args, report) if args.file.endswith(".json") else _recorded(args, report)
    if args.json != json_file.STDOUT:
        print(text)
    if args.json:
        json_file.write(args.json, report)
    return 1 if "finding" in report else 0


def _stored(args: argparse.Namespace, report: dict[str, object]) -> str:
    """A stored run once more, in its own world."""
    for name in SIZES:
        if getattr(args, _attribute(name)) is not None:
            raise WrongInput(f"--{name} with {args.file}: a stored run has its sizes, expected a trace of requests")
    if args.plot:
        raise WrongInput(f"--plot with {args.file}: expected a trace of requests")
    return replay_trace(args.file, args.backend, report, view=args.view, limit_s=ask_limit(args))


def _recorded(args: argparse.Namespace, report: dict[str, object]) -> str:
    """A trace of requests through the driver."""
    _fill(args)
    args.backend = args.backend or "reference"
    grade = Grade(args.view, args.view, limit_s=ask_limit(args) or LIMIT_S)
    requests = read(args.file, args.requests, args.block_tokens)
    make, world = load_backend(args.backend), _world(args, requests)
    lockstep = Lockstep(make, world, grade=grade, name=args.backend)
    report |= {"backend": args.backend, "name": lockstep.world.declared.name}
    plot = Occupancy(lockstep.ledger)
    try:
        text = _conforms(args, requests, lockstep, report, plot)
    except Finding as finding:
        plot.broken = finding.rule
        text = _broken(args, make, lockstep, finding, report)
    if args.plot:
        plot.draw(args.plot, lockstep.world)
    return text


def _fill(args: argparse.Namespace) -> None:
    """The sizes that were not given get their defaults: up to here one can tell which were."""
    for name, (default, _) in SIZES.items():
        if getattr(args, _attribute(name)) is None:
            setattr(args, _attribute(name), default)


def _attribute(name: str) -> str:
    return name.replace("-", "_")


def _conforms(
    args: argparse.Namespace,
    requests: Sequence[TraceRequest],
    lockstep: Lockstep,
    report: dict[str, object],
    plot: Occupancy,
) -> str:
    """The whole run, and what it came to. Raises Finding."""
    calibration, start, peak_pages = calibrate(), time.process_time(), 0
    knobs = Knobs(lockstep.world, args.running, args.chunk)

    def step(action: Action) -> Granted | Refused:
        nonlocal peak_pages
        answer = lockstep.do(action)
        peak_pages = max(peak_pages, len(lockstep.ledger.pages))
        if args.plot:
            plot.note(lockstep.ledger, action, answer)
        return answer

    with tqdm(
        total=len(requests), unit=" requests", leave=False, disable=args.quiet or not sys.stderr.isatty()
    ) as bar:
        summary = drive(requests, step, lockstep.ledger.prefix, knobs, bar.update)
    seconds, judging = time.process_time() - start, lockstep.judging_s
    lockstep.drain()
    found = verdicts(lockstep.world, lockstep.armed, undone=lockstep.monitor.undone, seen=lockstep.evidence)
    figures, rate = _figures(summary, peak_pages), summary.request_actions / seconds
    report |= {"exit": 0, "figures": figures, "cpu_seconds": seconds, "monitor_seconds": judging}
    report["calibration_seconds"] = calibration
    report["rules"] = for_machines(found)
    alone = summary.request_actions / judging
    speed = (
        f"{rate:,.0f} request actions per CPU second, {alone:,.0f} in the monitor alone; "
        f"calibration loop {calibration * 1e3:,.0f} ms"
    )
    return "\n".join([*_header(args, lockstep.world), "", *_table(figures), "", *spelled(found), "", speed])


def _broken(
    args: argparse.Namespace, make: Make, lockstep: Lockstep, finding: Finding, report: dict[str, object]
) -> str:
    """The failure screen, of as few calls as still break the rule."""
    finding = confirmed(make, lockstep, finding, name=args.backend)
    since = lockstep.draining_since
    drained, calls = since is not None, lockstep.steps[:since]
    long = Shrunk(finding, lockstep.steps, since)

    def shorten(progress: Callable[[int], None]) -> Shrunk:
        return narrow(make, lockstep.world, calls, finding, grade=lockstep.grade, name=args.backend, drain=drained,
                      progress=progress) or long  # fmt: skip

    small, trace = shortened(long, shorten, lockstep.world, args.backend, lockstep.grade, args.quiet)
    screen = Screen(
        world=lockstep.world,
        steps=small.steps,
        finding=small.finding,
        command=_command_line(args),
        target=args.backend,
        trace=trace,
        found_after=len(calls),
        blind=None if args.view or not lockstep.world.has("VIEW") else "With --view this may show at an earlier step.",
        drained=drained,
        limit_s=lockstep.grade.limit_s,
    )
    text = show(screen)
    report |= {"exit": 1, "finding": {"rule": finding.rule, "trace": trace, "screen": text}}
    return text


def _world(args: argparse.Namespace, requests: Sequence[TraceRequest]) -> World:
    longest = pages_for(max(map(positions, requests)), max(1, args.page_size)) * max(1, args.page_size)
    return World(
        rows=args.running + 8 if args.rows is None else args.rows,
        context_len=longest if args.context_len is None else args.context_len,
        pages=args.pages,
        page_size=args.page_size,
    )


def _figures(summary: Summary, peak_pages: int) -> dict[str, int]:
    return {
        "requests": summary.calls["finish"],
        "request actions": summary.request_actions,
        "calls": summary.calls.total(),
        "tokens prompted": summary.prompt_tokens,
        "tokens matched": summary.matched_tokens,
        "tokens decoded": summary.members["decode"],
        "prompt chunks": summary.members["extend"],
        "checkpoints": summary.calls["checkpoint"],
        "pages evicted": summary.evicted,
        "retractions": summary.calls["retract"],
        **{f"refusals, short of {short}": times for short, times in sorted(summary.refusals.items())},
        "peak running": summary.peak_running,
        "peak pages": peak_pages,
    }


def _header(args: argparse.Namespace, world: World) -> list[str]:
    return [
        f"{Path(args.file).name} on {world.declared.name} {world.declared.version}".rstrip(),
        f"{world.rows:,} rows of {world.context_len:,}, {world.pages:,} pages of {world.page_size:,}",
    ]


def _table(figures: Mapping[str, int]) -> list[str]:
    return [f"  {name:<28}{value:>12,}" for name, value in figures.items()]


def _command_line(args: argparse.Namespace) -> str:
    """What to type to see this run again: every size that is not the default."""
    words = ["kvledger", "replay", args.file, "--backend", args.backend]
    for name, (default, _) in SIZES.items():
        value = getattr(args, _attribute(name))
        words += [f"--{name}", str(value)] if value != default else []
    words += [] if args.limit is None else [f"--limit={args.limit:g}"]
    return shlex.join(words + ["--view"] * args.view)
