"""While a turn runs its record counts for the request and for the session: the totals are more than the pool.

Accounting: sgl-project/sglang#22152 (while a slot lends its KV to a running turn, both report it).
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference.backend import Backend
from kvledger.spec.backend import Action, Declaration, Refused, Reply, View, World
from kvledger.tests.kit.strike import strike

RULE = "CONS-1"
BLIND = None  # answers are as they should be


class BorrowedSlotCountedTwice(Backend):
    """Only what it says of itself is wrong."""

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="borrowed_slot_counted_twice")

    def do(self, action: Action, /) -> Reply | Refused:
        """The reference's. The view that follows is wrong if a turn has pages of its own."""
        answer = super().do(action)
        if self.lent_pages() > 0:
            strike()
        return answer

    def view(self) -> View:
        """The books, and the lent records once more."""
        view = super().view()
        assert view.totals is not None
        return replace(view, totals=view.totals._replace(private=view.totals.private + self.lent_pages()))

    def lent_pages(self) -> int:
        """The private pages of all records that are with a turn."""
        lent = [req.kv for req in self.reqs.values() if req.session is not None and req.kv.holds_kv]
        slots = sum(self.tree_cache.page_ceil(kv.kv_allocated_len) - kv.cache_protected_len for kv in lent)
        return slots // self.world.page_size


def make(world: World) -> Backend:
    """The reference with this fault."""
    return BorrowedSlotCountedTwice(world)
