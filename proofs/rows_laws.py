"""The laws of the rows: what is true in every state, of every size; and what follows from them.

Each law stands for a part of spec/invariants.py, in whole pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kvledger.proofs.rows_logic import Logic, Symbols, Term
from kvledger.proofs.rows_state import page_in_words
from kvledger.spec.page import CACHED, FREE, PRIVATE

Formula: TypeAlias = Callable[[Logic, Symbols], Term]


class Law(NamedTuple):
    """sentence: what it says. rules: those of spec/rules.py that it stands for. broken: a culprit, in words."""

    sentence: str
    rules: str
    formula: Formula
    broken: Callable[..., str]


def lengths(q: Logic, s: Symbols) -> Term:
    """REC-2."""
    return q.all(
        "holder",
        lambda h: q.implies(
            s.holds(h),
            q.both(
                s.protected(h) >= 0, s.protected(h) <= s.whole(h), s.whole(h) <= s.committed(h),
                s.committed(h) <= s.whole(h) + 1, s.committed(h) <= s.allocated(h), s.allocated(h) >= 1,
            ),
        ),
        lambda h: s.holds(h),
    )  # fmt: skip


def borrowed(q: Logic, s: Symbols) -> Term:
    """TAB-2 below protected."""
    return q.all(
        "holder number",
        lambda h, k: q.implies(
            q.both(s.holds(h), q.within(0, k, s.protected(h))),
            q.both(
                s.kind(s.table(h, k)) == CACHED, s.depth(s.key(s.table(h, k))) == k, s.reads(h, s.table(h, k)),
            ),
        ),
        lambda h, k: s.table(h, k),
    )  # fmt: skip


def own(q: Logic, s: Symbols) -> Term:
    """TAB-2 from protected on."""
    return q.all(
        "holder number",
        lambda h, k: q.implies(
            q.both(s.holds(h), q.within(s.protected(h), k, s.allocated(h))),
            q.both(
                s.kind(s.table(h, k)) == PRIVATE, s.at(s.table(h, k)) == s.row(h), s.ordinal(s.table(h, k)) == k,
            ),
        ),
        lambda h, k: s.table(h, k),
    )  # fmt: skip


def one_holder(q: Logic, s: Symbols) -> Term:
    """ROW-1."""
    return q.all("holder", lambda h: q.implies(s.holds(h), s.by(s.row(h)) == h), lambda h: s.row(h))


def no_page_lost(q: Logic, s: Symbols) -> Term:
    """PAGE-2, of private pages."""

    def placed(g: Term) -> Term:
        h, k = s.by(s.at(g)), s.ordinal(g)
        return q.both(
            s.holds(h), s.row(h) == s.at(g), s.protected(h) <= k, k < s.allocated(h), s.table(h, k) == g,
        )  # fmt: skip

    return q.all("page", lambda g: q.implies(s.kind(g) == PRIVATE, placed(g)), lambda g: s.kind(g))


def no_page_unlisted(q: Logic, s: Symbols) -> Term:
    """PAGE-2, of cached pages."""
    return q.all("page", lambda g: q.implies(s.kind(g) == CACHED, s.listed(s.key(g), g)), lambda g: s.kind(g))


def listed(q: Logic, s: Symbols) -> Term:
    """CACHE-4, of what stands under a key."""
    return q.all(
        "key page",
        lambda key, g: q.implies(s.listed(key, g), q.both(s.kind(g) == CACHED, s.key(g) == key)),
        lambda key, g: s.listed(key, g),
    )


def one_page_a_key(q: Logic, s: Symbols) -> Term:
    """CACHE-5."""
    return q.all(
        "key page page",
        lambda key, g, other: q.implies(
            q.both(q.no(s.duplicates), s.listed(key, g), s.listed(key, other)), g == other
        ),
        lambda key, g, other: (s.listed(key, g), s.listed(key, other)),
    )


def receipts(q: Logic, s: Symbols) -> Term:
    """LOCK-1: no receipt beyond the prefix."""

    def said(h: Term, g: Term) -> Term:
        k = s.depth(s.key(g))
        in_row = q.both(s.holds(h), k < s.protected(h), s.table(h, k) == g)
        in_match = q.both(s.admitted(h), k < s.found(h), s.match(h, k) == g)
        return q.both(s.kind(g) == CACHED, k >= 0, q.either(in_row, in_match))

    return q.all("holder page", lambda h, g: q.implies(s.reads(h, g), said(h, g)), lambda h, g: s.reads(h, g))


def every_receipt_counts(q: Logic, s: Symbols) -> Term:
    """LOCK-1: at least as many locks as receipts."""
    return q.all(
        "holder page",
        lambda h, g: q.implies(
            s.reads(h, g), q.both(q.within(0, s.number(h, g), s.locks(g)), s.nth(g, s.number(h, g)) == h)
        ),
        lambda h, g: s.reads(h, g),
    )


def every_lock_is_read(q: Logic, s: Symbols) -> Term:
    """LOCK-1: at most as many."""
    return q.all(
        "page number",
        lambda g, n: q.implies(
            q.within(0, n, s.locks(g)), q.both(s.reads(s.nth(g, n), g), s.number(s.nth(g, n), g) == n)
        ),
        lambda g, n: s.nth(g, n),
    )


def kinds(q: Logic, s: Symbols) -> Term:
    """PAGE-1: three kinds, and a lock is a cached page's."""
    return q.all(
        "page",
        lambda g: q.both(
            q.either(s.kind(g) == FREE, s.kind(g) == PRIVATE, s.kind(g) == CACHED),
            s.locks(g) >= 0, q.either(s.kind(g) == CACHED, s.locks(g) == 0),
        ),
        lambda g: s.kind(g), lambda g: s.locks(g),
    )  # fmt: skip


