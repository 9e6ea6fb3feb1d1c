"""The steps of the lifted page kernel, by name: what each takes, in words, and which cases of it must be possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import z3

from kvledger.proofs.cells_changes import (
    Change,
    Kernel,
    cut,
    defer,
    evict,
    flush,
    give_back,
    grant,
    hand_over,
    lock,
    match,
    publish,
    publish_row,
    release,
    unlock,
)
from kvledger.proofs.cells_state import Cells, Of, Seen, Space
from kvledger.proofs.symbolic import Term


class Step(NamedTuple):
    """parameters: name -> the sorts of its arguments, then of its value. says: it, in words. cases: what must be
    possible, by name; a step without a case would be settled for nothing."""

    claim: str
    parameters: dict[str, str]
    change: Callable[[Space, Kernel, Cells, Any], Change]
    says: Callable[[Seen, Any], str]
    cases: Mapping[str, Callable[[Space, Cells, Any, Change], Term]]


def _some(space: Any, sorts: str, body: Of) -> Term:
    """There is one; asked of a small world only."""
    return z3.Or(*(body(*values) for values in space.each(sorts)))


def _happens(space: Space, s: Cells, p: Any, change: Change) -> Term:
    """A page is moved."""
    return _some(space, "page", lambda g: z3.Or(*(move.on(g) for move in change.moves)))


HAPPENS = {"it happens": _happens}


def _kept(space: Space, s: Cells, p: Any, change: Change) -> Term:
    """A page is kept beside another one of its key."""
    keeps = change.moves[0].on
    return _some(
        space, "page page", lambda g, other: z3.And(keeps(g), g != other, s.listed(p.key(s.ordinal(g)), other))
    )


PAGE, ROW = {"page": "page"}, {"row": "row"}
STEPS: dict[str, Step] = {
    "grant": Step(
        "a free page is handed to an empty place of a row", PAGE | ROW | {"place": "place"}, grant,
        lambda seen, p: f"{seen.said(p.page)}, is granted to row {p.row}, place {p.place}", HAPPENS,
    ),
    "publish": Step(
        "a row's own page passes to a key", ROW | {"place": "place", "key": "key"}, publish,
        lambda seen, p: f"{seen.said(seen.place(p.row, p.place))}, is published under key {p.key}", HAPPENS,
    ),
    "lock": Step(
        "one more holder reads a cached page", PAGE | {"holder": "holder"}, lock,
        lambda seen, p: f"{seen.said(p.page)}, is locked for holder {p.holder}", HAPPENS,
    ),
    "unlock": Step(
        "one holder less reads a page", PAGE | {"holder": "holder"}, unlock,
        lambda seen, p: f"{seen.said(p.page)}, is unlocked by holder {p.holder}", HAPPENS,
    ),
    "give_back": Step(
        "a row's own page becomes free", PAGE | ROW, give_back,
        lambda seen, p: f"{seen.said(p.page)}, is given back by row {p.row}", HAPPENS,
    ),
    "evict": Step(
        "cached pages that nobody reads become free", {"gone": "page truth"}, evict,
        lambda seen, p: "; ".join(seen.said(g) for g in (1, 2) if p.gone(g)) + ", is evicted", HAPPENS,
    ),
    "match": Step(
        "a start or an admission locks every page of its match", {"holder": "holder", "found": "page truth"}, match,
        lambda seen, p: "; ".join(seen.said(g) for g in (1, 2) if p.found(g)) + f", is matched by holder {p.holder}",
        {"two pages": lambda q, s, p, c: z3.And(p.found(1), p.found(2))},
    ),
    "defer": Step(
        "an admitted request gives up every lock of its match", {"holder": "holder"}, defer,
        lambda seen, p: f"holder {p.holder} gives up its locks",
        {"a page that another reads": lambda q, s, p, c: _some(
            q, "page holder", lambda g, h: z3.And(h != p.holder, s.reads(g)[h], s.reads(g)[p.holder]))},
    ),
    "cut": Step(
        "a row gives back what it owns from a place on", ROW | {"upto": "place"}, cut,
        lambda seen, p: f"row {p.row} is cut from place {p.upto} on", HAPPENS,
    ),
    "release": Step(
        "a row gives back all that is private to it, and its holder unlocks all it reads", ROW | {"holder": "holder"},
        release, lambda seen, p: f"holder {p.holder} releases row {p.row}",
        {"a page of its own and one that it reads": lambda q, s, p, c: z3.And(
            *(_some(q, "page", move.on) for move in c.moves))},
    ),
    "publish a row": Step(
        "a row's own pages below a place pass to the cache, each kept under its key or merged, and are read",
        ROW | {"holder": "holder", "upto": "number", "stays": "place page", "key": "place key", "whose": "page place"},
        publish_row, lambda seen, p: f"holder {p.holder} publishes row {p.row} below place {p.upto}",
        {"a new key": lambda q, s, p, c: _some(q, "page", c.moves[0].on),
         "a duplicate merged": lambda q, s, p, c: z3.And(*(_some(q, "page", move.on) for move in c.moves[1:])),
         "a duplicate kept": _kept},
    ),
    "hand over": Step(
        "a turn's receipts pass to its session, or back", {"giver": "holder", "taker": "holder"}, hand_over,
        lambda seen, p: f"holder {p.giver} hands its record to holder {p.taker}",
        {"a page that is read": lambda q, s, p, c: _some(q, "page", lambda g: s.reads(g)[p.giver])},
    ),
    "flush": Step(
        "every cached page becomes free", {}, flush, lambda seen, p: "all is flushed",
        {"a cached page": lambda q, s, p, c: _some(q, "page", c.moves[0].on)},
    ),
}  # fmt: skip
