"""The executor: a function run along every path is the function. The axioms: true of a model. The goals: can fail."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import z3

from kvledger.proofs import cells, counting, kernels, records
from kvledger.proofs.cells_changes import Change
from kvledger.proofs.cells_state import EverySize, Law, laws
from kvledger.proofs.cells_steps import STEPS, Step
from kvledger.proofs.clauses import CLAUSES
from kvledger.proofs.goals import ask, model_of, quantified
from kvledger.proofs.kernel_faults import Fault, with_fault
from kvledger.proofs.saying import said_of_page
from kvledger.proofs.symbolic import Path, derive
from kvledger.spec import page as page_kernel
from kvledger.spec import record
from kvledger.spec.page import CACHED, FREE_PAGE, Page, SpecError

NUMBERS = {"a": z3.Int("a"), "b": z3.Int("b")}
POINTS = [(a, b) for a in range(-7, 8) for b in (1, 2, 3, 8)]


def refusing(a: int, b: int) -> int:
    if a > b:
        raise SpecError("a is larger")
    return b - a


@pytest.mark.parametrize(
    ("function", "paths"),
    [
        (lambda a, b: a // b, 1),
        (lambda a, b: (a + 2) % b - 3 * b, 1),
        (lambda a, b: 10 - a, 1),
        (lambda a, b: max(a, b), 2),
        (lambda a, b: 0 if 0 <= a < b else 1 if a == b or a != 5 else 2, 6),
        (lambda a, b: int(not (a < 3 and b > 1)), 3),
        (lambda a, b: 1 if a or b - 3 else 0, 3),
        (lambda a, b: 1 if not a else 0, 2),
        (refusing, 2),
    ],
)
def test_a_term_is_the_function(function: Callable[[int, int], int], paths: int) -> None:
    """At points around zero, where Z3's division and Python's could differ; and it refuses where the function does."""
    derived = derive(function, NUMBERS)
    assert len(derived.paths) == paths
    for a, b in POINTS:
        try:
            expected: int | None = function(a, b)
        except SpecError:
            expected = None
        assert z3.is_true(derived.enabled(a, b)) == (expected is not None)
        assert expected is None or derived.result(0, a, b).as_long() == expected


def test_a_number_that_is_asked_for_as_a_truth_hides_no_fault() -> None:
    """7 - 7 is false: this evict takes a page that seven read, which no random call of the executor's is."""
    fault = Fault("page", "evict", "page.locks != 0", "(page.locks != 0 and (page.locks - 7))", "", "")
    page, _ = with_fault(fault)
    assert page.evict(Page(CACHED, 3, 0, 7)) == FREE_PAGE
    verdict = kernels.verdict(kernels.transition("evict", page))
    assert not verdict.holds and "authority refuted" in verdict.words and "7 locks" in verdict.counterexample


@pytest.mark.parametrize(
    ("kernel", "right", "wrong", "told"),
    [
        ("page", "return page == FREE_PAGE", "return True", "a page of kind 0, .* is called lawful"),
        ("page", "page.owner >= 1 and ", "", "a page of kind 1, .* is called lawful"),
        ("record", "record.protected_len % page_size == 0", "True", "a record of holds True, .* is called lawful"),
        ("record", "record.allocated_len > 0", "record.allocated_len > 1", "a record of .* is called not lawful"),
    ],
)
def test_what_is_called_lawful_is_what_the_rules_mean(kernel: str, right: str, wrong: str, told: str) -> None:
    """Too weak, or too strong: every other proof goes by it."""
    page, record_then = with_fault(Fault(kernel, "lawful", right, wrong, "", ""))
    found = kernels.verdict_on_lawful(kernel, page if kernel == "page" else record_then)
    assert (found.holds, found.words) == (False, "not settled: lawful refuted")
    assert re.match(told, found.counterexample), found.counterexample
    assert kernels.verdict_on_lawful(kernel, page_kernel if kernel == "page" else record).holds


def test_the_paths_are_apart_and_leave_nothing_out() -> None:
    for name in CLAUSES:
        conditions = [path.condition for path in kernels.transition(name).derived.paths]
        assert model_of(z3.Not(z3.Or(*conditions))) is None
        for nth, one in enumerate(conditions):
            assert all(model_of(one, other) is None for other in conditions[nth + 1 :])


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="no number and no truth: 'text'"):
        derive(lambda a, b: a < "text", NUMBERS)


def test_a_loop_over_what_is_symbolic_is_refused() -> None:
    """It would have as many paths as there are numbers."""

    def loop(a: int, b: int) -> int:
        while a > 0:
            a -= 1
        return a

    with pytest.raises(RuntimeError, match="more than 100 forks on one path"):
        derive(loop, NUMBERS)


def test_a_function_that_always_refuses_has_no_result() -> None:
    def always(a: int, b: int) -> int:
        if a < b or a >= b:
            raise SpecError("no")
        return a

    derived = derive(always, NUMBERS)
    assert z3.is_false(derived.enabled(1, 2)) and len(derived.paths) == 2
    with pytest.raises(SpecError, match="a kernel function refuses every call"):
        derived.result(0)


