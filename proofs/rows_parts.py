"""What steps say of a state after, part by part: what stays, what a record, a row, a receipt or a page has become."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kvledger.proofs.rows_logic import Logic, Symbols, Term
from kvledger.spec.page import CACHED, FREE, PRIVATE

Clauses: TypeAlias = dict[str, Term]


# ---- what stays, field by field


def request_stays(q: Logic, s: Symbols, t: Symbols, h: Term) -> Term:
    """A request lives on, or not, and is a turn of the same session."""
    turn = q.both(t.talks(h) == s.talks(h), q.implies(s.talks(h), t.of(h) == s.of(h)))
    return q.both(t.lives(h) == s.lives(h), q.implies(s.lives(h), turn))


def record_stays(q: Logic, s: Symbols, t: Symbols, h: Term) -> Term:
    """A record keeps its row and its lengths."""
    return q.both(t.holds(h) == s.holds(h), q.implies(s.holds(h), record_is(q, t, h, *lengths_of(s, h))))


def page_stays(q: Logic, s: Symbols, t: Symbols, g: Term) -> Term:
    """A page keeps its owner and its locks."""
    place = q.both(t.at(g) == s.at(g), t.ordinal(g) == s.ordinal(g))
    return q.both(
        t.kind(g) == s.kind(g), t.locks(g) == s.locks(g),
        q.implies(s.kind(g) == PRIVATE, place), q.implies(s.kind(g) == CACHED, t.key(g) == s.key(g)),
    )  # fmt: skip


def unchanged(q: Logic, s: Symbols, t: Symbols) -> Clauses:
    """Every part stays."""
    return {
        "requests": q.all("holder", lambda h: request_stays(q, s, t, h), lambda h: t.lives(h), lambda h: t.of(h)),
        "sessions": q.all("holder", lambda h: t.session(h) == s.session(h), lambda h: t.session(h)),
        "admissions": admissions(q, s, t, lambda h: s.admitted(h)),
        "records": q.all("holder", lambda h: record_stays(q, s, t, h), lambda h: t.holds(h), lambda h: t.row(h)),
        "tables": table(q, t, s.table),
        "receipts": read(q, t, s.reads),
        "pages": each_page(q, t, lambda g: page_stays(q, s, t, g)),
        "index": index(q, t, s.listed),
    }


# ---- what is said of each part


def lengths_of(s: Symbols, h: Term) -> tuple[Term, ...]:
    """The row and the four lengths of a record."""
    return s.row(h), s.protected(h), s.whole(h), s.committed(h), s.allocated(h)


def record_is(q: Logic, t: Symbols, h: Term, *lengths: Term) -> Term:
    """A record has this row and these lengths."""
    return q.both(*(is_now == was for is_now, was in zip(lengths_of(t, h), lengths, strict=True)))


def records(q: Logic, s: Symbols, t: Symbols, holder: Term, *lengths: Term) -> Term:
    """One record has this row and these lengths, the others stay."""
    return q.all(
        "holder",
        lambda h: q.choose(
            h == holder, q.both(t.holds(h), record_is(q, t, h, *lengths)), record_stays(q, s, t, h)
        ),
        lambda h: t.holds(h), lambda h: t.row(h),
    )  # fmt: skip


def admissions(q: Logic, s: Symbols, t: Symbols, still: Callable[[Term], Term]) -> Term:
    """Who is still admitted, each with its match."""
    return q.both(
        q.all(
            "holder",
            lambda h: q.both(t.admitted(h) == still(h), q.implies(t.admitted(h), t.found(h) == s.found(h))),
            lambda h: t.admitted(h),
        ),
        q.all(
            "holder number",
            lambda h, k: q.implies(
                q.both(t.admitted(h), q.within(0, k, t.found(h))), t.match(h, k) == s.match(h, k)
            ),
            lambda h, k: t.match(h, k),
        ),
    )  # fmt: skip


def table(q: Logic, t: Symbols, lists: Callable[[Term, Term], Term]) -> Term:
    """What each row lists, as far as it has pages."""
    return q.all(
        "holder number",
        lambda h, k: q.implies(
            q.both(t.holds(h), q.within(0, k, t.allocated(h))), t.table(h, k) == lists(h, k)
        ),
        lambda h, k: t.table(h, k),
    )  # fmt: skip


def read(q: Logic, t: Symbols, reads: Callable[[Term, Term], Term]) -> Term:
    """Who has a receipt for which page."""
    return q.all("holder page", lambda h, g: t.reads(h, g) == reads(h, g), lambda h, g: t.reads(h, g))


def each_page(q: Logic, t: Symbols, body: Callable[[Term], Term]) -> Term:
    """What is true of each page."""
    return q.all("page", body, lambda g: t.kind(g), lambda g: t.locks(g), lambda g: t.at(g), lambda g: t.key(g))


def index(q: Logic, t: Symbols, lists: Callable[[Term, Term], Term]) -> Term:
    """What stands under each key."""
    return q.all("key page", lambda key, g: t.listed(key, g) == lists(key, g), lambda key, g: t.listed(key, g))


# ---- pages, one by one


def is_free(q: Logic, t: Symbols, g: Term) -> Term:
    """Nobody owns the page, and nobody reads it."""
    return q.both(t.kind(g) == FREE, t.locks(g) == 0)


def is_private(q: Logic, t: Symbols, g: Term, row: Term, place: Term) -> Term:
    """The page is private to this place."""
    return q.both(t.kind(g) == PRIVATE, t.at(g) == row, t.ordinal(g) == place, t.locks(g) == 0)


def is_cached(q: Logic, t: Symbols, g: Term, key: Term, locks: Term) -> Term:
    """The page stands under a key, with so many locks."""
    return q.both(t.kind(g) == CACHED, t.key(g) == key, t.locks(g) == locks)


def own_from(q: Logic, s: Symbols, h: Term, g: Term, first: Term) -> Term:
    """The page is at an own place of the holder's row, from place `first` on."""
    k = s.ordinal(g)
    return q.both(s.kind(g) == PRIVATE, q.within(first, k, s.allocated(h)), s.table(h, k) == g)


