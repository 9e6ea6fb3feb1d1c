"""The steps that change who refers to whom, each as a relation between a state before, its parameters and one after.

There is one step for each method of Edit (spec/edit.py), the ledger's only writer, so an action of spec/actions/ is a
sequence of these steps, and a batch of any size is one too. A relation is a table of clauses. `guard` says what was
true before, which judge or the step before saw to, and of that only what the laws need; the others say, part by part,
what is true after. A part that a step does not name stays as it was.

SGLang: alloc_for_extend, alloc_for_decode, cache_unfinished_req, release_kv_cache, SessionAwareCache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kvledger.proofs.rows_logic import Logic, Symbols, Term
from kvledger.proofs.rows_parts import (
    Clauses,
    a_match,
    admissions,
    each_page,
    fresh_pages,
    grants,
    has_turn,
    in_match,
    index,
    is_cached,
    is_free,
    lengths_of,
    own_from,
    page_stays,
    read,
    record_is,
    record_stays,
    records,
    request_stays,
    round_up,
    table,
    unchanged,
)
from kvledger.spec.page import CACHED

Relation: TypeAlias = Callable[[Logic, Symbols, Symbols, Symbols], Clauses]  # q, before, parameters, after


def submit(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """A request waits; if it is a turn, its session is there."""
    turn = q.both(q.no(s.lives(p.of)), p.of != p.req, q.no(has_turn(q, s, p.of)))
    arrives = q.both(q.no(s.lives(p.req)), q.no(s.session(p.req)), q.implies(p.talks, turn))
    waits = q.both(t.lives(p.req), t.talks(p.req) == p.talks, q.implies(p.talks, t.of(p.req) == p.of))
    return unchanged(q, s, t) | {
        "guard": arrives,
        "requests": q.all(
            "holder", lambda h: q.choose(h == p.req, waits, request_stays(q, s, t, h)),
            lambda h: t.lives(h), lambda h: t.of(h),
        ),
        "sessions": q.all(
            "holder", lambda h: t.session(h) == q.either(s.session(h), q.both(p.talks, h == p.of)),
            lambda h: t.session(h),
        ),
    }  # fmt: skip


def admit(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """A waiting request locks its match."""
    waits = q.both(s.lives(p.req), q.no(s.holds(p.req)), q.no(s.admitted(p.req)))
    goes_on = q.implies(q.both(s.talks(p.req), s.holds(s.of(p.req))), p.found == 0)
    return unchanged(q, s, t) | {
        "guard": q.both(waits, goes_on, p.found >= 0, a_match(q, s, p)),
        "admissions": q.both(
            q.all(
                "holder",
                lambda h: q.both(
                    t.admitted(h) == q.either(s.admitted(h), h == p.req),
                    q.implies(t.admitted(h), t.found(h) == q.choose(h == p.req, p.found, s.found(h))),
                ),
                lambda h: t.admitted(h),
            ),
            q.all(
                "holder number",
                lambda h, k: q.implies(
                    q.both(t.admitted(h), q.within(0, k, t.found(h))),
                    t.match(h, k) == q.choose(h == p.req, p.match(k), s.match(h, k)),
                ),
                lambda h, k: t.match(h, k),
            ),
        ),
        "receipts": read(q, t, lambda h, g: q.either(s.reads(h, g), q.both(h == p.req, in_match(q, s, p, g)))),
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                in_match(q, s, p, g), is_cached(q, t, g, s.key(g), s.locks(g) + 1), page_stays(q, s, t, g)
            ),
        ),
    }  # fmt: skip


def defer(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """An admitted request waits again: its receipts go."""
    return unchanged(q, s, t) | {
        "guard": s.admitted(p.req),
        "admissions": admissions(q, s, t, lambda h: q.both(s.admitted(h), h != p.req)),
        "receipts": read(q, t, lambda h, g: q.both(s.reads(h, g), h != p.req)),
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                s.reads(p.req, g), is_cached(q, t, g, s.key(g), s.locks(g) - 1), page_stays(q, s, t, g)
            ),
        ),
    }  # fmt: skip


def start(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """A waiting request takes a free row, reads its match, and gets free pages for the rest."""
    waits = q.both(
        s.lives(p.req), q.no(s.holds(p.req)), q.implies(s.talks(p.req), q.no(s.holds(s.of(p.req)))),
        q.all("holder", lambda h: q.implies(s.holds(h), s.row(h) != p.row), lambda h: s.row(h)),
    )  # fmt: skip
    as_admitted = q.implies(
        s.admitted(p.req),
        q.both(
            s.found(p.req) == p.found,
            q.all(
                "number", lambda k: q.implies(q.within(0, k, p.found), s.match(p.req, k) == p.match(k)),
                lambda k: p.match(k),
            ),
        ),
    )  # fmt: skip

    def locked(g: Term) -> Term:
        return q.both(q.no(s.admitted(p.req)), in_match(q, s, p, g))

    return unchanged(q, s, t) | {
        "guard": q.both(
            waits, as_admitted, p.found >= 0, p.found <= p.whole, round_up(q, p), p.committed >= 1,
            a_match(q, s, p), fresh_pages(q, s, p, p.found, p.committed),
        ),
        "admissions": admissions(q, s, t, lambda h: q.both(s.admitted(h), h != p.req)),
        "records": records(q, s, t, p.req, p.row, p.found, p.whole, p.committed, p.committed),
        "tables": table(
            q, t,
            lambda h, k: q.choose(h == p.req, q.choose(k < p.found, p.match(k), p.fresh(k)), s.table(h, k)),
        ),
        "receipts": read(q, t, lambda h, g: q.either(s.reads(h, g), q.both(h == p.req, locked(g)))),
        "pages": grants(
            q, p, t, p.row, p.found, p.committed,
            lambda g: q.choose(
                locked(g), is_cached(q, t, g, s.key(g), s.locks(g) + 1), page_stays(q, s, t, g)
            ),
        ),
    }  # fmt: skip


def grow(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """A later chunk of a prompt, or one decoded column: free pages at the end of the row, if any are needed."""
    had = s.allocated(p.req)
    grown = q.both(had <= p.committed, s.whole(p.req) <= p.whole, round_up(q, p))
    return unchanged(q, s, t) | {
        "guard": q.both(s.holds(p.req), grown, fresh_pages(q, s, p, had, p.committed)),
        "records": records(
            q, s, t, p.req, s.row(p.req), s.protected(p.req), p.whole, p.committed, p.committed
        ),
        "tables": table(q, t, lambda h, k: q.choose(q.both(h == p.req, had <= k), p.fresh(k), s.table(h, k))),
        "pages": grants(q, p, t, s.row(p.req), had, p.committed, lambda g: page_stays(q, s, t, g)),
    }  # fmt: skip


def reserve(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Free pages at the end of the row, for drafts: what is committed stays."""
    had, kept = s.allocated(p.req), lengths_of(s, p.req)[:-1]
    return unchanged(q, s, t) | {
        "guard": q.both(s.holds(p.req), had <= p.allocated, fresh_pages(q, s, p, had, p.allocated)),
        "records": records(q, s, t, p.req, *kept, p.allocated),
        "tables": table(q, t, lambda h, k: q.choose(q.both(h == p.req, had <= k), p.fresh(k), s.table(h, k))),
        "pages": grants(q, p, t, s.row(p.req), had, p.allocated, lambda g: page_stays(q, s, t, g)),
    }


