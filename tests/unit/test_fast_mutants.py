"""The mutants of fast's arithmetic and free stack: each is caught, but for those listed as no change."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")

from kvledger.tests.unit.fast_mutants import FILES, UNCHANGED, mutants
from kvledger.tests.unit.written import python


def test_a_sample_is_caught_but_for_the_listed_ones() -> None:
    """In another process, for fast must not have been imported there. Its last line counts them."""
    done = python("-m", "kvledger.tests.unit.fast_mutants", "--quiet", "--every", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by selfcheck" in done.stdout and "; 0 not as listed" in done.stdout


def test_each_that_is_listed_is_one() -> None:
    """With a sentence; the whole run says that nobody catches it."""
    every = {mutant.key for file in FILES for mutant in mutants(file)}
    assert UNCHANGED.keys() <= every and all(UNCHANGED.values())


def test_each_is_another_one() -> None:
    """No two say the same or do the same; and two changes that must be among them."""
    every = [mutant for file in FILES for mutant in mutants(file)]
    keys = [mutant.key for mutant in every]
    assert len(keys) == len(set(keys)) == len({mutant.code for mutant in every})
    for line, change in (
        ("return -(-lengths // self.page_size)", "becomes return lengths // self.page_size"),
        ("skipped = starts % self.page_size", "becomes skipped = starts // self.page_size"),
    ):  # fmt: skip
        assert ("plan", line, change) in keys
