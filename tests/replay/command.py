"""`kvledger replay`: a recorded request trace through the driver, every action judged; or a stored run once more."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from kvledger.spec.actions import Action
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.backend import Make
from kvledger.spec.page import pages_for
from kvledger.spec.world import MOST, World, WrongInput
from kvledger.tests.kit import deviations
from kvledger.tests.kit.again import replay_trace
from kvledger.tests.kit.calibration import calibrate
from kvledger.tests.kit.check import add_limit, ask_limit, shortened
from kvledger.tests.kit.deviations import Deviation
from kvledger.tests.kit.limit import LIMIT_S
from kvledger.tests.kit.load import ask_page_size, load_backend
from kvledger.tests.kit.lockstep import Finding, Grade, Lockstep
from kvledger.tests.kit.shrink import Shrunk, calls_of, confirmed, run_again
from kvledger.tests.kit.verdict import for_machines, spelled, verdicts
from kvledger.tests.replay.against import Against, Differs
from kvledger.tests.replay.driver import drive
from kvledger.tests.replay.faults import Faults
from kvledger.tests.replay.formats import FORMATS, SCALE, read
from kvledger.tests.replay.knobs import Knobs
from kvledger.tests.replay.narrow import narrow
from kvledger.tests.replay.occupancy import Occupancy, ask
from kvledger.tests.replay.request import TraceRequest
from kvledger.tests.replay.resends import forward
from kvledger.tests.replay.summary import Summary
from kvledger.tests.replay.synthetic import write
from kvledger.tests.report import json_file
from kvledger.tests.report.terminal import Screen, show

SOME = FORMATS[0].requests  # of a Mooncake trace, and how many are made up
HELP = f"""examples:
  kvledger replay --synthetic t.jsonl --requests 500 --seed 7   make up a trace, if you have none
  kvledger replay t.jsonl                                       replay it on the reference
  kvledger replay t.jsonl --backend my_adapter:make --view      on yours, its own books compared at every step
  kvledger replay t.jsonl --backend fast --view-every 64        the same after every 64th call: for long runs
  kvledger replay t.jsonl --page-size 1 --pages 4096            a tight pool: evictions, refusals, retractions
  kvledger replay t.jsonl --backend fast --against reference    two in step: who owns what must be the same
  kvledger replay t.jsonl --pages 300 --plot occupancy.svg      whose the pages are, over the run
  kvledger replay t.jsonl --sessions --drafts 3                 conversations as sessions, and tokens drafted ahead
  kvledger replay t.jsonl --sessions --abort 5 --close-early 5  faults: of 100 requests so many, drawn by --seed
  kvledger replay .kvledger/row-1-7a3f.itf.json                 a run that was saved because it failed, once more,
                                                                on the backend that made it or on another

A trace is a file with one JSON object a line, in one of these formats (its first line tells):
  Mooncake  one request a line: timestamp, input_length, output_length, hash_ids. With --sessions it is inferred who
            goes on from whom: whoever has all full blocks of an earlier prompt and room for its answer.
  WEKA      one session of a coding agent a line: block_size, requests; of each type, in, out, hash_ids, or,
            of a sub-agent, requests: the parent waits meanwhile, and its session keeps what it has.
Lengths are scaled, to 1/{SCALE} by default. Requests come in the order of the file, as soon as those have ended from
which they go on; times are not looked at. A turn on a backend without SESSIONS is a plain request.

