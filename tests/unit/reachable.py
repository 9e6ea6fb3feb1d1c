"""Every reachable state of a small world, for the tests that look at each; and two declarations more."""

from __future__ import annotations

from kvledger.spec.explore import explore
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import CAPABILITIES, Declaration, World
from kvledger.spec.worlds import Scope

# two ways to work that no named world has: an inner key with several pages; several that publish in one call
LEAVES = Declaration("keeps duplicates, leaves first", capabilities=frozenset(CAPABILITIES), max_batch=1)
BATCHES = Declaration("publishes while it grows", publishes_on=frozenset({"extend", "decode", "checkpoint"}))


def reachable(world: World, scope: Scope) -> list[Ledger]:
    """One of each up to renaming, in the order of the search."""
    found: list[Ledger] = []
    explore(world, scope, on_state=lambda ledger, _: found.append(ledger))
    return found
