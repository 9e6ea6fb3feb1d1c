"""Every stored vector: a valid one ends in the situation of its name, a broken one breaks just the rule of its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import RULES
from kvledger.spec.situations import SITUATIONS, Moment
from kvledger.spec.trace import Trace, judge, read
from kvledger.spec.worlds import WORLDS
from kvledger.tests.law.broken import NO_TRACE, without_its_guards
from kvledger.tests.law.needs import ACCEPTED
from kvledger.tests.vectors.make import BROKEN, HERE, VALID, file_of, main

PATHS = sorted((HERE / VALID).glob("*.itf.json"))
BROKEN_PATHS = sorted((HERE / BROKEN).glob("*.itf.json"))


def copy(ledger: Ledger) -> Ledger:
    """A ledger that the monitor's next step does not write."""
    return Edit(ledger).commit()


def noted(trace: Trace) -> tuple[str, str]:
    """What a vector shows, and the world in which the law itself answered: no backend did."""
    assert trace.backend == ""
    shows, world = re.fullmatch(r"(.*) \((\w+)\)", trace.note).groups()  # type: ignore[union-attr]
    return shows, world


def test_every_situation_has_a_vector() -> None:
    assert [path.name for path in PATHS] == sorted(map(file_of, SITUATIONS))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_vector_is_valid_and_ends_in_its_situation(path: Path) -> None:
    trace = read(path)
    situation, world = noted(trace)
    assert trace.rule is None and file_of(situation) == path.name and trace.world == WORLDS[world][0]
    assert judge(trace, str(path)) is None
    monitor = Monitor(trace.world)
    for act, reply, *_ in trace.steps:
        before = copy(monitor.ledger)
        moment = Moment(before, act, monitor.step(act, reply))
    assert SITUATIONS[situation].holds(moment)


def test_every_rule_that_a_run_can_break_has_a_broken_vector() -> None:
    titles = [rule.title for rule in RULES.values() if rule.must and rule.id not in NO_TRACE]
    assert [path.name for path in BROKEN_PATHS] == sorted(map(file_of, titles))


@pytest.mark.parametrize("path", BROKEN_PATHS, ids=lambda path: path.name)
def test_a_broken_vector_breaks_its_rule_at_its_end(path: Path) -> None:
    """And nothing else sees it: with that rule off it is accepted, or named by a rule that implies it."""
    trace = read(path)
    assert trace.rule is not None and path.name == file_of(RULES[trace.rule].title)
    rule, world = noted(trace)
    assert rule == RULES[trace.rule].name and trace.world == WORLDS[world][0]
    found = judge(trace, str(path))
    assert found is not None and found[:2] == (len(trace.steps), trace.rule) and trace.at == len(trace.steps)
    assert without_its_guards(trace) in (ACCEPTED, *RULES[trace.rule].implied_by)


def test_vectors_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    """The valid ones; the search for the broken ones takes longer, and is a step of .ci/run."""
    assert main(["valid", "--check"]) == 0, capsys.readouterr().out


def test_a_check_tells_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kvledger.tests.vectors.make.HERE", tmp_path)
    monkeypatch.setattr("kvledger.tests.vectors.make.made", lambda folder: {"new.itf.json": "{}"})
    (tmp_path / "valid").mkdir()
    (tmp_path / "valid" / "old.itf.json").write_text("{}")
    assert main(["valid", "--check"]) == 1
    assert [path.name for path in (tmp_path / "valid").iterdir()] == ["old.itf.json"]
    assert main([]) == 0
    assert [path.name for path in (tmp_path / "valid").iterdir()] == ["new.itf.json"]
    assert [path.name for path in (tmp_path / "broken").iterdir()] == ["new.itf.json"]
    assert main(["--check"]) == 0
    assert "gone     valid/old.itf.json" in capsys.readouterr().out
