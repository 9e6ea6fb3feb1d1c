"""Runs an ordinary Python function on symbolic numbers, along every path, and makes one Z3 term of it.

A symbolic truth that is asked for (`if`, `and`, `not`), or a number that is taken for one, forks the run: each path is
taken by a run of its own, from the start, with the answers of the path given. What is run is the function itself, so a
proof of the term cannot drift from the code. A path that ends in SpecError is one on which the function refuses.

Numbers are unbounded. Z3's division is Python's for a positive divisor, and page sizes are positive; nothing else
divides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias

import z3

from kvledger.spec.page import SpecError

Term: TypeAlias = Any  # a Z3 term
MOST = 100  # paths of one function, and forks of one path; the kernels have a dozen at most


class Truth:
    """A symbolic bool. Whoever asks whether it is true forks the run."""

    def __init__(self, term: Term) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return _run.get().branch(self.term)

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.term == as_term(other))


class Number:
    """A symbolic int. It compares to a Truth, and adds, subtracts, multiplies and divides as ints do. Whoever asks
    whether it is true forks the run: all but 0 is."""

    def __init__(self, term: Term) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return _run.get().branch(self.term != 0)

    def __add__(self, other: object) -> Number:
        return Number(self.term + as_term(other))

    def __radd__(self, other: object) -> Number:
        return Number(as_term(other) + self.term)

    def __sub__(self, other: object) -> Number:
        return Number(self.term - as_term(other))

    def __rsub__(self, other: object) -> Number:
        return Number(as_term(other) - self.term)

    def __mul__(self, other: object) -> Number:
        return Number(self.term * as_term(other))

    def __rmul__(self, other: object) -> Number:
        return Number(as_term(other) * self.term)

    def __floordiv__(self, other: object) -> Number:
        return Number(self.term / as_term(other))

    def __mod__(self, other: object) -> Number:
        return Number(self.term % as_term(other))

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(z3.BoolVal(False) if other is None else self.term == as_term(other))

    def __ne__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.term != as_term(other))

    def __lt__(self, other: object) -> Truth:
        return Truth(self.term < as_term(other))

    def __le__(self, other: object) -> Truth:
        return Truth(self.term <= as_term(other))

    def __gt__(self, other: object) -> Truth:
        return Truth(self.term > as_term(other))

    def __ge__(self, other: object) -> Truth:
        return Truth(self.term >= as_term(other))


def as_term(value: object) -> Term:
    """What stands for a value in Z3. Raises TypeError for what is no int, no bool and not symbolic."""
    if isinstance(value, Truth | Number):
        return value.term
    if isinstance(value, bool):
        return z3.BoolVal(value)
    if isinstance(value, int):
        return z3.IntVal(value)
    raise TypeError(f"no number and no truth: {value!r}")


class _Run:
    """One path: the answers that are given, then True wherever that is possible."""

    def __init__(self, given: Sequence[bool]) -> None:
        self.answers = list(given)
        self.met: list[Term] = []  # what the path asked, each as it was answered

    def branch(self, condition: Term) -> bool:
        if len(self.met) == MOST:
            raise RuntimeError(f"more than {MOST} forks on one path: no loop may ask what is symbolic")
        if len(self.met) == len(self.answers):
            self.answers.append(_possible(*self.met, condition))
        answer = self.answers[len(self.met)]
        self.met.append(condition if answer else z3.Not(condition))
        return answer


_run: ContextVar[_Run] = ContextVar("run")


def _possible(*conditions: Term) -> bool:
    """Whether all may hold. A timeout counts as yes: a path too many costs time, one too few the proof."""
    solver = z3.Solver()
    solver.set("timeout", 2_000)
    return bool(solver.check(*conditions) != z3.unsat)


class Path(NamedTuple):
    """condition: under which inputs it is taken. result: what the function returned there; None where it refused."""

    condition: Term
    result: tuple[Term, ...] | None


class Derived(NamedTuple):
    """A function as Z3 terms over `inputs`, its free constants by name, in order."""

    inputs: dict[str, Term]
    paths: tuple[Path, ...]

    def enabled(self, *given: Term) -> Term:
        """Under which inputs it returns, and does not refuse."""
        return self._at(z3.Or(*(path.condition for path in self.paths if path.result is not None)), given)

    def result(self, nth: int, *given: Term) -> Term:
        """The nth value of what it returns; without meaning where it refuses. Raises SpecError if it always does."""
        returning = [path for path in self.paths if path.result is not None]
        if not returning:
            raise SpecError("a kernel function refuses every call")
        merged: Term = None
        for path in reversed(returning):
            assert path.result is not None
            value = path.result[nth]
            merged = value if merged is None else z3.If(path.condition, value, merged)
        return self._at(merged, given)

    def _at(self, term: Term, given: Sequence[Term]) -> Term:
        pairs = zip(self.inputs.values(), map(as_given, given), strict=True)
        return z3.simplify(z3.substitute(term, *pairs)) if given else term


def as_given(value: Term) -> Term:
    """A Python number or truth as a Z3 term; a term as it is."""
    return value if isinstance(value, z3.ExprRef) else as_term(value)


def derive(function: Callable[..., Any], inputs: Mapping[str, Term]) -> Derived:
    """Run the function on Z3 constants, along every path. It returns a number, a truth, or a tuple of these."""
    todo: list[list[bool]] = [[]]
    paths: list[Path] = []
    symbols = [Truth(term) if z3.is_bool(term) else Number(term) for term in inputs.values()]
    while todo:
        given = todo.pop()
        run = _Run(given)
        token = _run.set(run)
        result: tuple[Term, ...] | None
        try:
            returned = function(*symbols)
            result = tuple(map(as_term, returned if isinstance(returned, tuple) else (returned,)))
        except SpecError:
            result = None
        finally:
            _run.reset(token)
        paths.append(Path(z3.And(*run.met), result))
        if len(paths) > MOST:
            raise RuntimeError(f"more than {MOST} paths")
        for place in range(len(given), len(run.answers)):
            if run.answers[place] and _possible(*run.met[:place], z3.Not(run.met[place])):
                todo.append([*run.answers[:place], False])
    return Derived(dict(inputs), tuple(paths))
