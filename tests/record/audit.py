"""`kvledger audit`: a recorded run, judged without the engine that made it: the first step that breaks a rule."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tqdm import tqdm

from kvledger.spec import recording, trace
from kvledger.spec.action import file_of
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import Broken
from kvledger.spec.snapshot import Snapshot
from kvledger.spec.trace import Step, Trace, compare, judge_step
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.check import keep
from kvledger.tests.kit.evidence import counting, gives_back, shown
from kvledger.tests.kit.lockstep import Finding, named_in_drain
from kvledger.tests.kit.verdict import for_machines, spelled, verdicts
from kvledger.tests.report import json_file
from kvledger.tests.report.terminal import Screen, show

HELP = """examples:
  kvledger record run.jsonl                 record a small run of a live block manager
  kvledger audit run.jsonl                  judge it, or a run that you have recorded beside your own engine
  kvledger audit run.jsonl --json -         the verdict for machines

A recording is JSON lines: the world, then one action with its answer a line. spec/recording.py shows it, and
tests/record/recorder.py writes it; whose first line holds a snapshot may begin in the middle of a run. A file that ends
in .json is a stored run, as a failed check leaves behind.
Exit 0: every rule that was reached holds. 1: a rule is broken. 2: wrong input; or a call that nobody may make, such as
a second finish of one request.
"""
Progress: TypeAlias = Callable[[int], object]


class Run(NamedTuple):
    """A run in a file. steps: reads them, telling of how much of `size` each is. after: called behind each step."""

    world: World
    opening: Snapshot | None
    backend: str
    steps: Callable[[Progress], Iterator[Step]]
    size: int
    unit: str
    after: Callable[[int, Ledger], None] = lambda number, ledger: None
    draining_since: int | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `kvledger audit`."""
    parser.add_argument("file", help="a recording (JSON lines), or a stored run (.json)")
    parser.add_argument("--json", metavar="FILE", help="write the verdict there as well; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Exit code 0: no rule is broken. 1: one is. Raises WrongInput for a file that holds no run."""
    json_file.ask(args.json)
    run = stored(args.file) if args.file.endswith(".json") else recorded(args.file)
    audit = Audit(run, args.file)
    off = args.quiet or not sys.stderr.isatty()
    with tqdm(total=run.size, unit=run.unit, unit_scale=True, leave=False, disable=off) as bar:
        finding = audit.judge(bar.update)
    report: dict[str, object] = {"file": args.file, "name": run.world.declared.name, "actions": audit.steps}
    if finding is None:
        found = verdicts(run.world, audit.armed, undone=audit.monitor.undone, seen=audit.evidence)
        report |= {"exit": 0, "rules": for_machines(found)}
        head = f"{Path(args.file).name}: {run.world.declared.title}, {audit.steps:,} actions"
        text = "\n".join([head, *spelled(found)])
    else:
        path, text = screen(run, args.file, finding)
        report |= {"exit": 1, "finding": {"rule": finding.rule, "step": finding.step, "trace": path, "screen": text}}
    if args.json != json_file.STDOUT:
        print(text)
    if args.json:
        json_file.write(args.json, report)
    return 0 if finding is None else 1


def recorded(file: str) -> Run:
    """A recording."""
    found = recording.read(file)
    return Run(found.world, found.opening, found.backend, found.steps, found.file.stat().st_size, "B")


def stored(file: str) -> Run:
    """A stored run."""
    found = trace.read(file)

    def steps(progress: Progress) -> Iterator[Step]:
        for step in found.steps:
            yield step
            progress(1)

    def after(number: int, ledger: Ledger) -> None:
        compare(found, file, number, ledger)

    return Run(found.world, found.opening, found.backend, steps, len(found.steps), " actions", after,
               found.draining_since)  # fmt: skip


class Audit:
    """One run under judgement. steps: how many were judged. armed: rule -> how often it could have been broken, and
    what would have shown it is recorded. evidence: what is recorded at all."""

    def __init__(self, run: Run, file: str) -> None:
        self.run, self.file, self.steps = run, file, 0
        self.armed: Counter[str] = Counter()
        self.evidence = {"ANSWER"}
        try:
            self.monitor = Monitor(run.world, run.opening)
        except WrongInput as wrong:
            raise WrongInput(f"{file}: {wrong}") from None

    def judge(self, progress: Progress) -> Finding | None:
        """The first finding, or None. Raises WrongInput where the file says what cannot be judged."""
        try:
            for step in self.run.steps(progress):
                self.steps += 1
                self._step(step)
        except Broken as broken:
            draining = self.run.draining_since is not None and self.steps > self.run.draining_since
            rule = named_in_drain(broken.rule, step.act) if draining else broken.rule
            return Finding(rule, self.steps, broken.facts)
        except WrongInput as wrong:
            before = "; no step before breaks a rule" if self.steps else ""
            raise WrongInput(f"{wrong}{before}") from None
        self.monitor.finish()
        return None

    def _step(self, step: Step) -> None:
        looked_at = {"ANSWER", *["PROBE"] * step.probe, *["CONTENT"] * (step.read is not None)}
        looked_at |= shown(step.view) if step.view is not None else set()
        ledger, act = self.monitor.ledger, step.act
        gives = step.answer.freed is not None and not file_of(act).requires(ledger, act) and gives_back(ledger, act)
        try:
            judge_step(self.monitor, step)
        except WrongInput as wrong:
            forbidden = "may not be called" in str(wrong)
            why = "; the scheduler did what it may not, or it is recorded wrong" if forbidden else ""
            raise WrongInput(f"{self.file}: step {self.steps}: {wrong}{why}") from None
        self.run.after(self.steps, self.monitor.ledger)
        looked_at |= {"FREED"} if gives else set()
        self.evidence |= looked_at
        self.armed.update(counting(self.monitor.arms, looked_at))


def screen(run: Run, file: str, finding: Finding) -> tuple[str | None, str]:
    """Where the run up to the guilty step is stored, and the failure screen."""
    steps = tuple(islice(run.steps(lambda size: None), finding.step))
    kept = Trace(run.world, steps, finding.rule, finding.step, run.backend, opening=run.opening)
    path = file if file.endswith(".json") else keep(kept)
    text = show(
        Screen(
            world=run.world,
            steps=steps,
            finding=finding,
            command=shlex.join(["kvledger", "audit", file]),
            target=None,
            trace=path,
            drained=run.draining_since is not None and finding.step > run.draining_since,
            opening=run.opening,
        )
    )
    return path, text
