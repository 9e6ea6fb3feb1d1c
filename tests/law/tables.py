"""The published tables: which rule is known how well, and how far from its first step a fault is found, by whom.

    python -m kvledger.tests.law.tables           write them into spec/README.md and README.md
    python -m kvledger.tests.law.tables --check   compare only; exit 1 if anything differs
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from difflib import unified_diff
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from kvledger.spec.actions import Abort, Evict, Finish, Submit
from kvledger.spec.backend import Make
from kvledger.spec.explore import explore
from kvledger.spec.rules import RULES, Rule, declared
from kvledger.spec.situations import SITUATIONS
from kvledger.spec.world import WrongInput
from kvledger.spec.worlds import WORLDS
from kvledger.tests.kit.load import build, load_backend
from kvledger.tests.kit.lockstep import Grade
from kvledger.tests.kit.search import BUDGETS, Outcome, search
from kvledger.tests.kit.shrink import calls_of, run_again
from kvledger.tests.vectors.make import BROKEN, file_of, stored
from kvledger.tests.zoo import FAULTS
from kvledger.tests.zoo.hunt import BLIND, expected
from kvledger.tests.zoo.sglang_checks import idle_sum_holds, page_check_holds

ROOT = Path(__file__).resolve().parents[2]  # of a clone: .src/ links here
DRAWN = "Drawn by Hypothesis "
SGLANG = (idle_sum_holds, page_check_holds)


def matrix() -> str:
    """One line a rule: what it says, who owes it, what shows it, and by how much evidence it is known."""
    checked = {name: _checked(name) for name in ("reference", "blocks")}
    armed = {
        name: {rule.id: outcome.armed[rule.id] * declared(rule, outcome.world.declared) for rule in RULES.values()}
        for name, outcome in checked.items()
    }
    reached = {world: explore(*WORLDS[world], laws=False).reached for world in WORLDS}
    broken, caught = stored(BROKEN), {fault: expected(fault)[0] for fault in FAULTS}
    lines = [
        "| rule | sentence | source | owed by | shown by | armed: reference, blocks | vectors: valid, broken "
        "| catches first | explored in |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rule in RULES.values():
        arming = [name for name, situation in SITUATIONS.items() if rule.id in situation.arms]
        worlds = [world for world, found in reached.items() if found.keys() & set(arming)]
        cells = [
            rule.title if rule.must else f"{rule.title} (SHOULD)",
            rule.sentence,
            rule.source,
            rule.owed_by.lower(),
            " ".join(word.lower() for word in rule.shown_by),
            ", ".join(f"{counts[rule.id]:,}" if counts[rule.id] else "" for counts in armed.values()).strip(", "),
            _vectors(rule, len(arming), file_of(rule.title) in broken),
            " ".join(fault for fault, first in caught.items() if first == rule.id),
            "all" if len(worlds) == len(WORLDS) else " ".join(worlds),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _vectors(rule: Rule, valid: int, broken: bool) -> str:
    return ", ".join([str(valid)] * bool(valid) + ["broken"] * broken)


def _checked(name: str) -> Outcome:
    return search(load_backend(name), name=name, budget=BUDGETS["ci"], seed_number=0, grade=Grade())


def distances() -> str:
    """For each fault, on one run (seed 0): calls between the first strike and the finding, by four checks."""
    lines = [
        "| fault | kvledger with a view | without | SGLang's idle sum | SGLang's page check |",
        "|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        make = load_backend(f"kvledger.tests.zoo.{fault}:make")
        seen = search(make, name=fault, budget=BUDGETS["ci"], seed_number=0, grade=Grade())
        assert seen.finding is not None and seen.finding.first_strike is not None
        calls = calls_of(seen.steps)
        dark, _ = run_again(make, seen.world, calls, grade=BLIND, name=fault, drain=True)
        strike = seen.finding.first_strike
        cells = [
            fault,
            f"{seen.finding.step - strike}, {seen.finding.rule}",
            "never" if dark is None else f"{dark.step - strike}, {dark.rule}",
            *_later(make, seen, strike),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _later(make: Make, seen: Outcome, strike: int) -> list[str]:
    """When each check of the books alone fails, on the same run; after its last step every request is aborted and the
    cache emptied, so that it idles."""
    backend, world = build(make, seen.world)
    acts = [step.act for step in seen.steps]
    sessions = {act.session for act in acts if isinstance(act, Submit) and act.session is not None}
    last = {act.req: act for act in acts if isinstance(act, Submit | Finish | Abort)}  # an id may come again
    live = [req for req, act in last.items() if isinstance(act, Submit)]
    cells: dict[Callable[..., bool], str] = {}
    for number, act in enumerate([*acts, *map(Abort, live), Evict(world.pages)], 1):
        try:
            backend.do(act)
            view = backend.view()
        except Exception as error:  # the engine's own alarm, where it has one
            return [cells.get(holds, f"{number - strike}, {type(error).__name__}") for holds in SGLANG]
        if number >= strike and view is not None:
            failing = (holds for holds in SGLANG if holds not in cells and not holds(view, world, sessions))
            cells |= dict.fromkeys(failing, f"{number - strike}")
    return [cells.get(holds, "never") for holds in SGLANG]


class Table(NamedTuple):
    """One table: the file that carries it, what makes it, and its columns, from 0, that a search has counted."""

    file: str
    make: Callable[[], str]
    drawn: frozenset[int]


TABLES = {
    "matrix": Table("spec/README.md", matrix, frozenset({5})),
    "distances": Table("README.md", distances, frozenset({1, 2, 3, 4})),
}


def place(name: str, file: str) -> tuple[str, str, str]:
    """The text of the file that carries a table: before it, the table, after it."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = re.fullmatch(rf"(.*<!-- table {name} .*?-->\n)(.*?)(<!-- end {name} -->.*)", text, re.DOTALL)
    if found is None:
        raise WrongInput(f"{file}: expected a place for the table {name}")
    return found[1], found[2], found[3]


