"""Counting in Z3: how many holders read a page, for any number of holders; and that the axioms say nothing false.

Z3 knows sets of holders, as arrays of truths, and not how many members they have. `members` is that number; what is
said of it below is all that a proof may use. Without `finite` the axioms would contradict each other: from the set of
all numbers members could be taken away for ever, one less each time. A contradiction proves everything, so the axioms
are read twice more: in plain Python, over finite and cofinite sets, where each must be true; and by Z3, which finds
the contradiction once the guard is away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations
from typing import Any, NamedTuple, Protocol

import z3

from kvledger.proofs.symbolic import Term
from kvledger.proofs.verdict import Progress, Verdict

HOLDER = z3.IntSort()
HOLDERS = z3.ArraySort(HOLDER, z3.BoolSort())
EMPTY = z3.K(HOLDER, z3.BoolVal(False))
members = z3.Function("members", HOLDERS, z3.IntSort())
finite = z3.Function("finite", HOLDERS, z3.BoolSort())


class Sets(Protocol):
    """The words in which the axioms are written."""

    empty: Any

    def members(self, holders: Any) -> Any:
        """How many."""

    def finite(self, holders: Any) -> Any:
        """Whether it has an end."""

    def has(self, holders: Any, holder: Any) -> Any:
        """Whether this one is in it."""

    def put(self, holders: Any, holder: Any, inside: bool) -> Any:
        """With this one, or without."""

    def implies(self, premise: Any, conclusion: Any) -> Any:
        """If, then."""

    def one_if(self, truth: Any) -> Any:
        """1 or 0."""

    def every(self, body: Callable[[Any, Any], Any], pattern: Callable[[Any, Any], Any]) -> Any:
        """For every set and holder; Z3 looks for instances where the pattern stands."""


def axioms(q: Sets, guarded: bool = True) -> list[Any]:
    """What is assumed of `members`. guarded: of finite sets only; else of all, which is the known contradiction."""

    def of_finite(holders: Any, conclusion: Any) -> Any:
        return q.implies(q.finite(holders), conclusion) if guarded else conclusion

    return [
        q.finite(q.empty),
        q.members(q.empty) == 0,
        *(
            q.every(
                lambda s, h, inside=inside: q.finite(q.put(s, h, inside)) == q.finite(s),  # type: ignore[misc]
                lambda s, h, inside=inside: q.put(s, h, inside),  # type: ignore[misc]
            )
            for inside in (True, False)
        ),
        q.every(
            lambda s, h: of_finite(s, q.members(q.put(s, h, True)) == q.members(s) + 1 - q.one_if(q.has(s, h))),
            lambda s, h: q.members(q.put(s, h, True)),
        ),
        q.every(
            lambda s, h: of_finite(s, q.members(q.put(s, h, False)) == q.members(s) - q.one_if(q.has(s, h))),
            lambda s, h: q.members(q.put(s, h, False)),
        ),
        q.every(
            lambda s, h: of_finite(s, q.members(s) >= q.one_if(q.has(s, h))),
            lambda s, h: (q.members(s), q.has(s, h)),
        ),
        q.every(lambda s, h: of_finite(s, q.members(s) >= 0), lambda s, h: q.members(s)),
    ]


class InZ3:
    """The words as Z3 terms."""

    empty = EMPTY

    def members(self, holders: Term) -> Term:
        """The function."""
        return members(holders)

    def finite(self, holders: Term) -> Term:
        """The predicate."""
        return finite(holders)

    def has(self, holders: Term, holder: Term) -> Term:
        """A read of the array."""
        return z3.Select(holders, holder)

    def put(self, holders: Term, holder: Term, inside: bool) -> Term:
        """A write."""
        return z3.Store(holders, holder, z3.BoolVal(inside))

    def implies(self, premise: Term, conclusion: Term) -> Term:
        """As it says."""
        return z3.Implies(premise, conclusion)

    def one_if(self, truth: Term) -> Term:
        """As it says."""
        return z3.If(truth, 1, 0)

    def every(self, body: Callable[[Term, Term], Term], pattern: Callable[[Term, Term], Term]) -> Term:
        """A quantifier, over those of the two that the pattern names."""
        holders, holder = z3.Const("holders!", HOLDERS), z3.Const("holder!", HOLDER)
        where = pattern(holders, holder)
        if isinstance(where, tuple):
            return z3.ForAll([holders, holder], body(holders, holder), patterns=[z3.MultiPattern(*where)])
        bound = [holders] if z3.eq(where, members(holders)) else [holders, holder]
        return z3.ForAll(bound, body(holders, holder), patterns=[where])


class Few(NamedTuple):
    """A set of holders: these, or (rest) all but these."""

    named: frozenset[int]
    rest: bool


class InPython:
    """The words over every finite and cofinite set that differs from none, or from all, in a few holders.

    Sets of that kind are closed under `put`, so they are a model of the arrays that the proofs can build; and holders
    are interchangeable, so that a few stand for all.
    """

    empty = Few(frozenset(), False)
    holders = range(4)

    def members(self, holders: Few) -> int:
        """Of a cofinite set any number would do."""
        return 0 if holders.rest else len(holders.named)

    def finite(self, holders: Few) -> bool:
        """As it says."""
        return not holders.rest

    def has(self, holders: Few, holder: int) -> bool:
        """As it says."""
        return (holder in holders.named) != holders.rest

    def put(self, holders: Few, holder: int, inside: bool) -> Few:
        """As it says."""
        named = holders.named - {holder} if inside == holders.rest else holders.named | {holder}
        return Few(named, holders.rest)

    def implies(self, premise: bool, conclusion: bool) -> bool:
        """As it says."""
        return not premise or conclusion

    def one_if(self, truth: bool) -> int:
        """As it says."""
        return int(truth)

    def every(self, body: Callable[[Few, int], bool], pattern: Callable[[Few, int], object]) -> bool:
        """Try all. The pattern is Z3's business."""
        subsets = chain.from_iterable(combinations(self.holders, size) for size in range(len(self.holders) + 1))
        sets = [Few(frozenset(named), rest) for named in subsets for rest in (False, True)]
        return all(body(holders, holder) for holders in sets for holder in self.holders)


