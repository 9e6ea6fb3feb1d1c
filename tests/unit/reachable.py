"""Every reachable state of a small world, for the tests that look at each; and two declarations more."""

from __future__ import annotations

from dataclasses import replace

from kvledger.spec.explore import explore
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import PUBLISHING, Declaration, World
from kvledger.spec.worlds import JOINT, Scope

# Two ways to work that neither a named world has nor one of tests/law/questions.py: several that publish in one call;
# publishing in every action that may
BATCHES = Declaration("publishes while it grows", publishes_on=frozenset({"extend", "decode", "checkpoint"}))
EVERYWHERE = replace(JOINT, name="publishes everywhere", publishes_on=frozenset(PUBLISHING))


def reachable(world: World, scope: Scope) -> list[Ledger]:
    """One of each up to renaming, in the order of the search."""
    found: list[Ledger] = []
    explore(world, scope, laws=False, on_state=lambda ledger, _: found.append(ledger))
    return found
