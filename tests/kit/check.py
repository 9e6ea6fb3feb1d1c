"""kvledger check: is this backend's ownership still right, and if not, in about eight steps why not."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from tqdm import tqdm

from kvledger.spec.rules import RULES, VIEW_PARTS, Rule
from kvledger.spec.trace import A_LIMIT, LEAST_S, MOST_S, Trace, read, text, write
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit import deviations
from kvledger.tests.kit.again import calls_stored, grade_of
from kvledger.tests.kit.calibration import calibrate
from kvledger.tests.kit.deviations import Deviation
from kvledger.tests.kit.generate import POOLS, ROOMY, Pool
from kvledger.tests.kit.limit import LIMIT_S
from kvledger.tests.kit.load import NAMES, ask_page_size, load_backend, page_sizes
from kvledger.tests.kit.lockstep import Finding, Grade
from kvledger.tests.kit.search import BUDGETS, Outcome, search
from kvledger.tests.kit.shrink import CALLS, SECONDS, Shrunk, calls_of, run_again, shrink
from kvledger.tests.kit.verdict import ENOUGH, HOLDS, UNREACHED, UNSEEN, Verdict, counted, for_machines, verdicts
from kvledger.tests.report import json_file
from kvledger.tests.report.terminal import Screen, show

WORDS = ("CONFORMS", "DOES NOT CONFORM", "COULD NOT TELL")  # by exit code
SHIPPED = ("reference", "blocks")
FOLDER = ".kvledger"

HELP = f"""examples:
  kvledger check                               the backends that ship: {", ".join(SHIPPED)}
  kvledger check my_adapter:make               yours: a module beside you, and its function
  kvledger check my_adapter:make --profile quick --page-size 4
  kvledger check reference --json report.json

backends by name: {", ".join(NAMES)}
exit 0: conforms. 1: does not. 2: wrong use, or could not tell: a rule was armed too seldom, less than {ENOUGH} times
(with --profile quick or --actions: not once).
A run that breaks a rule is shrunk with {CALLS:,} calls at most, in {SECONDS:.0f} seconds at most.
"""


@dataclass(frozen=True)
class Report:
    """The verdict on one backend. code: 0 conforms, 1 does not, 2 could not tell."""

    target: str
    outcome: Outcome
    verdicts: list[Verdict]
    code: int
    text: str
    trace: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger check`."""
    parser.add_argument("backend", nargs="*", help=f"a name or module:function (default: {' '.join(SHIPPED)})")
    profiles = ", ".join(f"{name} {actions:,}" for name, actions in BUDGETS.items())
    parser.add_argument("--profile", choices=tuple(BUDGETS), default="ci", help=f"how many actions: {profiles}")
    parser.add_argument("--actions", type=int, help="at least that many actions instead: the last run is finished")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same actions (default 0)")
    parser.add_argument("--page-size", type=int, action="append", choices=sorted({pool[0] for pool in POOLS}),
                        help="only pools with this page size, roomy ones besides; may be given twice (default: all "
                        "that the engine's kernels take)")  # fmt: skip
    parser.add_argument("--no-view", action="store_true", help="judge answers alone, as if there were no view()")
    add_limit(parser)
    parser.add_argument("--deviations", metavar="FILE", help="what the engine is known to do against the law, as TOML "
                        "(tests/kit/deviations.py); an engine that has a name has one")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write the verdict there as well; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """--limit, which a replay has as well."""
    says = f"seconds that one call may take (default {LIMIT_S:g})"
    parser.add_argument("--limit", type=float, metavar="S", help=says)


def ask_limit(args: argparse.Namespace) -> float | None:
    """The seconds of --limit, if it was given. Raises WrongInput."""
    if args.limit is None or LEAST_S <= args.limit < MOST_S:
        return cast(float | None, args.limit)
    raise WrongInput(f"--limit {args.limit}: expected {A_LIMIT}")


