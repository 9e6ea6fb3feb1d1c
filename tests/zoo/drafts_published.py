"""Drafts count as committed: pages are published whose tokens nobody has accepted.

Cache index, unverified tokens: InternLM/lmdeploy#4564 (drafts that were not verified pass for accepted input).
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference import release
from kvledger.reference.backend import Backend
from kvledger.reference.radix_cache import RadixCache
from kvledger.reference.request import KvHolder
from kvledger.spec.backend import Declaration, World
from kvledger.tests.kit.strike import strike

RULE = BLIND = "DRAFT-2"


def with_drafts(req: KvHolder, length: int, tree_cache: RadixCache) -> int:
    """length; or all that is allocated, if length is all that is committed, and drafts fill a page more."""
    kv = req.kv
    if length < kv.kv_committed_len or tree_cache.page_floor(kv.kv_allocated_len) <= length:
        return length
    strike()
    req.tokens += req.tokens[-1:] * (kv.kv_allocated_len - len(req.tokens))  # whatever was drafted
    kv.kv_committed_len = kv.kv_allocated_len
    return kv.kv_committed_len


def checkpoint_kv_cache(req: KvHolder, up_to: int, tree_cache: RadixCache) -> int:
    """The reference's, of what has slots."""
    return release.checkpoint_kv_cache(req, with_drafts(req, up_to, tree_cache), tree_cache)


def release_kv_cache(req: KvHolder, tree_cache: RadixCache, *, checkpoint: int = 0) -> int:
    """The reference's, of what has slots."""
    return release.release_kv_cache(req, tree_cache, checkpoint=with_drafts(req, checkpoint, tree_cache))


class DraftsPublished(Backend):
    """Does not tell what is committed from what is reserved."""

    checkpoint_kv_cache = staticmethod(checkpoint_kv_cache)
    release_kv_cache = staticmethod(release_kv_cache)

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="drafts_published")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return DraftsPublished(world)