def in_match(q: Logic, s: Symbols, p: Symbols, g: Term) -> Term:
    """The page is in the match that the parameters name."""
    k = s.depth(s.key(g))
    return q.both(s.kind(g) == CACHED, q.within(0, k, p.found), p.match(k) == g)


def a_match(q: Logic, s: Symbols, p: Symbols) -> Term:
    """Each page of the match stands under a key of its place (judge_matched)."""
    return q.all(
        "number",
        lambda k: q.implies(
            q.within(0, k, p.found), q.both(s.kind(p.match(k)) == CACHED, s.depth(s.key(p.match(k))) == k)
        ),
        lambda k: p.match(k),
    )


def fresh_pages(q: Logic, s: Symbols, p: Symbols, first: Term, end: Term) -> Term:
    """The pages handed out for places [first, end) are free (judge_pages). That none is handed out twice, `grants`
    says: a page has one place."""
    return q.all(
        "number", lambda k: q.implies(q.within(first, k, end), s.kind(p.fresh(k)) == FREE), lambda k: p.fresh(k)
    )


def grants(
    q: Logic, p: Symbols, t: Symbols, row: Term, first: Term, end: Term, others: Callable[[Term], Term]
) -> Term:
    """Places [first, end) of a row get the fresh pages; others: what is true of every other page."""

    def granted(g: Term) -> Term:
        k = t.ordinal(g)
        return q.both(t.kind(g) == PRIVATE, q.within(first, k, end), p.fresh(k) == g)

    return q.both(
        q.all(
            "number",
            lambda k: q.implies(q.within(first, k, end), is_private(q, t, p.fresh(k), row, k)),
            lambda k: p.fresh(k),
        ),
        each_page(q, t, lambda g: q.either(granted(g), others(g))),
    )


def round_up(q: Logic, p: Symbols) -> Term:
    """The last page with KV is complete, or the one after the last complete one."""
    return q.both(p.whole <= p.committed, p.committed <= p.whole + 1)


def has_turn(q: Logic, s: Symbols, session: Term) -> Term:
    """A turn of this session lives."""
    turn = s.turn(session)
    return q.both(s.lives(turn), s.talks(turn), s.of(turn) == session)