def make_arguments(profile: str, seed: int) -> argparse.Namespace:
    """The arguments of a check, for callers that have no command line."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["--profile", profile, "--seed", str(seed), "--quiet"])


def run(args: argparse.Namespace) -> int:
    """Check each backend named; the worst verdict is the exit code."""
    if args.actions is not None and args.actions < 1:
        raise WrongInput(f"--actions {args.actions}: expected at least 1")
    ask_limit(args)
    json_file.ask(args.json)
    targets = args.backend or SHIPPED
    for target in targets:
        load_backend(target)  # a misspelt one is said before minutes are spent on the others
        deviations.known(target, args.deviations)
    reports = []
    for target in targets:
        reports.append(check(target, args))
        if args.json != json_file.STDOUT:
            print(reports[-1].text, end="\n\n" if len(reports) < len(targets) else "\n")
    if args.json:
        json_file.write(args.json, [as_json(report) for report in reports])
    codes = [report.code for report in reports]
    return 1 if 1 in codes else max(codes)


def check(target: str, args: argparse.Namespace) -> Report:
    """Search one backend for a broken rule, and say what was found."""
    make, grade = load_backend(target), Grade(view=not args.no_view, limit_s=ask_limit(args) or LIMIT_S)
    budget = args.actions or BUDGETS[args.profile]
    known = deviations.known(target, args.deviations)
    ask_page_size(target, *args.page_size or ())
    only = args.page_size or page_sizes(target)
    pools = (*POOLS, *ROOMY) if args.page_size else POOLS
    sizes = tuple(each for each in pools if not only or each[0] in only)
    began = time.process_time()
    with tqdm(total=budget, unit="action", desc=target, leave=False,
              disable=args.quiet or not sys.stderr.isatty()) as bar:  # fmt: skip

        def progress(actions: int) -> None:
            bar.update(actions - bar.n)

        outcome = search(make, name=target, budget=budget, seed_number=args.seed, grade=grade, sizes=sizes,
                         known=known, progress=progress)  # fmt: skip
    seconds = time.process_time() - began
    broken = outcome.finding.rule if outcome.finding else None
    enough = 1 if args.profile == "quick" or args.actions or broken else ENOUGH
    world = _spoken_of(outcome.world, sizes)
    found = verdicts(world, outcome.armed, undone=outcome.undone, seen=outcome.evidence, broken=broken, enough=enough,
                     deviating={each.rule for each in known})  # fmt: skip
    if outcome.finding is not None:
        return _broken(target, outcome, found, args, grade, known)
    mended = [each for each in known if not still_shows(each, target)]
    unreached = [verdict for verdict in found if verdict.word == UNREACHED]
    code = 1 if mended else 2 if unreached else 0
    lines = _conforms(outcome, found, seconds, enough, code, known)
    lines += [*_deviations(known, mended, outcome), f"  exit {code}"]
    return Report(target, outcome, found, code, "\n".join(lines))


def _spoken_of(world: World, sizes: tuple[Pool, ...]) -> World:
    """The world of the verdict: where no page has two slots, nothing can be said of what lies inside one."""
    if any(page_size > 1 for page_size, *_ in sizes):
        return world
    capabilities = world.declared.capabilities - {"PAGED"}
    return replace(world, declared=replace(world.declared, capabilities=capabilities))


def _conforms(
    outcome: Outcome, found: list[Verdict], seconds: float, enough: int, code: int, known: Sequence[Deviation]
) -> list[str]:
    declared = outcome.world.declared
    held = [verdict for verdict in found if verdict.word == HOLDS and verdict.rule.must]
    but = f", but for what it is known not to keep: {', '.join(sorted({each.rule for each in known}))}" if known else ""
    least = min(held, key=lambda verdict: verdict.armed) if held else None
    lines = [
        f"{WORDS[code]}  {declared.title}{but}",
        f"  {outcome.actions:,} actions in {outcome.examples:,} runs, seed {outcome.seed}: no counterexample; "
        f"{seconds:.1f} CPU s (calibration loop {calibrate():.2f} s)",
        f"  {len(found)} rules: {counted(found)}",
    ]
    if least is not None:
        lines.append(f"  each MUST rule that holds could have been broken at least {least.armed} times "
                     f"({least.rule.title})")  # fmt: skip
    for rule, times in sorted(outcome.undone.items()):
        lines.append(f"  SHOULD  {RULES[rule].title}: not kept {times} times, which no one is blamed for")
    for verdict in found:
        if verdict.word in (UNREACHED, UNSEEN):
            why = f"armed {verdict.armed} times, {enough} wanted"
            why = wanting(verdict.rule) if verdict.word == UNSEEN else why
            lines.append(f"  {verdict.word}  {verdict.rule.title}: {why}")
    if any(verdict.word == UNREACHED for verdict in found):
        lines.append("  what was reached too seldom, more actions may reach: --profile deep, or --actions N")
    return lines


def _deviations(known: Sequence[Deviation], mended: Collection[Deviation], outcome: Outcome) -> list[str]:
    lines = []
    for each in known:
        where, times = _near(each.witness), outcome.deviated[each]
        how = "MENDED, so its entry must go" if each in mended else f"{times} runs ended in it"
        lines.append(f"  DEVIATES  {deviations.title(each)} by {each.by}, {each.kind}: {each.reason}")
        lines.append(f"            {where}, {deviations.length(each)} actions; {how}")
    return lines


def _near(path: Path) -> str:
    """A path as one would type it here."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def still_shows(deviation: Deviation, target: str) -> bool:
    """Whether the stored run, on this backend, still ends in what the entry says."""
    trace = read(deviation.witness)
    calls, drain = calls_stored(trace), trace.draining_since is not None
    make, grade = load_backend(target), grade_of(trace)
    found, lockstep = run_again(make, trace.world, calls, grade=grade, name=target, drain=drain)
    return found is not None and deviation.explains(found, lockstep.world, lockstep.steps)


def wanting(rule: Rule) -> str:
    """What a backend would have to show, so that something can be said of a rule."""
    parts = [part.lower() for part in rule.shown_by if part in VIEW_PARTS]
    return f"would be shown by view().{' or '.join(parts)}" if parts else "would be shown by an answer's freed"