Exit 0: no rule is broken. 1: a rule is broken, or the two differ. 2: wrong input; or the run ended early, in what the
engine is known for.
"""
SIZES: dict[str, tuple[int | None, str]] = {
    "requests": (None, f"how many requests to take from the file, or to make up; default: {SOME}, of WEKA's all"),
    "block-tokens": (None, f"tokens that stand for one block of the file; default: {FORMATS[0].block // SCALE} for "
                           f"Mooncake's of {FORMATS[0].block}, {FORMATS[1].block // SCALE} for WEKA's of "
                           f"{FORMATS[1].block}"),
    "pages": (4096, "pages of the pool"),
    "page-size": (16, "slots of a page"),
    "rows": (None, "rows of the table; default: running + 8, and one for each session"),
    "running": (32, "most requests that run at once"),
    "batch": (None, "most members of one call; default: as many as the backend takes"),
    "chunk": (256, "most new prompt tokens of one request in one round"),
    "context-len": (None, "columns of a row; default: the longest request, rounded up to whole pages"),
    "drafts": (0, "tokens drafted for one that is known; how many of them are accepted is drawn"),
    "abort": (0, "of 100 requests so many are aborted: as they wait, in their prompt, or as they decode"),
    "retract": (0, "of 100 requests so many are retracted once, room or no room"),
    "close-early": (0, "of 100 turns so many have their session closed while they live, and end after it"),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `kvledger replay`."""
    parser.add_argument("file", help="a trace of requests (.jsonl) or a stored run (.json)")
    backend = "a name or module:function; default: reference, or whoever made the stored run"
    parser.add_argument("--backend", metavar="NAME", help=backend)
    against = "another backend does the same, and who owns what must be the same at every step, up to names"
    parser.add_argument("--against", metavar="NAME", help=against)
    for name, (default, sentence) in SIZES.items():
        shown = sentence if default is None else f"{sentence}; default: {default}"
        parser.add_argument(f"--{name}", type=int, metavar="N", help=shown)
    sessions = "conversations as sessions; default: where the format says them (WEKA), not inferred (Mooncake)"
    parser.add_argument("--sessions", action=argparse.BooleanOptionalAction, help=sessions)
    resend = "pull exact resends forward: the first copy still runs"
    parser.add_argument("--resend", action="store_true", default=None, help=resend)
    look = parser.add_mutually_exclusive_group()
    look.add_argument("--view", action="store_true", help="compare the backend's own books and content at every step")
    every = "as --view, but after every Nth call, and at the end: for long runs"
    look.add_argument("--view-every", type=int, metavar="N", help=every)
    add_limit(parser)
    parser.add_argument("--deviations", metavar="FILE", help="what the engine is known to do against the law, as TOML "
                        "(tests/kit/deviations.py); an engine that has a name has one")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write the verdict there as well; - for standard output")
    parser.add_argument("--plot", metavar="FILE", help="draw whose the pages are, over the run: .svg or .png")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("--synthetic", action="store_true", help="write a made-up trace to the file; replay nothing")
    seed = "of the made-up trace, or of faults and drafts; default: 0"
    parser.add_argument("--seed", type=int, default=0, metavar="N", help=seed)


def run(args: argparse.Namespace) -> int:
    """Exit code 0: no rule is broken. 1: one is. 2: the run ended in what the engine is known for. Raises WrongInput
    for what the user got wrong."""
    if args.synthetic:
        requests = SOME if args.requests is None else args.requests
        write(args.file, requests, args.seed)
        print(f"wrote {args.file}: {requests:,} made-up requests, seed {args.seed}")
        return 0
    json_file.ask(args.json)
    ask(args.plot)
    if args.plot and args.plot == args.json:
        raise WrongInput(f"--plot {args.plot}: is --json's file, too, expected two")
    report: dict[str, object] = {}
    text = _stored(args, report) if args.file.endswith(".json") else _recorded(args, report)
    if args.json != json_file.STDOUT:
        print(text)
    if args.json:
        json_file.write(args.json, report)
    code = report["exit"]
    assert isinstance(code, int)
    return code


def _stored(args: argparse.Namespace, report: dict[str, object]) -> str:
    """A stored run once more, in its own world."""
    for name in (*SIZES, "sessions", "resend", "view-every", "deviations", "against"):
        if getattr(args, _attribute(name)) is not None:
            raise WrongInput(f"--{name} with {args.file}: a stored run has its sizes, expected a trace of requests")
    if args.plot:
        raise WrongInput(f"--plot with {args.file}: expected a trace of requests")
    return replay_trace(args.file, args.backend, report, view=args.view, limit_s=ask_limit(args))


def _recorded(args: argparse.Namespace, report: dict[str, object]) -> str:
    """A trace of requests through the driver."""
    _fill(args)
    args.backend = args.backend or "reference"
    grade = _grade(args)
    known = deviations.known(args.backend, args.deviations)
    requests = read(args.file, args.requests, args.block_tokens, args.sessions)
    requests = forward(requests) if args.resend else requests
    ask_page_size(args.backend, args.page_size)
    make, world = load_backend(args.backend), _world(args, requests)
    lockstep = Lockstep(make, world, grade=grade, name=args.backend)
    run = Run(lockstep, Occupancy(lockstep.ledger) if args.plot else None, _beside(args, world, grade, lockstep))
    report |= {"backend": args.backend, "name": lockstep.world.declared.name, "against": args.against}
    met: Deviation | None = None
    try:
        run.go(args, requests)
    except Differs as differs:
        run.draw(args.plot, "the other one")
        report |= {"exit": 1, "differs": {"step": run.calls, "text": str(differs)}}
        return str(differs)
    except Finding as finding:
        met = next((each for each in known if each.explains(finding, lockstep.world, lockstep.steps)), None)
        run.draw(args.plot, finding.rule)
        if met is None:
            return _broken(args, make, lockstep, finding, known, report)
    else:
        run.draw(args.plot)
    return _conforms(args, requests, run, known, met, report)


