"""How a faulty backend of ours says "here I deviate": strike() at the deviating call.

The kit notes the step of the first strike and compares a finding's step with it. An honest backend never calls it.
"""

from __future__ import annotations

_struck: list[str] = []


def strike(what: str = "") -> None:
    """Called by a faulty backend at the very call in which it deviates."""
    _struck.append(what)


def struck() -> bool:
    """Whether a strike came since the last question; asking forgets it."""
    came = bool(_struck)
    _struck.clear()
    return came
