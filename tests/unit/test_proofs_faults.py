"""Every fault that is seeded in a kernel is refuted: the law that it breaks is named, and a counterexample is told."""

from __future__ import annotations

import re

import pytest

from kvledger.proofs import cells, kernels, records
from kvledger.proofs.kernel_faults import FAULTS, Fault, with_fault
from kvledger.proofs.verdict import Verdict

# What is told of each, but for the numbers that Z3 picks: \d in the place of each
TOLD = {
    "evicts what is read": r"page \d, cached under key \d, \d locks? and read by holder .*, is evicted: "
    r"then holder \d reads page \d, which is free",
    "anybody gives back": r"page (\d), private to row (1|2), place \d, is given back by row (?!\2)\d: "
    r"then row \2 lists page \1 at place \d, which is free",
    "gives back a cached page": r"page \d, cached under key (\d), .*, is given back by row \1: "
    r"then holder \d reads page \d, which is free",
    "takes a cached page": r"page (\d), cached .* and read by .*, is granted to row (\d), place (\d): "
    r"then holder \d reads page \1, which is private to row \2, place \3",
    "unlocks nothing": r"page (\d), cached .*, (\d) locks? and read by .*, is unlocked by holder \d: "
    r"then page \1 is cached .*, \2 locks?, and (?!\2)\d read it",
    "publishes under its row": r"page (\d), private to row (\d), place \d, is published under key (?!\2)\d: "
    r"then (key \d lists page \1, which is|page \1 is) cached under key \2, 0 locks",
    "gives back to nobody": r"page (\d), private to row (\d), place (\d), is given back by row \2: "
    r"then page \1 is private to row \2, place \3, which lists it not",
    "keeps what was allocated": r"holder (\d), row \d: .*allocated ([1-9]); release page size \d: "
    r"then holder \1 has no row: .*allocated \2",
    "cuts into the cache": r"holder (\d), row (\d): protected (\d), .*; cut upto (\d), page size \d: "
    r"then holder \1 has row \2: protected \3, committed \4, allocated \4",
    "commits what it reserves": r"reserve of a record of row (\d): protected \d, committed (\d), allocated \d; "
    r"upto (\d), page_size \d: gives row \1: protected \d, committed (?!\2)\3, allocated \3",
    "protects a part of a page": r"holder (\d), row \d: protected \d, .*; protect upto (\d), page size \d: "
    r"then holder \1 has row \d: protected \2, ",
    "grows over drafts": r"grow of a record of row \d: protected \d, committed (\d), allocated (?!\1)\d; "
    r"upto \d, page_size \d: is not refused, and must be",
}


def verdicts_of(fault: Fault) -> list[Verdict]:
    """What is not settled of the kernel with the fault: of the function by itself, and of all steps. A fault may also
    leave a fact of their books idle; that is no law's affair."""
    page, record = with_fault(fault)
    found = [kernels.verdict(kernels.transition(fault.function, page, record))]
    found += cells.settle(print, page) if fault.kernel == "page" else records.settle(print, record)
    return [verdict for verdict in found if not verdict.holds and not verdict.name.endswith(": books")]


def test_each_fault_has_its_words() -> None:
    assert list(TOLD) == list(FAULTS) and len(FAULTS) >= 10


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refuted(name: str) -> None:
    """Its law is among what is refuted, and under that law stands a counterexample, with its numbers. No fault hides
    behind an `unknown`: what Z3 could not tell for every size, it shows in a small world."""
    fault = FAULTS[name]
    found = verdicts_of(fault)
    told = [line for verdict in found for line in verdict.counterexample.splitlines()]
    assert any(re.fullmatch(rf"{fault.law}: {TOLD[name]}.*", line) for line in told), told
    for verdict in found:
        assert verdict.words.startswith("not settled: ") and verdict.counterexample, verdict
        assert "unknown" not in verdict.words and "no counterexample" not in verdict.counterexample, verdict


def test_what_is_owed_by_one_step_alone_is_told_too() -> None:
    """A release that keeps the row: two holders' laws say so, and what only a release owes."""
    _, record = with_fault(Fault("record", "release", "Record(None, ", "Record(record.row, ", "", ""))
    [verdict] = [each for each in records.settle(print, record) if each.name == "records: release"]
    assert "nobody holds the row refuted" in verdict.words
    told = r"nobody holds the row: holder (\d), row (\d): .*; release page size \d: then holder \1 has row \2: .*"
    assert any(re.fullmatch(told, line) for line in verdict.counterexample.splitlines()), verdict.counterexample


def test_a_fault_that_does_not_fit_is_an_error() -> None:
    """Its words must stand in the function, once."""
    fault = FAULTS["unlocks nothing"]._replace(old="page.owner, 1")
    with pytest.raises(ValueError, match=r"'page.owner, 1' stands 0 times in page.unlock"):
        with_fault(fault)
