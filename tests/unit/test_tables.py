"""The published tables: written where they belong, compared without what another drawing would count otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvledger.tests.law import tables


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
