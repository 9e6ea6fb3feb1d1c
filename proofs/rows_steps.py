"""The steps by name, each with its parameters, what becomes of the ghosts, and what it must be possible to do.

A ghost is defined anew after each step, from the state before: a definition claims nothing, it only says whom the
laws after the step may name. Its real meaning, "there is one", does not depend on the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from kvledger.proofs import rows_relations as relations
from kvledger.proofs.rows_logic import Logic, Signature, Symbols, Term
from kvledger.proofs.rows_parts import in_match, own_from
from kvledger.proofs.rows_relations import Relation
from kvledger.spec.page import CACHED

Ghosts: TypeAlias = Callable[[Logic, Symbols, Symbols, Symbols], Iterator[Term]]
Case: TypeAlias = Callable[[Logic, Symbols, Symbols], Term]  # q, before, parameters


class Step(NamedTuple):
    """sentence: what the step does. acts: the actions that do it. cases: what must be possible, by name."""

    sentence: str
    acts: str
    parameters: Signature
    relation: Relation
    ghosts: Ghosts
    cases: dict[str, Case]


def _by(q: Logic, s: Symbols, t: Symbols) -> Iterator[Term]:
    yield q.all("row", lambda r: t.by(r) == s.by(r), lambda r: t.by(r))


def _passes(q: Logic, s: Symbols, t: Symbols, row: Term, holder: Term) -> Iterator[Term]:
    """The row passes to the holder."""
    yield q.all("row", lambda r: t.by(r) == q.choose(r == row, holder, s.by(r)), lambda r: t.by(r))


def _turn(q: Logic, s: Symbols, t: Symbols) -> Iterator[Term]:
    yield q.all("holder", lambda h: t.turn(h) == s.turn(h), lambda h: t.turn(h))


def _numbers(
    q: Logic, t: Symbols, nth: Callable[[Term, Term], Term], number: Callable[[Term, Term], Term]
) -> Iterator[Term]:
    yield q.all("page number", lambda g, n: t.nth(g, n) == nth(g, n), lambda g, n: t.nth(g, n))
    yield q.all("holder page", lambda h, g: t.number(h, g) == number(h, g), lambda h, g: t.number(h, g))


def _stay(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Iterator[Term]:
    yield from (*_by(q, s, t), *_turn(q, s, t), *_numbers(q, t, s.nth, s.number))


def _submitted(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Iterator[Term]:
    yield q.all(
        "holder",
        lambda h: t.turn(h) == q.choose(q.both(p.talks, h == p.of), p.req, s.turn(h)),
        lambda h: t.turn(h),
    )
    yield from (*_by(q, s, t), *_numbers(q, t, s.nth, s.number))


def _gains(q: Logic, s: Symbols, t: Symbols, holder: Term, gained: Callable[[Term], Term]) -> Iterator[Term]:
    """The holder's new receipts come last."""
    yield from _numbers(
        q, t,
        lambda g, n: q.choose(q.both(gained(g), n == s.locks(g)), holder, s.nth(g, n)),
        lambda h, g: q.choose(q.both(gained(g), h == holder), s.locks(g), s.number(h, g)),
    )  # fmt: skip


def _loses(q: Logic, s: Symbols, t: Symbols, holder: Term) -> Iterator[Term]:
    """The last receipt of a page takes the number of the one that goes."""

    def last(g: Term) -> Term:
        return s.nth(g, s.locks(g) - 1)

    yield from _numbers(
        q, t,
        lambda g, n: q.choose(q.both(s.reads(holder, g), n == s.number(holder, g)), last(g), s.nth(g, n)),
        lambda h, g: q.choose(q.both(s.reads(holder, g), h == last(g)), s.number(holder, g), s.number(h, g)),
    )  # fmt: skip


