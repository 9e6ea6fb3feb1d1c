"""The record kernel, lifted: for any number of holders, lengths and page sizes, every step keeps every law.

A holder has one record or none; one step changes one record by a function of the kernel, which is run symbolically,
or passes it on as it is. What the layer above answers for (books) is that a row that is handed out is nobody's, and
that no length exceeds the row (context_len). The laws are proved with the kernel's guards and these alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import z3

from kvledger.proofs.conjuncts import Noting, in_words
from kvledger.proofs.goals import ask, model_of
from kvledger.proofs.kernels import REC_1, lawful_record, not_settled, python_value, transition
from kvledger.proofs.saying import said_of_record
from kvledger.proofs.symbolic import Derived, Term
from kvledger.proofs.verdict import Progress, Verdict
from kvledger.spec import record as record_kernel
from kvledger.spec.record import Record

Of = Callable[[Term], Term]
HOLDERS = (1, 2)  # of the small world where counterexamples and witnesses are sought
MOST = 8  # the largest number there
SIZE, CONTEXT_LEN = z3.Int("page_size"), z3.Int("context_len")


class Records(NamedTuple):
    """A state: of each holder, as functions from terms to terms. row and lengths of one that holds none go stale."""

    holds: Of
    row: Of
    protected: Of
    committed: Of
    allocated: Of

    def of(self, holder: Term) -> tuple[Term, ...]:
        """The kernel's fields of a holder's record."""
        return tuple(field(holder) for field in self)


class Step(NamedTuple):
    """function: of the kernel, on the record of `holder`; None: the record passes from giver to taker. arguments: its
    own, by name. books: what the layer above answers for."""

    claim: str
    function: str | None
    arguments: tuple[str, ...]
    books: Callable[[Records, Any], tuple[Term, ...]]


def _inside(s: Records, p: Any) -> tuple[Term, ...]:
    return (p.upto <= CONTEXT_LEN,)


def _nothing(s: Records, p: Any) -> tuple[Term, ...]:
    return ()


STEPS: dict[str, Step] = {
    "start": Step(
        "a holder takes a row that nobody holds", "start", ("row", "matched", "upto"),
        lambda s, p: (
            p.row >= 1, p.matched >= 0, p.matched % SIZE == 0, p.upto <= CONTEXT_LEN, _nobody_holds(s, p.row)
        ),
    ),
    "grow": Step("slots and KV for more positions", "grow", ("upto",), _inside),
    "reserve": Step("slots for drafts", "reserve", ("upto",), _inside),
    "commit": Step("accepted drafts have KV", "commit", ("upto",), _nothing),
    "cut": Step("what lies beyond is given up", "cut", ("upto",), _nothing),
    "protect": Step("what was published belongs to the cache", "protect", ("upto",), _nothing),
    "release": Step("the row is given back", "release", (), _nothing),
    "hand over": Step(
        "a turn's record passes to its session, or back, as it is", None, (),
        lambda s, p: (p.holder != p.taker,),
    ),
}  # fmt: skip


def _nobody_holds(s: Records, row: Term) -> Term:
    holder = z3.Int("holder!free")
    return z3.ForAll([holder], z3.Implies(s.holds(holder), s.row(holder) != row), patterns=[s.holds(holder)])


class Law(NamedTuple):
    """Of every holder, of every two, or of none: body(state, *holders). says: where it is false, of their records, in
    words."""

    holders: int
    body: Callable[..., Term]
    says: Callable[..., str]

    def of(self, s: Records) -> Term:
        """As a premise."""
        bound = z3.Ints("holder!1 holder!2")[: self.holders]
        where = [s.holds(holder) for holder in bound]
        return z3.ForAll(bound, self.body(s, *bound), patterns=[z3.MultiPattern(*where)])

    def small(self, s: Records) -> Term:
        """Written out, for the holders of the small world."""
        return z3.And(*(self.body(s, *each) for each in product(HOLDERS, repeat=self.holders)))


def laws(lawful: Derived) -> dict[str, Law]:
    """By rule. lawful: the kernel's own predicate, of a record at a page size."""

    def is_lawful(s: Records, holder: Term) -> Term:
        return lawful.result(0, *s.of(holder), SIZE)

    return {
        REC_1: Law(1, lambda s, h: z3.If(s.holds(h), s.allocated(h) > 0, is_lawful(s, h)), _has),
        "REC-2 ladder": Law(1, lambda s, h: z3.Implies(s.holds(h), is_lawful(s, h)), _has),
        "REC-2 ladder, within the row": Law(
            1, lambda s, h: z3.Implies(s.holds(h), s.allocated(h) <= CONTEXT_LEN), _has
        ),
        "ROW-1 one-holder": Law(
            2,
            lambda s, h, g: z3.Implies(z3.And(s.holds(h), s.holds(g), s.row(h) == s.row(g)), h == g),
            lambda h, mine, g, theirs: f"holders {h} and {g} hold row {mine.row}",
        ),
    }  # fmt: skip


