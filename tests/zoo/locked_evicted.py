"""Eviction takes the least recently used leaf, whether somebody reads it or not.

Lock imbalance: something pinned is evicted. NVIDIA/Megatron-LM#5822 (references on matched blocks were taken after
the allocation, which could evict the match), sgl-project/sglang#27038 (locks of others were released with one's own;
a later eviction hit a node in use).
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference.backend import Backend
from kvledger.reference.radix_cache import RadixCache, TreeNode
from kvledger.spec.backend import Declaration, World
from kvledger.tests.kit.strike import strike

RULE = BLIND = "LOCK-2"


class Cache(RadixCache):
    """It does not ask lock_ref."""

    def is_evictable_leaf(self, node: TreeNode) -> bool:
        """Nothing hangs on it. Never the root."""
        return not node.children and node.parent is not None

    def delete_leaf(self, leaf: TreeNode) -> None:
        """The leaf leaves the tree."""
        if leaf.lock_ref > 0:
            strike()
        super().delete_leaf(leaf)


class LockedEvicted(Backend):
    """Locks are counted like the reference's, and then not heeded."""

    prefix_cache = Cache

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="locked_evicted")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return LockedEvicted(world)
