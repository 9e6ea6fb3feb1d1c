"""`kvledger replay`: a recorded request trace through the driver, every action judged; or a stored run once more."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvledger.spec.actions import Action
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.page import pages_for
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.again import replay_trace
from kvledger.tests.kit.calibration import calibrate
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Finding, Lockstep
from kvledger.tests.kit.verdict import Verdict, verdicts
from kvledger.tests.replay.driver import Summary, drive
from kvledger.tests.replay.knobs import Knobs, positions
from kvledger.tests.replay.mooncake import TraceRequest, read
from kvledger.tests.replay.synthetic import write
from kvledger.tests.report.terminal import show
from tqdm import tqdm

HELP = """examples:
  kvledger replay --synthetic t.jsonl --requests 500 --seed 7   make up a trace, if you have none
  kvledger replay t.jsonl                                       replay it on the reference
  kvledger replay t.jsonl --backend my_adapter:make --view      on yours, its own books compared at every step
  kvledger replay t.jsonl --page-size 1 --pages 4096            a tight pool: evictions, refusals, retractions
  kvledger replay .kvledger/row-1-7a3f.itf.json                 a run that was saved because it failed, once more

A trace is in the Mooncake format, one JSON object a line: timestamp, input_length, output_length, hash_ids.
Exit 0: every rule that was reached holds. 1: a rule is broken. 2: wrong input.
"""
SIZES: dict[str, tuple[int | None, str]] = {
    "requests": (300, "how many requests to take from the file, or to make up"),
    "block-tokens": (16, "tokens that stand for one block of 512 of the file"),
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
    parser.add_argument("--backend", default="reference", metavar="NAME", help="a name or module:function; reference")
    for name, (default, sentence) in SIZES.items():
        shown = sentence if default is None else f"{sentence}; default: {default}"
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=shown)
    parser.add_argument("--view", action="store_true", help="compare the backend's own books and content at every step")
    parser.add_argument("--json", metavar="FILE", help="write the figures and verdicts to FILE too")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("--synthetic", action="store_true", help="write a made-up trace to the file; replay nothing")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the made-up trace; default: 0")


def run(args: argparse.Namespace) -> int:
    """Exit code 0: no rule is broken. 1: one is. Raises WrongInput for what the user got wrong."""
    if args.synthetic:
        write(args.file, args.requests, args.seed)
        print(f"wrote {args.file}: {args.requests:,} made-up requests, seed {args.seed}")
        return 0
    if args.file.endswith(".json"):
        return replay_trace(args.file, args.backend)
    requests = read(args.file, args.requests, args.block_tokens)
    lockstep = Lockstep(load_backend(args.backend), _world(args, requests), view=args.view, content=args.view)
    calibration = calibrate()
    start, peak_pages = time.process_time(), 0

    def step(action: Action) -> Granted | Refused:
        nonlocal peak_pages
        answer = lockstep.do(action)
        peak_pages = max(peak_pages, len(lockstep.ledger.pages))
        return answer

    def coming_match(req: str) -> int:
        return lockstep.ledger.longest_match(req) * lockstep.world.page_size

    try:
        with tqdm(total=len(requests), unit=" requests", leave=False, disable=True if args.quiet else None) as bar:
            summary = drive(requests, step, coming_match, Knobs(lockstep.world, args.running, args.chunk), bar.update)
        seconds = time.process_time() - start
        lockstep.drain()
    except Finding as finding:
        print(show(finding, lockstep, _command_line(args)))
        _save(args.json, {"exit": 1, "rule": finding.rule, "step": finding.step})
        return 1
    found = verdicts(lockstep.world, lockstep.monitor.armed, seen=args.view)
    figures = _figures(summary, peak_pages)
    print(_text(args, lockstep.world, figures, found))
    print(
        f"\n{summary.request_actions / seconds:,.0f} actions per CPU second; calibration loop {calibration * 1e3:.0f} ms"
    )
    _save(
        args.json,
        {
            "exit": 0,
            "figures": figures,
            "rules": {verdict.rule: {"word": verdict.word, "armed": verdict.armed} for verdict in found},
            "cpu_seconds": seconds,
            "calibration_seconds": calibration,
        },
    )
    return 0


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


def _text(args: argparse.Namespace, world: World, figures: Mapping[str, int], found: Sequence[Verdict]) -> str:
    words: dict[str, list[str]] = defaultdict(list)
    for verdict in found:
        words[verdict.word].append(verdict.rule)
    lines = [
        f"{Path(args.file).name} on {world.declared.name} {world.declared.version}".rstrip(),
        f"{world.rows:,} rows of {world.context_len:,} columns, {world.pages:,} pages of {world.page_size:,} slots",
        "",
        *(f"  {name:<26}{value:>12,}" for name, value in figures.items()),
        "",
        f"{len(words.pop('HOLDS', []))} rules HOLD",
        *(f"  {word:<14}{' '.join(rules)}" for word, rules in sorted(words.items())),
    ]
    return "\n".join(lines)


def _command_line(args: argparse.Namespace) -> str:
    """What to type to see this run again: every size that is not the default."""
    words = ["kvledger", "replay", args.file, "--backend", args.backend]
    for name, (default, _) in SIZES.items():
        value = getattr(args, name.replace("-", "_"))
        words += [f"--{name}", str(value)] if value != default else []
    return shlex.join(words + ["--view"] * args.view)


def _save(path: str | None, found: Mapping[str, object]) -> None:
    if path is None:
        return
    try:
        Path(path).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise WrongInput(f"{path}: {error.strerror}, expected a name that can be written") from None
