"""A request as the ledger knows it: its tokens, its KV record, and the node it reads under a lock.

SGLang: Req (managers/schedule_batch.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvledger.reference.radix_cache import MatchResult, RadixCache, RadixKey, TreeNode
from kvledger.reference.rows import ReqKvInfo
from kvledger.spec.world import Namespace, ReqId, SessionId, Token


@dataclass(slots=True, eq=False, kw_only=True)
class KvHolder:
    """Whom a record and a lock belong to: a request, or a session between its turns.

    last_node: the deepest node of the path it has locked; the root while it reads nothing.
    """

    tokens: list[Token]
    extra_key: Namespace
    last_node: TreeNode
    kv: ReqKvInfo = field(default_factory=ReqKvInfo)

    def key(self, length: int) -> RadixKey:
        """The cache key of its first `length` tokens."""
        return RadixKey(tuple(self.tokens[:length]), self.extra_key)

    def move_lock(self, node: TreeNode, tree_cache: RadixCache) -> None:
        """Lock the new path before the old one is let go: what they share is never free to evict."""
        tree_cache.inc_lock_ref(node)
        tree_cache.dec_lock_ref(self.last_node)
        self.last_node = node


@dataclass(slots=True, eq=False, kw_only=True)
class Req(KvHolder):
    """tokens: prompt and output; of a caught-up request the last one is pending, known but without KV.

    session: whose turn it is. match: what it was admitted with, until it starts; None while it waits or runs.
    """

    rid: ReqId
    match_limit: int | None
    publish: bool
    session: SessionId | None
    match: MatchResult | None = None

    def caught_up(self) -> bool:
        """Whether it holds a row and only the pending token has no KV."""
        return self.kv.holds_kv and self.kv.kv_committed_len == len(self.tokens) - 1
