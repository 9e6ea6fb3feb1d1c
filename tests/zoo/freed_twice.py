"""A page that a finish gives back is given back once more.

Double release: two paths that end a request free the same thing. sgl-project/sglang#12224 (the last decode slot sat
in both ranges), sgl-project/sglang#18694 (a request that was finished already was preempted, and released again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvledger.reference.allocator import PagedTokenToKVPoolAllocator
from kvledger.reference.backend import Backend
from kvledger.spec.actions import Finish
from kvledger.spec.backend import Declaration, Refused, Reply, World
from kvledger.spec.world import Slot
from kvledger.tests.kit.strike import strike

RULE = BLIND = "PAGE-6"


class Allocator(PagedTokenToKVPoolAllocator):
    """It does not ask whether a page is free already."""

    def free(self, slots: Sequence[Slot]) -> None:
        """Whole pages go back, whoever had them."""
        pages = [slot // self.page_size for slot in slots[:: self.page_size]]
        self.freed += pages
        self.put_back(pages)


class FreedTwice(Backend):
    """The last page that a finish freed goes back again, and the answer says so."""

    token_allocator = paged_allocator = Allocator

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="freed_twice")

    def finish(self, act: Finish) -> Reply | Refused:
        """The reference's, and then one page too many."""
        answer = super().finish(act)
        if isinstance(answer, Refused) or not self.allocator.freed:
            return answer
        strike()
        self.allocator.free([self.allocator.freed[-1] * self.world.page_size])
        return replace(answer, freed=self.freed())


def make(world: World) -> Backend:
    """The reference with this fault."""
    return FreedTwice(world)
