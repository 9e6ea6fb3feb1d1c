"""What the layer above does with the page kernel: to one page, to all of a row, to all that are cached.

Each change says which pages a kernel function is called on and with what, and how the references change, which no
kernel function may touch. Beside that it assumes two kinds of facts:

    books    of references alone, which the layer above keeps: "this place of the row is empty"
    judged   of the pages themselves, which `judge` has looked at; with these the kernel's guards must let it pass.
             The laws are proved without them: there the kernel's own guards must do
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import z3

from kvledger.proofs.cells_state import Cells, Of, Space
from kvledger.proofs.counting import EMPTY
from kvledger.proofs.symbolic import Derived, Term
from kvledger.spec.page import CACHED, FREE, PRIVATE

Kernel = Mapping[str, Derived]


class Move(NamedTuple):
    """A kernel function is called on each page of which `on` is true. arguments: of the page, beside its fields."""

    on: Of
    function: Derived
    arguments: Callable[[Term], tuple[Term, ...]] = lambda page: ()

    def enabled(self, s: Cells, page: Term) -> Term:
        """That the function does not refuse this page."""
        return self.function.enabled(*s.page(page), *self.arguments(page))


class Change(NamedTuple):
    """What a step does. The pages of two moves are apart. also: what must be true after it, beside the laws."""

    moves: tuple[Move, ...] = ()
    reads: Of | None = None
    place: Of | None = None
    listed: Of | None = None
    books: tuple[Term, ...] = ()
    judged: tuple[Term, ...] = ()
    also: Mapping[str, Callable[[Space, Cells], Term]] = {}

    def after(self, s: Cells) -> Cells:
        """The state that a step makes of s."""

        def field(nth: int) -> Of:
            def of(page: Term) -> Term:
                value = s.page(page)[nth]
                for move in reversed(self.moves):
                    there = move.function.result(nth, *s.page(page), *move.arguments(page))
                    value = z3.If(move.on(page), there, value)
                return value

            return of

        kind, owner, ordinal, locks = map(field, range(4))
        return Cells(
            kind, owner, ordinal, locks, self.reads or s.reads, self.place or s.place, self.listed or s.listed
        )


def _with(reads: Of, on: Of, holder: Term, inside: bool) -> Of:
    """The receipts, with this holder's or without, on some pages."""
    return lambda g: z3.If(on(g), z3.Store(reads(g), holder, z3.BoolVal(inside)), reads(g))


def _own(s: Cells, row: Term, page: Term) -> Term:
    """The row lists the page as its own. By PAGE-1 it can stand nowhere but at its ordinal."""
    return z3.And(page != 0, s.place(row, s.ordinal(page)) == page)


def _forgets(s: Cells, row: Term, on: Callable[[Term], Term]) -> Of:
    """The places of a row, empty where `on` is true of the place."""
    return lambda r, k: z3.If(z3.And(r == row, on(k)), 0, s.place(r, k))


