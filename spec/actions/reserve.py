"""reserve: slots for drafted tokens, ahead of what is known. Only allocated_len moves; commit says what was accepted.

SGLang: alloc_for_spec_decode. vLLM: allocate_slots with lookahead tokens.
"""

from __future__ import annotations

from typing import NamedTuple

from kvledger.spec.world import ReqId


class Reserve(NamedTuple):
    """Slots for n tokens beyond what is committed, the pending one among them."""

    req: ReqId
    n: int
