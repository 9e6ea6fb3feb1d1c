"""Every reachable state of a small world, for the tests that look at each; and five declarations more."""

from __future__ import annotations

from dataclasses import replace

from kvledger.spec.explore import explore
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import PUBLISHING, Declaration, World
from kvledger.spec.worlds import JOINT, KEPT, PLAIN, TALKING, Scope

# five ways to work that no named world has: an inner key with several pages; several that publish in one call; a key
# with several pages that sessions and admitted requests read; sessions whose keys name a token beyond their page;
# publishing in every action that may
DUPLICATES = PLAIN.capabilities | {"DUPLICATES"}
LEAVES = Declaration("keeps duplicates, leaves first", capabilities=DUPLICATES, max_batch=1)
BATCHES = Declaration("publishes while it grows", publishes_on=frozenset({"extend", "decode", "checkpoint"}))
READERS = KEPT.capabilities | {"SESSIONS", "SPLIT_ADMIT"}
EVERYWHERE = replace(JOINT, name="publishes everywhere", publishes_on=frozenset(PUBLISHING))
BIGRAM_TALKS = replace(TALKING, name="bigram keys and sessions", key_lag=1)
TALKS = replace(KEPT, name="keeps duplicates and sessions", capabilities=READERS)


def reachable(world: World, scope: Scope) -> list[Ledger]:
    """One of each up to renaming, in the order of the search."""
    found: list[Ledger] = []
    explore(world, scope, laws=False, on_state=lambda ledger, _: found.append(ledger))
    return found
