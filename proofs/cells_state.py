"""Any number of pages, rows, keys and holders: the state that the page kernel is lifted to, and the laws of it.

A page's own fields are the kernel's; who lists or reads it is said beside them, by the layer above:

    kind, owner, ordinal, locks   of a page: what the kernel returns
    place(row, ordinal)           the page that the row lists there as its own; 0 (the padding page) for none
    listed(key, page)             whether the prefix cache lists the page under the key
    reads(page)                   the set of holders with a receipt for the page

A kernel's function never sees the last three, and no law is assumed that it could keep by writing them: that is the
frame rule. A law is written once and asked of Z3 twice: for every size, with quantifiers, where only `unsat` is of
use; and of a small world, written out, where there is always an answer and a counterexample can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, ClassVar, NamedTuple

import z3

from kvledger.proofs.counting import AXIOMS, HOLDERS, finite, members
from kvledger.proofs.saying import said_of_page
from kvledger.proofs.symbolic import Derived, Term
from kvledger.spec.page import CACHED, FREE, PRIVATE, Page

Of = Callable[..., Term]


class Cells(NamedTuple):
    """A state, as functions from terms to terms."""

    kind: Of
    owner: Of
    ordinal: Of
    locks: Of
    reads: Of
    place: Of
    listed: Of

    def page(self, page: Term) -> tuple[Term, Term, Term, Term]:
        """The kernel's fields of a page."""
        return self.kind(page), self.owner(page), self.ordinal(page), self.locks(page)


class EverySize:
    """Nothing is known of how many there are."""

    axioms = tuple(AXIOMS)

    def all(self, sorts: str, body: Of, *patterns: Of) -> Term:
        """For every value of these sorts. patterns: where Z3 looks for instances; each alone is enough."""
        bound = [z3.Int(f"{sort}!{place}") for place, sort in enumerate(sorts.split())]
        if not bound:
            return body()
        return z3.ForAll(bound, body(*bound), patterns=[pattern(*bound) for pattern in patterns])

    def members(self, holders: Term) -> Term:
        """How many."""
        return members(holders)

    def finite(self, holders: Term) -> Term:
        """Whether it has an end."""
        return finite(holders)


class SmallWorld:
    """A few of each, and the padding page."""

    axioms = ()
    values: ClassVar = {
        "page": (0, 1, 2), "holder": (1, 2), "row": (1, 2), "place": (0, 1), "key": (1, 2), "number": (0, 1, 2)
    }  # fmt: skip

    def all(self, sorts: str, body: Of, *patterns: Of) -> Term:
        """Every case."""
        return z3.And(*(body(*values) for values in self.each(sorts)))

    def each(self, sorts: str) -> Iterator[tuple[int, ...]]:
        """Every combination of values."""
        return product(*(self.values[sort] for sort in sorts.split()))

    def members(self, holders: Term) -> Term:
        """Counted."""
        return z3.Sum(*(z3.If(z3.Select(holders, holder), 1, 0) for holder in self.values["holder"]))

    def finite(self, holders: Term) -> Term:
        """All are."""
        return z3.BoolVal(True)

    def bounds(self, s: Cells) -> Iterator[Term]:
        """That the state names nothing beyond this world."""
        for page in self.values["page"]:
            yield z3.And(s.owner(page) >= 0, s.owner(page) <= 2, s.ordinal(page) >= 0, s.ordinal(page) <= 1)
        for row, ordinal in self.each("row place"):
            yield z3.And(s.place(row, ordinal) >= 0, s.place(row, ordinal) <= 2)


Space = EverySize | SmallWorld


def fresh(name: str) -> Cells:
    """A state of which nothing is known."""
    number, truth = z3.IntSort(), z3.BoolSort()
    kind, owner, ordinal, locks = (
        z3.Function(f"{field}{name}", number, number) for field in ("kind", "owner", "ordinal", "locks")
    )
    return Cells(
        kind, owner, ordinal, locks,
        z3.Function(f"reads{name}", number, HOLDERS),
        z3.Function(f"place{name}", number, number, number),
        z3.Function(f"listed{name}", number, number, truth),
    )  # fmt: skip


class Seen:
    """A state of a small world as a model says it is, in plain Python."""

    def __init__(self, s: Cells, model: z3.ModelRef) -> None:
        self._s, self._model = s, model

    def value(self, term: Term) -> Any:
        """An int or a bool."""
        found = self._model.eval(z3.BoolVal(term) if isinstance(term, bool) else term, model_completion=True)
        return found.as_long() if z3.is_int_value(found) else z3.is_true(found)

    def page(self, page: int) -> Page:
        """The kernel's fields."""
        return Page(*map(self.value, self._s.page(page)))

    def readers(self, page: int) -> list[int]:
        """Who has a receipt."""
        return [holder for holder in SmallWorld.values["holder"] if self.value(self._s.reads(page)[holder])]

    def place(self, row: int, ordinal: int) -> int:
        """What the row lists there."""
        return int(self.value(self._s.place(row, ordinal)))

    def listed(self, key: int, page: int) -> bool:
        """Whether the key lists it."""
        return bool(self.value(self._s.listed(key, page)))

    def said(self, page: int) -> str:
        """ "page 2, cached under key 1, 1 lock and read by holder 1"."""
        readers = " and ".join(f"holder {holder}" for holder in self.readers(page))
        return f"page {page}, {said_of_page(self.page(page))}" + (f" and read by {readers}" if readers else "")


