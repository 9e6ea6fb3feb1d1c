"""commit: the drafts were verified. The pending token and the accepted ones have KV now, in slots that were reserved.

SGLang: kv_committed_len after verification. vLLM: num_computed_tokens, less the rejected ones.
"""

from __future__ import annotations

from typing import NamedTuple

from kvledger.spec.world import ReqId, Token


class Commit(NamedTuple):
    """tokens: what follows the pending token now; the last of them is pending next, the others have KV."""

    req: ReqId
    tokens: tuple[Token, ...]
