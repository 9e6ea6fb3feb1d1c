"""What can be counted, and so is the same on every machine: the operators that a call dispatches, and those among them
that make the host wait for a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from kvledger.fast.bench.cases import Measured
from kvledger.fast.bench.growth import Make
from kvledger.fast.bench.pools import Fresh, full, step
from kvledger.fast.bench.work import Decode, Extend, Op, Release, Side, do
from kvledger.spec.world import World

SYNCHRONISE = frozenset(
    {"_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique", "_unique2"}
)
KINDS = {"an extend": Extend, "a decode": Decode, "a release": Release}
ONE, FEW, MANY, STEPS = 1, 2, 1024, 1000


class Counted(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to mypy
    """Counts every operator that is dispatched while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))

    @property
    def syncs(self) -> int:
        """How many of them wait."""
        return sum(count for name, count in self.seen.items() if name in SYNCHRONISE)


@dataclass(frozen=True)
class Operators:
    """Of the call of one operation: dispatched in all, and waiting."""

    all: int
    syncs: int


def operators(make: Make, size: int, kind: type) -> Operators:
    """Of a batch of this size: prompts of three pages, a decode that needs a new page for each, a release."""
    side, batch = make(World(size, 128, 8 * size, 16)), Fresh()(size)
    ops: Sequence[Op] = (Extend(batch, full(size, 48)), Decode(batch), Release(batch))
    for op in ops:
        if isinstance(op, kind):
            return counted(side, op)
        do(side, op)
    raise ValueError(kind)


def counted(side: Side, op: Op) -> Operators:
    """Of this call."""
    call = side.prepare(op)
    with Counted() as counter:
        result = call()
    side.note(op, result)
    return Operators(counter.seen.total(), counter.syncs)


def syncs(make: Make, steps: int) -> int:
    """In so many whole steps of a batch of 32."""
    load = step(32, 64, 32, 2_000, steps)
    side = make(load.world)
    for op in load.before:
        do(side, op)
    [ops] = islice(load.rounds, 1)
    return sum(counted(side, op).syncs for op in ops)


def measure(what: str, ours: Make, theirs: Make | None) -> Measured:
    """G6, of the call that `what` names: as many for a few as for many, and for one no more; or G7."""
    kind = next((kind for words, kind in KINDS.items() if words in what), None)
    if kind is None:
        count, other = syncs(ours, STEPS), None if theirs is None else float(syncs(theirs, STEPS))
        return Measured(None, count, count, count, count, other)
    one, few, many = (operators(ours, size, kind).all for size in (ONE, FEW, MANY))
    other = None if theirs is None else float(operators(theirs, MANY, kind).all)
    return Measured(few, many, max(one, few, many), min(few, many), max(one, few, many), other)
