"""Faulty backends that the kit must catch: one fault a file, each a small patch of the reference.

Each calls strike() where it deviates, and only where that has an effect. make: builds it. RULE: the rule that must
be broken at that very step, with the books compared after every step. BLIND: the rule that is broken first when
answers are all that is seen; it may come later.
"""

from __future__ import annotations

FAULTS: tuple[str, ...] = (
    "freed_twice",
    "duplicate_kept",
    "locked_evicted",
    "full_match",
    "refused_keeps_row",
    "stale_reuse",
    "pending_published",
    "shared_across_namespaces",
)
