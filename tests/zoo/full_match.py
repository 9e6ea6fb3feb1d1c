"""A match may be as long as the prompt: the cap is len where it should be len - 1, and nothing is left to compute.

Cache index, full-length hit: GeeeekExplorer/nano-vllm#199 (a prompt as long as what is cached leaves nothing to
compute), ModelTC/LightLLM#477 (the key is the prompt without its last token: empty for a prompt of one).
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

RULE = BLIND = "CACHE-2"


def alloc_for_extend(
    reqs: Sequence[Req], prefix_indices: Sequence[Sequence[Slot]], seq_lens: Sequence[int], tree_cache: RadixCache
) -> list[list[Slot]]:
    """Who starts is matched once more, and now up to seq_len; not who has a match_limit, or was admitted before."""
    full = False
    for req, prefix, seq_len in zip(reqs, prefix_indices, seq_lens, strict=True):
        if not req.kv.holds_kv and req.match is None and req.match_limit is None:
            match = tree_cache.match_prefix(req.key(seq_len))
            full |= len(match.device_indices) == len(req.tokens)
            req.move_lock(match.last_node, tree_cache)
            assert isinstance(prefix, list)  # it is the list that the answer shows as matched
            prefix[:] = match.device_indices
    slots = allocation.alloc_for_extend(reqs, prefix_indices, seq_lens, tree_cache)
    if full:
        strike()
    return slots


class FullMatch(Backend):
    """Starts from all that is cached."""

    alloc_for_extend = staticmethod(alloc_for_extend)

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="full_match")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return FullMatch(world)