def grant(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """A page for an empty place of a row."""
    return Change(
        (Move(lambda g: g == p.page, kernel["grant"], lambda g: (p.row, p.place)),),
        place=lambda r, k: z3.If(z3.And(r == p.row, k == p.place), p.page, s.place(r, k)),
        books=(p.page != 0, p.row >= 1, p.place >= 0, s.place(p.row, p.place) == 0),
        judged=(s.kind(p.page) == FREE,),
    )


def publish(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """What a row lists at a place passes to a key."""
    own = s.place(p.row, p.place)
    return Change(
        (Move(lambda g: g == own, kernel["publish"], lambda g: (p.key,)),),
        place=_forgets(s, p.row, lambda k: k == p.place),
        listed=lambda key, g: z3.Or(s.listed(key, g), z3.And(key == p.key, g == own)),
        judged=(own != 0,),
    )


def lock(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """A holder gets a receipt."""
    return Change(
        (Move(lambda g: g == p.page, kernel["lock"]),),
        reads=_with(s.reads, lambda g: g == p.page, p.holder, True),
        books=(z3.Not(z3.Select(s.reads(p.page), p.holder)),),
        judged=(s.kind(p.page) == CACHED,),
    )


def unlock(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """A holder gives a receipt up."""
    return Change(
        (Move(lambda g: g == p.page, kernel["unlock"]),),
        reads=_with(s.reads, lambda g: g == p.page, p.holder, False),
        books=(z3.Select(s.reads(p.page), p.holder),),
    )


def give_back(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """A row gives a page back, and lists it no more. Whose it is, the kernel must see."""
    return Change(
        (Move(lambda g: g == p.page, kernel["give_back"], lambda g: (p.row,)),),
        place=lambda r, k: z3.If(z3.And(r == p.row, s.place(r, k) == p.page), 0, s.place(r, k)),
        judged=(_own(s, p.row, p.page),),
    )


def evict(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """Some pages leave the cache."""
    return Change(
        (Move(p.gone, kernel["evict"]),),
        listed=lambda key, g: z3.And(s.listed(key, g), z3.Not(p.gone(g))),
        judged=(
            q.all("page", lambda g: z3.Implies(p.gone(g), z3.And(s.kind(g) == CACHED, s.locks(g) == 0)), p.gone),
        ),
    )  # fmt: skip


def match(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """A holder gets a receipt for each page of its match."""
    return Change(
        (Move(p.found, kernel["lock"]),),
        reads=_with(s.reads, p.found, p.holder, True),
        books=(q.all("page", lambda g: z3.Implies(p.found(g), z3.Not(z3.Select(s.reads(g), p.holder))), p.found),),
        judged=(q.all("page", lambda g: z3.Implies(p.found(g), s.kind(g) == CACHED), p.found),),
    )


def defer(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """A holder gives every receipt up."""

    def read(g: Term) -> Term:
        return z3.Select(s.reads(g), p.holder)

    return Change(
        (Move(read, kernel["unlock"]),),
        reads=_with(s.reads, read, p.holder, False),
        also={"it reads nothing": lambda q, t: q.all("page", lambda g: z3.Not(z3.Select(t.reads(g), p.holder)))},
    )


def cut(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """A row gives back what it lists from a place on."""
    return Change(
        (Move(lambda g: z3.And(_own(s, p.row, g), s.ordinal(g) >= p.upto), kernel["give_back"], lambda g: (p.row,)),),
        place=_forgets(s, p.row, lambda k: k >= p.upto),
        also={"no page beyond is left to the row": lambda q, t: _none_private(q, t, p.row, lambda k: k >= p.upto)},
    )


def release(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """A row gives back all that is its own, and its holder gives up every receipt."""

    def own(g: Term) -> Term:
        return _own(s, p.row, g)

    def read(g: Term) -> Term:
        return z3.Select(s.reads(g), p.holder)

    return Change(
        (Move(own, kernel["give_back"], lambda g: (p.row,)), Move(read, kernel["unlock"])),
        reads=_with(s.reads, read, p.holder, False),
        place=_forgets(s, p.row, lambda k: z3.BoolVal(True)),
        also={
            "no page is left to the row": lambda q, t: _none_private(q, t, p.row, lambda k: z3.BoolVal(True)),
            "it reads nothing": lambda q, t: q.all("page", lambda g: z3.Not(z3.Select(t.reads(g), p.holder))),
        },
    )


def publish_row(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """What a row lists below a place passes to the cache, and its holder reads it from then on. stays(k) is the page
    that the row lists at place k afterwards: its own, under key(k), beside whatever the key has; or another one, merged
    with it (of the same key, as `rows` has it), and then the own one is freed. whose(g): the place whose stead a page
    takes."""

    def passes(k: Term) -> Term:
        return z3.And(k < p.upto, s.place(p.row, k) != 0)

    def keeps(g: Term) -> Term:
        return z3.And(_own(s, p.row, g), s.ordinal(g) < p.upto, p.stays(s.ordinal(g)) == g)

    def goes(g: Term) -> Term:
        return z3.And(_own(s, p.row, g), s.ordinal(g) < p.upto, p.stays(s.ordinal(g)) != g)

    def takes_its_stead(g: Term) -> Term:
        k = p.whose(g)
        return z3.And(passes(k), p.stays(k) == g, s.place(p.row, k) != g)

    def merged(fact: Of) -> Term:
        return q.all(
            "place",
            lambda k: z3.Implies(z3.And(passes(k), p.stays(k) != s.place(p.row, k)), fact(p.stays(k), k)),
            lambda k: s.place(p.row, k), p.stays,
        )  # fmt: skip

    def reader(g: Term) -> Term:
        return z3.Or(keeps(g), takes_its_stead(g))

    return Change(
        (
            Move(keeps, kernel["publish, lock"], lambda g: (p.key(s.ordinal(g)),)),
            Move(goes, kernel["give_back"], lambda g: (p.row,)),
            Move(takes_its_stead, kernel["lock"]),
        ),
        reads=_with(s.reads, reader, p.holder, True),
        place=_forgets(s, p.row, lambda k: k < p.upto),
        listed=lambda key, g: z3.Or(s.listed(key, g), z3.And(keeps(g), p.key(s.ordinal(g)) == key)),
        books=(
            # keys of different places differ, and so do their pages; none is one that the holder reads already
            merged(lambda g, k: z3.And(p.whose(g) == k, z3.Not(z3.Select(s.reads(g), p.holder)))),
        ),
        judged=(merged(lambda g, k: s.kind(g) == CACHED),),
        also={
            "no page below is left to the row": lambda q, t: _none_private(q, t, p.row, lambda k: k < p.upto),
            "the holder reads what its row lists": lambda q, t: q.all(
                "place", lambda k: z3.Implies(passes(k), z3.Select(t.reads(p.stays(k)), p.holder))
            ),
        },
    )


def hand_over(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """A holder's receipts become another's: of a turn's, its session's, or back. Private pages name the row, which
    goes with the record, so no page is touched."""

    def given(g: Term) -> Term:
        return z3.Select(s.reads(g), p.giver)

    return Change(
        reads=lambda g: z3.If(
            given(g),
            z3.Store(z3.Store(s.reads(g), p.giver, z3.BoolVal(False)), p.taker, z3.BoolVal(True)),
            s.reads(g),
        ),
        books=(q.all("page", lambda g: z3.Not(z3.Select(s.reads(g), p.taker)), s.reads),),
        also={
            "SES-1 session-takes-over": lambda q, t: q.all(
                "page",
                lambda g: z3.And(
                    z3.Select(t.reads(g), p.taker) == given(g), z3.Not(z3.Select(t.reads(g), p.giver))
                ),
            )
        },
    )  # fmt: skip


def flush(q: Space, kernel: Kernel, s: Cells, p: Any) -> Change:
    """All that is cached is evicted; idle sessions were released before, and nobody reads."""
    return Change(
        (Move(lambda g: s.kind(g) == CACHED, kernel["evict"]),),
        listed=lambda key, g: z3.BoolVal(False),
        judged=(q.all("page", lambda g: s.reads(g) == EMPTY, s.reads),),
        also={"the cache is empty": lambda q, t: q.all("page", lambda g: t.kind(g) != CACHED)},
    )


def _none_private(q: Space, t: Cells, row: Term, at: Of) -> Term:
    """No page names a place of the row."""
    return q.all("page", lambda g: z3.Not(z3.And(t.kind(g) == PRIVATE, t.owner(g) == row, at(t.ordinal(g)))))
