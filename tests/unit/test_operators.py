"""The mutants of the law: each kind is made, what is noticed is told from what is not, and the list is of mutants."""

from __future__ import annotations

import ast
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from kvledger.tests.law import operators
from kvledger.tests.law.mutants import Mutant, mutants
from kvledger.tests.law.operators import NOBODY, every_mutant, noticed
from kvledger.tests.law.questions import Question, answer_of, questions
from kvledger.tests.law.unchanged import UNCHANGED
from kvledger.tests.unit.written import ROOT, python

KINDS = '''
def f(a: Literal[1], b):
    """Text."""
    if a < b and not a == 1:
        return
    elif a:
        pass
    need(a is b, "R")
    g(max(a, b) + b)
'''
MADE = [
    "becomes if a <= b and (not a == 1):",
    "becomes if a < b or not a == 1:",
    "becomes if a < b and a == 1:",
    "becomes if a < b and (not a != 1):",
    "becomes if a < b and (not a == 2):",
    "becomes if a < b and (not a == 0):",
    "becomes need(a is not b, 'R')",
    "becomes g(max(a, b) - b)",
    "becomes g(a + b)",
    "becomes g(b + b)",
    "without return",
    "without g(max(a, b) + b)",
]

INTERRUPTED = """
import signal
from kvledger.tests.law import operators
from kvledger.tests.law.mutants import Mutant
operators._first = lambda mutant, asked: signal.raise_signal(signal.SIGINT)
print("before")
print(*(who for _, who, _ in operators.noticed([Mutant("page", 1, "", "", "", compile("", "", "exec"))], [])))
"""


def test_each_kind_of_change_is_made(tmp_path: Path) -> None:
    """Not of types and texts; a `need` stays, and `pass`. Each code is what its change says: it has no other name."""
    file = tmp_path / "f.py"
    file.write_text(KINDS, encoding="utf-8")
    made = list(mutants(file, "f"))
    assert sorted(each.change for each in made) == sorted(MADE)
    whole = {ast.unparse(ast.parse(KINDS))}
    assert len({each.code for each in made} | {compile(text, str(file), "exec") for text in whole}) == len(MADE) + 1


@pytest.fixture(scope="module")
def every() -> list[Mutant]:
    return list(every_mutant())


def test_every_mutant_is_another_one_and_every_listed_one_is_there(every: list[Mutant]) -> None:
    keys = {mutant.key for mutant in every}
    assert len(every) == len(keys) == len({mutant.code for mutant in every})
    assert keys >= UNCHANGED.keys() and all(UNCHANGED.values())


def test_the_readme_says_how_many(every: list[Mutant]) -> None:
    says = f"{len(every):,} changes of the law's operators and statements, one at a time, {len(UNCHANGED)} of them"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| in a clone: {says} listed as no change, 0 not as listed |" in readme


@pytest.fixture(scope="module")
def asked() -> list[tuple[Question, object]]:
    """About the kernels, and a world of one request."""
    return [(question, answer_of(question)) for question in questions(["TINY_B"])]


def test_where_nothing_is_changed_nothing_is_noticed(asked: list[tuple[Question, object]]) -> None:
    file = operators.SPEC / "page.py"
    same = Mutant("page", 1, "", "nothing", "evict", compile(file.read_text(encoding="utf-8"), str(file), "exec"))
    assert [who for _, who, _ in noticed([same], asked)] == [NOBODY]


def test_a_sample_of_the_kernels_is_as_listed(every: list[Mutant], asked: list[tuple[Question, object]]) -> None:
    some = [each for each in every if each.file in ("page", "record")][::7]
    found = {mutant.key: who for mutant, who, _ in noticed(some, asked)}
    assert len(found) > 15
    assert {key for key, who in found.items() if who == NOBODY} == found.keys() & UNCHANGED.keys()


def test_each_asker_notices_one(every: list[Mutant], asked: list[tuple[Question, object]]) -> None:
    """A kernel's guard; what the caller owes; a page that is wrongly refused; a row that is not given back; a view."""
    who_notices = {
        ("page.evict", "becomes if page.kind != CACHED or page.locks == 0:"): "kernels",
        ("actions/finish.requires", "becomes if act.keep <= 0:"): "answers",
        ("actions/taking.judge_pages", "becomes need(page != 1, 'PAGE-3', req=member.req, page=page)"): "verdicts",
        ("actions/retract.effect", "without edit.release(act.req)"): "writes",
        ("action.name_of", "without return NAMES[type(act)]"): "views",
    }
    some = [each for each in every if (each.key[0], each.change) in who_notices]
    assert {(each.key[0], each.change): who for each, who, _ in noticed(some, asked)} == who_notices


def test_what_runs_on_is_noticed(asked: list[tuple[Question, object]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "SECONDS", 1)
    forever = compile("def demand(ledger, members):\n    while True: pass", "forever", "exec")
    stuck = Mutant("actions/taking", 1, "", "", "demand", forever)
    assert [who for _, who, _ in noticed([stuck], asked)] == ["limits"]


def test_who_asks_no_further_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two mutants at once the first is told, and the second runs on: then nobody asks."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    begun: list[int] = []

    def begin(mutant: Mutant, asked: list[tuple[Question, object]]) -> tuple[int, IO[str]]:
        child, said = begin_one(mutant, asked)
        begun.append(child)
        return child, said

    begin_one = operators._begun
    monkeypatch.setattr(operators, "_begun", begin)
    monkeypatch.setattr(operators, "_first", lambda mutant, _: "at once" if mutant.number == 1 else signal.pause())
    two = [Mutant("page", number, "", "", "", compile("", "nothing", "exec")) for number in (1, 2)]
    telling = noticed(two, [])
    assert next(telling) == (two[0], "at", "once")
    del telling
    assert len(begun) == 2
    left = []
    for child in begun:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
            left.append(child)
    assert left == []


def test_an_interrupted_child_says_nothing() -> None:
    """It ends where it is: what was printed before it began, and waits to be written, is written once."""
    done = python("-c", INTERRUPTED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "before\nlimits\n", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--every", "0"], "operators: --every 0: expected at least 1\n"),
        (["--every", "-3"], "operators: --every -3: expected at least 1\n"),
        (["--only", "no such text"], "operators: --only no such text: expected a text that the function, "),
    ],
)
def test_wrong_use_costs_a_line(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once: nothing has been asked by then."""
    monkeypatch.setattr("sys.argv", ["operators", *words])
    monkeypatch.setattr(operators, "questions", lambda: pytest.fail("it was asked"))
    assert operators.main() == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(says) and err.count("\n") == 1
