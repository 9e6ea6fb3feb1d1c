"""Every state of a world with three requests: a minute."""

from __future__ import annotations

from collections.abc import Iterator

from kvledger.proofs.verdict import Progress, Verdict
from kvledger.proofs.worlds import search
from kvledger.spec.worlds import LARGE


def settle(progress: Progress) -> Iterator[Verdict]:
    """One verdict a large world."""
    for name in LARGE:
        progress(f"three: {name}")
        yield search(f"three: {name}", name).verdict
