"""A release gives the drafts back by themselves, from the first slot of the page in which they begin: that page twice.

Geometry: two ranges meet inside a page, and a page can only go as a whole. sgl-project/sglang#38941 (a tail is given
back in two pieces whose seam lies inside one page).
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference import release
from kvledger.reference.backend import Backend
from kvledger.reference.radix_cache import RadixCache
from kvledger.reference.request import KvHolder
from kvledger.spec.backend import Declaration, World
from kvledger.tests.kit.strike import strike
from kvledger.tests.zoo.freed_twice import Allocator

RULE = BLIND = "PAGE-6"


def release_kv_cache(req: KvHolder, tree_cache: RadixCache, *, checkpoint: int = 0) -> int:
    """The reference's up to what is committed; the rest is rounded down to a page where it should be rounded up."""
    kv = req.kv
    if not kv.over_allocated:
        return release.release_kv_cache(req, tree_cache, checkpoint=checkpoint)
    start = tree_cache.page_floor(kv.kv_committed_len)
    tail = tree_cache.req_to_token_pool.req_to_token[kv.row][start : kv.kv_allocated_len]
    if start < kv.kv_committed_len:
        strike()
    kv.kv_allocated_len = kv.kv_committed_len
    end = release.release_kv_cache(req, tree_cache, checkpoint=checkpoint)
    tree_cache.token_to_kv_pool_allocator.free(tail)
    return end


class TailStartFloored(Backend):
    """Its allocator does not ask whether a page is free already."""

    token_allocator = paged_allocator = Allocator
    release_kv_cache = staticmethod(release_kv_cache)

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="tail_start_floored")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return TailStartFloored(world)
