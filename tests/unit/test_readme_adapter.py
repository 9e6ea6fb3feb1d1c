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
    """About forty lines; the ci profile finds nothing and arms every rule that it declares."""
    assert len(code(adapter.read_text())) <= 46
    assert main(["check", f"{adapter.stem}:make", "--quiet"]) == 0
    assert "CONFORMS  mine 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("good", "bad", "rule"),
    [
        ("pages = self.blocks.pop(req, [])", "pages = self.blocks.pop(req, [])[1:]", "PAGE-6"),
        ("self.free += pages", "self.free += pages[1:]", "PAGE-2"),
        ("i % self.size for i", "(i + 1) % self.size for i", "TAB-1"),
        ("range(1, world.pages + 1)", "range(0, world.pages)", "PAGE-3"),
        ('return Refused("pages")', "need = dict.fromkeys(need, 0)", "RAISES"),
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
