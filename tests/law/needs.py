"""kvledger needs: no idle guard. Each `need` of the law is deleted in turn; some answer must be judged otherwise then.

The answers are those one change away from a legal one, in the states of the named worlds: in pages for the guards of
the actions, in slots for the monitor's; for its guards of probes, forbidden calls with every kind of answer; for
LIVE-1 a call refused, room made, and the call refused again.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tqdm import tqdm

from kvledger.spec import monitor as judge_of_slots
from kvledger.spec.action import FILES, file_of, name_of
from kvledger.spec.actions import Abort, Action, abort, back, giving, taking
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.edit import Edit
from kvledger.spec.explore import explore, moves
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import Broken, need
from kvledger.spec.saying import said
from kvledger.spec.trace import Step
from kvledger.spec.world import WrongInput
from kvledger.spec.worlds import WORLDS, Scope
from kvledger.tests.kit.probes import forbidden
from kvledger.tests.law.near import near, near_freed, near_replies
from kvledger.tests.report import json_file

ACTIONS: tuple[ModuleType, ...] = (taking, giving, back, *FILES.values())
STRIDE = {"TINY_A": 4, "TINY_B": 1, "NAMESPACES": 8, "DUPLICATES": 16, "BACKOFF": 32, "KEY_LAG": 64,
          "DRAFTS": 32, "SESSIONS": 64, "SMALL": 256, "SPLIT_ADMIT": 32}  # fmt: skip
ACCEPTED = "accepted"

HELP = f"""examples:
  kvledger needs                  delete each guard of the law in turn, see what it changes
  kvledger needs --stride 1       over every state of the named worlds, not a sample (hours)

A guard is shown with the first answer that is judged otherwise without it. Sampled: one state in so many,
{", ".join(f"{name} {stride}" for name, stride in STRIDE.items())}; the search ends when every guard has its answer.
exit 0: each guard is needed. 1: deleting one changes nothing here.
"""


class Need(NamedTuple):
    """One `need` line: file, line, and the rule that it names."""

    file: str
    line: int
    rule: str


class Witness(NamedTuple):
    """What one deletion changes: in a world, an action, the verdict with the guard and without."""

    world: str
    action: str
    before: str
    after: str


class Switch:
    """Stands in for `need`: remembers which line broke last, and lets one line pass, or one rule."""

    def __init__(self) -> None:
        self.broke: tuple[str, int] | None = None
        self.off: tuple[str, int] | None = None
        self.rule: str | None = None

    def __call__(self, ok: bool, rule: str, /, **facts: object) -> None:
        """As need, but for what is switched off."""
        if not ok:
            frame = sys._getframe(1)
            line = Path(frame.f_code.co_filename).name, frame.f_lineno
            if line != self.off and rule != self.rule:
                self.broke = line
                need(ok, rule, **facts)


@contextmanager
def switched() -> Iterator[Switch]:
    """The law with a switch in place of every `need`."""
    switch = Switch()
    modules: tuple[ModuleType, ...] = (*ACTIONS, judge_of_slots)
    kept = [module for module in modules if hasattr(module, "need")]
    for module in kept:
        module.need = switch  # type: ignore[attr-defined]
    try:
        yield switch
    finally:
        for module in kept:
            module.need = need  # type: ignore[attr-defined]


def needs() -> dict[tuple[str, int], Need]:
    """Every `need` line of the actions and of the monitor, by file and line, in order."""
    found = {}
    for module in (*ACTIONS, judge_of_slots):
        path = Path(str(module.__file__))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "need"):
                continue
            rule = node.args[1]
            if isinstance(rule, ast.Constant):
                found[path.name, node.lineno] = Need(path.name, node.lineno, str(rule.value))
            elif module is not judge_of_slots:  # there a table says which rule, and each of its lines is tested
                found[path.name, node.lineno] = Need(path.name, node.lineno, ast.unparse(rule))
    return dict(sorted(found.items()))


Trial = Callable[[], object]


def trials(ledger: Ledger, scope: Scope) -> Iterator[tuple[str, Trial]]:
    """Everything that is judged in this state, with the name of the action."""
    monitor = Monitor(ledger.world, count_armed=False)
    monitor.ledger = ledger
    for act in moves(ledger, scope):
        file = file_of(act)
        if file.requires(ledger, act) is None:
            yield from ((name_of(act), trial) for trial in of_action(ledger, monitor, act))
    for acts in forbidden(ledger, "nobody", scope.namespaces[0]).values():
        for reply in (Refused(), Reply(), Refused(evicted=frozenset({1})), Refused(freed=Freed((1,)))):
            yield "probe", partial(monitor.probe, acts[0], reply)
    for req, record in ledger.records.items():
        law = ledger.trail_of(req)[: record.committed_len]
        for tags in (law, law[:-1], (*law, 0), (0, *law[1:])):
            yield "read", partial(monitor.read, req, tags)
    yield from (("again", trial) for _, trial in retries(ledger, scope))


def retries(ledger: Ledger, scope: Scope) -> Iterator[tuple[list[Step], Trial]]:
    """What was refused for want of room, and is refused again when somebody has gone: the steps, and the last one
    judged."""
    for act in moves(ledger, scope):
        short = refused_for(ledger, act)
        for leaving in [req for req in ledger.records if req in ledger.requests] if short else ():
            monitor = Monitor(ledger.world, count_armed=False)
            monitor.ledger = Edit(ledger).commit()
            no, left = Refused(short), Abort(leaving)
            monitor.step(act, no)
            gone = said(monitor.ledger, left, next(abort.answers(monitor.ledger, left, True)))
            monitor.step(left, gone)
            if file_of(act).requires(monitor.ledger, act) is None:
                yield [Step(act, no), Step(left, gone), Step(act, no)], partial(monitor.judge, act, no)


def refused_for(ledger: Ledger, act: Action) -> str | None:
    """What is short, if this call may be refused here."""
    if file_of(act).requires(ledger, act) is not None:
        return None
    answers = file_of(act).answers(ledger, act, True)
    return next((answer.short for answer in answers if isinstance(answer, Refused)), None)


def of_action(ledger: Ledger, monitor: Monitor, act: Action) -> Iterator[Trial]:
    """Everything near a legal answer to this call, in pages and in slots. monitor: one that stands at this ledger."""
    file = file_of(act)
    legal = list(file.answers(ledger, act, False))
    for answer in near(ledger, act, legal):
        yield partial(file.judge, ledger, act, answer)
    for answer in legal:
        for freed in near_freed(answer.freed or Freed(), ledger.world):
            yield partial(file.judge, ledger, act, replace(answer, freed=freed))
    for reply in near_replies(ledger, act, legal):
        yield partial(monitor.judge, act, reply)


def verdict(trial: Trial) -> str:
    """What a trial ends in: accepted, a rule, or wrong input. Whatever else is raised is the law's own fault."""
    try:
        trial()
    except Broken as broken:
        return broken.rule
    except WrongInput:
        return "wrong input"
    return ACCEPTED


