"""A checkpoint that finds its prefix cached already leaves the row on its own pages, and keeps them.

Ownership handover on insert: tree and request disagree about who owns a duplicate. sgl-project/mini-sglang#142
(inserting an unfinished request: the row keeps pointing to its duplicate pages; there they were freed besides).
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference.backend import Backend
from kvledger.reference.radix_cache import RadixCache
from kvledger.reference.request import KvHolder
from kvledger.spec.backend import Declaration, World
from kvledger.tests.kit.strike import strike

RULE = BLIND = "CACHE-5"


def checkpoint_kv_cache(req: KvHolder, up_to: int, tree_cache: RadixCache) -> int:
    """The reference's, without its two lines about duplicates: none is freed, and the row is not written."""
    start, end = req.kv.cache_protected_len, tree_cache.page_floor(up_to)
    if end <= start:
        return start
    key = req.key(end)
    if tree_cache.insert(key, tree_cache.req_to_token_pool.req_to_token[req.kv.row][:end]) > start:
        strike()
    req.move_lock(tree_cache.match_prefix(key).last_node, tree_cache)
    req.kv.cache_protected_len = end
    return end


class DuplicateKept(Backend):
    """Publishes like the reference, but does not merge."""

    checkpoint_kv_cache = staticmethod(checkpoint_kv_cache)

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="duplicate_kept")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return DuplicateKept(world)
