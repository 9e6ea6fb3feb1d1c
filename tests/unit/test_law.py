"""The law held against itself: the deletion of guards, SGLang's own checks, and the published tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kvledger.reference import backend as reference
from kvledger.spec.actions import Extend, Finish, Submit, taking
from kvledger.spec.backend import View
from kvledger.spec.rules import Broken
from kvledger.spec.world import World
from kvledger.spec.worlds import WORLDS
from kvledger.tests.law import tables
from kvledger.tests.law.needs import Need, needs, search, switched, verdict, weakened
from kvledger.tests.zoo.sglang_checks import idle_sum_holds, page_check_holds

FEW = dict.fromkeys(WORLDS, 200)  # one state in so many


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


def test_every_guard_of_the_actions_is_in_the_list() -> None:
    """As many as the sources have lines that begin with need."""
    listed = [guard for guard in needs().values() if guard.file == "taking.py"]
    lines = Path(str(taking.__file__)).read_text().splitlines()
    assert len(listed) == sum(line.strip().startswith("need(") for line in lines) > 10


def test_a_switch_lets_one_line_or_one_rule_pass() -> None:

    def guard() -> None:
        vars(taking)["need"](False, "ROW-1", row=1)

    with switched() as switch:
        with pytest.raises(Broken):
            guard()
        switch.rule = "ROW-1"
        guard()
        switch.rule = None
    with pytest.raises(Broken):
        guard()


# ---- what SGLang checks by itself

WORLD = World(rows=2, context_len=4, pages=4, page_size=2)


def books(running: bool) -> View:
    backend = reference.make(WORLD)
    backend.do(Submit("a", (1, 2, 3), "n"))
    backend.do(Extend((("a", 3, 0),)))
    if not running:
        backend.do(Finish("a", 3, True))
    view = backend.view()
    assert view is not None
    return view


def free(view: View, *more: int) -> View:
    return replace(view, free_pages=[*(view.free_pages or ()), *more])


@pytest.mark.parametrize(
    ("running", "spoil", "sum_holds", "pages_hold"),
    [
        (False, lambda view: view, True, True),
        (True, lambda view: view, True, True),
        # a page too few, a row too few: only the sum sees it, and only at idle
        (False, lambda view: replace(view, totals=view.totals._replace(available=1)), False, True),
        (False, lambda view: replace(view, free_rows=view.free_rows[1:]), False, True),
        (True, lambda view: replace(view, totals=view.totals._replace(available=1)), True, True),
        # a page twice on the free list, a page of a request on it, lengths that do not climb: only the page check does
        (True, lambda view: free(view, view.free_pages[0]), True, False),
        (True, lambda view: free(view, view.table["a"][0] // 2), True, False),
        (True, lambda view: replace(view, records={"a": view.records["a"]._replace(committed_len=4)}), True, False),
    ],
)
def test_what_sglang_would_see(
    running: bool, spoil: Callable[[View], View], sum_holds: bool, pages_hold: bool
) -> None:
    view = spoil(books(running))
    assert (idle_sum_holds(view, WORLD), page_check_holds(view, WORLD)) == (sum_holds, pages_hold)


# ---- the tables


def table(text: str) -> tables.Table:
    """Of two columns, the second drawn."""
    return tables.Table("README.md", lambda: text, frozenset({1}))


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A README with a place for one table."""
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "TABLES", {"small": table("| kept | 12 |")})
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- table small (generated) -->\nold\n<!-- end small -->\nafter\n")
    return path


def test_a_table_is_written_where_it_belongs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.main(["--check"]) == 1 and "-old" in capsys.readouterr().out
    assert tables.main([]) == 0
    lines = page.read_text().splitlines()
    assert lines[0] == "before" and lines[2] == "| kept | 12 |" and lines[-1] == "after"
    assert tables.main(["--check"]) == 0


def test_another_release_of_hypothesis_counts_otherwise(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn is not compared then, and everything else is."""
    assert tables.main([]) == 0
    monkeypatch.setattr(tables, "version", lambda _: "99.0.0")
    monkeypatch.setitem(tables.TABLES, "small", table("| kept | 13 |"))
    assert tables.main(["--check"]) == 0
    for other in ("| 1 | 13 |", "| | 13 |", "| kept | 13 |\n| more | 1 |"):
        monkeypatch.setitem(tables.TABLES, "small", table(other))
        assert tables.main(["--check"]) == 1


def test_without_a_place_there_is_one_line(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page.write_text("no place\n")
    assert tables.main([]) == 2 and capsys.readouterr().err.count("\n") == 1
