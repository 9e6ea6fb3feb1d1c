"""Every state of three small worlds, by the law and by a model of it in another language: the counts agree.

The model was written from the prose of spec/README.md alone, and counted by Spin. counts.json has what Spin counted,
and of which model; where Spin is installed it counts again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from kvledger.proofs.spin import by_law, by_spin
from kvledger.proofs.spin.by_law import Count
from kvledger.proofs.verdict import Progress, Verdict

COUNTS = Path(__file__).resolve().parent / "counts.json"
OTHER = "ledger.pml is another model than the one that counts.json is of"


def counted() -> dict[str, Count]:
    """What Spin counted when the model was written, by world."""
    return {name: Count(**each) for name, each in json.loads(COUNTS.read_text(encoding="utf-8"))["worlds"].items()}


def is_that_model() -> bool:
    """Whether ledger.pml is the model that was counted."""
    before = json.loads(COUNTS.read_text(encoding="utf-8"))["sha256"]
    return bool(hashlib.sha256(by_spin.MODEL.read_bytes()).hexdigest() == before)


def settle(progress: Progress) -> Iterator[Verdict]:
    """Each world, counted by the law, and by Spin where it is installed."""
    for name, before in counted().items():
        progress(f"spin: world {name}")
        began = _seconds()
        counts, failed = {"the law": by_law.count(name)}, "" if is_that_model() else OTHER
        if by_spin.there():
            try:
                counts["Spin now"] = by_spin.count(name)
            except by_spin.NotCounted as error:
                failed = str(error)
        yield verdict(name, before, counts, _seconds() - began, failed)


def verdict(name: str, before: Count, counts: dict[str, Count], seconds: float, failed: str = "") -> Verdict:
    """before: what Spin counted. counts: what others count now, by who does. failed: why Spin did not count."""
    spin = f"Spin counted {before.states:,} and {before.moves:,}"
    differ = [
        f"{who} counts {each.states:,} states and {each.moves:,} moves, {spin}"
        for who, each in counts.items()
        if each != before
    ]
    said = "; ".join([*differ, *([failed] if failed else [])])
    words = f"{before.states:,} states of world {name}, all, and {before.moves:,} moves, as Spin counted"
    return Verdict(
        f"spin: world {name}",
        "the law, and a model written from its prose alone, visit as many states by as many moves",
        "not as Spin counted" if said else words,
        not said,
        seconds,
        said,
    )


def _seconds() -> float:
    return sum(os.times()[:4])  # CPU, of Spin and the compiler as well
