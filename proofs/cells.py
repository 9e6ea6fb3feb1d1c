"""The page kernel, lifted: for any number of pages, rows, keys and holders, every step keeps every law, inductively.

The kernel's own functions are run symbolically (symbolic.py); what a step does with them and with the references stands
in cells_changes.py, the laws in cells_state.py. For each step:

    allowed     where the layer above may take it, no guard of the kernel refuses
    laws        every law of a lawful state holds after it
    also        where it leads: "no page is left to the row"; and no page is moved twice

Each case of a step is shown to happen in a small world, and each fact that it assumes to be needed there. What Z3 does
not settle is sought there, and told.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import z3

from kvledger.proofs.cells_changes import Change, Kernel
from kvledger.proofs.cells_state import FOLLOWS, Cells, EverySize, Law, Seen, SmallWorld, Space, fresh, laws
from kvledger.proofs.cells_steps import STEPS, Step
from kvledger.proofs.conjuncts import Noting, in_words
from kvledger.proofs.goals import ask, model_of
from kvledger.proofs.kernels import fields, lawful_page, not_settled, transition
from kvledger.proofs.symbolic import Term, derive
from kvledger.proofs.verdict import Progress, Verdict
from kvledger.spec import page as page_kernel
from kvledger.spec.page import Page

FUNCTIONS = ("grant", "publish", "lock", "unlock", "give_back", "evict")


def kernel_of(page: ModuleType) -> Kernel:
    """The transitions, and the two that a publication is made of, as terms."""
    derived = {name: transition(name, page).derived for name in FUNCTIONS}
    inputs = {name: z3.Int(name) for name in ("kind", "owner", "ordinal", "locks", "key")}
    derived["publish, lock"] = derive(
        lambda *values: fields(page.lock(page.publish(Page(*values[:4]), values[4]))), inputs
    )
    return derived


class Question(NamedTuple):
    """A step in a space. lawful: the laws before it. enabled: no guard refuses. goals: with it, what must be true."""

    parameters: dict[str, Term]
    change: Change
    state: Cells
    after: Cells
    lawful: list[Term]
    enabled: Term
    goals: dict[str, Term]

    @property
    def before(self) -> list[Term]:
        """Laws and books."""
        return [*self.lawful, *self.change.books]


def question(space: Space, step: Step, kernel: Kernel, all_laws: Mapping[str, Law]) -> Question:
    """Everything about a step, in every size or in a small world."""
    s = fresh("")
    parameters = {name: _parameter(name, *sorts.split()) for name, sorts in step.parameters.items()}
    change = step.change(space, kernel, s, SimpleNamespace(**parameters))
    t, moved = change.after(s), [move.on for move in change.moves]

    def passes(g: Term) -> Term:
        return z3.And(*(z3.Implies(move.on(g), move.enabled(s, g)) for move in change.moves))

    enabled = space.all("page", passes, s.kind) if change.moves else z3.BoolVal(True)
    lawful = [*space.axioms, *(law.of(space, s) for law in all_laws.values())]
    if isinstance(space, SmallWorld):
        lawful += [*space.bounds(s), *_bounds(space, step, parameters)]
    goals = {name: law.goal(space, t) for name, law in all_laws.items()}
    goals |= {name: said(space, t) for name, said in change.also.items()}
    if len(change.moves) > 1:
        goals["no page is moved twice"] = space.all("page", lambda g: z3.AtMost(*(on(g) for on in moved), 1))
    return Question(parameters, change, s, t, lawful, enabled, goals)


def _parameter(name: str, *sorts: str) -> Term:
    *arguments, value = sorts
    sort = z3.BoolSort() if value == "truth" else z3.IntSort()
    if not arguments:
        return z3.Const(f"{name}?", sort)
    return z3.Function(f"{name}?", *(z3.IntSort() for _ in arguments), sort)


def _bounds(space: SmallWorld, step: Step, parameters: dict[str, Term]) -> Iterator[Term]:
    for name, sorts in step.parameters.items():
        *arguments, value = sorts.split()
        if value != "truth":
            for given in space.each(" ".join(arguments)):
                term = parameters[name](*given) if arguments else parameters[name]
                yield z3.Or(*(term == each for each in space.values[value]))


def settle(progress: Progress, page: ModuleType = page_kernel) -> Iterator[Verdict]:
    """One verdict a step, one on what they assume, and one on what follows of any lawful state."""
    kernel, all_laws = kernel_of(page), laws(lawful_page(page))
    for name, step in STEPS.items():
        progress(f"cells: {name}")
        yield verdict(f"cells: {name}", step, kernel, all_laws)
    progress("cells: books")
    yield settle_books(kernel, all_laws)
    progress("cells: what follows")
    began = time.process_time()
    space, s = EverySize(), fresh("")
    asked = ask(
        [*space.axioms, *(law.of(space, s) for law in all_laws.values())],
        {name: law.goal(space, s) for name, law in FOLLOWS.items()},
    )
    yield Verdict(
        "cells: what follows",
        "of a lawful state: nobody refers to a free page, and a private page has exactly one place",
        f"settled for every size ({asked.goals} goals)" if not asked.open else not_settled(asked.open),
        not asked.open, time.process_time() - began, _follows_not(all_laws, asked.open), asked.slowest,
    )  # fmt: skip


class _Noting(Noting, SmallWorld):
    """One that knows what an assumption is made of, and has a row and a place of which the kernel knows none."""

    values: ClassVar = SmallWorld.values | {"row": (0, 1, 2), "place": (-1, 0, 1)}


def settle_books(kernel: Kernel, all_laws: Mapping[str, Law]) -> Verdict:
    """That no step assumes more than it must."""
    began, many, idle = time.process_time(), 0, list[str]()
    for name, step in STEPS.items():
        q = _Noting()
        small = question(q, step, kernel, all_laws)
        books = q.parts(z3.And(*small.change.books)) if small.change.books else []
        judged = q.parts(z3.And(*small.change.judged)) if small.change.judged else []
        many += len(books) + len(judged)
        kept, passes = z3.And(*small.goals.values()), small.enabled
        for part in books:
            if model_of(*small.lawful, part.less, passes, z3.Not(kept)) is None:
                idle.append(f"{part.said}, of {name}")
        for part in judged:
            if model_of(*small.before, part.less, z3.Not(passes)) is None:
                idle.append(f"{part.said}, of {name}")
    return Verdict(
        "cells: books",
        "no fact of the books, or that was judged, is idle: without it, or with a bound one wider, a law fails in a "
        "small world, or the kernel refuses",
        in_words(many, idle, "fact", "facts"), not idle, time.process_time() - began,
    )  # fmt: skip


def verdict(title: str, step: Step, kernel: Kernel, all_laws: Mapping[str, Law]) -> Verdict:
    """Ask for every size; what is not settled, and whether each case happens, of a small world."""
    began = time.process_time()
    every = question(EverySize(), step, kernel, all_laws)
    allowed = ask([*every.before, *every.change.judged], {"allowed": every.enabled})
    kept = ask([*every.before, every.enabled], every.goals)
    still_open = allowed.open | kept.open
    small = question(SmallWorld(), step, kernel, all_laws)
    told = []
    for goal in list(still_open):
        found = counterexample(step, small, goal, all_laws)
        told.append(f"{goal}: {found or 'no counterexample in a small world'}")
        still_open[goal] = "sat" if found else still_open[goal]
    for case, happens in step.cases.items():
        where = happens(SmallWorld(), small.state, SimpleNamespace(**small.parameters), small.change)
        if model_of(*small.before, *small.change.judged, small.enabled, where) is None:
            still_open[f"witness of {case}"] = "not found"
    goals = allowed.goals + kept.goals
    witnesses = f"{len(step.cases)} witness{'es' if len(step.cases) > 1 else ''}"
    return Verdict(
        title, step.claim,
        f"settled for every size ({goals} goals, {witnesses})" if not still_open else not_settled(still_open),
        not still_open, time.process_time() - began, "\n".join(told),
        max(allowed.slowest, kept.slowest, key=lambda pair: pair[1]),
    )  # fmt: skip


def counterexample(step: Step, small: Question, goal: str, all_laws: Mapping[str, Law]) -> str | None:
    """A lawful state of a small world from which the step breaks this law, in words."""
    if goal == "allowed":
        model = model_of(*small.before, *small.change.judged, z3.Not(small.enabled))
    else:
        model = model_of(*small.before, small.enabled, z3.Not(small.goals[goal]))
    if model is None:
        return None
    before = Seen(small.state, model)
    happens = step.says(before, SimpleNamespace(**_values(step, small, before)))
    moved = [g for g in SmallWorld.values["page"] if any(before.value(move.on(g)) for move in small.change.moves)]
    if moved and not happens.startswith("page"):
        happens += f" ({'; '.join(map(before.said, moved))})"
    if goal == "allowed":
        return f"{happens}: the kernel refuses"
    return f"{happens}: then {_broken(small.after, model, all_laws[goal]) if goal in all_laws else f'not so: {goal}'}"


def _broken(after: Cells, model: z3.ModelRef, law: Law) -> str:
    """Where the law is false after the step."""
    space, seen = SmallWorld(), Seen(after, model)
    for values in space.each(law.sorts):
        if not seen.value(law.body(space, after, *values)):
            return law.says(seen, *values)
    return "nothing is wrong"


def _values(step: Step, small: Question, seen: Seen) -> dict[str, Any]:
    """The step's parameters in a model: ints, or functions to be called."""
    values: dict[str, Any] = {}
    for name, sorts in step.parameters.items():
        term = small.parameters[name]
        values[name] = seen.value(term) if " " not in sorts else lambda *given, term=term: seen.value(term(*given))
    return values


def _follows_not(all_laws: Mapping[str, Law], still_open: dict[str, str]) -> str:
    """A lawful state of a small world of which it is false."""
    space, s, told = SmallWorld(), fresh(""), []
    for name in still_open:
        law = FOLLOWS[name]
        lawful = [each.of(space, s) for each in all_laws.values()]
        model = model_of(*lawful, *space.bounds(s), z3.Not(law.goal(space, s)))
        told.append(f"{name}: " + ("no counterexample in a small world" if model is None else _broken(s, model, law)))
    return "\n".join(told)