def _grade(args: argparse.Namespace) -> Grade:
    """What is looked at beside the answers, and how often."""
    every = 1 if args.view_every is None else args.view_every
    if every < 1:
        raise WrongInput(f"--view-every {every}: expected at least 1")
    view = args.view or args.view_every is not None
    return Grade(view, view, limit_s=ask_limit(args) or LIMIT_S, every=every)


def _beside(args: argparse.Namespace, world: World, grade: Grade, driven: Lockstep) -> Against | None:
    """The backend that does the same, if there is one."""
    if args.against is None:
        return None
    ask_page_size(args.against, args.page_size)
    make = load_backend(args.against)
    other = Lockstep(make, world, grade=grade, name=args.against, count_armed=False)
    return Against(driven, other, (args.backend, args.against))


def _fill(args: argparse.Namespace) -> None:
    """The sizes that were not given get their defaults: up to here one can tell which were."""
    for name, (default, _) in SIZES.items():
        if getattr(args, _attribute(name)) is None:
            setattr(args, _attribute(name), default)


def _attribute(name: str) -> str:
    return name.replace("-", "_")


@dataclass
class Run:
    """One run, as far as it comes. plot: whose the pages are, if that is to be drawn. against: who does the same, and
    is compared. peak_pages: most pages that were not free at once. calls: how many were made."""

    lockstep: Lockstep
    plot: Occupancy | None = None
    against: Against | None = None
    summary: Summary = field(default_factory=Summary)
    peak_pages: int = 0
    calls: int = 0
    seconds: float = 0.0

    def go(self, args: argparse.Namespace, requests: Sequence[TraceRequest]) -> None:
        """Every request to its end, then the drain probe. Raises Finding."""
        lockstep = self.lockstep
        beside = self.against.other.world.declared.max_batch if self.against is not None else None
        batch = min((most for most in (args.batch, beside) if most is not None), default=None)
        knobs = Knobs(lockstep.world, args.running, args.chunk, batch, args.drafts)
        faults = Faults(args.abort, args.retract, args.close_early, args.seed)
        start = time.process_time()
        with tqdm(
            total=len(requests), unit=" requests", leave=False, disable=args.quiet or not sys.stderr.isatty()
        ) as bar:
            try:
                drive(requests, self.step, lockstep.ledger.prefix, knobs, bar.update, faults, self.summary)
            finally:
                self.seconds = time.process_time() - start
        lockstep.drain()
        if self.against is not None:
            self.against.drain()

    def step(self, action: Action) -> Granted | Refused:
        """One call of the driver."""
        answer = self.lockstep.do(action)
        self.calls += 1
        self.peak_pages = max(self.peak_pages, len(self.lockstep.ledger.pages))
        if self.plot is not None:
            self.plot.note(self.lockstep.ledger, action, answer)
        if self.against is not None:
            self.against.follow(action, answer)
        return answer

    def draw(self, file: str, broken: str | None = None) -> None:
        """The plot, if there is one. broken: the rule that ended the run."""
        if self.plot is not None:
            self.plot.draw(file, self.lockstep.world, broken)


def _conforms(
    args: argparse.Namespace,
    requests: Sequence[TraceRequest],
    run: Run,
    known: Sequence[Deviation],
    met: Deviation | None,
    report: dict[str, object],
) -> str:
    """What the run came to: the whole of it, or as far as what the engine is known for."""
    lockstep, calibration = run.lockstep, calibrate()
    deviating = set() if met is None else {met.rule}
    found = verdicts(
        lockstep.world, lockstep.armed, undone=lockstep.monitor.undone, seen=lockstep.evidence, deviating=deviating
    )
    figures = run.summary.figures(run.peak_pages)
    report |= {"exit": 0 if met is None else 2, "deviation": None if met is None else met.witness.name}
    report |= {"figures": figures, "looks": lockstep.looks}
    report |= {"cpu_seconds": run.seconds, "monitor_seconds": lockstep.judging_s}
    report["calibration_seconds"] = calibration
    report["rules"] = for_machines(found)
    lines = [*_header(args, requests, lockstep.world), "", *_table(figures), "", *spelled(found)]
    if lockstep.grade.every > 1:
        lines += ["", f"books and content looked at {lockstep.looks:,} times, in {len(lockstep.steps):,} calls"]
    if run.against is not None:
        says = f"{args.backend} and {args.against}: the same ownership after each of {run.calls:,} calls"
        lines += ["", f"{says}, up to the names of rows and pages"]
    lines += _known(args, known, met, f"{figures['requests finished']:,} of {len(requests):,} requests finished")
    if met is None:
        rate, alone = (run.summary.request_actions / seconds for seconds in (run.seconds, lockstep.judging_s))
        speed = f"{rate:,.0f} request actions per CPU second, {alone:,.0f} in the monitor alone"
        lines += ["", f"{speed}; calibration loop {calibration * 1e3:,.0f} ms"]
    return "\n".join(lines)