def _handed(q: Logic, s: Symbols, t: Symbols, giver: Term, taker: Term) -> Iterator[Term]:
    """The taker's name stands where the giver's stood."""
    yield from (*_passes(q, s, t, s.row(giver), taker), *_turn(q, s, t))
    yield from _numbers(
        q, t,
        lambda g, n: q.choose(s.nth(g, n) == giver, taker, s.nth(g, n)),
        lambda h, g: q.choose(h == taker, s.number(giver, g), s.number(h, g)),
    )  # fmt: skip


def _admitted(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Iterator[Term]:
    yield from (*_by(q, s, t), *_turn(q, s, t), *_gains(q, s, t, p.req, lambda g: in_match(q, s, p, g)))


def _deferred(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Iterator[Term]:
    yield from (*_by(q, s, t), *_turn(q, s, t), *_loses(q, s, t, p.req))


def _started(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Iterator[Term]:
    yield from (*_passes(q, s, t, p.row, p.req), *_turn(q, s, t))
    yield from _gains(q, s, t, p.req, lambda g: q.both(q.no(s.admitted(p.req)), in_match(q, s, p, g)))


def _published(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Iterator[Term]:
    yield from (*_by(q, s, t), *_turn(q, s, t))
    yield from _gains(q, s, t, p.req, lambda g: q.both(t.reads(p.req, g), q.no(s.reads(p.req, g))))


def _released(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Iterator[Term]:
    yield from (*_by(q, s, t), *_turn(q, s, t), *_loses(q, s, t, p.holder))


def _some(q: Logic, sort: str, body: Callable[[Term], Term]) -> Term:
    """There is one."""
    return q.no(q.all(sort, lambda each: q.no(body(each))))


def _some_page(q: Logic, body: Callable[[Term], Term]) -> Term:
    return _some(q, "page", body)


REQ: Signature = {"req": ("holder",)}
TURN: Signature = {"req": ("holder",), "session": ("holder",)}
FOUND: Signature = {"found": ("number",), "match": ("number", "page")}
FRESH: Signature = {"fresh": ("number", "page")}
UPTO: Signature = {"whole": ("number",), "committed": ("number",)}

STEPS: dict[str, Step] = {
    "submit": Step(
        "a request waits, and its session begins with it", "submit",
        REQ | {"talks": ("truth",), "of": ("holder",)}, relations.submit, _submitted,
        {"a turn": lambda q, s, p: p.talks, "no turn": lambda q, s, p: q.no(p.talks)},
    ),
    "admit": Step(
        "a waiting request locks what it matched, without a row", "admit", REQ | FOUND, relations.admit, _admitted,
        {"two pages, one read by another": lambda q, s, p: q.both(
            p.found == 2, _some_page(q, lambda g: q.both(in_match(q, s, p, g), s.locks(g) == 1)))},
    ),
    "defer": Step(
        "an admitted request waits again, without its locks", "defer, abort", REQ, relations.defer, _deferred,
        {"a page that another reads": lambda q, s, p: _some_page(
            q, lambda g: q.both(s.reads(p.req, g), s.locks(g) == 2))},
    ),
    "start": Step(
        "a waiting request takes a row, reads its match, and gets pages", "extend",
        REQ | FOUND | FRESH | UPTO | {"row": ("row",)}, relations.start, _started,
        {"a match and two new pages": lambda q, s, p: q.both(p.found == 1, p.committed == 3),
         "as it was admitted": lambda q, s, p: q.both(s.admitted(p.req), p.found == 1),
         "no match": lambda q, s, p: p.found == 0},
    ),
    "grow": Step(
        "a later chunk, or one decoded column: pages at the end of the row", "extend, decode",
        REQ | FRESH | UPTO, relations.grow, _stay,
        {"two new pages": lambda q, s, p: q.both(s.protected(p.req) == 1, p.committed == s.committed(p.req) + 2),
         "inside the last page": lambda q, s, p: p.committed == s.committed(p.req)},
    ),
    "reserve": Step(
        "pages for drafts at the end of the row", "reserve",
        REQ | FRESH | {"allocated": ("number",)}, relations.reserve, _stay,
        {"a page beside drafts": lambda q, s, p: q.both(
            s.allocated(p.req) == s.committed(p.req) + 1, p.allocated == s.allocated(p.req) + 1)},
    ),
    "accept": Step(
        "drafts are committed, in pages that are there", "commit", REQ | UPTO, relations.accept, _stay,
        {"all of a page of drafts": lambda q, s, p: q.both(
            p.committed == s.committed(p.req) + 1, p.whole == p.committed)},
    ),
    "publish": Step(
        "own pages go to the cache, each under its key, or merged with the page that is there",
        "checkpoint, extend, decode, commit, finish, abort",
        REQ | {"upto": ("number",), "stays": ("number", "page"), "name": ("number", "key")},
        relations.publish, _published,
        {"a new key": lambda q, s, p: _kept(q, s, p, lambda g: q.no(s.duplicates)),
         "a duplicate merged": lambda q, s, p: q.both(s.protected(p.req) == 0, p.upto == 1, _some_page(
             q, lambda g: q.both(s.kind(g) == CACHED, p.stays(0) == g))),
         "a duplicate kept": lambda q, s, p: _kept(
             q, s, p, lambda g: _some_page(q, lambda x: s.listed(p.name(s.ordinal(g)), x)))},
    ),
    "cut": Step(
        "what lies beyond is given up, its whole pages are freed", "admit, extend, finish, retract",
        {"holder": ("holder",)} | UPTO, relations.cut, _stay,
        {"inside a page": lambda q, s, p: q.both(p.whole < p.committed, p.committed < s.committed(p.holder))},
    ),
    "take_up": Step(
        "a turn goes on with its session's record: row, pages and receipts", "extend", TURN, relations.take_up,
        lambda q, s, p, t: _handed(q, s, t, p.session, p.req),
        {"with a receipt": lambda q, s, p: s.protected(p.session) == 1},
    ),
    "hand_over": Step(
        "a turn's record passes to its session", "finish, retract", TURN, relations.hand_over,
        lambda q, s, p, t: _handed(q, s, t, p.req, p.session),
        {"with a receipt": lambda q, s, p: s.protected(p.req) == 1},
    ),
    "release": Step(
        "every private page of a holder goes back, then its locks, then its row",
        "finish, retract, abort, close, flush",
        {"holder": ("holder",)}, relations.release, _released,
        {"own pages, and one that another reads": lambda q, s, p: q.both(
            s.allocated(p.holder) == 2, _some_page(q, lambda g: q.both(s.reads(p.holder, g), s.locks(g) == 2)))},
    ),
    "forget": Step(
        "a request that holds nothing has ended", "finish, abort", REQ, relations.forget, _stay,
        {"a turn": lambda q, s, p: q.both(s.lives(p.req), s.talks(p.req))},
    ),
    "close": Step(
        "a session that holds nothing goes", "close, and the end of its last turn",
        {"session": ("holder",)}, relations.close, _stay,
        {"beside a request": lambda q, s, p: q.both(s.session(p.session), _some(q, "holder", s.lives))},
    ),
    "evict": Step(
        "cached pages that nobody reads become free", "every action, to make room",
        {"gone": ("page", "truth")}, relations.evict, _stay,
        {"one of two": lambda q, s, p: q.both(
            _some_page(q, p.gone),
            _some_page(q, lambda g: q.both(s.kind(g) == CACHED, s.locks(g) == 0, q.no(p.gone(g)))))},
    ),
}  # fmt: skip


def _kept(q: Logic, s: Symbols, p: Symbols, also: Callable[[Term], Term]) -> Term:
    """A page passes to the cache under its key."""
    return _some_page(
        q,
        lambda g: q.both(
            own_from(q, s, p.req, g, s.protected(p.req)), s.ordinal(g) < p.upto, p.stays(s.ordinal(g)) == g, also(g)
        ),
    )
