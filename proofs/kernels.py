"""Each transition of a page and of a record, by itself, for all ints: who may, what comes of it, and that it is lawful.

authority    nobody else may: see clauses.py
destination  it leads there and nowhere else: see clauses.py
PAGE-1, REC-1, REC-2   what was lawful stays so, in the words of the kernel's own `lawful`, at every page size
lawful       it says what clauses.py says that these rules mean
allowed      what the docstring's `pre:` allows is not refused

No quantifier stands here, so Z3 always has an answer; what it refutes is shown as a call.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import z3

from kvledger.proofs.clauses import CLAUSES, LAWFUL, Clause
from kvledger.proofs.goals import ask, model_of
from kvledger.proofs.saying import said_of_page, said_of_record
from kvledger.proofs.symbolic import Derived, Term, derive
from kvledger.proofs.verdict import Progress, Verdict
from kvledger.spec import page as page_kernel
from kvledger.spec import record as record_kernel
from kvledger.spec.page import Page, SpecError
from kvledger.spec.record import Record

PAGE = ("kind", "owner", "ordinal", "locks")
RECORD = ("holds", "row", "protected", "committed", "allocated")
REC_1 = "REC-1 held-means-allocated"
POINTS = 200  # random inputs of each function, on which the term and the Python function must agree


class Transition(NamedTuple):
    """One function of a kernel, as it is and as Z3 terms over `inputs`: first the page's or record's fields, where it
    takes one, then its arguments."""

    name: str
    function: Callable[..., Any]
    module: ModuleType
    inputs: dict[str, Term]
    derived: Derived

    @property
    def clause(self) -> Clause:
        """What is said of it here."""
        return CLAUSES[self.name]

    def arguments(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """What the function is called with, from a value of each input."""
        if self.name == "start":
            return values
        if self.clause.kernel == "page":
            return Page(*values[:4]), *values[4:]
        holds, row, *lengths = values[:5]
        return Record(row if holds else None, *lengths), *values[5:]


def fields(value: Any) -> tuple[Any, ...]:
    """A page or a record as the values of PAGE or of RECORD."""
    if isinstance(value, tuple) and "locks" in getattr(value, "_fields", ()):
        return tuple(value)
    return value.holds_kv, value.row if value.holds_kv else 0, *value[1:]


def transition(name: str, page: ModuleType = page_kernel, record: ModuleType = record_kernel) -> Transition:
    """A kernel function, run along every path."""
    clause = CLAUSES[name]
    module = page if clause.kernel == "page" else record
    first = () if name == "start" else PAGE if clause.kernel == "page" else RECORD
    if clause.kernel == "page":
        named = [*first, *(argument if argument != "ordinal" else "place" for argument in clause.arguments)]
    else:
        named = [*first, *(f"to_{argument}" if argument in first else argument for argument in clause.arguments)]
    inputs = {each: z3.Bool(each) if each == "holds" else z3.Int(each) for each in named}
    function = getattr(module, name)
    bare = Transition(name, function, module, inputs, Derived({}, ()))
    return bare._replace(derived=derive(lambda *values: fields(function(*bare.arguments(values))), inputs))


def predicate(of: Transition, says: Callable[..., object]) -> Term:
    """A predicate over the arguments of a transition, as a term over its inputs."""
    return derive(lambda *values: truth(says(*of.arguments(values))), of.inputs).result(0)


def truth(value: Any) -> Any:
    """`and` returns its last operand, whatever that is; here the truth of it."""
    return bool(value)


def goals_of(each: Transition) -> tuple[list[Term], dict[str, Term], Term]:
    """What is assumed of every call; what must follow, by name; and that the call happens, which must be possible."""
    clause, after = each.clause, [each.derived.result(nth) for nth in range(4 if each.clause.kernel == "page" else 5)]
    first = () if each.name == "start" else tuple(each.inputs.values())[:4 if clause.kernel == "page" else 5]
    sized = [each.inputs["page_size"] >= 1] if "page_size" in each.inputs else []
    was_lawful, is_lawful = (lawful_term(each, state) if state else z3.BoolVal(True) for state in (first, tuple(after)))
    enabled, sane = each.derived.enabled(), predicate(each, clause.sane)
    arrived = {f"{name}'": z3.Bool(f"{name}'") if name == "holds" else z3.Int(f"{name}'")
               for name in (PAGE if clause.kernel == "page" else RECORD)}  # fmt: skip

    def destination(*values: Any) -> Any:
        given, came = values[: len(each.inputs)], values[len(each.inputs) :]
        result = Page(*came) if clause.kernel == "page" else Record(came[1] if came[0] else None, *came[2:])
        return truth(clause.destination(*each.arguments(given), result))

    reached = derive(destination, {**each.inputs, **arrived}).result(0, *each.inputs.values(), *after)
    good = z3.And(enabled, sane)
    goals = {"authority": z3.Implies(enabled, predicate(each, clause.authority))}
    goals[clause.law] = z3.Implies(good, reached)
    if clause.kernel == "page":
        goals["PAGE-1 one-owner"] = z3.Implies(good, is_lawful)
    else:
        rec_1 = z3.If(after[0], after[4] > 0, is_lawful)
        goals[REC_1] = z3.And(goals.get(REC_1, True), z3.Implies(good, rec_1))
        goals["REC-2 ladder"] = z3.Implies(z3.And(good, after[0]), is_lawful)
    goals["allowed"] = z3.Implies(allowed(each), enabled)
    return [was_lawful, *sized], goals, good


def lawful_term(each: Transition, state: tuple[Term, ...]) -> Term:
    """The kernel's own `lawful`, of a page or of a record at a page size."""
    if each.clause.kernel == "page":
        return lawful_page(each.module).result(0, *state)
    return lawful_record(each.module).result(0, *state, each.inputs["page_size"])


