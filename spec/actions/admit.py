"""admit: a waiting request matches the cache and locks what it found; it takes neither row nor slots yet.

SGLang: init_next_round_input and the scheduler's lock of the last node.
"""

from __future__ import annotations

from typing import NamedTuple

from kvledger.spec.world import ReqId


class Admit(NamedTuple):
    """The request that may start next."""

    req: ReqId