def accept(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Drafts are committed, in pages that are there."""
    fits = q.both(s.whole(p.req) <= p.whole, p.committed <= s.allocated(p.req), round_up(q, p))
    row, protected, _, _, allocated = lengths_of(s, p.req)
    return unchanged(q, s, t) | {
        "guard": q.both(s.holds(p.req), fits),
        "records": records(q, s, t, p.req, row, protected, p.whole, p.committed, allocated),
    }


def publish(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Own pages [protected, upto) go to the cache: each under its key, or, merged, freed for the one that is there."""
    first = s.protected(p.req)

    def stays_own(k: Term) -> Term:
        return p.stays(k) == s.table(p.req, k)

    def there(k: Term) -> Term:
        return q.both(s.kind(p.stays(k)) == CACHED, s.key(p.stays(k)) == p.name(k))

    def passes(g: Term) -> Term:
        return q.both(own_from(q, s, p.req, g, first), s.ordinal(g) < p.upto)

    def kept(g: Term) -> Term:
        return q.both(passes(g), p.stays(s.ordinal(g)) == g)

    def merged_with(g: Term) -> Term:
        k = s.depth(s.key(g))
        return q.both(s.kind(g) == CACHED, q.within(first, k, p.upto), p.stays(k) == g)

    row, _, whole, committed, allocated = lengths_of(s, p.req)
    return unchanged(q, s, t) | {
        "guard": q.both(
            s.holds(p.req), first <= p.upto, p.upto <= whole,
            q.all(
                "number",
                lambda k: q.implies(
                    q.within(first, k, p.upto), q.both(s.depth(p.name(k)) == k, q.either(stays_own(k), there(k)))
                ),
                lambda k: p.stays(k), lambda k: p.name(k),
            ),
            q.all(
                "number page",
                lambda k, g: q.implies(
                    q.both(q.within(first, k, p.upto), stays_own(k), q.no(s.duplicates)),
                    q.no(s.listed(p.name(k), g)),
                ),
                lambda k, g: s.listed(p.name(k), g),
            ),
        ),
        "records": records(q, s, t, p.req, row, p.upto, whole, committed, allocated),
        "tables": table(
            q, t,
            lambda h, k: q.choose(q.both(h == p.req, q.within(first, k, p.upto)), p.stays(k), s.table(h, k)),
        ),
        "receipts": read(
            q, t,
            lambda h, g: q.either(s.reads(h, g), q.both(h == p.req, q.either(kept(g), merged_with(g)))),
        ),
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                passes(g),
                q.choose(kept(g), is_cached(q, t, g, p.name(s.ordinal(g)), 1), is_free(q, t, g)),
                q.choose(
                    merged_with(g), is_cached(q, t, g, s.key(g), s.locks(g) + 1), page_stays(q, s, t, g)
                ),
            ),
        ),
        "index": index(
            q, t,
            lambda key, g: q.either(s.listed(key, g), q.both(kept(g), key == p.name(s.ordinal(g)))),
        ),
    }  # fmt: skip


