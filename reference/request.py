"""A request as the ledger knows it: its tokens, its KV record, and the node it reads under a lock.

SGLang: Req (managers/schedule_batch.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvledger.reference.radix_cache import RadixCache, RadixKey, TreeNode
from kvledger.reference.rows import ReqKvInfo
from kvledger.spec.world import Namespace, ReqId, Token


@dataclass(slots=True, eq=False)
class Req:
    """tokens: prompt and output; of a caught-up request the last one is pending, known but without KV.

    last_node: the deepest node of the path it has locked; the root while it reads nothing.
    """

    rid: ReqId
    tokens: list[Token]
    extra_key: Namespace
    match_limit: int | None
    publish: bool
    last_node: TreeNode
    kv: ReqKvInfo = field(default_factory=ReqKvInfo)

    def key(self, length: int) -> RadixKey:
        """The cache key of its first `length` tokens."""
        return RadixKey(tuple(self.tokens[:length]), self.extra_key)

    def caught_up(self) -> bool:
        """Whether it holds a row and only the pending token has no KV."""
        return self.kv.holds_kv and self.kv.kv_committed_len == self.kv.kv_allocated_len == len(self.tokens) - 1

    def move_lock(self, node: TreeNode, tree_cache: RadixCache) -> None:
        """Lock the new path before the old one is let go: what they share is never free to evict."""
        tree_cache.inc_lock_ref(node)
        tree_cache.dec_lock_ref(self.last_node)
        self.last_node = node