def admitted(q: Logic, s: Symbols) -> Term:
    """An admission: no row yet; a turn whose session has the record finds nothing of its own."""
    return q.all(
        "holder",
        lambda h: q.implies(
            s.admitted(h),
            q.both(
                s.lives(h), q.no(s.holds(h)), s.found(h) >= 0,
                q.implies(q.both(s.talks(h), s.holds(s.of(h))), s.found(h) == 0),
            ),
        ),
        lambda h: s.admitted(h),
    )  # fmt: skip


def matched(q: Logic, s: Symbols) -> Term:
    """LOCK-1 and LOCK-2, of an admission."""
    return q.all(
        "holder number",
        lambda h, k: q.implies(
            q.both(s.admitted(h), q.within(0, k, s.found(h))),
            q.both(
                s.kind(s.match(h, k)) == CACHED, s.depth(s.key(s.match(h, k))) == k, s.reads(h, s.match(h, k)),
            ),
        ),
        lambda h, k: s.match(h, k),
    )  # fmt: skip


def holder_is_there(q: Logic, s: Symbols) -> Term:
    """REC-1, and no session has a live request's id."""
    return q.all(
        "holder",
        lambda h: q.both(
            q.implies(s.holds(h), q.either(s.lives(h), s.session(h))), q.no(q.both(s.lives(h), s.session(h)))
        ),
        lambda h: s.holds(h), lambda h: s.lives(h), lambda h: s.session(h),
    )  # fmt: skip


def one_turn(q: Logic, s: Symbols) -> Term:
    """SES-1: one turn at a time, and the record stands once: under the session or under its turn."""
    return q.all(
        "holder",
        lambda h: q.implies(
            q.both(s.lives(h), s.talks(h)),
            q.both(
                s.session(s.of(h)), s.turn(s.of(h)) == h, q.no(q.both(s.holds(h), s.holds(s.of(h)))),
            ),
        ),
        lambda h: s.lives(h), lambda h: s.of(h),
    )  # fmt: skip


