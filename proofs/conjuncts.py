"""What a premise is made of, and the premise without each part: so that none is asked for which nothing needs.

A premise that asks for more than it must makes a weaker proof, and Z3 says unsat to it all the sooner. So each conjunct
of a guard, or of books, is left out in turn, or, where it compares numbers, made one wider; a law must then fail in a
small world. A conjunct is found below quantifiers, in conclusions and in disjuncts, too. What is not looked at: whether
an implication asks in more cases than it must, and whether a disjunct is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import z3

from kvledger.proofs.symbolic import Term


class Part(NamedTuple):
    """said: a conjunct, in the words of the formula. less: the whole formula with that conjunct weaker, or gone."""

    said: str
    less: Term


class Noting:
    """A small world, or nothing, that notes what its quantifiers are written out to. Stands before it among bases."""

    def __init__(self, *world: Any) -> None:
        super().__init__(*world)
        self._cases: dict[int, tuple[Term, list[Term]]] = {}  # by Z3's id, which is the term's while the term lives

    def all(self, sorts: str, body: Callable[..., Term], *patterns: Callable[..., Term]) -> Term:
        """As the world says it."""
        cases: list[Term] = []

        def noted(*values: Term) -> Term:
            cases.append(body(*values))
            return cases[-1]

        whole = super().all(sorts, noted, *patterns)  # type: ignore[misc]
        self._cases[whole.get_id()] = whole, cases
        return whole

    def parts(self, term: Term) -> list[Part]:
        """The conjuncts. One below a quantifier is in all its cases, and said as in the first."""
        if known := self._cases.get(term.get_id()):
            every = [self.parts(case) for case in known[1]]
            return [Part(same[0].said, z3.And(*(part.less for part in same))) for same in zip(*every, strict=True)]
        if z3.is_and(term):
            return self._of_each(term.children(), z3.And)
        if z3.is_or(term) and any(z3.is_and(each) for each in term.children()):
            return self._of_each(term.children(), z3.Or, only=z3.is_and)
        if z3.is_implies(term):
            premise, conclusion = term.children()
            return [Part(part.said, z3.Implies(premise, part.less)) for part in self.parts(conclusion)]
        return [Part(re.sub(r"[?.]|\s+(?=\s)", "", str(term).replace("\n", " ")), _weaker(term))]

    def _of_each(
        self, terms: list[Term], joined: Callable[..., Term], only: Callable[[Term], bool] = lambda term: True
    ) -> list[Part]:
        return [
            Part(part.said, joined(*terms[:nth], part.less, *terms[nth + 1 :]))
            for nth, term in enumerate(terms) if only(term) for part in self.parts(term)
        ]  # fmt: skip


def _weaker(term: Term) -> Term:
    """A comparison of numbers, one wider; of anything else nothing is left."""
    if z3.is_le(term) or z3.is_lt(term):
        return term.decl()(term.arg(0), term.arg(1) + 1)
    if z3.is_ge(term) or z3.is_gt(term):
        return term.decl()(term.arg(0) + 1, term.arg(1))
    return z3.BoolVal(True)


def in_words(parts: int, idle: Sequence[str], name: str, more: str) -> str:
    """What came of it: "each of 5 conjuncts is needed". name, more: of one part, of several."""
    if idle:
        return f"not needed: {', '.join(idle)}"
    return f"each of {parts} {more} is needed" if parts > 1 else f"the {name} is needed"
