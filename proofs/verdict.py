"""What a proof says, in exact words; unknown, a timeout and an unmet precondition are failures like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

Progress: TypeAlias = Callable[[str], object]  # is told what is asked next, "cells: evict"


class Verdict(NamedTuple):
    """One line of the status table.

    name: what was asked, "cells: evict". claim: in one sentence, what is true if it holds. words: the verdict, "settled
    for every size (7 goals, 3 paths)"; "confirmed over all paths (4 posts)"; "5,951 states of world TINY_A, all".
    holds: whether that is what was to be shown. seconds: CPU. counterexample: in words of the domain, where it does
    not hold. slowest: of several goals the one that took longest, and its CPU seconds.
    """

    name: str
    claim: str
    words: str
    holds: bool
    seconds: float
    counterexample: str = ""
    slowest: tuple[str, float] = ("", 0.0)
