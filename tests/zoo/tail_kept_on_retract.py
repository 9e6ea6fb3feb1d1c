"""A retract gives back what is committed and forgets the drafts: pages that were reserved ahead are nobody's.

Over-allocation dropped: sgl-project/sglang#22151 (the tail of a retracted turn is never given back),
sgl-project/sglang#13826 (what was reserved was not recorded, so a release freed the prompt's range alone).
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference.backend import Backend
from kvledger.spec.actions import Retract
from kvledger.spec.backend import Declaration, Refused, Reply, World
from kvledger.tests.kit.strike import strike

RULE = BLIND = "PAGE-6"


class TailKeptOnRetract(Backend):
    """What lies beyond the page of the last committed position is lost."""

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="tail_kept_on_retract")

    def retract(self, act: Retract) -> Reply | Refused:
        """The reference's, of a record that seems to end where it is committed."""
        req = self.running(act.req)
        if req is not None:
            if req.kv.kv_allocated_len > self.tree_cache.page_ceil(req.kv.kv_committed_len):
                strike()
            req.kv.kv_allocated_len = req.kv.kv_committed_len
        return super().retract(act)


def make(world: World) -> Backend:
    """The reference with this fault."""
    return TailKeptOnRetract(world)
