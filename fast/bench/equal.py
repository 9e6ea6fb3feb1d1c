"""The proof that contenders do the same, over random whole steps, before anything is timed.

Compared after every operation: the slots it answered with, the table of each request on [0, length), and the list of
free pages, in order. SGLang's paged allocator hands pages out and takes them back in our order, so all of it is equal
as it stands. Its token allocator (page size 1) appends what comes back, and vLLM takes a request's blocks back from
behind: there it is equal up to renaming, that is, one renaming of pages carries each table into the other, and what is
taken here is taken there. Rows are numbered otherwise, so tables are compared by request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kvledger.fast.bench.pools import Fresh, Rng, tokens
from kvledger.fast.bench.work import Decode, Extend, Op, Publish, Release, Shown, Slots, Tokens, do
from kvledger.spec.world import World

STEPS, RUNS = 40, 4
ROWS, CONTEXT = 16, 256


class Difference(Exception):
    """Two contenders did not do the same. The text says where."""


class Twins:
    """Two contenders that are asked the same. renamed: page ids need not be the same, only correspond."""

    def __init__(self, ours: Shown, theirs: Shown, renamed: bool) -> None:
        self.ours, self.theirs, self.renamed = ours, theirs, renamed
        self.size = ours.world.page_size
        self.running: dict[int, None] = {}

    def do(self, op: Op) -> None:
        """Both do it. Raises Difference."""
        shown = [side.slots(op, do(side, op)) for side in (self.ours, self.theirs)]
        if isinstance(op, Extend):
            self.running |= dict.fromkeys(op.names.tolist())
        if isinstance(op, Release):
            for name in op.names.tolist():
                del self.running[name]
        if not self.renamed and shown[1] is not None and not np.array_equal(shown[0], shown[1]):
            raise Difference(f"slots of {said(op)}: {few(shown[0])} and {few(shown[1])}")
        if shown[1] is not None and shown[0] is not None and len(shown[0]) != len(shown[1]):
            raise Difference(f"slots of {said(op)}: {len(shown[0])} and {len(shown[1])}")
        self.ask_tables(op)

    def ask_tables(self, op: Op) -> None:
        """Tables and free lists. Raises Difference."""
        tables = [(name, self.ours.row(name), self.theirs.row(name)) for name in self.running]
        for name, one, other in tables:
            if len(one) != len(other) or not (self.renamed or np.array_equal(one, other)):
                raise Difference(f"the row of request {name} after {said(op)}: {few(one)} and {few(other)}")
        free = self.ours.free(), self.theirs.free()
        if not self.renamed:
            if not np.array_equal(*free):
                raise Difference(f"the free list after {said(op)}: {few(free[0])} and {few(free[1])}")
            return
        if len(free[0]) != len(free[1]):
            raise Difference(f"free pages after {said(op)}: {len(free[0])} and {len(free[1])}")
        self.ask_renaming(op, [(one, other) for _, one, other in tables], free)

    def ask_renaming(self, op: Op, tables: list[tuple[Slots, Slots]], free: tuple[Slots, Slots]) -> None:
        """One to one, and taken pages are taken. Raises Difference."""
        ones, others = (np.concatenate([*each, np.empty(0, np.int64)]) for each in zip(*tables, strict=True)) if tables else free
        pairs = np.unique(np.stack([ones, others]), axis=1) if tables else np.empty((2, 0), np.int64)
        if any(len(np.unique(side)) != pairs.shape[1] for side in pairs):
            raise Difference(f"tables after {said(op)}: no renaming of slots carries one into the other")
        for taken, unused in zip(pairs // self.size, free, strict=True):
            if np.isin(taken, unused).any():
                raise Difference(f"after {said(op)}: a page that a request lists is free")


def said(op: Op) -> str:
    return type(op).__name__.lower()


def few(numbers: Slots | None) -> str:
    if numbers is None:
        return "none"
    return f"{numbers[:8].tolist()}{'...' if len(numbers) > 8 else ''} ({len(numbers)})"


def steps(rng: Rng, size: int, published: bool) -> Iterator[list[Op]]:
    """Random whole steps: some end, some are published, some go on prefilling, some start, all others decode."""
    names, stems = Fresh(), [tokens(rng, 96) for _ in range(3)]
    texts: dict[int, Tokens] = {}
    lengths: dict[int, int] = {}
    prefilling: dict[int, int] = {}
    for _ in range(STEPS):
        ops: list[Op] = []
        ending = [name for name in lengths if rng.random() < 0.15 or lengths[name] >= CONTEXT - 1]
        if ending:
            ops.append(Release(np.array(ending)))
            for name in ending:
                del lengths[name]
                prefilling.pop(name, None)
        going_on = [name for name in lengths if name in prefilling]
        if going_on:
            for name in going_on:
                lengths[name] = prefilling.pop(name)
            ops.append(Extend(np.array(going_on), np.array([lengths[name] for name in going_on])))
        for name, length in lengths.items():
            if published and name not in going_on and rng.random() < 0.2:
                ops.append(Publish(name, texts[name], length))
        deciding = [name for name in lengths if name not in going_on]
        starting = names(int(rng.integers(0, min(5, ROWS - len(lengths)) + 1))).tolist()
        if starting:
            for name in starting:
                length = int(rng.integers(2, CONTEXT // 2))
                shared = stems[rng.integers(3)][: int(rng.integers(0, 97))] if published else tokens(rng, 0)
                texts[name] = np.concatenate([shared, tokens(rng, CONTEXT)])[:CONTEXT]
                lengths[name] = length
                if rng.random() < 0.4 and length < CONTEXT - 40:
                    prefilling[name] = length + int(rng.integers(1, 40))
            keys = [texts[name][: lengths[name] - 1] for name in starting]
            ops.append(Extend(np.array(starting), np.array([lengths[name] for name in starting]), keys))
        if deciding:
            ops.append(Decode(np.array(deciding)))
            for name in deciding:
                lengths[name] += 1
        yield ops


def prove(make: Callable[[World], Shown], other: Callable[[World], Shown], sizes: dict[int, bool], published: bool) -> int:
    """Steps in which both did the same. sizes: page sizes, and whether pages may be renamed there. Raises Difference."""
    done = 0
    for size, renamed in sizes.items():
        for seed in range(RUNS):
            world = World(ROWS, CONTEXT, 40_000 // size, size)
            twins = Twins(make(world), other(world), renamed)
            for ops in steps(np.random.default_rng(seed), size, published):
                for op in ops:
                    twins.do(op)
                done += 1
    return done