def lawful_page(module: ModuleType) -> Derived:
    """`page.lawful` over PAGE."""
    inputs = {name: z3.Int(f"{name}?") for name in PAGE}
    return derive(lambda *values: truth(module.lawful(Page(*values))), inputs)


def lawful_record(module: ModuleType) -> Derived:
    """`record.lawful` over RECORD and page_size."""
    inputs = {name: z3.Bool("holds?") if name == "holds" else z3.Int(f"{name}?") for name in (*RECORD, "page_size")}

    def function(holds: Any, row: Any, protected: Any, committed: Any, allocated: Any, size: Any) -> Any:
        return truth(module.lawful(Record(row if holds else None, protected, committed, allocated), size))

    return derive(function, inputs)


def allowed(each: Transition) -> Term:
    """The `pre:` lines of its docstring."""
    lines = re.findall(r"^\s*pre: (.+)$", each.function.__doc__ or "", re.MULTILINE)
    names = each.function.__code__.co_varnames[: each.function.__code__.co_argcount]

    def pre(*arguments: Any) -> Any:
        known = vars(each.module) | dict(zip(names, arguments, strict=True))
        return all(truth(eval(line, known)) for line in lines)

    return predicate(each, pre)


# ---- what is shown


def settle(
    progress: Progress, page: ModuleType = page_kernel, record: ModuleType = record_kernel
) -> Iterator[Verdict]:
    """One verdict on each `lawful` and on each transition, and one on the executor that derives their terms."""
    for kernel, module in (("page", page), ("record", record)):
        progress(f"kernels: {kernel}.lawful")
        yield verdict_on_lawful(kernel, module)
    for name, clause in CLAUSES.items():
        progress(f"kernels: {clause.kernel}.{name}")
        yield verdict(transition(name, page, record))
    progress("kernels: executor")
    began = time.process_time()
    wrong = [complaint for name in CLAUSES for complaint in differences(transition(name, page, record))]
    yield Verdict(
        "kernels: executor",
        "the term that was derived from a function says what the function returns, and when it refuses",
        f"agrees on {POINTS * len(CLAUSES):,} random calls" if not wrong else f"differs on {len(wrong)} calls",
        not wrong,
        time.process_time() - began,
        wrong[0] if wrong else "",
    )


def verdict_on_lawful(kernel: str, module: ModuleType) -> Verdict:
    """That what a kernel calls lawful is what the rules mean."""
    began, (claim, rule) = time.process_time(), LAWFUL[kernel]
    own = lawful_page(module) if kernel == "page" else lawful_record(module)
    other = derive(lambda *values: truth(rule(*values)), own.inputs)
    inputs = tuple(own.inputs.values())
    premise = [own.inputs["page_size"] >= 1] if kernel == "record" else []
    same = own.result(0, *inputs) == other.result(0, *inputs)
    asked = ask(premise, {"lawful": same})
    model = model_of(*premise, z3.Not(same), small=[value for value in inputs if not z3.is_bool(value)])
    told = ""
    if model is not None:
        values = tuple(python_value(model.eval(value, model_completion=True)) for value in inputs)
        named = ", ".join(f"{name} {value}" for name, value in zip(own.inputs, values, strict=True))
        says = "lawful" if z3.is_true(model.eval(own.result(0, *inputs), model_completion=True)) else "not lawful"
        told = f"a {kernel} of {named} is called {says}, and is the other"
    words = not_settled(asked.open) if asked.open else f"settled for every size ({asked.goals} goal)"
    spent = time.process_time() - began
    return Verdict(f"kernels: {kernel}.lawful", claim, words, not asked.open, spent, told, asked.slowest)


