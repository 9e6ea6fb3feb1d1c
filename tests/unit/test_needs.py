"""No idle guard: the search that deletes each `need` in turn tells one that is needed from one that is not."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from kvledger.spec import monitor
from kvledger.spec.actions import taking
from kvledger.spec.rules import Broken, need
from kvledger.spec.worlds import WORLDS
from kvledger.tests.law import needs as module
from kvledger.tests.law.needs import Need, needs, search, switched, verdict, weakened
from kvledger.tests.unit.written import Bench

ROOT = Path(__file__).parents[2]
SOURCE, PAGES = Path(str(taking.__file__)), ("PAGE-1", "PAGE-3", "PAGE-4")  # judge_pages, and the rules it names
FEW = {"TINY_B": 8}  # one state in so many, of this world alone


@pytest.fixture(autouse=True)
def _one_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked for here lies near."""
    monkeypatch.setattr(module, "WORLDS", {name: WORLDS[name] for name in FEW})


def test_an_idle_guard_is_told_from_one_that_is_needed() -> None:
    """A line that never breaks anything stays in the list; a real one gets the answer that it rejects."""
    real = next(guard for guard in needs().values() if guard.rule == "PAGE-4" and guard.file == "taking.py")
    idle = Need("nowhere.py", 1, "PAGE-1")
    pending = {(each.file, each.line): each for each in (real, idle)}
    found = search(pending, FEW, quiet=True)
    assert list(pending.values()) == [idle] and found.keys() == {real}
    assert found[real].before == "PAGE-4" and found[real].after != "PAGE-4"


def test_where_no_guard_is_off_the_law_may_not_stumble() -> None:
    """An exception of its own is no verdict; with a guard off it says that the guard was needed."""
    with pytest.raises(ZeroDivisionError):
        verdict(lambda: 1 / 0)
    assert weakened(lambda: 1 / 0) == "ZeroDivisionError"


def test_a_guard_that_fires_and_changes_nothing_is_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PAGE-4 asked twice over: without the first line the second one says the same, and the second never fires."""
    [line] = [each for each in SOURCE.read_text().splitlines() if each.strip().startswith("need(len(pages) == asked,")]
    path = tmp_path / SOURCE.name
    path.write_text(SOURCE.read_text().replace(line, f"{line}\n{line}"))
    put_in_place(path, "judge_pages", monkeypatch)
    pending = {at: guard for at, guard in needs().items() if guard.file == SOURCE.name and guard.rule in PAGES}
    assert [guard.rule for guard in pending.values()] == ["PAGE-4", "PAGE-4", "PAGE-3", "PAGE-1"]
    found = search(pending, FEW, quiet=True)
    assert [guard.rule for guard in pending.values()] == ["PAGE-4", "PAGE-4"]
    assert {guard.rule for guard in found} == {"PAGE-3", "PAGE-1"}


def put_in_place(path: Path, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One function of taking.py, as this file has it, with the globals of the module."""
    written: dict[str, Any] = {"__name__": taking.__name__}
    exec(compile(path.read_text(), str(path), "exec"), written)
    monkeypatch.setattr(taking, "__file__", str(path))
    monkeypatch.setattr(taking, function, FunctionType(written[function].__code__, vars(taking)))


def test_every_guard_of_the_law_is_in_the_list() -> None:
    """Every line of the sources that begins with need; but for the one whose rule a table names."""
    lines = {
        (path.name, number)
        for path in (ROOT / "spec").rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.strip().startswith("need(") and not line.strip().startswith("need(False, rule, ")
    }
    assert needs().keys() == lines


def test_the_readme_states_the_number_of_guards() -> None:
    assert f"| `kvledger needs` | {len(needs())} guards, 0 idle: " in (ROOT / "README.md").read_text()


def test_an_idle_guard_fails_the_command(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    real = next(guard for guard in needs().values() if guard.rule == "PAGE-4" and guard.file == "taking.py")
    idle = Need("nowhere.py", 1, "PAGE-1")
    for guards, code, last in (([real], 0, "1 guards, 0 idle"), ([real, idle], 1, "2 guards, 1 idle")):
        listed = {(each.file, each.line): each for each in guards}
        monkeypatch.setattr(module, "needs", lambda listed=listed: listed)
        found = bench.call("needs", "--stride", "8")
        assert (found[0], found[1].splitlines()[-1]) == (code, last)
        assert ("IDLE" in found[1]) == bool(code)


def test_a_switch_lets_one_line_or_one_rule_pass() -> None:
    """And is gone afterwards."""

    def guard() -> None:
        vars(taking)["need"](False, "ROW-1", row=1)

    with switched() as switch:
        with pytest.raises(Broken):
            guard()
        switch.rule = "ROW-1"
        guard()
        switch.rule, switch.off = None, switch.broke
        guard()
        switch.off = None
        with pytest.raises(Broken):
            guard()
    assert vars(taking)["need"] is vars(monitor)["need"] is need
