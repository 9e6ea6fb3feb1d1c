"""Drafts are given all the slots that were asked for, also where the row has fewer columns left.

Geometry: the reserved length is not cut at the width of the row, and the columns behind it are the next row's.
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference import allocation
from kvledger.reference.backend import Backend
from kvledger.reference.radix_cache import RadixCache
from kvledger.reference.request import Req
from kvledger.spec.backend import Declaration, World
from kvledger.spec.world import Slot
from kvledger.tests.kit.strike import strike

RULE = BLIND = "DRAFT-1"


def alloc_for_spec_decode(req: Req, num_tokens: int, tree_cache: RadixCache) -> list[Slot]:
    """The reference's, and what it left out, if that is free."""
    slots = allocation.alloc_for_spec_decode(req, num_tokens, tree_cache)
    pool, allocator = tree_cache.req_to_token_pool, tree_cache.token_to_kv_pool_allocator
    start, end = req.kv.kv_allocated_len, req.kv.kv_committed_len + num_tokens
    needed = allocator.get_num_new_pages([start], [end]) * tree_cache.page_size
    if end <= start or needed > allocator.available_size():
        return slots
    strike()
    last_loc = allocation.get_last_loc(pool.req_to_token[req.kv.row], start)
    [more] = allocator.alloc_extend([start], [end], [last_loc])
    pool.write(req.kv.row, start, more)
    req.kv.kv_allocated_len = end
    return slots + more


class PastRowEnd(Backend):
    """The table here grows with what is written; another one would have been written beyond."""

    alloc_for_spec_decode = staticmethod(alloc_for_spec_decode)

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="past_row_end")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return PastRowEnd(world)
