"""The proof that contenders do the same: over random whole steps before anything is timed, and at the end of each
timed case.

Compared after every operation: the slots that it answered with, the table of each request on [0, length), and the list
of free pages, in order. SGLang's paged allocator hands pages out and takes them back in our order, so all of it is
equal as it stands. Its token allocator (page size 1) appends what comes back, and vLLM gives a request's blocks back
from behind: there it is equal up to renaming, which means that one renaming of slots carries all tables into the
other's, and that as many pages are free, none of which stands in a table. Rows are numbered otherwise, so tables are
compared by request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from kvledger.fast.bench.pools import Fresh, Rng, tokens
from kvledger.fast.bench.work import (
    Chunk,
    Decode,
    Evict,
    Extend,
    Insert,
    Match,
    Op,
    Publish,
    Release,
    Shown,
    Slots,
    Tokens,
    do,
)
from kvledger.spec.world import World

STEPS, RUNS = 40, 8  # of a run; and runs at each page size
ROWS, CONTEXT, SLOTS = 16, 256, 40_000
Make: TypeAlias = Callable[[World], Shown]


class Difference(Exception):
    """Two contenders did not do the same. The text says where."""


def prove(ours: Make, theirs: Make, renamed: Mapping[int, bool], published: bool) -> int:
    """Whole steps in which both did the same. renamed: page sizes, and whether pages may be renamed there; published:
    whether requests share prefixes. Raises Difference."""
    done = 0
    for size, may in renamed.items():
        for seed in range(RUNS):
            world, rng = World(ROWS, CONTEXT, SLOTS // size, size), np.random.default_rng(seed)
            done += follow(ours(world), theirs(world), steps(rng, published), may)
    return done


def prove_trees(ours: Make, theirs: Make) -> int:
    """Operations on the tree in which both did the same. Raises Difference."""
    world, done = World(1, CONTEXT, SLOTS // 16, 16), 0
    for seed in range(RUNS):
        for work in (splitting, evicting):
            ops = work(np.random.default_rng(seed))
            done += follow(ours(world), theirs(world), ([op] for op in ops), renamed=False)
    return done


def follow(ours: Shown, theirs: Shown, work: Iterable[Sequence[Op]], renamed: bool) -> int:
    """Both do all of it; returns how many steps that were. Raises Difference."""
    done = 0
    for ops in work:
        for op in ops:
            when = f"{type(op).__name__.lower()} in step {done}"
            one, other = (side.slots(op, do(side, op)) for side in (ours, theirs))
            if one is not None and other is not None and not (same_length if renamed else np.array_equal)(one, other):
                raise Difference(f"slots of {when}: {few(one)} here, {few(other)} there")
            ask_same(ours, theirs, renamed, when)
        done += 1
    return done


def ask_same(ours: Shown, theirs: Shown, renamed: bool, when: str) -> None:
    """Whether tables and free pages are the same now. Raises Difference."""
    names = ours.running()
    if names != sorted(theirs.running()):
        raise Difference(f"after {when}: not the same requests run")
    tables = [(ours.row(name), theirs.row(name)) for name in names]
    for name, (one, other) in zip(names, tables, strict=True):
        if not (same_length if renamed else np.array_equal)(one, other):
            raise Difference(f"request {name}'s row after {when}: {few(one)} here, {few(other)} there")
    free = ours.free(), theirs.free()
    if not (same_length if renamed else np.array_equal)(*free):
        raise Difference(f"free pages after {when}: {few(free[0])} here, {few(free[1])} there")
    if renamed and tables:
        pairs = np.unique([np.concatenate(each) for each in zip(*tables, strict=True)], axis=1)
        if any(len(np.unique(slots)) < pairs.shape[1] for slots in pairs):
            raise Difference(f"tables after {when}: no renaming of slots makes them the same")
        for slots, unused in zip(pairs, free, strict=True):
            if np.isin(slots // ours.world.page_size, unused).any():
                raise Difference(f"after {when}: a page that stands in a table is free")


def same_length(one: Slots, other: Slots) -> bool:
    """All that can be asked of two lists by themselves, of which one may be renamed."""
    return len(one) == len(other)


def few(numbers: Slots) -> str:
    """The first of them, and how many they are."""
    return f"{numbers[:6].tolist()}{' ...' if len(numbers) > 6 else ''} ({len(numbers)})"


def steps(rng: Rng, published: bool) -> Iterator[list[Op]]:
    """Random whole steps: some requests end, some go on prefilling, some are published, some start, the others decode.
    With published, many begin with one of three stems."""
    names, stems = Fresh(), [tokens(rng, 96) for _ in range(3)]
    texts, lengths, goals = dict[int, Tokens](), dict[int, int](), dict[int, int]()

    def batch(some: Sequence[int]) -> tuple[Any, Any]:
        return np.array(some), np.array([lengths[name] for name in some])

    for _ in range(STEPS):
        ops: list[Op] = []
        if ending := [name for name in lengths if rng.random() < 0.15 or lengths[name] >= CONTEXT - 1]:
            ops.append(Release(np.array(ending)))
            for name in ending:
                del lengths[name]
                goals.pop(name, None)
        if going_on := list(goals):
            lengths |= goals
            goals.clear()
            ops.append(Chunk(*batch(going_on)))
        running = list(lengths)
        ops += [Publish(name, texts[name], lengths[name]) for name in running if published and rng.random() < 0.2]
        if starting := names(int(rng.integers(0, min(5, ROWS - len(lengths)) + 1))).tolist():
            for name in starting:
                stem = stems[rng.integers(3)][: int(rng.integers(97)) if published else 0]
                texts[name] = np.concatenate([stem, tokens(rng, CONTEXT)])[:CONTEXT]
                lengths[name] = int(rng.integers(2, CONTEXT // 2))
                if rng.random() < 0.4:
                    goals[name] = lengths[name] + int(rng.integers(1, 40))
            ops.append(Extend(*batch(starting), [texts[name][: lengths[name] - 1] for name in starting]))
        if decoding := [name for name in running if name not in going_on]:
            times = min(int(rng.integers(1, 4)), CONTEXT - max(lengths[name] for name in decoding))
            ops += [Decode(np.array(decoding))] * times
            for name in decoding:
                lengths[name] += times
        yield ops


def splitting(rng: Rng) -> Iterator[Op]:
    """Random prefixes that part anywhere inside each other, inserted and matched. Nothing is evicted: when a match
    splits an edge, SGLang counts both halves as used, we the one that was found, so another leaf is the oldest."""
    known = [tokens(rng, 0)]
    for _ in range(4 * STEPS):
        stem = known[rng.integers(len(known))]
        fresh = np.concatenate([stem[: int(rng.integers(len(stem) + 1))], tokens(rng, int(rng.integers(16, 81)))])
        if rng.random() < 0.5:
            known.append(fresh[: len(fresh) // 16 * 16])
        yield Insert(known[-1]) if len(known[-1]) else Match(fresh)
        yield Match(fresh)


def evicting(rng: Rng) -> Iterator[Op]:
    """Prefixes that go on where another ends, inserted and matched; then all leaves go, one by one."""
    known = [tokens(rng, 0)]
    for _ in range(2 * STEPS):
        known.append(np.concatenate([known[rng.integers(len(known))], tokens(rng, 16 * int(rng.integers(1, 5)))]))
        yield Insert(known[-1])
        yield Match(known[rng.integers(len(known))])
    for _ in range(2 * STEPS):
        yield Evict(1)