def test_the_executor_checks_itself() -> None:
    """A derived term with one path dropped, or its numbers moved, differs from the function."""
    unlock = kernels.transition("unlock")
    assert not list(kernels.differences(unlock))
    returning = [path for path in unlock.derived.paths if path.result is not None]
    moved = [Path(path.condition, tuple(value + 1 for value in path.result or ())) for path in returning]
    for paths in ([Path(z3.BoolVal(True), returning[0].result)], moved):
        wrong = unlock._replace(derived=unlock.derived._replace(paths=tuple(paths)))
        assert list(kernels.differences(wrong))


# ---- goals


def test_what_does_not_follow_is_open() -> None:
    a = z3.Int("a")
    asked = ask([a > 3], {"follows": a > 2, "does not": a > 4})
    assert (asked.goals, asked.open) == (2, {"does not": "sat"}) and asked.slowest[0] in ("follows", "does not")


def test_unknown_is_open() -> None:
    """With a quantifier Z3 gives no counterexample, and that it does not know counts as a failure."""
    a, f = z3.Int("a"), z3.Function("f", z3.IntSort(), z3.IntSort())
    every = z3.ForAll([a], f(a) > a, patterns=[f(a)])
    assert quantified(every) and not quantified(a > 3)
    assert ask([every], {"follows": f(3) > 2, "does not": f(3) > 4}).open == {"does not": "unknown"}


# ---- counting


def test_the_axioms_have_a_model_and_their_unguarded_form_has_none() -> None:
    said = counting.axioms(counting.InPython())
    assert all(said) and len(said) == len(counting.AXIOMS)
    assert not all(counting.axioms(counting.InPython(), guarded=False))
    assert not counting.contradicts_itself(guarded=True) and counting.contradicts_itself(guarded=False)


def test_the_model_has_sets_as_they_are() -> None:
    q = counting.InPython()
    every = counting.Few(frozenset(), True)
    assert q.has(every, 3) and not q.finite(every) and not q.has(q.put(every, 3, False), 3)
    assert q.put(q.put(q.empty, 3, True), 3, False) == q.empty and q.members(q.put(q.empty, 3, True)) == 1


def test_an_axiom_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict that says it, exit 1: here with a model in which every set is empty."""
    monkeypatch.setattr(counting.InPython, "members", lambda self, holders: 0)
    [verdict] = counting.settle(print)
    assert not verdict.holds and verdict.counterexample == "an axiom is false of finite and cofinite sets"


# ---- cells and records: what they rest on is needed


@pytest.mark.parametrize("dropped", ["LOCK-1 locks-counted", "PAGE-1 one-owner", "PAGE-2 no-page-lost"])
def test_the_laws_that_others_rest_on(dropped: str) -> None:
    """Without it, some step is not settled any more."""
    kernel, all_laws = cells.kernel_of(page_kernel), laws(kernels.lawful_page(page_kernel))
    fewer: dict[str, Law] = {name: law for name, law in all_laws.items() if name != dropped}
    open_steps = []
    for name, step in STEPS.items():
        q = cells.question(EverySize(), step, kernel, fewer)
        allowed = ask([*q.before, *q.change.judged], {"allowed": q.enabled})
        kept = ask([*q.before, q.enabled], q.goals)
        open_steps += [name] if allowed.open or kept.open else []
    assert open_steps


def test_who_drops_a_reference_too_few_is_refuted() -> None:
    """The layer above, not the kernel, at fault: a release that leaves the receipts."""

    def forgetful(*given: object) -> Change:
        return STEPS["release"].change(*given)._replace(reads=None)  # type: ignore[arg-type]

    step: Step = STEPS["release"]._replace(change=forgetful)
    kernel, all_laws = cells.kernel_of(page_kernel), laws(kernels.lawful_page(page_kernel))
    verdict = cells.verdict("cells: release", step, kernel, all_laws)
    assert not verdict.holds and "LOCK-1 locks-counted refuted" in verdict.words
    assert "holder" in verdict.counterexample


def test_a_step_that_cannot_happen_is_no_proof() -> None:
    """An impossible guard settles every goal; the witness is missing then."""

    def never(*given: object) -> Change:
        return STEPS["lock"].change(*given)._replace(books=(z3.BoolVal(False),))  # type: ignore[arg-type]

    step: Step = STEPS["lock"]._replace(change=never)
    kernel, all_laws = cells.kernel_of(page_kernel), laws(kernels.lawful_page(page_kernel))
    verdict = cells.verdict("cells: lock", step, kernel, all_laws)
    assert (verdict.holds, verdict.words) == (False, "not settled: witness of it happens not found")


def test_a_row_that_is_held_is_not_handed_out() -> None:
    """Without what the layer above answers for, two holders would have one row."""
    step = records.STEPS["start"]
    loose = step._replace(books=lambda s, p: step.books(s, p)[:-1])
    verdict = records.verdict("records: start", loose, record, records.laws(kernels.lawful_record(record)))
    assert not verdict.holds and "ROW-1 one-holder: holder" in verdict.counterexample
    assert "hold row" in verdict.counterexample


def test_a_page_in_words() -> None:
    assert said_of_page(Page(2, 7, 0, 1)) == "cached under key 7, 1 lock"
    assert said_of_page(Page(1, 2, 3, 0)) == "private to row 2, place 3"
    assert said_of_page(Page(0, 0, 0, 0)) == "free"
    assert said_of_page(Page(0, 1, 0, 2)) == "free, with owner 1, place 0 and 2 locks"
    assert said_of_page(Page(3, 0, 0, 0)) == "of kind 3, which there is not"
