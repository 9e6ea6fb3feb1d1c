"""Every step keeps every law, for every size: asked of Z3, goal by goal. A counterexample is sought in a small world.

A goal is "the laws before, the step, and not this law after". Only `unsat` counts: unknown and a timeout are failures.
Z3 answers quickly or not at all where quantifiers range over everything, so what fails is asked once more of a small
world, where it always finds a state if there is one. What it finds is read into plain Python, and the formulas are
evaluated there once more before anybody is told. A small world also shows that no guard asks for more than it must.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import z3

from kvledger.proofs.conjuncts import Noting
from kvledger.proofs.rows_faults import Fault
from kvledger.proofs.rows_laws import FOLLOWS, LAWS, broken_law
from kvledger.proofs.rows_logic import EverySize, Explored, Logic, SmallWorld, Symbols, Term, plain, tables
from kvledger.proofs.rows_parts import Clauses
from kvledger.proofs.rows_state import FIXED, STATE, in_words, with_ghosts
from kvledger.proofs.rows_steps import Step

LIMIT_MS = 60_000  # for a goal: some fifteen times what the slowest takes
# Where counterexamples are sought, the smallest first, and witnesses, in the last. least, most: the numbers there, of
# pages in a row, of places, of locks. Below 0 a step can go wrong, too.
SMALL = (
    {"holder": 1, "row": 1, "page": 1, "key": 1, "least": 0, "most": 1},
    {"holder": 2, "row": 2, "page": 2, "key": 2, "least": -1, "most": 2},
    {"holder": 3, "row": 2, "page": 4, "key": 3, "least": 0, "most": 3},
)


class Goals(NamedTuple):
    """What became of goals. open: those that are not settled, each with Z3's answer. slowest: goal and CPU seconds."""

    open: dict[str, str]
    seconds: float
    slowest: tuple[str, float]


class Shown(NamedTuple):
    """A transition of a small world, in plain Python. law: the one that it breaks, None for a witness."""

    before: dict[str, Term]
    parameters: dict[str, Term]
    after: dict[str, Term]
    law: str | None
    words: str


def clauses_of(q: Logic, step: Step, s: Symbols, p: Symbols, t: Symbols, fault: Fault | None = None) -> Clauses:
    """What a step says, or what it says with a fault in it."""
    says = step.relation(q, s, p, t)
    return says if fault is None else says | fault.clauses(q, s, p, t)


@cache
def _every_size() -> tuple[EverySize, Symbols, Symbols, list[Term]]:
    q = EverySize()
    fixed = q.symbols(FIXED, "")
    moving = {name: sorts for name, sorts in STATE.items() if name not in FIXED}
    s, t = (Symbols(vars(q.symbols(moving, suffix)) | vars(fixed)) for suffix in ("", "'"))
    return q, s, t, [law.formula(q, s) for law in LAWS.values()]


def prove(step: Step, fault: Fault | None = None) -> Goals:
    """Ask for every law after a step."""
    q, s, t, laws = _every_size()
    p = q.symbols(step.parameters, "?")
    premise = [*laws, *clauses_of(q, step, s, p, t, fault).values(), *step.ghosts(q, s, p, t)]
    return _ask(premise, {name: law.formula(q, t) for name, law in LAWS.items()})


def prove_what_follows() -> Goals:
    """Ask for what the laws are there for, of any lawful state."""
    q, s, _, laws = _every_size()
    return _ask(laws, {name: formula(q, s) for name, (_, formula) in FOLLOWS.items()})


def _ask(premise: list[Term], goals: Mapping[str, Term]) -> Goals:
    still_open, slowest, began = dict.fromkeys(goals, "unknown"), ("", 0.0), time.process_time()
    for relevancy in (2, 0):  # 2: only terms that matter on the path tried, in no time. 0: all terms, for the rest
        solver = z3.Solver()
        solver.set("auto_config", False)
        solver.set("mbqi", False)
        solver.set("relevancy", relevancy)
        solver.set("timeout", LIMIT_MS)
        solver.add(*premise)
        for name in list(still_open):
            since = time.process_time()
            solver.push()
            solver.add(z3.Not(goals[name]))
            answer = solver.check()
            solver.pop()
            slowest = max(slowest, (name, time.process_time() - since), key=lambda pair: pair[1])
            if answer == z3.unsat:
                del still_open[name]
            else:
                still_open[name] = str(answer)
    return Goals(still_open, time.process_time() - began, slowest)


