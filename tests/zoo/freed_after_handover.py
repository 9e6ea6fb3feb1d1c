"""When a turn finishes, what its session has taken over is released with it: the private pages, and the row.

Session takeover: the generic release does not know that the record has another holder by now. The same seam from its
other side: sgl-project/sglang#22151 (it returns early once the slot took the row, and the tail is nobody's).
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference import release
from kvledger.reference.backend import Backend
from kvledger.spec.actions import Finish
from kvledger.spec.backend import Declaration, Refused, Reply, World
from kvledger.tests.kit.strike import strike

RULE = BLIND = "SES-1"


class FreedAfterHandover(Backend):
    """The session still lists pages and row; they are free as well, and the answer says so."""

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="freed_after_handover")

    def finish(self, act: Finish) -> Reply | Refused:
        """The reference's; then, as if the request still held it, what the session holds goes."""
        req = self.reqs.get(act.req)
        session = None if req is None else self.session_of(req)
        answer = super().finish(act)
        if isinstance(answer, Refused) or session is None or not session.kv.holds_kv:
            return answer
        strike()
        release.free_tail(session.kv, session.kv.cache_protected_len, self.tree_cache)
        self.req_to_token_pool.free(replace(session.kv))
        return replace(answer, freed=self.freed())


def make(world: World) -> Backend:
    """The reference with this fault."""
    return FreedAfterHandover(world)