def _broken(
    target: str, outcome: Outcome, found: list[Verdict], args: argparse.Namespace, grade: Grade,
    known: tuple[Deviation, ...],
) -> Report:  # fmt: skip
    finding, make = outcome.finding, load_backend(target)
    assert finding is not None

    def shorten(progress: Callable[[int], None]) -> Shrunk:
        return shrink(make, outcome.world, outcome.steps, finding, grade=grade, name=target,
                      draining_since=outcome.draining_since, known=known, progress=progress)  # fmt: skip

    long = Shrunk(finding, outcome.steps, outcome.draining_since)
    small, path = shortened(long, shorten, outcome.world, target, grade, args.quiet)
    screen = Screen(
        world=outcome.world,
        steps=small.steps,
        finding=small.finding,
        command=_command_line(target, args),
        target=target,
        seed=outcome.seed,
        trace=path,
        found_after=len(outcome.steps),
        verdicts=found,
        drained=small.draining_since is not None,
        blind=without_view(small, outcome, target, grade),
        limit_s=grade.limit_s,
    )
    return Report(target, outcome, found, 1, show(screen), path)


def _command_line(target: str, args: argparse.Namespace) -> str:
    """What has to be typed to see this again."""
    words = ["kvledger", "check", target]
    words += ["--profile", args.profile] if args.profile != "ci" else []
    words += ["--actions", str(args.actions)] if args.actions else []
    words += ["--seed", str(args.seed)] if args.seed else []
    for size in args.page_size or ():
        words += ["--page-size", str(size)]
    words += [] if args.limit is None else [f"--limit={args.limit:g}"]
    words += ["--deviations", args.deviations] if args.deviations else []
    return shlex.join(words + ["--no-view"] * args.no_view)


def shortened(
    found: Shrunk, shorten: Callable[[Callable[[int], None]], Shrunk], world: World, target: str, grade: Grade,
    quiet: bool,
) -> tuple[Shrunk, str | None]:  # fmt: skip
    """What a run is shortened to, with a progress bar, and where that is stored. The run is stored as it is before:
    who interrupts the shortening has not lost it."""
    long = save(found, world, target, grade)
    try:
        with tqdm(unit="trial", desc="shrinking", leave=False, disable=quiet or not sys.stderr.isatty()) as bar:

            def progress(length: int) -> None:
                bar.set_postfix_str(f"{length} calls", refresh=False)
                bar.update()

            small = shorten(progress)
    except KeyboardInterrupt:
        if long:
            print(f"{found.finding.rule} is broken, as kvledger explain {long} shows", file=sys.stderr)
        raise
    short = save(small, world, target, grade)
    if long and short and long != short:
        Path(long).unlink(missing_ok=True)
    return small, short or long


def save(found: Shrunk, world: World, target: str, grade: Grade) -> str | None:
    """Store a run that breaks a rule, with how it was judged. None: it cannot be written here."""
    finding = found.finding
    return keep(Trace(
        world,
        tuple(found.steps),
        finding.rule,
        finding.step,
        target,
        draining_since=found.draining_since,
        view=grade.view,
        content=grade.content,
        limit_s=None if grade.limit_s == LIMIT_S else grade.limit_s,
    ))  # fmt: skip


def keep(trace: Trace) -> str | None:
    """Store a run beside the user, under a name that says what it shows. None: it cannot be written here."""
    try:
        digest = hashlib.sha256(text(trace).encode()).hexdigest()[:4]
        path = f"{FOLDER}/{str(trace.rule).lower()}-{digest}.itf.json"
        Path(FOLDER).mkdir(exist_ok=True)
        write(trace, path)
    except (OSError, WrongInput):
        return None
    return path


def without_view(small: Shrunk, outcome: Outcome, target: str, grade: Grade) -> str | None:
    """How much later the answers alone would have shown it, or that a view might show it earlier."""
    if not grade.view and outcome.world.has("VIEW"):
        return "No view was looked at; with one, the step where the books go wrong may be an earlier one."
    if "kind" not in small.finding.facts:
        return None
    calls = calls_of(small.steps)
    blind = grade._replace(view=False)
    try:
        found, _ = run_again(load_backend(target), outcome.world, calls, grade=blind, name=target, drain=True)
    except WrongInput:
        return None
    if found is None:
        return "Without a view these calls do not show it."
    later = found.step - small.finding.step
    if later < 0:  # the backend does not repeat itself
        return None
    steps = "step" if later == 1 else "steps"
    return f"Without a view these calls show it {later} {steps} later, as {found.rule}."


def as_json(report: Report) -> dict[str, object]:
    """One report for machines: the verdict, each rule's word, and the finding."""
    finding: Finding | None = report.outcome.finding
    return {
        "backend": report.target,
        "name": report.outcome.world.declared.name,
        "exit": report.code,
        "seed": report.outcome.seed,
        "actions": report.outcome.actions,
        "deviations": {each.witness.name: times for each, times in report.outcome.deviated.items()},
        "rules": for_machines(report.verdicts),
        "finding": None if finding is None else {"rule": finding.rule, "trace": report.trace, "screen": report.text},
    }