class Law(NamedTuple):
    """For every value of `sorts`: body(space, state, *values). says: what it looks like where that is false."""

    sorts: str
    body: Callable[..., Term]
    patterns: tuple[Callable[..., Term], ...]
    says: Callable[..., str]

    def goal(self, space: Space, s: Cells) -> Term:
        """The law of a state, to be shown."""
        return space.all(self.sorts, lambda *values: self.body(space, s, *values))

    def of(self, space: Space, s: Cells) -> Term:
        """The law of a state, to be used."""
        patterns = [lambda *values, each=each: each(s, *values) for each in self.patterns]
        return space.all(self.sorts, lambda *values: self.body(space, s, *values), *patterns)


def laws(lawful: Derived) -> dict[str, Law]:
    """By the rule that each is. lawful: the kernel's own predicate of one page."""
    return {
        "LOCK-2 locked-stays": Law(
            "page holder",
            lambda q, s, g, h: z3.Implies(z3.Select(s.reads(g), h), s.kind(g) == CACHED),
            (lambda s, g, h: z3.Select(s.reads(g), h),),
            lambda seen, g, h: f"holder {h} reads page {g}, which is {said_of_page(seen.page(g))}",
        ),
        "LOCK-1 locks-counted": Law(
            "page",
            lambda q, s, g: z3.And(q.finite(s.reads(g)), s.locks(g) == q.members(s.reads(g))),
            (lambda s, g: s.reads(g), lambda s, g: s.locks(g)),
            lambda seen, g: f"page {g} is {said_of_page(seen.page(g))}, and {len(seen.readers(g))} read it",
        ),
        "PAGE-1 one-owner": Law(
            "row place",
            lambda q, s, r, k: z3.Implies(
                s.place(r, k) != 0,
                z3.And(s.kind(s.place(r, k)) == PRIVATE, s.owner(s.place(r, k)) == r, s.ordinal(s.place(r, k)) == k),
            ),
            (lambda s, r, k: s.place(r, k),),
            lambda seen, r, k: f"row {r} lists page {seen.place(r, k)} at place {k}, "
            f"which is {said_of_page(seen.page(seen.place(r, k)))}",
        ),
        "PAGE-2 no-page-lost": Law(
            "page",
            lambda q, s, g: z3.Implies(s.kind(g) == PRIVATE, s.place(s.owner(g), s.ordinal(g)) == g),
            (lambda s, g: s.kind(g),),
            lambda seen, g: f"page {g} is {said_of_page(seen.page(g))}, which lists it not",
        ),
        "PAGE-2 no-page-lost, in the cache": Law(
            "key page",
            lambda q, s, key, g: s.listed(key, g) == z3.And(s.kind(g) == CACHED, s.owner(g) == key),
            (lambda s, key, g: s.listed(key, g),),
            lambda seen, key, g: f"key {key} lists page {g}, which is {said_of_page(seen.page(g))}"
            if seen.listed(key, g) else f"page {g} is {said_of_page(seen.page(g))}, which lists it not",
        ),
        "PAGE-3 padding-page": Law(
            "", lambda q, s: s.kind(0) == FREE, (),
            lambda seen: f"the padding page is {said_of_page(seen.page(0))}",
        ),
        "lawful page": Law(
            "page",
            lambda q, s, g: lawful.result(0, *s.page(g)),
            tuple(lambda s, g, field=field: s[field](g) for field in range(4)),
            lambda seen, g: f"page {g} is {said_of_page(seen.page(g))}",
        ),
    }  # fmt: skip


# What the laws are there for: true of every lawful state
FOLLOWS: dict[str, Law] = {
    "nobody refers to a free page": Law(
        "page holder row place key",
        lambda q, s, g, h, r, k, key: z3.Implies(
            z3.And(s.kind(g) == FREE, g != 0),
            z3.Not(z3.Or(z3.Select(s.reads(g), h), s.place(r, k) == g, s.listed(key, g))),
        ),
        (),
        lambda seen, g, *_: f"page {g} is free, and somebody refers to it",
    ),
    "a private page has one place": Law(
        "row place row place",
        lambda q, s, r, k, r2, k2: z3.Implies(
            z3.And(s.place(r, k) != 0, s.place(r, k) == s.place(r2, k2)), z3.And(r == r2, k == k2)
        ),
        (),
        lambda seen, r, k, *_: f"page {seen.place(r, k)} has two places",
    ),
    "what a row owns nobody reads": Law(
        "row place holder",
        lambda q, s, r, k, h: z3.Implies(s.place(r, k) != 0, z3.Not(z3.Select(s.reads(s.place(r, k)), h))),
        (),
        lambda seen, r, k, *_: f"page {seen.place(r, k)} is private and read",
    ),
    "what has no lock nobody reads": Law(
        "page holder",
        lambda q, s, g, h: z3.Implies(s.locks(g) == 0, z3.Not(z3.Select(s.reads(g), h))),
        (),
        lambda seen, g, *_: f"page {g} has no lock and is read",
    ),
}
