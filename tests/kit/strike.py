"""How a faulty backend of ours says "here I deviate": strike() at the deviating call.

The kit notes the step of the first strike and compares a finding's step with it. An honest backend never calls it.
"""

from __future__ import annotations

_struck = False


def strike() -> None:
    """Called by a faulty backend at the very call in which it deviates."""
    global _struck
    _struck = True


def struck() -> bool:
    """Whether a strike came since the last question; asking forgets it."""
    global _struck
    came, _struck = _struck, False
    return came
