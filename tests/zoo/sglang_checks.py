"""What SGLang checks by itself, computed on a backend's own books: its idle sum, and its page check.

SGLang 0.5.23, managers/scheduler_components/invariant_checker.py. The sum, when nothing runs: available + evictable +
protected + session_held == all pages, and all rows are free but the sessions'. The page check, off by default, at every
step: 0 <= committed <= allocated <= width for every record, no free page within its [0, allocated), and no page twice
on the free list.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kvledger.spec.backend import View
from kvledger.spec.page import page_of, pages_for
from kvledger.spec.world import SessionId, World


class Off(NamedTuple):
    """By how much each of the two sums misses its total; above 0: more is counted than there is."""

    slots: int
    rows: int


def sums_off(view: View, world: World) -> Off:
    """The two sums over the books of one step. Each record's own part, session_held or uncached, is what it has
    allocated, in whole pages, less what the cache has of it."""
    held, size, totals = view.records or {}, world.page_size, view.totals
    assert totals is not None and view.free_rows is not None
    private = sum(pages_for(each.allocated_len, size) * size - each.protected_len for each in held.values())
    slots = (totals.available + totals.evictable + totals.protected - world.pages) * size + private
    return Off(slots, len(view.free_rows) + len(held) - world.rows)


def idle_sum_holds(view: View, world: World, sessions: Collection[SessionId] = ()) -> bool:
    """The sums at idle; they say nothing while a request holds a record. sessions: ids that are no request's."""
    return not (view.records or {}).keys() <= set(sessions) or sums_off(view, world) == Off(0, 0)


def page_check_holds(view: View, world: World, sessions: Collection[SessionId] = ()) -> bool:
    """The page check, for the books of one step."""
    free = view.free_pages or ()
    width = pages_for(world.context_len, world.page_size) * world.page_size
    ladder = all(0 <= shown.committed_len <= shown.allocated_len <= width for shown in (view.records or {}).values())
    owned = {page_of(slot, world.page_size) for slots in (view.table or {}).values() for slot in slots}
    return ladder and owned.isdisjoint(free) and len(set(free)) == len(free)
