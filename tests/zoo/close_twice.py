"""A close that comes while a turn lives is carried out at once; and again when the turn ends.

Session takeover: nobody asks whether the record is in use. sgl-project/sglang#21875 (closing a session while its turn
still decodes released KV in use).
"""

from __future__ import annotations

from dataclasses import replace

from kvledger.reference import release
from kvledger.reference.backend import Backend
from kvledger.spec.actions import Close
from kvledger.spec.backend import Declaration, Refused, Reply, World
from kvledger.tests.kit.strike import strike
from kvledger.tests.zoo.freed_twice import Allocator

RULE = BLIND = "SES-3"


class CloseTwice(Backend):
    """Pages and row are free while the turn has them. The allocator does not ask whether a page is free already."""

    token_allocator = paged_allocator = Allocator

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="close_twice")

    def close(self, act: Close) -> Reply | Refused:
        """The reference's; and if that waits, the record goes anyway, whoever holds it; a first turn may hold none."""
        answer = super().close(act)
        session = self.sessions.get(act.session)
        if isinstance(answer, Refused) or session is None or session.turn is None:
            return answer
        kv = session.kv if session.kv.holds_kv else self.reqs[session.turn].kv
        if not kv.holds_kv:
            return answer
        strike()
        release.free_tail(kv, kv.cache_protected_len, self.tree_cache)
        self.req_to_token_pool.free(replace(kv))
        return replace(answer, freed=self.freed())


def make(world: World) -> Backend:
    """The reference with this fault."""
    return CloseTwice(world)