# ---- a small world, where there is always an answer


class _Noting(Noting, SmallWorld):
    """One that knows what a guard is made of."""


@cache
def _small(size: int) -> tuple[SmallWorld, Symbols, Symbols, list[Term], dict[str, Term]]:
    q = SmallWorld(SMALL[size])
    fixed = q.symbols(FIXED, ".")
    moving = {name: sorts for name, sorts in STATE.items() if name not in FIXED}
    s, t = (Symbols(vars(q.symbols(moving, suffix)) | vars(fixed)) for suffix in (".", ".'"))
    bounds = [*q.bounds(STATE, s), *q.bounds(STATE, t)]
    laws = [law.formula(q, s) for law in LAWS.values()]
    return q, s, t, [*laws, *bounds], {name: law.formula(q, t) for name, law in LAWS.items()}


def refute(step: Step, fault: Fault | None = None) -> Shown | None:
    """A transition of the smallest world that breaks a law; None: there is none."""
    for size in range(len(SMALL)):
        q, s, t, _, after = _small(size)
        p = q.symbols(step.parameters, ".?")
        solver = _small_solver(step, size, p, clauses_of(q, step, s, p, t, fault))
        for formula in after.values():
            solver.push()
            solver.add(z3.Not(formula))
            found = solver.check() == z3.sat
            shown = _shown(q, step, s, p, t, solver.model(), fault) if found else None
            solver.pop()
            if shown is not None and shown.law is not None:
                return shown
    return None


def witness(step: Step, case: str) -> Shown | None:
    """A lawful transition of a small world in which this case occurs; None: there is none, and the lemma is empty."""
    q, s, t, _, after = _small(len(SMALL) - 1)
    p = q.symbols(step.parameters, ".?")
    solver = _small_solver(step, len(SMALL) - 1, p, clauses_of(q, step, s, p, t))
    solver.add(step.cases[case](q, s, p), *after.values())
    return _shown(q, step, s, p, t, solver.model(), None) if solver.check() == z3.sat else None


def idle(step: Step) -> tuple[int, list[str]]:
    """How many conjuncts a guard has; and those without which, or with one more, no small world breaks a law."""
    many, left = 0, dict[int, str]()
    for size in range(len(SMALL)):
        _, s, t, _, after = _small(size)
        q = _Noting(SMALL[size])
        p = q.symbols(step.parameters, ".?")
        clauses = step.relation(q, s, p, t)
        parts = q.parts(clauses.pop("guard"))
        if size == 0:
            many, left = len(parts), {nth: part.said for nth, part in enumerate(parts)}
        solver = _small_solver(step, size, p, clauses)
        solver.add(z3.Not(z3.And(*after.values())))
        for nth in list(left):
            solver.push()
            solver.add(parts[nth].less)
            if solver.check() == z3.sat:
                del left[nth]
            solver.pop()
    return many, list(left.values())


def _small_solver(step: Step, size: int, p: Symbols, clauses: Clauses) -> z3.Solver:
    q, s, t, lawful, _ = _small(size)
    solver = z3.Solver()
    solver.set("timeout", LIMIT_MS)
    solver.add(*lawful, *q.bounds(step.parameters, p), *clauses.values(), *step.ghosts(q, s, p, t))
    return solver


def _shown(
    q: SmallWorld, step: Step, s: Symbols, p: Symbols, t: Symbols, model: z3.ModelRef, fault: Fault | None
) -> Shown | None:
    """What Z3 found, in plain Python, if the formulas say there what Z3 says: else None."""
    before, after = (with_ghosts(q.read(STATE, symbols, model)) for symbols in (s, t))
    parameters = q.read(step.parameters, p, model)
    there = Explored({sort: [plain(value) for value in values] for sort, values in q.values.items()})
    was, given, now = tables(STATE, before), tables(step.parameters, parameters), tables(STATE, after)
    if broken_law(there, was) is not None or not all(clauses_of(there, step, was, given, now, fault).values()):
        return None
    law = broken_law(there, now)
    broken = "" if law is None else LAWS[law].broken(now, *there.culprit)
    numbers = [f"{name} {value}" for name, value in parameters.items() if not isinstance(value, Mapping)]
    asked = f"{step.acts} with {', '.join(numbers)}" if numbers else step.acts
    words = f"before: {in_words(there, was)}; {asked}; after: {in_words(there, now)}"
    words += f": {broken}" if broken else ""
    return Shown(before, parameters, after, law, words)
