"""A turn that is aborted while it runs leaves its record to its session, as if it had finished.

Session takeover: the end by abort is not told from the others. sgl-project/sglang#22273 (an aborted turn saves what it
had back into the slot); SGLang 0.5.10 has no branch for it.
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference.backend import Backend
from kvledger.spec.actions import Abort
from kvledger.spec.backend import Declaration, Refused, Reply, World
from kvledger.tests.kit.strike import strike

RULE = BLIND = "SES-4"


class AbortedTurnKeepsRecord(Backend):
    """The session is not empty after it."""

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="aborted_turn_keeps_record")

    def abort(self, act: Abort) -> Reply | Refused:
        """The reference's, of a turn that has left its record before."""
        req = self.running(act.req)
        session = None if req is None else self.session_of(req)
        if req is not None and session is not None and not session.closing:
            strike()
            session.restore(req, req.kv.kv_committed_len, self.tree_cache)
        return super().abort(act)


def make(world: World) -> Backend:
    """The reference with this fault."""
    return AbortedTurnKeepsRecord(world)
