"""Requests and sessions as the adapter knows them: their tokens, as int32, and the row that each holds.

When a session's later turn starts it takes the session's row, and leaves it behind when it ends: the record, which the
ledger keeps by row, has one holder at any time, and its lock with it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from kvledger.fast.prefix_cache import Prefix
from kvledger.spec.world import Namespace, ReqId, SessionId


@dataclass(slots=True, eq=False, kw_only=True)
class KvHolder:
    """Whoever may hold a row; 0 is none. tokens: array("i")."""

    tokens: array[int]
    namespace: Namespace
    row: int = 0

    @property
    def holds_kv(self) -> bool:
        """Whether a row is registered."""
        return self.row > 0


@dataclass(slots=True, eq=False, kw_only=True)
class Req(KvHolder):
    """tokens: prompt and output; of a caught-up request the last one is pending, known but without KV.

    admitted: what it will start from is fixed; prefix: and locked, if the cache has it and not its session.
    resumed: its record was in its session before, so nothing of it is published any more.
    """

    rid: ReqId
    match_limit: int | None
    publish: bool
    session: SessionId | None
    admitted: bool = False
    prefix: Prefix | None = None
    resumed: bool = False

    def may_match(self) -> array[int]:
        """The tokens it may find in the cache: one is left, for something must be computed."""
        length = len(self.tokens) - 1
        return self.tokens[: length if self.match_limit is None else min(length, self.match_limit)]


@dataclass(slots=True, eq=False, kw_only=True)
class Session(KvHolder):
    """tokens: those behind its record, while it holds one.

    turn: the one that lives, if only waiting. closing: it was closed while a turn lives, and goes with it.
    """

    turn: ReqId | None = None
    closing: bool = False
