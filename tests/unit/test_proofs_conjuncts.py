"""No step of a proof asks for more than it must: an idle conjunct is told, by step and in words.

Each seed narrows a guard or the books. Z3 then says unsat as before, of fewer states; nothing else would notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("z3")

import z3

from kvledger.proofs import cells, records, rows
from kvledger.proofs.cells_steps import STEPS as PAGE_STEPS
from kvledger.proofs.conjuncts import Noting, in_words
from kvledger.proofs.records import CONTEXT_LEN, SIZE
from kvledger.proofs.rows_logic import Term
from kvledger.proofs.rows_steps import STEPS, Step
from kvledger.proofs.verdict import Verdict

A, B, C, D = z3.Bools("a b c d")


def quiet(asked: str) -> None:
    """Progress that nobody looks at."""


# ---- what a formula is made of


@pytest.mark.parametrize(
    ("formula", "parts"),
    [
        (A, {"a": True}),
        (z3.And(A, z3.And(B, C)), {"a": z3.And(B, C), "b": z3.And(A, C), "c": z3.And(A, B)}),
        (z3.Implies(A, z3.And(B, C)), {"b": z3.Implies(A, C), "c": z3.Implies(A, B)}),
        (z3.Or(A, z3.And(B, C)), {"b": z3.Or(A, C), "c": z3.Or(A, B)}),
        (z3.Or(A, B), {"Or(a, b)": True}),
        (z3.Not(z3.And(A, B)), {"Not(And(a, b))": True}),
        (z3.Int("n?") <= 3, {"n <= 3": z3.Int("n?") <= 4}),
        (z3.Int("n?") > 3, {"n > 3": z3.Int("n?") > 2}),
        (z3.Int("n?") == 3, {"n == 3": True}),
    ],
)
def test_a_part_is_left_out(formula: Term, parts: dict[str, Term]) -> None:
    found = {part.said: part.less for part in Noting().parts(formula)}
    assert found.keys() == parts.keys()
    for said, less in parts.items():
        solver = z3.Solver()
        solver.add(found[said] != less)
        assert solver.check() == z3.unsat, said


def test_below_a_quantifier_a_part_is_left_out_of_every_case() -> None:
    small = cells._Noting()
    kind, owner = (z3.Function(name, z3.IntSort(), z3.IntSort()) for name in ("kind", "owner"))
    one, other = small.parts(small.all("page", lambda g: z3.And(kind(g) == 1, owner(g) == 2)))
    assert (one.said, other.said) == ("kind(0) == 1", "owner(0) == 2")
    assert z3.eq(z3.simplify(one.less), z3.simplify(z3.And(*(owner(g) == 2 for g in (0, 1, 2)))))


def test_words() -> None:
    assert in_words(5, [], "conjunct", "conjuncts") == "each of 5 conjuncts is needed"
    assert in_words(1, [], "fact", "facts") == "the fact is needed"
    assert in_words(2, ["a", "b"], "fact", "facts") == "not needed: a, b"


# ---- rows


def narrowed(step: str, more: Callable[[Any, Any, Any], Term]) -> Step:
    """A step whose guard asks for more. more: of q, the state before, parameters."""
    whole = STEPS[step].relation

    def relation(q: Any, s: Any, p: Any, t: Any) -> Any:
        says = whole(q, s, p, t)
        return says | {"guard": q.both(says["guard"], more(q, s, p))}

    return STEPS[step]._replace(relation=relation)


def test_every_conjunct_of_a_guard_is_needed() -> None:
    verdicts = list(rows.settle_guards(quiet))
    assert [verdict.name for verdict in verdicts] == [f"rows: guard of {name}" for name in STEPS]
    assert all(verdict.holds and verdict.words.endswith("needed") for verdict in verdicts)


@pytest.mark.parametrize(
    ("step", "more", "words"),
    [
        ("start", lambda q, s, p: p.committed <= 3, "not needed: committed <= 3"),
        (
            "accept", lambda q, s, p: p.committed < s.allocated(p.req),
            "not needed: committed <= allocated(req), committed < allocated(req)",
        ),
        ("evict", lambda q, s, p: q.all("page", lambda g: s.locks(g) <= 3), "not needed: locks(page 1) <= 3"),
        ("forget", lambda q, s, p: s.lives(p.req), "not needed: lives(req)"),
    ],
)  # fmt: skip
def test_a_narrower_guard_is_told(
    step: str, more: Callable[[Any, Any, Any], Term], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the second, either bound is idle beside the other: the guard is narrower by one."""
    monkeypatch.setattr(rows, "STEPS", {step: narrowed(step, more)})
    [verdict] = rows.settle_guards(quiet)
    assert (verdict.name, verdict.words, verdict.holds) == (f"rows: guard of {step}", words, False)


def test_an_answer_that_does_not_come_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvledger.proofs.rows_proof.LIMIT_MS", 1)
    monkeypatch.setattr(rows, "STEPS", {"take_up": STEPS["take_up"]})
    [verdict] = rows.settle_guards(quiet)
    assert not verdict.holds


# ---- cells and records


def books_of(part: Any) -> Verdict:
    """What a part says of what its steps assume."""
    verdicts: list[Verdict] = list(part.settle(quiet))
    return next(verdict for verdict in verdicts if verdict.name.endswith(": books"))


@pytest.mark.parametrize("part", [cells, records])
def test_every_fact_of_the_books_is_needed(part: Any) -> None:
    assert books_of(part).holds


@pytest.mark.parametrize("where", ["books", "judged"])
def test_narrower_books_of_cells_are_told(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PAGE_STEPS["grant"]

    def change(q: Any, kernel: Any, s: Any, p: Any) -> Any:
        says: Any = whole.change(q, kernel, s, p)
        return says._replace(**{where: (*getattr(says, where), p.row == 1, p.place == 0)})

    monkeypatch.setitem(PAGE_STEPS, "grant", whole._replace(change=change))
    verdict = books_of(cells)
    assert "row == 1, of grant, place == 0, of grant" in verdict.words and not verdict.holds


def test_narrower_books_of_records_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    grow = records.STEPS["grow"]
    more = grow._replace(books=lambda s, p: (*grow.books(s, p), CONTEXT_LEN <= 8, SIZE == 1))
    monkeypatch.setitem(records.STEPS, "grow", more)
    verdict = books_of(records)
    assert verdict.words == "not needed: context_len <= 8, of grow, page_size == 1, of grow" and not verdict.holds


def test_a_hand_over_of_nothing_is_no_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that could only pass nothing on would be settled for nothing."""
    hand_over = records.STEPS["hand over"]
    empty = hand_over._replace(books=lambda s, p: (*hand_over.books(s, p), z3.Not(s.holds(p.holder))))
    monkeypatch.setattr(records, "STEPS", {"hand over": empty})
    first, *_ = records.settle(quiet)
    assert first.words == "not settled: witness not found"
