"""Which of six places to look at first: the order in which one traces a KV index that has gone wrong.

An index is had from a pool, written into a row by extend and by decode, given back by release, read by the prefix
cache, and read by attention. Who starts at the front does not take a reader's complaint for a reader's fault. A place
is named as SGLang names it; the law has a rule and an action for a finding, and the two say which place it is.
"""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """One place. number: where it stands in the order. look: what to look at there."""

    number: int
    name: str
    look: str


PLACES = POOL, EXTEND, DECODE, RELEASE, CACHE, ATTENTION = (
    Place(1, "pool", "alloc, write and free of rows and pages, and their counts"),
    Place(2, "extend", "alloc_for_extend: the prefix stays, new slots follow"),
    Place(3, "decode", "alloc_for_decode: a slot behind last_loc, one column"),
    Place(4, "release", "release_kv_cache: who takes KV over; the rest goes once"),
    Place(5, "cache reader", "what it takes from a row, and whose that is then"),
    Place(6, "attention reader", "does it read the slots that its row lists?"),
)

# Rules that speak of one place, whichever action breaks them.
OF_RULE = {
    **dict.fromkeys(("ROW-2", "ROW-4", "PAGE-3", "PAGE-5", "LIVE-1", "CONS-1"), POOL),
    "SES-2": EXTEND,
    "DRAFT-1": DECODE,
    **dict.fromkeys(("PAGE-6", "SES-1", "SES-3", "SES-4"), RELEASE),
    **dict.fromkeys(("CACHE-1", "CACHE-2", "CACHE-3", "CACHE-4", "CACHE-5", "CACHE-6", "NS-1", "DRAFT-2"), CACHE),
    **dict.fromkeys(("LOCK-1", "LOCK-2", "EVICT-1", "EVICT-2", "EVICT-3", "EVICT-4"), CACHE),
    "TAG-1": ATTENTION,
}
# The others are broken where the action is at work; but a taking call that is handed what was not free, or is given
# another row than the one it has, was let down by the pool.
OF_ACTION = {
    "submit": POOL,
    **dict.fromkeys(("extend", "admit"), EXTEND),
    **dict.fromkeys(("decode", "reserve", "commit"), DECODE),
    **dict.fromkeys(("finish", "retract", "abort", "close", "defer"), RELEASE),
    **dict.fromkeys(("checkpoint", "evict", "flush", "match_prefix"), CACHE),
}
HANDED = frozenset({"ROW-1", "ROW-3", "REC-1", "PAGE-1"})


def place_of(rule: str, action: str, *, drained: bool = False) -> Place:
    """The place that a finding accuses. rule: its id, or RAISES or HANGS; action: by its name. drained: in the drain
    probe, which takes what everybody has given back: what it cannot have, or has twice, was given back wrong.
    """
    if drained and action == "extend" and rule in ("ROW-1", "PAGE-1", "PAGE-2"):
        return RELEASE
    place = OF_RULE.get(rule) or OF_ACTION[action]
    return POOL if rule in HANDED and place in (EXTEND, DECODE) else place
