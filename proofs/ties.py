"""The steps of rows against the code, at every transition and every state of the named worlds: minutes."""

from __future__ import annotations

from collections.abc import Iterator

from kvledger.proofs.rows import settle_ties
from kvledger.proofs.verdict import Progress, Verdict
from kvledger.spec.worlds import WORLDS


def settle(progress: Progress) -> Iterator[Verdict]:
    """One verdict a world."""
    return settle_ties(progress, "ties:", WORLDS, every=1)
