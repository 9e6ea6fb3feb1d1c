"""Faults seeded in the steps: each changes one or two clauses, as a wrong engine would, and must be refuted."""

from __future__ import annotations

from typing import NamedTuple

from kvledger.proofs.rows_logic import Logic, Symbols
from kvledger.proofs.rows_parts import (
    Clauses,
    each_page,
    fresh_pages,
    grants,
    index,
    is_cached,
    is_free,
    lengths_of,
    own_from,
    page_stays,
    read,
    record_is,
    record_stays,
    table,
    unchanged,
)
from kvledger.proofs.rows_relations import Relation
from kvledger.spec.page import CACHED


class Fault(NamedTuple):
    """step: which it spoils. sentence: what the engine does. clauses: what the step says then, instead."""

    step: str
    sentence: str
    clauses: Relation


def frees_the_prefix(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Release from place 0 on."""
    return {
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                q.either(own_from(q, s, p.holder, g, s.protected(p.holder)), s.reads(p.holder, g)),
                is_free(q, t, g), page_stays(q, s, t, g),
            ),
        )
    }  # fmt: skip


def unlocks_for_all(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Release sets the locks to 0."""
    return {
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                own_from(q, s, p.holder, g, s.protected(p.holder)), is_free(q, t, g),
                q.choose(s.reads(p.holder, g), is_cached(q, t, g, s.key(g), 0), page_stays(q, s, t, g)),
            ),
        )
    }  # fmt: skip


def keeps_the_receipt(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Release without unlocking."""
    return {
        "receipts": read(q, t, s.reads),
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                own_from(q, s, p.holder, g, s.protected(p.holder)), is_free(q, t, g), page_stays(q, s, t, g)
            ),
        ),
    }  # fmt: skip


def publishes_unlocked(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Publish, and lock nothing."""

    def passes(g: object) -> object:
        return q.both(own_from(q, s, p.req, g, s.protected(p.req)), s.ordinal(g) < p.upto)

    return {
        "receipts": read(q, t, s.reads),
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                passes(g),
                q.choose(
                    p.stays(s.ordinal(g)) == g, is_cached(q, t, g, p.name(s.ordinal(g)), 0), is_free(q, t, g)
                ),
                page_stays(q, s, t, g),
            ),
        ),
    }  # fmt: skip


