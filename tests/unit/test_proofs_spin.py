"""The law against the Promela model: the smallest world, and that a fault on either side is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvledger.proofs import spin
from kvledger.proofs.spin import by_law, by_spin, counted, verdict
from kvledger.proofs.spin.by_law import Count
from kvledger.spec.actions import Action
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.ledger import Ledger

SMALLEST = "B"
needs_spin = pytest.mark.skipif(not by_spin.there(), reason="spin or a C compiler is not installed")


def test_the_law_counts_what_spin_counted() -> None:
    assert by_law.count(SMALLEST) == counted()[SMALLEST]


@needs_spin
def test_spin_counts_it_again() -> None:
    assert by_spin.count(SMALLEST) == counted()[SMALLEST]


def test_a_legal_answer_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A law that forgot that a backend may stop at the end of a reserve's page would count fewer states."""
    all_answers = by_law.answers

    def fewer(ledger: Ledger, act: Action) -> Iterator[Granted | Refused]:
        yield from (each for each in all_answers(ledger, act) if isinstance(each, Refused) or each.reserved % 2 == 0)

    monkeypatch.setattr(by_law, "answers", fewer)
    found, there = by_law.count(SMALLEST), counted()[SMALLEST]
    assert found.states < there.states
    assert not verdict(SMALLEST, there, {"the law": found}, 0.0).holds


@needs_spin
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (":: i < pr[h] / 2 -> lk[pg[2 * (h) + i]]--", ":: i < pr[h] / 2 -> skip"),  # a lock stays after release
        (":: else -> kind[pg[2 * (h) + i]] = FREE\n", ":: else -> skip\n"),  # a page is lost at release
        ("lk[cp[v]] == 0)", "true)"),  # a locked page is evicted
    ],
)
def test_spin_asserts_the_laws(right: str, wrong: str) -> None:
    model = by_spin.MODEL.read_text(encoding="utf-8")
    assert model.count(right) == 1
    with pytest.raises(by_spin.NotCounted, match="assertion violated"):
        by_spin.count(SMALLEST, model.replace(right, wrong))


def test_another_model_is_not_the_one_that_was_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where Spin is not installed, nobody else would notice."""
    assert spin.is_that_model()
    (tmp_path / "ledger.pml").write_bytes(by_spin.MODEL.read_bytes() + b"\n")
    monkeypatch.setattr(by_spin, "MODEL", tmp_path / "ledger.pml")
    monkeypatch.setattr(by_spin, "there", lambda: False)
    monkeypatch.setattr(spin, "counted", lambda: {SMALLEST: counted()[SMALLEST]})
    [found] = spin.settle(print)
    assert (found.holds, found.counterexample) == (False, spin.OTHER)


def test_one_move_more_is_no_agreement() -> None:
    there = Count(10, 20)
    assert verdict("A", there, {"the law": there, "Spin now": there}, 0.0).holds
    words = "10 states of world A, all, and 20 moves, as Spin counted"
    assert verdict("A", there, {"the law": there}, 0.0).words == words
    for counts in ({"the law": Count(10, 21)}, {"the law": there, "Spin now": Count(11, 20)}):
        found = verdict("A", there, counts, 0.0)
        assert not found.holds and "Spin counted 10 and 20" in found.counterexample
    assert not verdict("A", there, {"the law": there}, 0.0, "spin failed").holds


def test_a_search_that_was_cut_off_is_no_count() -> None:
    whole = "errors: 0\n     12 states, stored\n     31 transitions (= stored+matched)\n"
    assert by_spin.read(whole) == Count(12, 30)
    for said in ("error: max search depth too small\n" + whole, whole.replace("errors: 0", "errors: 1"), "nothing"):
        with pytest.raises(by_spin.NotCounted):
            by_spin.read(said)
