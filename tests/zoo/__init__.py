"""Faulty backends that the kit must catch: one fault a file, each a small patch of the reference.

Each calls strike() where it deviates, and only where that has an effect. make: builds it. RULE: the rule that must
be broken at that very step, with the books compared after every step. BLIND: the rule that is broken first when
answers are all that is seen; it may come later. None: answers show nothing.
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
    "freed_after_handover",
    "tail_kept_on_retract",
    "tail_start_floored",
    "aborted_turn_keeps_record",
    "close_twice",
    "borrowed_slot_counted_twice",
    "turn_restarts_below_protected",
    "drafts_published",
    "past_row_end",
)
