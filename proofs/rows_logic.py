"""One formula, three readers: Z3 for every size, Z3 over a small world, and plain Python over an explored state.

A formula is a Python function that takes the logic `q` first and says its quantifiers and connectives through it.
Terms compare with ==, !=, <=, <, + and -, which Python values and Z3 terms both understand.

    q.all("holder page", lambda h, g: q.implies(s.reads(h, g), s.kind(g) == CACHED), lambda h, g: s.reads(h, g))

says "for every holder h and page g". What follows the body are patterns: the terms at which Z3 looks for instances,
each alone enough, a tuple together. They decide what Z3 finds, never what the formula means; the two others ignore
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, Protocol, TypeAlias

import z3

Term: TypeAlias = Any  # a Python value, or a Z3 term
Body: TypeAlias = Callable[..., Term]
Signature: TypeAlias = dict[str, tuple[str, ...]]  # of a function: the sorts of its arguments, then of its value
SORTS = ("holder", "row", "page", "key")  # beside number and truth


class Symbols:
    """Functions and constants by name: a state, or the parameters of a transition."""

    def __init__(self, meanings: Mapping[str, Term]) -> None:
        self.__dict__.update(meanings)

    def __getattr__(self, name: str) -> Term:
        raise AttributeError(name)


class Logic(Protocol):
    """What a formula may say."""

    def all(self, sorts: str, body: Body, *patterns: Body) -> Term:
        """For every value of these sorts."""

    def both(self, *terms: Term) -> Term:
        """And, of any number."""

    def either(self, *terms: Term) -> Term:
        """Or, of any number."""

    def no(self, term: Term) -> Term:
        """Not."""

    def implies(self, premise: Term, conclusion: Term) -> Term:
        """If, then."""

    def choose(self, condition: Term, yes: Term, otherwise: Term) -> Term:
        """One of two values, or of two formulas."""

    def within(self, low: Term, number: Term, high: Term) -> Term:
        """low <= number < high."""


class Symbolic:
    """Connectives as Z3 terms. sorts: what stands for a holder, a row, a page, a key."""

    def __init__(self, sorts: Mapping[str, z3.SortRef]) -> None:
        self.sorts = dict(sorts) | {"number": z3.IntSort(), "truth": z3.BoolSort()}

    def symbols(self, signature: Signature, suffix: str) -> Symbols:
        """A Z3 function, or a constant, for each name."""
        return Symbols({name: self._symbol(name + suffix, sorts) for name, sorts in signature.items()})

    def _symbol(self, name: str, sorts: Sequence[str]) -> Term:
        meant = [self.sorts[sort] for sort in sorts]
        return z3.Function(name, *meant) if len(meant) > 1 else z3.Const(name, meant[0])

    def both(self, *terms: Term) -> Term:
        """And."""
        return z3.And(*terms)

    def either(self, *terms: Term) -> Term:
        """Or."""
        return z3.Or(*terms)

    def no(self, term: Term) -> Term:
        """Not."""
        return z3.Not(term)

    def implies(self, premise: Term, conclusion: Term) -> Term:
        """If, then."""
        return z3.Implies(premise, conclusion)

    def choose(self, condition: Term, yes: Term, otherwise: Term) -> Term:
        """If-then-else."""
        return z3.If(condition, yes, otherwise)

    def within(self, low: Term, number: Term, high: Term) -> Term:
        """low <= number < high."""
        return z3.And(low <= number, number < high)


class EverySize(Symbolic):
    """Sorts of which nothing is known: any number of rows, pages, keys, requests and sessions."""

    def __init__(self) -> None:
        super().__init__({sort: z3.DeclareSort(sort) for sort in SORTS})

    def all(self, sorts: str, body: Body, *patterns: Body) -> Term:
        """A quantifier, with its patterns."""
        bound = [z3.Const(f"{sort}!{place}", self.sorts[sort]) for place, sort in enumerate(sorts.split())]
        where = []
        for pattern in patterns:
            terms = pattern(*bound)
            where.append(z3.MultiPattern(*terms) if isinstance(terms, tuple) else terms)
        return z3.ForAll(bound, body(*bound), patterns=where)


class SmallWorld(Symbolic):
    """A few of each: quantifiers are written out, so that Z3 always finds an answer, and shows a state for yes."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.values: dict[str, list[Term]] = {}
        sorts = {}
        for sort in SORTS:
            sorts[sort], self.values[sort] = _few(sort, sizes[sort])
        super().__init__(sorts)
        self.least, self.most = sizes["least"], sizes["most"]
        self.values["number"] = [z3.IntVal(number) for number in range(self.least, self.most + 1)]
        self.values["truth"] = [z3.BoolVal(False), z3.BoolVal(True)]

    def all(self, sorts: str, body: Body, *patterns: Body) -> Term:
        """Every case."""
        return z3.And(*(body(*values) for values in product(*(self.values[sort] for sort in sorts.split()))))

    def bounds(self, signature: Signature, symbols: Symbols) -> Iterable[Term]:
        """That every number is one of this world's."""
        for name, (*sorts, value) in signature.items():
            if value == "number":
                for places in product(*(self.values[sort] for sort in sorts)):
                    term = getattr(symbols, name)
                    term = term(*places) if places else term
                    yield z3.And(term >= self.least, term <= self.most)

    def read(self, signature: Signature, symbols: Symbols, model: z3.ModelRef) -> dict[str, Term]:
        """What a model says of each name: a value, or a table of them, in plain Python."""
        said: dict[str, Term] = {}
        for name, (*sorts, _) in signature.items():
            term = getattr(symbols, name)
            if not sorts:
                said[name] = plain(model.eval(term, model_completion=True))
                continue
            table = {}
            for places in product(*(self.values[sort] for sort in sorts)):
                table[_key(map(plain, places))] = plain(model.eval(term(*places), model_completion=True))
            said[name] = table
        return said