def _comparable(standing: str, table: str, drawn: frozenset[int]) -> tuple[str, str]:
    """Another release of Hypothesis draws other moves: then what was counted in a search is not compared."""
    if standing.rpartition(DRAWN)[2] == table.rpartition(DRAWN)[2]:
        return standing, table
    print(f"{DRAWN}{version('hypothesis')} here: what was counted in a search is not compared")
    return _undrawn(standing, drawn), _undrawn(table, drawn)


def _undrawn(table: str, drawn: frozenset[int]) -> str:
    """The table without those columns, and without the line that says who drew."""
    rows = [line.strip("|").split("|") for line in table.partition(DRAWN)[0].splitlines()]
    return "\n".join("|".join(cell for at, cell in enumerate(row) if at not in drawn) for row in rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Write, or compare. Exit code 1: something differs."""
    parser = argparse.ArgumentParser(prog="python -m kvledger.tests.law.tables", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a table differs")
    args = parser.parse_args(argv)
    try:
        places = {name: place(name, table.file) for name, table in TABLES.items()}
    except (OSError, WrongInput) as error:
        print(f"tables: {error}; they stand in a clone, not in an installed package", file=sys.stderr)
        return 2
    differing = 0
    for name, (file, make_table, drawn) in TABLES.items():
        before, standing, after = places[name]
        table = f"{make_table()}\n\n{DRAWN}{version('hypothesis')}.\n"
        if args.check:
            standing, table = _comparable(standing, table, drawn)
        same = table == standing
        print(f"{name:12}{file:18}{'as it stands' if same else 'differs' if args.check else 'written'}")
        if not same and args.check:
            sys.stdout.writelines(unified_diff(standing.splitlines(True), table.splitlines(True), "stands", "is"))
        elif not same:
            (ROOT / file).write_text(before + table + after, encoding="utf-8", newline="\n")
        differing += not same
    return 1 if differing and args.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