def verdict(each: Transition) -> Verdict:
    """The goals of one transition, and that a lawful call of it is possible at all."""
    began = time.process_time()
    premise, goals, happens = goals_of(each)
    asked = ask(premise, goals)
    told = [f"{goal}: {counterexample(each, premise, goal, goals[goal])}" for goal in asked.open]
    if model_of(*premise, happens) is None:
        asked.open["witness"] = "not found"
    words = f"settled for every size ({asked.goals} goals, {len(each.derived.paths)} paths)"
    return Verdict(
        f"kernels: {each.clause.kernel}.{each.name}", first_sentence(each.function),
        words if not asked.open else not_settled(asked.open), not asked.open,
        time.process_time() - began, "\n".join(told), asked.slowest,
    )  # fmt: skip


def not_settled(still_open: dict[str, str]) -> str:
    """In the words of a verdict; `sat` is Z3's word for a refutation."""
    said = ", ".join(f"{goal} {'refuted' if answer == 'sat' else answer}" for goal, answer in still_open.items())
    return f"not settled: {said}"


def first_sentence(function: Callable[..., object]) -> str:
    """Of a docstring, as a claim."""
    return (function.__doc__ or "").partition("\n")[0].rstrip(".")


def counterexample(each: Transition, premise: list[Term], goal: str, term: Term) -> str:
    """A call of which the goal is false, in words."""
    numbers = [value for value in each.inputs.values() if not z3.is_bool(value)]
    model = model_of(*premise, z3.Not(term), small=numbers)
    if model is None:
        return "no counterexample was found"
    values = tuple(python_value(model.eval(value, model_completion=True)) for value in each.inputs.values())
    call, arguments = said_of_call(each, values), each.arguments(values)
    try:
        after = each.function(*arguments)
    except SpecError as refusal:
        return f"{call} is allowed, and refused: {refusal}"
    if goal == "authority":
        return f"{call} is not refused, and must be"
    return f"{call} gives {said_of(after)}"


def said_of_call(each: Transition, values: tuple[Any, ...]) -> str:
    """ "give_back of a page that is private to row 1, place 0; row 2". """
    first, *rest = each.arguments(values)
    others = each.clause.arguments
    if each.name == "start":
        return f"{each.name} with " + ", ".join(f"{name} {value}" for name, value in zip(others, values, strict=True))
    what = f"a page that is {said_of(first)}" if each.clause.kernel == "page" else f"a record of {said_of(first)}"
    given = ", ".join(f"{name} {value}" for name, value in zip(others, rest, strict=True))
    return f"{each.name} of {what}" + (f"; {given}:" if given else ":")


def said_of(value: Any) -> str:
    """A page or a record."""
    return said_of_page(Page(*value)) if "locks" in value._fields else said_of_record(Record(*value))


def python_value(term: Term) -> Any:
    """What a model says of a constant."""
    return z3.is_true(term) if z3.is_bool(term) else term.as_long()


def differences(each: Transition) -> Iterator[str]:
    """Calls on which the derived term and the function differ, of POINTS that are drawn."""
    draw = random.Random(each.name)
    outputs = range(4 if each.clause.kernel == "page" else 5)
    for _ in range(POINTS):
        values = tuple(
            draw.random() < 0.8 if name == "holds" else draw.choice((1, 2, 4, 16)) if name == "page_size"
            else draw.randint(-1, 4) for name in each.inputs
        )  # fmt: skip
        try:
            expected = fields(each.function(*each.arguments(values)))
        except SpecError:
            expected = None
        got = None
        if z3.is_true(each.derived.enabled(*values)):
            got = tuple(python_value(each.derived.result(nth, *values)) for nth in outputs)
        if got != expected:
            yield f"{said_of_call(each, values)} is {expected}, and the term says {got}"
