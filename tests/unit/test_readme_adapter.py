"""The adapter in tests/README.md is short, runs, conforms, and a fault put into it is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvledger.tests.unit.written import Bench, python

README = Path(__file__).parents[1] / "README.md"


def adapter() -> str:
    """my_adapter.py, as the README has it."""
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_it_conforms_and_is_short(bench: Bench) -> None:
    """Under forty lines; the ci profile finds nothing and arms every rule that it declares."""
    assert len([line for line in adapter().splitlines() if line.strip()]) < 40
    code, out, err = bench.call("check", bench.backend(adapter(), head=""), "--quiet")
    assert (code, err) == (0, "") and "CONFORMS  block_manager 1" in out


def test_it_is_found_beside_you(tmp_path: Path) -> None:
    """By the console script, which lies elsewhere: Python looks beside that, not beside the user."""
    bin, here = tmp_path / "bin", tmp_path / "here"
    bin.mkdir()
    here.mkdir()
    (bin / "kvledger").write_text("from kvledger.__main__ import main\nraise SystemExit(main())\n")
    (here / "my_adapter.py").write_text(adapter())
    done = python(str(bin / "kvledger"), "check", "my_adapter:make", "--profile", "quick", cwd=here)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("CONFORMS  block_manager 1")


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
def test_a_fault_in_it_is_found(bench: Bench, good: str, bad: str, rule: str) -> None:
    """One changed expression, one rule."""
    assert adapter().count(good) == 1
    code, screen, _ = bench.call("check", bench.backend(adapter().replace(good, bad), head=""), "--quiet")
    assert code == 1 and ("the backend raises" if rule == "RAISES" else f"BROKEN  {rule} ") in screen