def _known(args: argparse.Namespace, known: Sequence[Deviation], met: Deviation | None, so_far: str) -> list[str]:
    """What the engine is known for, and whether the run came to it. so_far: how far the run came."""
    if met is not None:
        lines = [
            f"DEVIATES  {deviations.title(met)} by {met.by}, {met.kind}: {met.reason}",
            f"          the run ended in it, with {so_far}: what follows cannot be judged",
        ]
        if not (args.view or args.view_every):
            lines.append("          without --view it may show later than it happens, and then as another entry")
        return ["", *lines]
    rules = ", ".join(sorted({each.rule for each in known}))
    return ["", f"{args.backend} is known not to keep {rules}: this run did not come to that"] if known else []


def _broken(
    args: argparse.Namespace,
    make: Make,
    lockstep: Lockstep,
    finding: Finding,
    known: Sequence[Deviation],
    report: dict[str, object],
) -> str:
    """The failure screen, of as few calls as still break the rule."""
    finding = confirmed(make, lockstep, finding, name=args.backend)
    since = lockstep.draining_since
    drained, calls = since is not None, lockstep.steps[:since]
    long, each_call = Shrunk(finding, lockstep.steps, since), lockstep.grade._replace(every=1)
    every_call = lockstep.grade.view and lockstep.grade.every == 1
    blind = None if every_call or not lockstep.world.has("VIEW") else "--view"

    def shorten(progress: Callable[[int], None]) -> Shrunk:
        nonlocal blind
        small = narrow(make, lockstep.world, calls, finding, grade=lockstep.grade, name=args.backend, drain=drained,
                       known=known, progress=progress)  # fmt: skip
        if small is None or lockstep.grade.every == 1:
            return small or long
        rest = calls_of(small.steps[: small.draining_since])
        found, again = run_again(make, lockstep.world, rest, grade=each_call, name=args.backend, drain=drained)
        if found is None:
            return small
        blind = None
        return Shrunk(found, again.steps, again.draining_since)

    small, trace = shortened(long, shorten, lockstep.world, args.backend, each_call, args.quiet)
    screen = Screen(
        world=lockstep.world,
        steps=small.steps,
        finding=small.finding,
        command=_command_line(args),
        target=args.backend,
        trace=trace,
        found_after=len(calls),
        blind=f"With {blind} this may show at an earlier step." if blind else None,
        drained=small.draining_since is not None,
        limit_s=lockstep.grade.limit_s,
    )
    text = show(screen)
    report |= {"exit": 1, "finding": {"rule": small.finding.rule, "trace": trace, "screen": text}}
    return text


def _world(args: argparse.Namespace, requests: Sequence[TraceRequest]) -> World:
    longest_one = max(requests, key=lambda trace: trace.positions)
    columns = longest_one.positions + max(0, args.drafts)
    if columns > MOST:
        raise WrongInput(f"request {longest_one.req} cannot fit: {columns:,} columns, a row has at most {MOST:,}")
    longest = pages_for(columns, max(1, args.page_size)) * max(1, args.page_size)
    sessions = {trace.session for trace in requests} - {None}
    return World(
        rows=args.running + 8 + len(sessions) if args.rows is None else args.rows,
        context_len=longest if args.context_len is None else args.context_len,
        pages=args.pages,
        page_size=args.page_size,
    )


def _header(args: argparse.Namespace, requests: Sequence[TraceRequest], world: World) -> list[str]:
    lines = [
        f"{Path(args.file).name} on {world.declared.name} {world.declared.version}".rstrip(),
        f"{world.rows:,} rows of {world.context_len:,}, {world.pages:,} pages of {world.page_size:,}",
    ]
    if any(trace.session for trace in requests) and not world.has("SESSIONS"):
        lines.append(f"{world.declared.name} does not declare SESSIONS: every turn is a plain request")
    return lines


def _table(figures: Mapping[str, int]) -> list[str]:
    return [f"  {name:<28}{value:>12,}" for name, value in figures.items()]


def _command_line(args: argparse.Namespace) -> str:
    """What to type to see this run again: whatever is not the default."""
    words = ["kvledger", "replay", args.file, "--backend", args.backend]
    for name, (default, _) in SIZES.items():
        value = getattr(args, _attribute(name))
        words += [f"--{name}", str(value)] if value != default else []
    words += [] if args.sessions is None else ["--sessions" if args.sessions else "--no-sessions"]
    words += ["--resend"] if args.resend else []
    words += ["--against", args.against] if args.against else []
    words += ["--seed", str(args.seed)] if args.seed else []
    words += ["--deviations", args.deviations] if args.deviations else []
    words += [] if args.limit is None else [f"--limit={args.limit:g}"]
    words += [] if args.view_every is None else ["--view-every", str(args.view_every)]
    return shlex.join(words + ["--view"] * args.view)