def keeps_the_duplicate(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Merge without freeing."""
    first = s.protected(p.req)

    def kept(g: object) -> object:
        return q.both(own_from(q, s, p.req, g, first), s.ordinal(g) < p.upto, p.stays(s.ordinal(g)) == g)

    def merged_with(g: object) -> object:
        k = s.depth(s.key(g))
        return q.both(s.kind(g) == CACHED, q.within(first, k, p.upto), p.stays(k) == g)

    return {
        "pages": each_page(
            q, t,
            lambda g: q.choose(
                kept(g), is_cached(q, t, g, p.name(s.ordinal(g)), 1),
                q.choose(
                    merged_with(g), is_cached(q, t, g, s.key(g), s.locks(g) + 1), page_stays(q, s, t, g)
                ),
            ),
        )
    }  # fmt: skip


def ignores_the_index(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Publish under a key that is there."""
    first = s.protected(p.req)
    return {
        "guard": q.both(
            s.holds(p.req), first <= p.upto, p.upto <= s.whole(p.req),
            q.all(
                "number",
                lambda k: q.implies(
                    q.within(first, k, p.upto), q.both(s.depth(p.name(k)) == k, p.stays(k) == s.table(p.req, k))
                ),
            ),
        )
    }  # fmt: skip


def cuts_by_floor(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Free from the last whole page on."""
    return {
        "pages": each_page(
            q, t,
            lambda g: q.choose(own_from(q, s, p.holder, g, p.whole), is_free(q, t, g), page_stays(q, s, t, g)),
        )
    }  # fmt: skip


def takes_what_is_not_free(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Grow without looking at the pages."""
    had = s.allocated(p.req)
    return {
        "guard": q.both(
            s.holds(p.req), s.committed(p.req) == had, had <= p.committed, s.whole(p.req) <= p.whole,
            p.whole <= p.committed, p.committed <= p.whole + 1,
        )
    }  # fmt: skip


def overwrites_a_place(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Reserve from the last place that is listed."""
    last = s.allocated(p.req) - 1
    return {
        "guard": q.both(s.holds(p.req), last < p.allocated, fresh_pages(q, s, p, last, p.allocated)),
        "tables": table(q, t, lambda h, k: q.choose(q.both(h == p.req, last <= k), p.fresh(k), s.table(h, k))),
        "pages": grants(q, p, t, s.row(p.req), last, p.allocated, lambda g: page_stays(q, s, t, g)),
    }


def takes_a_held_row(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Start without looking at the row."""
    return {
        "guard": q.both(
            s.lives(p.req), q.no(s.holds(p.req)), q.no(s.talks(p.req)), q.no(s.admitted(p.req)), p.found == 0,
            p.whole >= 0, p.whole <= p.committed, p.committed <= p.whole + 1, p.committed >= 1,
            fresh_pages(q, s, p, 0, p.committed),
        )
    }  # fmt: skip


def leaves_both_holding(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Hand over, and keep the record."""
    return {
        "records": q.all(
            "holder",
            lambda h: q.choose(
                h == p.session, q.both(t.holds(h), record_is(q, t, h, *lengths_of(s, p.req))),
                record_stays(q, s, t, h),
            ),
            lambda h: t.holds(h),
        )
    }  # fmt: skip


def takes_without_receipts(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Take up row and pages alone."""
    return {"receipts": unchanged(q, s, t)["receipts"]}


def evicts_what_is_read(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Evict without looking at the locks."""
    return {"guard": q.all("page", lambda g: q.implies(p.gone(g), s.kind(g) == CACHED))}


def leaves_the_key(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Evict, and leave the index as it was."""
    return {"index": index(q, t, s.listed)}


def forgets_to_unlock(q: Logic, s: Symbols, p: Symbols, t: Symbols) -> Clauses:
    """Defer, and leave the counts."""
    return {"pages": each_page(q, t, lambda g: page_stays(q, s, t, g))}


FAULTS: dict[str, Fault] = {
    "frees the prefix": Fault("release", "finish also frees the cached pages that its row lists", frees_the_prefix),
    "unlocks for all": Fault("release", "retract takes the locks of every reader away", unlocks_for_all),
    "keeps the receipt": Fault("release", "close leaves the receipts of the session", keeps_the_receipt),
    "publishes unlocked": Fault("publish", "checkpoint takes no lock on what it published", publishes_unlocked),
    "keeps the duplicate": Fault("publish", "a merge leaves the duplicate private page unfreed", keeps_the_duplicate),
    "ignores the index": Fault("publish", "a page goes under a key that is there already", ignores_the_index),
    "cuts by floor": Fault("cut", "a cut inside a page frees that page too", cuts_by_floor),
    "takes what is not free": Fault("grow", "decode is handed a page that is not free", takes_what_is_not_free),
    "overwrites a place": Fault("reserve", "reserve writes over the last place that the row lists", overwrites_a_place),
    "takes a held row": Fault("start", "extend starts in a row that somebody holds", takes_a_held_row),
    "leaves both holding": Fault(
        "hand_over", "a turn that ended keeps the record beside its session", leaves_both_holding
    ),
    "takes without receipts": Fault(
        "take_up", "a turn takes the record up and leaves the locks behind", takes_without_receipts
    ),
    "evicts what is read": Fault("evict", "evict takes a locked page", evicts_what_is_read),
    "leaves the key": Fault("evict", "evict leaves the page in the index", leaves_the_key),
    "forgets to unlock": Fault("defer", "defer drops the receipt and not the lock", forgets_to_unlock),
}  # fmt: skip
