"""A start that is refused for want of pages keeps the row that it had been given.

Atomicity: a failed step leaves partial effects. sgl-project/sglang#16067 (matching took a state slot, then admission
said no: the slot is untracked); in SGLang 0.5.23 an extend runs out of memory after its row was bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvledger.reference import allocation
from kvledger.reference.backend import Backend
from kvledger.reference.radix_cache import RadixCache
from kvledger.reference.request import Req
from kvledger.reference.rows import OutOfRoom, ReqKvInfo
from kvledger.spec.backend import Declaration, World
from kvledger.spec.world import Slot
from kvledger.tests.kit.strike import strike

RULE, BLIND = "ATOM-1", "ROW-4"


def alloc_for_extend(
    reqs: Sequence[Req], prefix_indices: Sequence[Sequence[Slot]], seq_lens: Sequence[int], tree_cache: RadixCache
) -> list[list[Slot]]:
    """Rows are taken before anybody asks for pages: after a refusal they are taken, and in no record that lives."""
    starting = sum(not req.kv.holds_kv for req in reqs)
    try:
        return allocation.alloc_for_extend(reqs, prefix_indices, seq_lens, tree_cache)
    except OutOfRoom as refusal:
        if refusal.short == "pages" and starting:
            strike()
            tree_cache.req_to_token_pool.alloc([ReqKvInfo() for _ in range(starting)])
        raise


class RefusedKeepsRow(Backend):
    """Forgets the rows of a refused start."""

    alloc_for_extend = staticmethod(alloc_for_extend)

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="refused_keeps_row")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return RefusedKeepsRow(world)
