"""The pending token counts as committed where it fills a page: a page is published whose last KV is not there.

Cache index, published too early: huggingface/text-generation-inference#2489 (blocks are visible in the trie before
they are written, and the next identical prompt reuses them).
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference import release
from kvledger.reference.backend import Backend
from kvledger.reference.radix_cache import RadixCache
from kvledger.reference.request import KvHolder, Req
from kvledger.spec.backend import Declaration, World
from kvledger.tests.kit.strike import strike

RULE = BLIND = "CACHE-3"


def with_pending(req: KvHolder, length: int, tree_cache: RadixCache) -> int:
    """length; or one more, if the pending token comes next and is the last of a page that the request has."""
    page_size, kv = tree_cache.page_size, req.kv
    caught_up = isinstance(req, Req) and req.caught_up() and not kv.over_allocated
    if not (caught_up and length == kv.kv_committed_len and 0 < length % page_size == page_size - 1):
        return length
    strike()
    pool = tree_cache.req_to_token_pool
    pool.write(kv.row, length, [pool.req_to_token[kv.row][length - 1] + 1])
    kv.kv_committed_len = kv.kv_allocated_len = length + 1
    return length + 1


def checkpoint_kv_cache(req: KvHolder, up_to: int, tree_cache: RadixCache) -> int:
    """The reference's, of what seems committed."""
    return release.checkpoint_kv_cache(req, with_pending(req, up_to, tree_cache), tree_cache)


def release_kv_cache(req: KvHolder, tree_cache: RadixCache, *, checkpoint: int = 0) -> int:
    """The reference's, of what seems committed."""
    return release.release_kv_cache(req, tree_cache, checkpoint=with_pending(req, checkpoint, tree_cache))


class PendingPublished(Backend):
    """Publishes one token too many."""

    checkpoint_kv_cache = staticmethod(checkpoint_kv_cache)
    release_kv_cache = staticmethod(release_kv_cache)

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="pending_published")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return PendingPublished(world)
