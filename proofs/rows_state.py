"""Rows, pages and receipts over page ordinals: the state that the laws of the rows speak of.

The state is the ledger's (spec/ledger.py), seen in whole pages: a row is a list of pages, its lengths are numbers of
pages, and the page size never occurs. What fills a page, which slot a position has and how lengths in tokens become
lengths in pages is settled beside it, for spec/page.py and spec/record.py.

Ghosts stand for "there is one": who holds a row, which turn a session has, and the receipts of a page numbered from 0,
so that "as many locks as receipts" needs no counting. A key names a prefix, so it is known how many pages come before
its own: `depth`. That is all that is known of a key here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvledger.proofs.rows_logic import Explored, Signature, Symbols, Term
from kvledger.spec.page import CACHED, FREE, PRIVATE

FIELDS: Signature = {
    # requests and sessions
    "lives": ("holder", "truth"),  # it is a live request
    "talks": ("holder", "truth"),  # that request is a turn
    "of": ("holder", "holder"),  # of this session
    "session": ("holder", "truth"),  # it is a session
    # admissions: a match that is locked, without a row
    "admitted": ("holder", "truth"),
    "found": ("holder", "number"),  # pages of the match
    "match": ("holder", "number", "page"),
    # records, and the row in pages
    "holds": ("holder", "truth"),
    "row": ("holder", "row"),
    "protected": ("holder", "number"),
    "whole": ("holder", "number"),  # pages whose KV is complete
    "committed": ("holder", "number"),  # pages with some KV
    "allocated": ("holder", "number"),
    "table": ("holder", "number", "page"),
    # receipts
    "reads": ("holder", "page", "truth"),
    # pages
    "kind": ("page", "number"),
    "at": ("page", "row"),  # of a private page: its row
    "ordinal": ("page", "number"),  # and its place there
    "key": ("page", "key"),  # of a cached page
    "locks": ("page", "number"),
    # the index
    "listed": ("key", "page", "truth"),
}
GHOSTS: Signature = {
    "by": ("row", "holder"),  # who holds the row
    "turn": ("holder", "holder"),  # which turn of the session lives
    "nth": ("page", "number", "holder"),  # whose receipt of the page has this number
    "number": ("holder", "page", "number"),  # the number of the holder's receipt of the page
}
# What does not move: depth of a key, and whether two pages may stand under one.
FIXED: Signature = {"depth": ("key", "number"), "duplicates": ("truth",)}
STATE = FIELDS | GHOSTS | FIXED

NAME_OF = {FREE: "free", PRIVATE: "private", CACHED: "cached"}


def page_in_words(s: Symbols, g: Term) -> str:
    """What a page is."""
    if s.kind(g) == PRIVATE:
        return f"page {g}, private to row {s.at(g)} at place {s.ordinal(g)}"
    if s.kind(g) == CACHED:
        return f"page {g}, cached under key {s.key(g)} with {s.locks(g)} lock{'s' * (s.locks(g) != 1)}"
    return f"page {g}, which is {NAME_OF.get(s.kind(g), 'of no kind')}"


def in_words(there: Explored, s: Symbols) -> str:
    """A state in one line: who holds which pages, a page that is read under a lock with a star, whose turn is whose,
    and what is left."""
    said, listed = [], set()
    for h in there.values["holder"]:
        if s.holds(h):
            pages = [s.table(h, k) for k in range(s.allocated(h))]
            stars = [f"{page}{'*' if s.reads(h, page) else ''}" for page in pages]
            said.append(f"{h} has row {s.row(h)} with {_pages(stars)}")
            listed.update(pages)
        elif s.admitted(h):
            pages = [s.match(h, k) for k in range(s.found(h))]
            said.append(f"{h} is admitted with {_pages([f'{page}*' for page in pages])}")
            listed.update(pages)
    said += [f"{h} is a turn of {s.of(h)}" for h in there.values["holder"] if s.lives(h) and s.talks(h)]
    for kind, name in NAME_OF.items():
        left = [str(g) for g in there.values["page"] if s.kind(g) == kind and (g not in listed or kind == FREE)]
        if left:
            said.append(f"{name} {'' if kind == FREE else 'beside '}{_pages(left)}")
    return ", ".join(said)


def _pages(names: Sequence[str]) -> str:
    return f"page{'s' * (len(names) != 1)} {' '.join(names) or 'none'}"


def with_ghosts(said: Mapping[str, Term]) -> dict[str, Term]:
    """The tables of a state, with what its ghosts must be: one who holds, one turn, readers in order."""
    by, turn, number = {}, {}, {}
    for holder, holding in said["holds"].items():
        if holding:
            by[said["row"][holder]] = holder
    for holder, living in said["lives"].items():
        if living and said["talks"].get(holder):
            turn[said["of"][holder]] = holder
    nth: dict[tuple[Term, int], Term] = {}
    for (holder, page), reading in sorted(said["reads"].items()):
        if reading:
            place = sum(1 for other, _ in nth if other == page)
            nth[page, place], number[holder, page] = holder, place
    return {**said, "by": by, "turn": turn, "nth": nth, "number": number}