def _has(h: int, record: Record) -> str:
    return f"holder {h} has {said_of_record(record)}"


class Question(NamedTuple):
    """A step, with the state before it and after it."""

    parameters: dict[str, Term]
    state: Records
    after: Records
    books: tuple[Term, ...]
    enabled: Term


def question(step: Step, module: ModuleType) -> Question:
    """Everything about a step but the laws."""
    fields = [z3.Function(name, z3.IntSort(), z3.BoolSort() if name == "holds" else z3.IntSort())
              for name in ("holds", "row", "protected", "committed", "allocated")]  # fmt: skip
    s = Records(*fields)
    names = ("holder", *step.arguments, *(() if step.function else ("taker",)))
    parameters = {name: z3.Int(f"{name}?") for name in names}
    p = SimpleNamespace(**parameters)
    enabled, after = z3.BoolVal(True), _handed(s, p) if step.function is None else s
    if step.function is not None:
        derived = transition(step.function, record=module).derived
        first = () if step.function == "start" else s.of(p.holder)
        given = (*first, *(parameters[name] for name in step.arguments), SIZE)
        enabled = derived.enabled(*given)
        after = Records(*(_at(field, p.holder, derived.result(nth, *given)) for nth, field in enumerate(s)))
    return Question(parameters, s, after, step.books(s, p), enabled)


def _at(field: Of, holder: Term, value: Term) -> Of:
    return lambda h: z3.If(h == holder, value, field(h))


def _handed(s: Records, p: Any) -> Records:
    """Taker has what the holder had, and the holder nothing."""
    moved = [_at(field, p.taker, field(p.holder)) for field in s]
    nothing = (z3.BoolVal(False), *(z3.IntVal(0) for _ in range(4)))
    return Records(*(_at(field, p.holder, none) for field, none in zip(moved, nothing, strict=True)))


def settle(progress: Progress, record: ModuleType = record_kernel) -> Iterator[Verdict]:
    """One verdict a step, and one on what they assume."""
    all_laws = laws(lawful_record(record))
    for name, step in STEPS.items():
        progress(f"records: {name}")
        yield verdict(f"records: {name}", step, record, all_laws)
    progress("records: books")
    yield settle_books(record, all_laws)


def settle_books(record: ModuleType, all_laws: Mapping[str, Law]) -> Verdict:
    """That no step assumes more than it must."""
    began, many, idle = time.process_time(), 0, list[str]()
    for name, step in STEPS.items():
        q = question(step, record)
        goals = [law.small(q.after) for law in [*all_laws.values(), *own_laws(step, q).values()]]
        parts = Noting().parts(z3.And(*q.books)) if q.books else []
        many += len(parts)
        for part in parts:
            small = _small(q._replace(books=(part.less,)), all_laws, least=-1)
            if model_of(*small, q.enabled, z3.Not(z3.And(*goals))) is None:
                idle.append(f"{part.said}, of {name}")
    return Verdict(
        "records: books",
        "no fact of the books is idle: without it, or with a bound one wider, a law fails in a small world",
        in_words(many, idle, "fact", "facts"), not idle, time.process_time() - began,
    )  # fmt: skip