AXIOMS: Sequence[Term] = axioms(InZ3())


def contradicts_itself(guarded: bool) -> bool:
    """Whether Z3 finds a contradiction, when five members in turn are taken from the set of all holders."""
    solver = z3.Solver()
    solver.set("timeout", 2_000)
    solver.set("auto_config", False)
    solver.set("mbqi", False)
    solver.add(*axioms(InZ3(), guarded))
    some = z3.K(HOLDER, z3.BoolVal(True))
    solver.add(members(some) <= 3)
    for holder in range(5):
        some = z3.Store(some, holder, z3.BoolVal(False))
        solver.add(members(some) >= 0)
    return bool(solver.check() == z3.unsat)


def settle(progress: Progress) -> Iterator[Verdict]:
    """The axioms have a model, and the form of them that is known to be wrong is rejected."""
    progress("counting: axioms")
    began = time.process_time()
    said = axioms(InPython())
    model, control = all(said), not all(axioms(InPython(), guarded=False))
    sound, caught = not contradicts_itself(guarded=True), contradicts_itself(guarded=False)
    failed = [
        words
        for holds, words in (
            (model, "an axiom is false of finite and cofinite sets"),
            (control, "the unguarded axioms are called true"),
            (sound, "Z3 finds a contradiction"),
            (caught, "Z3 does not find the contradiction of the unguarded axioms"),
        )
        if not holds
    ]
    yield Verdict(
        "counting: axioms",
        "the axioms that count a page's readers have a model; without their guard they contradict each other",
        f"consistent ({len(said)} axioms, 1 model, 1 control)" if not failed else "not consistent",
        not failed,
        time.process_time() - began,
        "; ".join(failed),
    )
