"""How fast this machine is at plain Python right now: a fixed loop, timed beside every figure that names a speed."""

from __future__ import annotations

import time

ROUNDS = 2_000_000


def calibrate() -> float:
    """CPU seconds that ROUNDS steps of integer arithmetic take here."""
    start, value = time.process_time(), 1
    for step in range(ROUNDS):
        value = (value * 31 + step) & 0xFFFF
    return time.process_time() - start
