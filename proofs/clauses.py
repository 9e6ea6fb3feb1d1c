"""What a transition of the kernels owes: who may call it, where it leads, and what is lawful. A second opinion.

authority    what the guard lets pass is allowed: CrossHair, which looks only at calls that are, cannot see this
destination  what it returns is this and nothing else
LAWFUL       what PAGE-1, and REC-1 with REC-2, mean of one page and one record: the kernels' own `lawful` must say so

Said in Python, over the same arguments as the transition, and run symbolically as the kernels are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvledger.spec.page import CACHED, FREE, FREE_PAGE, PRIVATE, Page
from kvledger.spec.record import Record


class Clause(NamedTuple):
    """Of one transition, over its arguments; destination over these and the result. arguments: beside the first.

    sane: what the caller's numbers are, which no guard looks at. law: the rule that a wrong destination breaks.
    """

    kernel: str
    arguments: tuple[str, ...]
    authority: Callable[..., object]
    destination: Callable[..., object]
    sane: Callable[..., object] = lambda *_: True
    law: str = "destination"


CLAUSES: dict[str, Clause] = {
    "grant": Clause(
        "page", ("row", "ordinal"),
        lambda page, row, ordinal: page.kind == FREE,
        lambda page, row, ordinal, after: after == Page(PRIVATE, row, ordinal, 0),
        lambda page, row, ordinal: row >= 1 and ordinal >= 0,
    ),
    "publish": Clause(
        "page", ("key",),
        lambda page, key: page.kind == PRIVATE,
        lambda page, key, after: after == Page(CACHED, key, 0, 0),
    ),
    "lock": Clause(
        "page", (),
        lambda page: page.kind == CACHED,
        lambda page, after: after == page._replace(locks=page.locks + 1),
        law="LOCK-1 locks-counted",
    ),
    "unlock": Clause(
        "page", (),
        lambda page: page.kind == CACHED and page.locks > 0,
        lambda page, after: after == page._replace(locks=page.locks - 1),
        law="LOCK-1 locks-counted",
    ),
    "give_back": Clause(
        "page", ("row",),
        lambda page, row: page.kind == PRIVATE and page.owner == row,
        lambda page, row, after: after == FREE_PAGE,
    ),
    "evict": Clause(
        "page", (),
        lambda page: page.kind == CACHED and page.locks == 0,
        lambda page, after: after == FREE_PAGE,
    ),
    "start": Clause(
        "record", ("row", "matched", "upto", "page_size"),
        lambda row, matched, upto, size: matched < upto,
        lambda row, matched, upto, size, after: after == Record(row, matched, upto, upto),
        lambda row, matched, upto, size: row >= 1 and matched >= 0 and matched % size == 0,
    ),
    "grow": Clause(
        "record", ("upto", "page_size"),
        lambda record, upto, size: record.holds_kv and record.committed_len == record.allocated_len < upto,
        lambda record, upto, size, after: after == record._replace(committed_len=upto, allocated_len=upto),
    ),
    "reserve": Clause(
        "record", ("upto", "page_size"),
        lambda record, upto, size: record.holds_kv and upto >= record.allocated_len,
        lambda record, upto, size, after: after == record._replace(allocated_len=upto),
        law="DRAFT-1 reserve-moves-allocated-only",
    ),
    "commit": Clause(
        "record", ("upto", "page_size"),
        lambda record, upto, size: record.holds_kv and record.committed_len < upto <= record.allocated_len,
        lambda record, upto, size, after: after == record._replace(committed_len=upto),
    ),
    "cut": Clause(
        "record", ("upto", "page_size"),
        lambda record, upto, size: record.holds_kv and upto >= 1
        and record.protected_len <= upto <= record.committed_len,
        lambda record, upto, size, after: after == record._replace(committed_len=upto, allocated_len=upto),
    ),
    "protect": Clause(
        "record", ("upto", "page_size"),
        lambda record, upto, size: record.holds_kv and record.protected_len <= upto <= record.committed_len
        and upto % size == 0,
        lambda record, upto, size, after: after == record._replace(protected_len=upto),
    ),
    "release": Clause(
        "record", ("page_size",),
        lambda record, size: record.holds_kv,
        lambda record, size, after: not after.holds_kv and after.allocated_len == 0,
        law="REC-1 held-means-allocated",
    ),
}  # fmt: skip

# By kernel: the rule in words, and whether a page, or a record at a page size, keeps it.
LAWFUL: dict[str, tuple[str, Callable[..., object]]] = {
    "page": (
        "PAGE-1: a page is free and nothing else, private to a place of a row and unlocked, or cached",
        lambda kind, owner, ordinal, locks:
            (kind == FREE and owner == 0 and ordinal == 0 and locks == 0)
            or (kind == PRIVATE and owner >= 1 and ordinal >= 0 and locks == 0)
            or (kind == CACHED and ordinal == 0 and locks >= 0),
    ),
    "record": (
        "REC-1, REC-2: without a row nothing is allocated; with one 0 <= protected <= committed <= allocated, not all "
        "0, and protected ends a page",
        lambda holds, row, protected, committed, allocated, size:
            (not holds and allocated == 0)
            or (holds and row >= 1 and protected >= 0 and protected <= committed and committed <= allocated
                and allocated >= 1 and protected % size == 0),
    ),
}  # fmt: skip
