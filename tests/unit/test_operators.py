"""The mutants of the law: each is noticed, but for those listed as no change."""

from __future__ import annotations

from kvledger.tests.law.operators import UNCHANGED, every_mutant
from kvledger.tests.unit.written import python


def test_a_sample_is_noticed_but_for_the_listed_ones() -> None:
    """Its last line counts them."""
    done = python("-m", "kvledger.tests.law.operators", "--quiet", "--every", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by kernels" in done.stdout and "; 0 not as listed" in done.stdout


def test_each_that_is_listed_is_one() -> None:
    """With a sentence; the whole run says that nothing notices it."""
    assert UNCHANGED.keys() <= {mutant.key for mutant in every_mutant()} and all(UNCHANGED.values())


def test_each_is_another_one() -> None:
    """No two say the same or do the same; and one of each kind that must be among them."""
    every = list(every_mutant())
    keys = [mutant.key for mutant in every]
    assert len(keys) == len(set(keys)) == len({mutant.code for mutant in every})
    evict, cut = "if page.kind != CACHED or page.locks != 0:", "self.touched.pages.add(page)"
    for key in (
        ("page.evict", evict, "becomes if page.kind != CACHED or page.locks == 0:"),
        ("page.evict", evict, "becomes if page.kind != CACHED and page.locks != 0:"),
        ("page.evict", evict, "becomes if page.kind != CACHED or page.locks != 1:"),
        ("edit.Edit.cut", cut, "without self.touched.pages.add(page)"),
        ("actions/retract.effect", "edit.release(act.req)", "without edit.release(act.req)"),
    ):
        assert key in keys