@cache
def _few(sort: str, size: int) -> tuple[z3.SortRef, list[Term]]:
    """A sort of so many values. A holder is called A, B, ...; the others are numbered from 1."""
    names = [chr(ord("A") + each) if sort == "holder" else f"{sort} {each + 1}" for each in range(size)]
    kind, values = z3.EnumSort(f"{sort} of {size}", names)
    return kind, values


def plain(value: Term) -> Term:
    """A Z3 value as a Python one."""
    if z3.is_int_value(value):
        return value.as_long()
    if z3.is_bool(value):
        return z3.is_true(value)
    name = value.decl().name()
    return int(name.split()[1]) if " " in name else name


class Explored:
    """A state that is there: quantifiers are loops, and a law that fails leaves the culprit behind.

    values: what there is of each sort, numbers included.
    """

    def __init__(self, values: Mapping[str, Sequence[Term]]) -> None:
        self.values = values
        self.culprit: tuple[Term, ...] = ()

    def all(self, sorts: str, body: Body, *patterns: Body) -> Term:
        """Every case; the first that fails is kept."""
        names = sorts.split()
        if len(names) == 1:
            for value in self.values[names[0]]:
                if not body(value):
                    self.culprit = (value,)
                    return False
            return True
        for values in product(*[self.values[name] for name in names]):
            if not body(*values):
                self.culprit = values
                return False
        return True

    def both(self, *terms: Term) -> Term:
        """And."""
        return all(terms)

    def either(self, *terms: Term) -> Term:
        """Or."""
        return any(terms)

    def no(self, term: Term) -> Term:
        """Not."""
        return not term

    def implies(self, premise: Term, conclusion: Term) -> Term:
        """If, then."""
        return not premise or conclusion

    def choose(self, condition: Term, yes: Term, otherwise: Term) -> Term:
        """If-then-else."""
        return yes if condition else otherwise

    def within(self, low: Term, number: Term, high: Term) -> Term:
        """low <= number < high."""
        return low <= number < high


NOTHING: Mapping[str, Term] = {"truth": False, "number": 0}  # what a table says of what it does not list; else None


def tables(signature: Signature, said: Mapping[str, Term]) -> Symbols:
    """Functions that look their values up, and constants, for Explored."""
    meanings = {}
    for name, sorts in signature.items():
        known = said[name]
        meanings[name] = known if len(sorts) == 1 else _look_up(known, len(sorts) - 1, NOTHING.get(sorts[-1]))
    return Symbols(meanings)


def _look_up(table: Mapping[Term, Term], places: int, nothing: Term) -> Body:
    get = table.get
    if places == 1:
        return lambda key: get(key, nothing)
    return lambda *key: get(key, nothing)


def _key(places: Iterable[Term]) -> Term:
    key = tuple(places)
    return key[0] if len(key) == 1 else key
