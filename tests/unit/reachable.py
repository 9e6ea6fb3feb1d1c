"""Every reachable state of a small world, for the tests that look at each."""

from __future__ import annotations

from kvledger.spec.explore import explore
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import World
from kvledger.spec.worlds import Scope


def reachable(world: World, scope: Scope) -> list[Ledger]:
    """One of each up to renaming, in the order of the search."""
    found: list[Ledger] = []
    explore(world, scope, on_state=lambda ledger, _: found.append(ledger))
    return found