LAWS: dict[str, Law] = {
    "lengths": Law(
        "protected <= whole <= committed <= allocated, in pages, while a row is held", "REC-2", lengths,
        lambda s, h: f"{h} holds a row with protected {s.protected(h)}, whole {s.whole(h)}, committed "
        f"{s.committed(h)}, allocated {s.allocated(h)} pages",
    ),
    "borrowed": Law(
        "below protected a row lists cached pages, each under a key of its place, and has a receipt for each",
        "TAB-2, LOCK-2", borrowed,
        lambda s, h, k: f"{h} reads at place {k} {page_in_words(s, s.table(h, k))}"
        + ("" if s.reads(h, s.table(h, k)) else ", without a receipt"),
    ),
    "own": Law(
        "from protected on a row lists pages that are private to this very place", "TAB-2, PAGE-1", own,
        lambda s, h, k: f"{h} lists at place {k} of row {s.row(h)} {page_in_words(s, s.table(h, k))}",
    ),
    "one holder": Law(
        "a row is held by one holder", "ROW-1", one_holder,
        lambda s, h: f"row {s.row(h)} is held by {h} and by {s.by(s.row(h))}",
    ),
    "no page lost": Law(
        "a private page is listed by the row that it names, at the place that it names", "PAGE-2", no_page_lost,
        lambda s, g: f"{page_in_words(s, g)}: nobody who holds that row lists it there, so it is lost",
    ),
    "no page unlisted": Law(
        "a cached page is listed under its key", "PAGE-2", no_page_unlisted,
        lambda s, g: f"{page_in_words(s, g)}: the index lists it not, so it is lost",
    ),
    "listed": Law(
        "what is listed under a key is cached under it", "CACHE-4", listed,
        lambda s, key, g: f"key {key} lists {page_in_words(s, g)}",
    ),
    "one page a key": Law(
        "without DUPLICATES one page stands under a key", "CACHE-5", one_page_a_key,
        lambda s, key, g, other: f"key {key} lists pages {g} and {other}",
    ),
    "receipts": Law(
        "a receipt is for a page of the holder's own prefix, or of its admitted match", "LOCK-1", receipts,
        lambda s, h, g: f"{h} has a receipt for {page_in_words(s, g)}, and reads it at no place",
    ),
    "every receipt counts": Law(
        "a page has at least as many locks as receipts", "LOCK-1", every_receipt_counts,
        lambda s, h, g: f"{page_in_words(s, g)}, is read by more holders, {h} among them",
    ),
    "every lock is read": Law(
        "a page has at most as many locks as receipts", "LOCK-1", every_lock_is_read,
        lambda s, g, n: f"{page_in_words(s, g)}, is read by {n} only",
    ),
    "kinds": Law(
        "a page is free, private or cached, and only a cached page is locked", "PAGE-1", kinds,
        lambda s, g: f"{page_in_words(s, g)}, and its locks are {s.locks(g)}",
    ),
    "admitted": Law(
        "who is admitted lives and holds no row; a turn that goes on with a record has matched nothing",
        "LOCK-1, REC-1", admitted, lambda s, h: f"{h} is admitted, and holds or has matched more than it may",
    ),
    "matched": Law(
        "what an admission matched is cached, each page under a key of its place, with a receipt", "LOCK-1, LOCK-2",
        matched, lambda s, h, k: f"{h} was admitted with {page_in_words(s, s.match(h, k))} at place {k}"
        + ("" if s.reads(h, s.match(h, k)) else ", without a receipt"),
    ),
    "holder is there": Law(
        "who holds a row is a live request or a session, and nobody is both", "REC-1", holder_is_there,
        lambda s, h: f"{h} holds a row and is neither a live request nor a session, or is both",
    ),
    "one turn": Law(
        "a turn is its session's only one, and one of the two has the record", "SES-1", one_turn,
        lambda s, h: f"{h} is a turn of {s.of(h)}"
        + (", and both hold the record" if s.holds(h) and s.holds(s.of(h)) else ", which is gone or has another one"),
    ),
}  # fmt: skip


# ---- what follows from the laws, in the words of the aims


def no_live_reference(q: Logic, s: Symbols) -> Term:
    """Nobody's row and nobody's receipt reaches a free page."""
    return q.both(
        q.all(
            "holder number",
            lambda h, k: q.implies(
                q.both(s.holds(h), q.within(0, k, s.allocated(h))), s.kind(s.table(h, k)) != FREE
            ),
            lambda h, k: s.table(h, k),
        ),
        q.all("holder page", lambda h, g: q.implies(s.reads(h, g), s.kind(g) != FREE), lambda h, g: s.reads(h, g)),
    )


def nothing_shared(q: Logic, s: Symbols) -> Term:
    """A page at an own place of a row is at no other place of any row."""
    return q.all(
        "holder number holder number",
        lambda h, k, x, j: q.implies(
            q.both(
                s.holds(h), q.within(s.protected(h), k, s.allocated(h)),
                s.holds(x), q.within(0, j, s.allocated(x)), s.table(h, k) == s.table(x, j),
            ),
            q.both(h == x, k == j),
        ),
        lambda h, k, x, j: (s.table(h, k), s.table(x, j)),
    )  # fmt: skip


def no_place_twice(q: Logic, s: Symbols) -> Term:
    """A row lists no page twice, so a record has a receipt for each page that it borrows, and one."""
    return q.all(
        "holder number number",
        lambda h, k, j: q.implies(
            q.both(s.holds(h), q.within(0, k, j), j < s.allocated(h)), s.table(h, k) != s.table(h, j)
        ),
        lambda h, k, j: (s.table(h, k), s.table(h, j)),
    )


def locked_means_read(q: Logic, s: Symbols) -> Term:
    """A page without locks is in nobody's prefix and in nobody's match: it may be evicted."""
    return q.all(
        "holder page", lambda h, g: q.implies(s.locks(g) == 0, q.no(s.reads(h, g))), lambda h, g: s.reads(h, g)
    )


FOLLOWS: dict[str, tuple[str, Formula]] = {
    "no live reference to a free page": ("nobody's row and nobody's receipt reaches a free page", no_live_reference),
    "one owner": ("a page at an own place of a row is at no other place of any row", nothing_shared),
    "one receipt a place": ("a row lists no page twice", no_place_twice),
    "no lock, no reader": ("a page without locks is in nobody's prefix and in nobody's match", locked_means_read),
}


def broken_law(q: Logic, s: Symbols) -> str | None:
    """The first law that this explored state breaks, by name."""
    return next((name for name, law in LAWS.items() if not law.formula(q, s)), None)
