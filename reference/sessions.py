"""What outlives a turn: a conversation's record, which its session keeps from one turn to the next.

Each turn is a request. When a later turn starts it takes the record, the same object, with row and lock; when it ends
or is pushed back it leaves the record behind. So a record has one holder at any time, and a turn that is aborted while
it runs leaves nothing: what it held is released, and the session is as it was before its first turn.

SGLang: StreamingSession and its slots (session/streaming_session.py), SessionController.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvledger.reference.radix_cache import MatchResult, RadixCache
from kvledger.reference.release import free_tail
from kvledger.reference.request import KvHolder, Req
from kvledger.reference.rows import ReqKvInfo
from kvledger.spec.world import ReqId


@dataclass(slots=True, eq=False, kw_only=True)
class StreamingSession(KvHolder):
    """tokens: those behind its record, while it holds one: between turns, and after its first has left one.

    turn: the one that lives, if only waiting. closing: it was closed while a turn lives, and goes with it.
    """

    turn: ReqId | None = None
    closing: bool = False

    def match_prefix(self, req: Req, tree_cache: RadixCache) -> MatchResult:
        """Where a turn goes on: behind all that has KV; but one token is left, for something must be computed.

        It may lie inside a page: the turn fills the rest of it. The lock is the record's own.
        """
        length = min(self.kv.kv_committed_len, len(req.tokens) - 1)
        return MatchResult(tree_cache.req_to_token_pool.req_to_token[self.kv.row][:length], self.last_node)

    def trim(self, length: int, tree_cache: RadixCache) -> None:
        """Only [0, length) stays: whole pages beyond go back. length: cache_protected_len to kv_committed_len."""
        free_tail(self.kv, length, tree_cache)
        self.kv.kv_committed_len = self.kv.kv_allocated_len = length

    def take(self, req: Req, tree_cache: RadixCache) -> None:
        """The turn starts: record, row and lock are its own from now on."""
        req.kv, self.kv = self.kv, ReqKvInfo()
        req.last_node, self.last_node = self.last_node, tree_cache.root_node

    def restore(self, req: Req, keep: int, tree_cache: RadixCache) -> None:
        """The turn leaves [0, keep) behind, row and lock with it, and holds nothing any more."""
        self.kv, req.kv = req.kv, ReqKvInfo()
        self.last_node, req.last_node = req.last_node, tree_cache.root_node
        self.kv.from_session = True
        self.tokens = req.tokens[:keep]
        self.trim(keep, tree_cache)
