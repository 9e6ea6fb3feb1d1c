"""The fuzzing of tests/unit/fuzz.py, in a small dose: CI runs ten thousand cases."""

from __future__ import annotations

import pytest

from kvledger.tests.unit.fuzz import CASES, ended, kinds
from kvledger.tests.unit.written import python


def test_no_input_brings_a_command_down() -> None:
    """In a process of its own, in 1 GiB of memory: each kind of input, and of each some that are refused."""
    done = python("-m", "kvledger.tests.unit.fuzz", "--cases", "600")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(kinds()) and CASES >= 10_000
    assert all(" 100 cases, " in line and "exit 2" in line for line in lines)


@pytest.mark.parametrize(
    "result",
    [
        (3, "", "kvledger: x\n"), (None, "", ""), ("no", "", ""), (2, "", ""), (2, "", "kvledger: two\nlines\n"),
        (2, "", "kvledger: no end"), (2, "", "something else\n"), (1, "Traceback (most recent call last)", ""),
    ],
)  # fmt: skip
def test_what_it_holds_for_wrong(result: tuple[int | str | None, str, str]) -> None:
    with pytest.raises(AssertionError):
        ended(result)


def test_what_it_holds_for_right() -> None:
    assert ended((2, "", "kvledger audit: a file, expected another\n")) == "exit 2"
    assert ended((0, "holds\n", "")) == "exit 0"
