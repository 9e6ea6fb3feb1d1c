"""A request that finds nothing in its own namespace starts from what another one published.

Namespace isolation: the identity of cached content is too weak. sgl-project/sglang#24638 (salt, caller key and
adapter in one string: KV of another context is hit), vllm-project/vllm#12621 (prompts that share a hash share KV).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvledger.reference import allocation
from kvledger.reference.backend import Backend
from kvledger.reference.radix_cache import RadixCache
from kvledger.reference.request import Req
from kvledger.spec.backend import Declaration, World
from kvledger.spec.world import Slot
from kvledger.tests.kit.strike import strike

RULE = BLIND = "NS-1"


def alloc_for_extend(
    reqs: Sequence[Req], prefix_indices: Sequence[Sequence[Slot]], seq_lens: Sequence[int], tree_cache: RadixCache
) -> list[list[Slot]]:
    """Who starts from nothing is matched once more, in every namespace."""
    shared = False
    namespaces = [child.key.extra_key for child in tree_cache.root_node.children.values()]
    for req, prefix, seq_len in zip(reqs, prefix_indices, seq_lens, strict=True):
        most = seq_len - 1 if req.match_limit is None else min(seq_len - 1, req.match_limit)
        matches_now = not prefix and not req.kv.holds_kv and req.match is None
        for namespace in namespaces if matches_now else ():
            match = tree_cache.match_prefix(req.key(most)._replace(extra_key=namespace))
            if len(match.device_indices) > len(prefix):
                shared = True
                req.move_lock(match.last_node, tree_cache)
                assert isinstance(prefix, list)  # it is the list that the answer shows as matched
                prefix[:] = match.device_indices
    slots = allocation.alloc_for_extend(reqs, prefix_indices, seq_lens, tree_cache)
    if shared:
        strike()
    return slots


class SharedAcrossNamespaces(Backend):
    """Equal tokens are enough."""

    alloc_for_extend = staticmethod(alloc_for_extend)

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="shared_across_namespaces")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return SharedAcrossNamespaces(world)
