"""match_prefix: how much of a waiting request is cached. A question: nothing but recency and node edges changes.

SGLang: match_prefix, asked by the policy that orders the waiting queue.
"""

from __future__ import annotations

from typing import NamedTuple

from kvledger.spec.world import ReqId


class MatchPrefix(NamedTuple):
    """The waiting request that is asked about."""

    req: ReqId