def own_laws(step: Step, q: Question) -> dict[str, Law]:
    """What is owed after this step alone."""
    if step.function == "release":
        row = q.state.row(q.parameters["holder"])
        return {"nobody holds the row": Law(1, lambda s, h: z3.Implies(s.holds(h), s.row(h) != row), _has)}
    if step.function is None:
        words = "the taker has not what the holder had, or the holder still has it"
        return {"SES-1 session-takes-over": Law(0, lambda s: _taken_over(q), lambda: words)}
    return {}


def _taken_over(q: Question) -> Term:
    """The taker has what the giver had, and the giver nothing."""
    giver, taker = q.parameters["holder"], q.parameters["taker"]
    same = [a == b for a, b in zip(q.after.of(taker), q.state.of(giver), strict=True)]
    return z3.And(*same, z3.Not(q.after.holds(giver)))


def verdict(title: str, step: Step, module: ModuleType, all_laws: Mapping[str, Law]) -> Verdict:
    """Every law after the step, for every size; and that the step happens."""
    began = time.process_time()
    q = question(step, module)
    holders = z3.Ints("holder!a holder!b")
    owed = {**all_laws, **own_laws(step, q)}
    goals = {name: law.body(q.after, *holders[: law.holders]) for name, law in owed.items()}
    asked = ask([*(law.of(q.state) for law in all_laws.values()), SIZE >= 1, *q.books, q.enabled], goals)
    told = []
    for goal in list(asked.open):
        found = counterexample(title, q, all_laws, owed[goal])
        told.append(f"{goal}: {found or 'no counterexample in a small world'}")
        asked.open[goal] = "sat" if found else asked.open[goal]
    happens = q.state.holds(q.parameters["holder"]) if step.function is None else q.enabled
    if model_of(*_small(q, all_laws), q.enabled, happens) is None:
        asked.open["witness"] = "not found"
    words = f"settled for every size ({asked.goals} goals, 1 witness)"
    return Verdict(
        title, step.claim, words if not asked.open else not_settled(asked.open), not asked.open,
        time.process_time() - began, "\n".join(told), asked.slowest,
    )  # fmt: skip


def _small(q: Question, all_laws: Mapping[str, Law], least: int = 0) -> Iterator[Term]:
    """A lawful state of two holders and small numbers, and a step of theirs. least: what it may be called with."""
    yield from (law.small(q.state) for law in all_laws.values())
    yield from (SIZE >= 1, SIZE <= MOST, CONTEXT_LEN >= 0, CONTEXT_LEN <= MOST, *q.books)
    for field in q.state[1:]:
        yield from (z3.And(field(holder) >= 0, field(holder) <= MOST) for holder in HOLDERS)
    yield from (z3.And(value >= least, value <= MOST) for value in q.parameters.values())
    for name in ("holder", "taker"):
        if name in q.parameters:
            yield z3.Or(*(q.parameters[name] == holder for holder in HOLDERS))


def counterexample(title: str, q: Question, all_laws: Mapping[str, Law], law: Law) -> str | None:
    """A lawful state of a small world from which the step breaks this law, in words."""
    model = model_of(*_small(q, all_laws), q.enabled, z3.Not(law.small(q.after)))
    if model is None:
        return None

    def seen(s: Records, holder: int) -> Record:
        holds, *numbers = (python_value(model.eval(value, model_completion=True)) for value in s.of(z3.IntVal(holder)))
        row, *lengths = numbers
        return Record(row if holds else None, *lengths)

    values = {name: model.eval(value, model_completion=True).as_long() for name, value in q.parameters.items()}
    holder = values.pop("holder")
    given = ", ".join(f"{name} {value}" for name, value in values.items())
    size = model.eval(SIZE, model_completion=True)
    act = f"holder {holder}, {said_of_record(seen(q.state, holder))}; {title.partition(': ')[2]}"
    for each in product(HOLDERS, repeat=law.holders):
        if z3.is_false(model.eval(law.body(q.after, *map(z3.IntVal, each)), model_completion=True)):
            shown = [part for other in each for part in (other, seen(q.after, other))]
            return f"{act} {given + ', ' if given else ''}page size {size}: then {law.says(*shown)}"
    return None
