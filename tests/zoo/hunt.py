"""kvledger zoo: the kit against backends with one planted fault each, and against clean ones beside them.

For each fault and seed: is it found, as the expected rule, at the very step of the first strike; how many actions
later without a view; how short is the shrunk program, and how short could it be.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import NamedTuple, TypeVar

from tqdm import tqdm

from kvledger.spec.world import WrongInput
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Grade
from kvledger.tests.kit.search import BUDGETS, search
from kvledger.tests.kit.shrink import shrink
from kvledger.tests.report import json_file
from kvledger.tests.zoo import FAULTS
from kvledger.tests.zoo.shortest import scope_of, shortest

CLEAN = ("reference", "blocks", "oracle-lifo", "oracle-fifo", "oracle-random", "oracle-adversarial")
NEAR = 2  # a shrunk program may be this much longer than the shortest
EXACT = 6  # up to this length the shortest is found; beyond, only that nothing is shorter than NEAR less
BLIND = Grade(view=False, content=False)
Job = TypeVar("Job")
Done = TypeVar("Done")

HELP = """examples:
  kvledger zoo                          every fault and every clean backend, 20 seeds each
  kvledger zoo freed_twice --seeds 3    one fault
  kvledger zoo --seeds 2 --no-shortest  a sample, without the search for the shortest program

columns: found as the expected rule, at the first strike (with a view); found without a view, and how many actions
after the strike (median, most); length of the shrunk program; how much longer than the shortest it can be (most).
exit 0: every fault was caught in every seed and no clean backend was accused. 1: not so.
"""


class Catch(NamedTuple):
    """One fault, one seed. later: actions between the first strike and the finding without a view. shortest: no
    program of the same scope is shorter than this and trips the fault."""

    fault: str
    seed: int
    rule: str | None
    at_strike: bool
    blind_rule: str | None
    later: int | None
    length: int
    shortest: int | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger zoo`."""
    parser.add_argument("fault", nargs="*", help=f"some of: {', '.join(FAULTS)}")
    parser.add_argument("--seeds", type=int, default=20, help="seeds 0..N-1 (default 20)")
    parser.add_argument("--no-shortest", action="store_true", help="do not search for the shortest program")
    parser.add_argument("--no-controls", action="store_true", help="leave the clean backends out")
    parser.add_argument("--json", metavar="FILE", help="write every catch there as well; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Hunt, print the table, and say whether everything was as it should be."""
    for fault in args.fault:
        if fault not in FAULTS:
            raise WrongInput(f"fault {fault!r}: expected some of {', '.join(FAULTS)}")
    if args.seeds < 1:
        raise WrongInput(f"--seeds {args.seeds}: expected at least 1")
    json_file.ask(args.json)
    faults = args.fault or FAULTS
    jobs = [(fault, seed, not args.no_shortest) for fault in faults for seed in range(args.seeds)]
    caught = list(_spread(hunt, jobs, "faults", args.quiet))
    wrong = [catch for catch in caught if not _as_expected(catch)]
    say: Callable[[str], None] = print if args.json != json_file.STDOUT else lambda line: None
    say(_table(caught))
    for catch in wrong:
        say(f"NOT AS EXPECTED  {catch}")
    accused: list[str] = []
    if not args.no_controls and not args.fault:
        controls = [(name, seed) for name in CLEAN for seed in range(args.seeds)]
        accused = [found for found in _spread(control, controls, "controls", args.quiet) if found]
        say(f"clean controls: {len(controls)} runs of {BUDGETS['ci']:,} actions, {len(accused)} accused")
        for found in accused:
            say(f"  {found}")
    if args.json:
        json_file.write(args.json, [catch._asdict() for catch in caught])
    return 1 if wrong or accused else 0


def hunt(job: tuple[str, int, bool]) -> Catch:
    """Search for one fault with one seed, with a view and without."""
    fault, seed, measure = job
    target = f"kvledger.tests.zoo.{fault}:make"
    make, budget = load_backend(target), BUDGETS["ci"]
    seen = search(make, name=fault, budget=budget, seed_number=seed, grade=Grade())
    blind = search(make, name=fault, budget=budget, seed_number=seed, grade=BLIND)
    length, least = 0, None
    if seen.finding is not None:
        small = shrink(make, seen.world, seen.steps, seen.finding, grade=Grade(), name=fault,
                       draining_since=seen.draining_since)  # fmt: skip
        length = len(small.steps)
        if measure and not seen.drained:
            scope = scope_of(small.steps, seen.world)
            most = length - 1 if length <= EXACT else length - 1 - NEAR
            least = shortest(make, seen.world, scope, seen.finding.rule, most) or most + 1
    found, dark = seen.finding, blind.finding
    later = dark.step - dark.first_strike if dark and dark.first_strike is not None else None
    at_strike = found is not None and found.step == found.first_strike
    rule, blind_rule = (each.rule if each is not None else None for each in (found, dark))
    return Catch(fault, seed, rule, at_strike, blind_rule, later, length, least)


def control(job: tuple[str, int]) -> str | None:
    """Search a clean backend; what it was accused of, if anything."""
    name, seed = job
    found = search(load_backend(name), name=name, budget=BUDGETS["ci"], seed_number=seed, grade=Grade()).finding
    return None if found is None else f"{name}, seed {seed}: {found.rule} at step {found.step}, {dict(found.facts)}"


def expected(fault: str) -> tuple[str, str | None]:
    """The rules that a fault was written to break: with a view, and without, if answers show it at all."""
    module = importlib.import_module(f"kvledger.tests.zoo.{fault}")
    return module.RULE, module.BLIND


def _as_expected(catch: Catch) -> bool:
    rule, _ = expected(catch.fault)
    near = catch.shortest is None or catch.length <= catch.shortest + NEAR
    return catch.rule == rule and catch.at_strike and near


def _table(caught: list[Catch]) -> str:
    lines = [f"{'fault':30}{'rule':9}{'at strike':>10}{'no view':>9}{'as':>9}{'later':>10}{'shrunk':>8}{'over':>6}"]
    for fault in dict.fromkeys(catch.fault for catch in caught):
        mine = [catch for catch in caught if catch.fault == fault]
        rule, _ = expected(fault)
        hits = sum(catch.rule == rule and catch.at_strike for catch in mine)
        dark = [catch for catch in mine if catch.blind_rule is not None]
        rules = "+".join(sorted({str(catch.blind_rule) for catch in dark})) or "-"
        later = sorted(catch.later for catch in dark if catch.later is not None)
        gap = f"{median(later):.0f}, {later[-1]}" if later else "-"
        lengths = sorted(catch.length for catch in mine)
        over = [catch.length - catch.shortest for catch in mine if catch.shortest is not None]
        lines.append(
            f"{fault:30}{rule:9}{f'{hits}/{len(mine)}':>10}{f'{len(dark)}/{len(mine)}':>9}{rules:>9}{gap:>10}"
            f"{f'{lengths[0]}..{lengths[-1]}':>8}{max(over) if over else '-':>6}"
        )
    return "\n".join(lines)


def _spread(work: Callable[[Job], Done], jobs: Iterable[Job], what: str, quiet: bool) -> Iterator[Done]:
    """Do the jobs on every core, in order, with a progress bar."""
    listed = list(jobs)
    with ProcessPoolExecutor(max_workers=min(os.cpu_count() or 1, len(listed))) as pool:
        yield from tqdm(pool.map(work, listed), total=len(listed), desc=what, leave=False,
                        disable=quiet or not sys.stderr.isatty())  # fmt: skip
