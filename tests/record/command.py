"""`kvledger record`: a small run of live pools, recorded, and what recording costs an action.

The pools are somebody's who knows nothing of kvledger: a block manager, or SGLang's own classes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module

from tqdm import tqdm

from kvledger.spec import recording
from kvledger.spec.world import WrongInput
from kvledger.tests.engines.venvs import SGLANG, ask_here
from kvledger.tests.kit.calibration import calibrate
from kvledger.tests.record import live_blocks
from kvledger.tests.record.recorder import Recorder

HELP = """examples:
  kvledger record run.jsonl                  a block manager's run; then: kvledger audit run.jsonl
  kvledger record run.jsonl --of sglang      SGLang's own pools, tree, sessions (kvledger engines setup sglang)

Beside your own pools: tests/record/recorder.py for any engine, tests/record/sglang.py for SGLang, where one line is
enough; tests/record/live_blocks.py and live_sglang.py are what is recorded here. The cost is the CPU time of the run
with the recorder, less that of the same run without, in turn, five times each, divided by the actions; the median.
Exit 0: recorded. 2: wrong input.
"""
ROUNDS = 5


def blocks(actions: int, seed: int, file: str | None) -> None:
    """A run of the block manager. file: where it is recorded to, if it is."""
    if file is None:
        live_blocks.Server(seed, lambda action, reply: None).serve(actions)
    else:
        with Recorder(file, live_blocks.WORLD, backend="block_manager") as recorder:
            live_blocks.Server(seed, recorder.note).serve(actions)


def sglang(actions: int, seed: int, file: str | None) -> None:
    """The same on SGLang's classes, in its environment. Raises Elsewhere from any other."""
    ask_here(SGLANG.name, SGLANG.name)
    live, beside = (import_module(f"kvledger.tests.record.{name}") for name in ("live_sglang", "sglang"))
    server = live.Server(seed)
    with nullcontext() if file is None else beside.record(file, server.tree):
        server.serve(actions)


SERVE = {"block-manager": blocks, "sglang": sglang}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `kvledger record`."""
    parser.add_argument("file", help="where to record to; a new file")
    parser.add_argument("--of", choices=sorted(SERVE), default="block-manager",
                        help="whose pools (default: %(default)s)")  # fmt: skip
    parser.add_argument("--actions", type=int, default=2000, metavar="N",
                        help="about how many the run has (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the run (default: %(default)s)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Exit code 0: recorded. Raises WrongInput for a file that exists or cannot be written."""
    if args.actions < 1:
        raise WrongInput(f"--actions {args.actions}: expected at least 1")
    serve, calibration = SERVE[args.of], calibrate()
    serve(args.actions, args.seed, args.file)
    done = sum(1 for _ in recording.read(args.file).steps())
    without, with_it = list[float](), list[float]()
    off = args.quiet or not sys.stderr.isatty()
    with tempfile.TemporaryDirectory() as folder, tqdm(total=ROUNDS, unit="round", leave=False, disable=off) as bar:
        for number in range(ROUNDS):
            without.append(seconds(partial(serve, args.actions, args.seed, None)))
            with_it.append(seconds(partial(serve, args.actions, args.seed, f"{folder}/{number}.jsonl")))
            bar.update()
    alone, both = statistics.median(without), statistics.median(with_it)
    each = 1e6 / done
    print(f"recorded {done:,} actions of {args.of} to {args.file}: kvledger audit {args.file}")
    print(
        f"{(both - alone) * each:,.0f} us an action for the recorder, {alone * each:,.0f} us for the engine, "
        f"{both / alone:.2f} times as long in all; CPU time, calibration loop {calibration * 1e3:,.0f} ms"
    )
    return 0


def seconds(work: Callable[[], object]) -> float:
    """CPU time of it."""
    began = time.process_time()
    work()
    return time.process_time() - began