def weakened(trial: Trial) -> str:
    """What it ends in with a guard off: the law may stumble then, and that guard was needed."""
    try:
        return verdict(trial)
    except Exception as error:
        return type(error).__name__


def search(pending: dict[tuple[str, int], Need], strides: dict[str, int], quiet: bool) -> dict[Need, Witness]:
    """For each of these guards the first answer that is judged otherwise without it. Takes them out of pending."""
    found: dict[Need, Witness] = {}
    samples: dict[str, list[Ledger]] = {}
    with switched() as switch:
        for world, (sizes, scope) in WORLDS.items():
            states: list[Ledger] = []
            explore(sizes, scope, laws=False, on_state=lambda ledger, _, states=states: states.append(ledger))  # type: ignore[misc]
            samples[world] = states[:: strides[world]]
        turns = [pair for each in zip_longest(*samples.values()) for pair in zip(samples, each, strict=True)]
        for world, ledger in tqdm(turns, unit="state", leave=False, disable=quiet):
            for action, trial in trials(ledger, WORLDS[world][1]) if ledger else ():
                switch.broke = None
                before = verdict(trial)
                line = switch.broke
                if line is None or line not in pending:
                    continue
                switch.off = line
                after = weakened(trial)
                switch.off = None
                if after != before:
                    found[pending.pop(line)] = Witness(world, action, before, after)
                    if not pending:
                        return found
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger needs`."""
    parser.add_argument("--stride", type=int, metavar="N", help="one state in N, in every world")
    parser.add_argument("--json", metavar="FILE", help="write the guards there as well; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Print each guard with what its deletion changes. Exit 1 if one is idle."""
    if args.stride is not None and args.stride < 1:
        raise WrongInput(f"--stride {args.stride}: expected at least 1")
    json_file.ask(args.json)
    guards = needs()
    pending = dict(guards)
    strides = dict.fromkeys(WORLDS, args.stride) if args.stride else STRIDE
    found = search(pending, strides, args.quiet or not sys.stderr.isatty())
    if args.json != json_file.STDOUT:
        for guard in guards.values():
            witness = found.get(guard)
            says = f"{witness.action} in {witness.world}: {witness.after}" if witness else "IDLE"
            print(f"{f'{guard.file}:{guard.line}':20}{guard.rule:9}{says}")
        print(f"{len(guards)} guards, {len(pending)} idle")
    if args.json:
        json_file.write(args.json, [_as_json(guard, found.get(guard)) for guard in guards.values()])
    return 1 if pending else 0


def _as_json(guard: Need, witness: Witness | None) -> dict[str, object]:
    return {**guard._asdict(), "without": witness and witness._asdict()}
