"""defer: an admitted request does not start after all. Its lock is dropped; it waits.

SGLang: an admission that fails after its match, and matches again in a later step.
"""

from __future__ import annotations

from typing import NamedTuple

from kvledger.spec.world import ReqId


class Defer(NamedTuple):
    """The admitted request that waits again."""

    req: ReqId
