"""A later turn goes on one position before the end of what its session has published: it writes into the cache's page.

Session takeover: the length to go on from is worked out once more, and shorter. sgl-project/sglang#22862 (the next turn
resumes at a shorter prefix than the slot has).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kvledger.reference.backend import Backend
from kvledger.reference.radix_cache import MatchResult, RadixCache
from kvledger.reference.request import Req
from kvledger.reference.sessions import StreamingSession
from kvledger.spec.backend import Declaration, World
from kvledger.spec.world import Slot
from kvledger.tests.kit.strike import strike

RULE = BLIND = "SES-2"


@dataclass(slots=True, eq=False, kw_only=True)
class Session(StreamingSession):
    """found: the slots that a turn was told it goes on from."""

    found: list[Slot] = field(default_factory=list)

    def match_prefix(self, req: Req, tree_cache: RadixCache) -> MatchResult:
        """The reference's, remembered."""
        match = StreamingSession.match_prefix(self, req, tree_cache)
        self.found = match.device_indices
        return match

    def take(self, req: Req, tree_cache: RadixCache) -> None:
        """Pages of its own are given up with what lies below; without any the turn goes on as it should."""
        below = self.kv.cache_protected_len - 1
        if 0 < below < self.kv.kv_committed_len - 1:
            strike()
            self.trim(below, tree_cache)
            del self.found[below:]  # it is the list that the call goes on from
        StreamingSession.take(self, req, tree_cache)


class TurnRestartsBelowProtected(Backend):
    """What others read in the cache is written again."""

    streaming_session = Session

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="turn_restarts_below_protected")


def make(world: World) -> Backend:
    """The reference with this fault."""
    return TurnRestartsBelowProtected(world)
