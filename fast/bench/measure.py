"""The clock: contenders take turns on the same work, who goes first rotates, and what is said is a median.

Time is the thread's own CPU time with one torch thread, so that a neighbour costs little; --wall takes the clock on
the wall. Garbage is collected between two turns, never within.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from statistics import median
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from kvledger.fast.bench.cases import WARM, Measured
from kvledger.fast.bench.work import Op, Side

Clock: TypeAlias = Callable[[], float]
Times: TypeAlias = npt.NDArray[np.float64]
Work: TypeAlias = Sequence[Op]


def race(sides: Sequence[Side], rounds: Iterable[Sequence[Work]], timed: tuple[type, ...], clock: Clock) -> Times:
    """Seconds that each side spends on the timed operations of each round. float64 [rounds, sides]

    rounds: the work of each side. The first WARM are run and not counted.
    """
    torch.set_num_threads(1)
    seconds = []
    for number, work in enumerate(rounds):
        spent = [0.0] * len(sides)
        for turn in range(len(sides)):
            at = (number + turn) % len(sides)
            spent[at] = run(sides[at], work[at], timed, clock)
        seconds.append(spent)
    return np.array(seconds[WARM:])


def run(side: Side, ops: Work, timed: tuple[type, ...], clock: Clock) -> float:
    """One side does all of this; neighbours of a kind are prepared together and timed together."""
    spent = 0.0
    gc.collect(0)
    gc.disable()
    try:
        for kind, several in groupby(ops, type):
            alike = list(several)
            calls = [side.prepare(op) for op in alike]
            began = clock()
            results = [call() for call in calls]
            if kind in timed:
                spent += clock() - began
            for op, result in zip(alike, results, strict=True):
                side.note(op, result)
    finally:
        gc.enable()
    return spent


def ratio(times: Times, calls: int) -> Measured:
    """Of two sides, ours first: the other's time by ours. calls: in a round, for the microseconds of one."""
    ours, theirs = times.T
    low, high = np.quantile(theirs / ours, [0.25, 0.75])
    us_ours, us_theirs = median(ours) / calls * 1e6, median(theirs) / calls * 1e6
    return Measured(us_theirs, us_ours, us_theirs / us_ours, float(low), float(high))


def growth(times: Times, calls: int) -> Measured:
    """Of two sizes, the small one first: the large one's time by the small one's."""
    found = ratio(times, calls)
    assert found.theirs is not None
    return Measured(found.ours, found.theirs, found.value, found.q25, found.q75)


def share(times: Times, calls: int) -> Measured:
    """Of two variants, first the one without: which part of the other's time the difference is."""
    found = growth(times, calls)
    return Measured(found.theirs, found.ours, 1 - 1 / found.value, 1 - 1 / found.q25, 1 - 1 / found.q75)


CLOCKS: dict[str, Clock] = {"cpu": time.thread_time, "wall": time.perf_counter}
