"""The adapter in tests/README.md is short, runs, conforms, and a fault put into it is found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvledger.__main__ import main

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """my_adapter.py as the README has it, in a folder of its own."""
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / f"my_adapter_{abs(hash(tmp_path))}.py"
    path.write_text(found.group(1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path


def code(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_it_conforms_and_is_short(adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under forty lines; the ci profile finds nothing and arms every rule that it declares."""
    assert len(code(adapter.read_text())) < 40
    assert main(["check", f"{adapter.stem}:make", "--quiet"]) == 0
    assert "CONFORMS  block_manager 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("good", "bad", "rule"),
    [
        ("self.pages(self.manager.remove(req))", "self.pages(self.manager.remove(req))[1:]", "PAGE-6"),
        ("for block in self.manager.free)", "for block in self.manager.free[1:])", "PAGE-2"),
        ("for place in places]]", "for place in reversed(places)]]", "TAB-1"),
        ("(index + 1) * self.manager.block_size", "index * self.manager.block_size", "PAGE-3"),
        ("return [index + 1 for", "return [index for", "PAGE-3"),
        ('return Refused("pages")', "places = self.manager.nothing", "RAISES"),
    ],
)
def test_a_fault_in_it_is_found(
    adapter: Path, capsys: pytest.CaptureFixture[str], good: str, bad: str, rule: str
) -> None:
    """One changed expression, one rule."""
    text = adapter.read_text()
    assert text.count(good) == 1
    adapter.write_text(text.replace(good, bad))
    assert main(["check", f"{adapter.stem}:make", "--quiet"]) == 1
    screen = capsys.readouterr().out
    assert ("the backend raises" if rule == "RAISES" else f"BROKEN  {rule} ") in screen
