"""Asks Z3, goal by goal, whether it follows. Only `unsat` of the opposite counts; unknown, a timeout are failures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import z3

from kvledger.proofs.symbolic import Term

LIMIT_MS = 10_000  # for a goal; the slowest takes a hundredth of it


class Asked(NamedTuple):
    """open: the goals that do not follow, each with Z3's answer, "sat", "unknown". slowest: goal and CPU seconds."""

    goals: int
    open: dict[str, str]
    slowest: tuple[str, float]


def ask(premise: Sequence[Term], goals: Mapping[str, Term]) -> Asked:
    """Whether each goal follows from the premise, for all values of what is free in them."""
    still_open, slowest = {}, ("", 0.0)
    solver = z3.Solver()
    solver.set("timeout", LIMIT_MS)
    if any(map(quantified, [*premise, *goals.values()])):
        solver.set("auto_config", False)
        solver.set("mbqi", False)  # instances come from patterns alone: an answer at once, or none
    solver.add(*premise)
    for name, goal in goals.items():
        since = time.process_time()
        solver.push()
        solver.add(z3.Not(goal))
        answer = solver.check()
        solver.pop()
        slowest = max(slowest, (name, time.process_time() - since), key=lambda pair: pair[1])
        if answer != z3.unsat:
            still_open[name] = str(answer)
    return Asked(len(goals), still_open, slowest)


def quantified(term: Term) -> bool:
    """Whether a quantifier stands anywhere in it."""
    todo, seen = [term], set()
    while todo:
        each = todo.pop()
        if z3.is_quantifier(each):
            return True
        if each.get_id() not in seen:
            seen.add(each.get_id())
            todo.extend(each.children())
    return False


def model_of(*conditions: Term, small: Sequence[Term] = ()) -> z3.ModelRef | None:
    """Values for which all hold; None: there are none. small: numbers that had better be from 0 to 8, to be read."""
    for preferred in ([z3.And(term >= 0, term <= 8) for term in small], []):
        solver = z3.Solver()
        solver.set("timeout", LIMIT_MS)
        solver.add(*conditions, *preferred)
        if solver.check() == z3.sat:
            return solver.model()
    return None