def cut(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """A record keeps its first pages, and the private pages beyond are freed."""
    row, protected, _, committed, _ = lengths_of(s, p.holder)
    fits = q.both(protected <= p.whole, p.committed <= committed, round_up(q, p), p.committed >= 1)
    return unchanged(q, s, t) | {
        "guard": q.both(s.holds(p.holder), fits),
        "records": records(q, s, t, p.holder, row, protected, p.whole, p.committed, p.committed),
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                own_from(q, s, p.holder, g, p.committed), is_free(q, t, g), page_stays(q, s, t, g)
            ),
        ),
    }  # fmt: skip


def _hand(q: Logic, s: Symbols, giver: Term, taker: Term, t: Symbols) -> Clauses:
    """Row, lengths, pages and receipts of one holder pass to another; no page moves."""
    holding = record_is(q, t, taker, *lengths_of(s, giver))
    return unchanged(q, s, t) | {
        "records": q.all(
            "holder",
            lambda h: q.choose(
                h == taker, q.both(t.holds(h), holding),
                q.choose(h == giver, q.no(t.holds(h)), record_stays(q, s, t, h)),
            ),
            lambda h: t.holds(h), lambda h: t.row(h),
        ),
        "tables": table(q, t, lambda h, k: q.choose(h == taker, s.table(giver, k), s.table(h, k))),
        "receipts": read(
            q, t, lambda h, g: q.choose(h == taker, s.reads(giver, g), q.both(s.reads(h, g), h != giver))
        ),
    }  # fmt: skip


def take_up(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """A turn goes on with its session's record."""
    turn = q.both(s.lives(p.req), s.talks(p.req), s.of(p.req) == p.session)
    return _hand(q, s, p.session, p.req, t) | {
        "guard": q.both(turn, s.holds(p.session)),
        "admissions": admissions(q, s, t, lambda h: q.both(s.admitted(h), h != p.req)),
    }


def hand_over(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """A turn's record passes to its session."""
    turn = q.both(s.lives(p.req), s.talks(p.req), s.of(p.req) == p.session)
    return _hand(q, s, p.req, p.session, t) | {"guard": q.both(turn, s.holds(p.req))}


def release(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Every private page of a holder goes back, then its receipts, then its row."""
    return unchanged(q, s, t) | {
        "guard": s.holds(p.holder),
        "records": q.all(
            "holder",
            lambda h: q.choose(h == p.holder, q.no(t.holds(h)), record_stays(q, s, t, h)),
            lambda h: t.holds(h), lambda h: t.row(h),
        ),
        "receipts": read(q, t, lambda h, g: q.both(s.reads(h, g), h != p.holder)),
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                own_from(q, s, p.holder, g, s.protected(p.holder)), is_free(q, t, g),
                q.choose(
                    s.reads(p.holder, g), is_cached(q, t, g, s.key(g), s.locks(g) - 1), page_stays(q, s, t, g)
                ),
            ),
        ),
    }  # fmt: skip


def forget(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """A request that holds nothing has ended."""
    return unchanged(q, s, t) | {
        "guard": q.both(q.no(s.holds(p.req)), q.no(s.admitted(p.req))),
        "requests": q.all(
            "holder",
            lambda h: q.choose(h == p.req, q.no(t.lives(h)), request_stays(q, s, t, h)),
            lambda h: t.lives(h), lambda h: t.of(h),
        ),
    }  # fmt: skip


def close(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """A session that holds nothing, and of which no turn lives, goes."""
    return unchanged(q, s, t) | {
        "guard": q.both(q.no(s.holds(p.session)), q.no(has_turn(q, s, p.session))),
        "sessions": q.all(
            "holder", lambda h: t.session(h) == q.both(s.session(h), h != p.session), lambda h: t.session(h)
        ),
    }


def evict(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Cached pages that nobody reads become free."""
    unread = q.all(
        "page", lambda g: q.implies(p.gone(g), q.both(s.kind(g) == CACHED, s.locks(g) == 0)), lambda g: p.gone(g)
    )
    return unchanged(q, s, t) | {
        "guard": unread,
        "pages": each_page(q, t, lambda g: q.choose(p.gone(g), is_free(q, t, g), page_stays(q, s, t, g))),
        "index": index(q, t, lambda key, g: q.both(s.listed(key, g), q.no(p.gone(g)))),
    }
