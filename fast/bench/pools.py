"""The cases of an engine's pools: extend, decode, release and the whole step. Each is a world, what happens before the
clock starts, and rounds of operations; the same for every contender.

Lengths and lines of work are drawn from a fixed seed. Lengths of extends are log-uniform from 1 to 2048; half of those
requests find a page-aligned prefix, log-uniform from 1 to 4096.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kvledger.fast.bench.cases import ROUNDS
from kvledger.fast.bench.work import Chunk, Decode, Extend, Names, Op, Publish, Release, Tokens, Turn
from kvledger.spec.world import World

Rng = np.random.Generator
SEED = 20_931
CONTEXT = 8192
PREFIXES = 128


@dataclass(frozen=True)
class Load:
    """before: once. rounds: each the same amount of work. timed: the operations that count; calls: how many a round."""

    world: World
    before: Sequence[Op]
    rounds: Iterator[Sequence[Op]]
    timed: tuple[type, ...]
    calls: int


class Fresh:
    """Names that nobody has had."""

    def __init__(self) -> None:
        self.next = 0

    def __call__(self, count: int) -> Names:
        self.next += count
        return np.arange(self.next - count, self.next)


def log_uniform(rng: Rng, most: int, count: int) -> Names:
    """From 1 to most, each power as likely as the next. int64 [count]"""
    return np.exp(rng.uniform(0, np.log(most), count)).astype(np.int64)


def tokens(rng: Rng, count: int) -> Tokens:
    return rng.integers(0, 100_000, count, dtype=np.int32)


def full(count: int, length: int) -> Names:
    return np.full(count, length, np.int64)


# ---- extend


def extend(size: int, page_size: int, calls: int) -> Load:
    """Batches of requests that start; each round gives all of it back."""
    rng, names = np.random.default_rng(SEED), Fresh()
    lengths = [max(int(length) // page_size, 1) * page_size for length in log_uniform(rng, 4096, PREFIXES)]
    stems, before = [tokens(rng, length) for length in lengths], list[Op]()
    for stem in stems:
        [name] = names(1)
        before += [Extend(np.array([name]), full(1, len(stem))), Publish(int(name), stem, len(stem))]
        before.append(Release(np.array([name])))
    nothing = stems[0][:0]
    batches = []
    for _ in range(calls):
        keys = [stems[rng.integers(PREFIXES)] if rng.random() < 0.5 else nothing for _ in range(size)]
        batches.append((keys, np.array([len(key) for key in keys]) + log_uniform(rng, 2048, size)))
    most = sum(int((uptos + page_size).sum()) for _, uptos in batches) + sum(lengths)
    world = World(size * calls, CONTEXT, 2 * most // page_size + PREFIXES, page_size)

    def rounds() -> Iterator[Sequence[Op]]:
        for _ in range(ROUNDS):
            given = [Extend(names(size), uptos, keys) for keys, uptos in batches]
            yield [*given, Release(np.concatenate([op.names for op in given]))]

    return Load(world, before, rounds(), (Extend,), calls)


def chunk() -> Load:
    """A later chunk of each request, from the middle of a page: 512 tokens behind 500."""
    size, names = 64, Fresh()
    world = World(size, 2048, 10_000, 16)

    def rounds() -> Iterator[Sequence[Op]]:
        for _ in range(ROUNDS):
            batch = names(size)
            yield [Extend(batch, full(size, 500)), Chunk(batch, full(size, 1012)), Release(batch)]

    return Load(world, (), rounds(), (Chunk,), 1)


# ---- decode


def decode(size: int, page_size: int, steps: int, context_len: int = CONTEXT, pages: int = 0) -> Load:
    """Steps of one batch, on and on. A row is at a page's edge once in page_size steps."""
    rng, batch = np.random.default_rng(SEED), Fresh()(size)
    most = (1024 + steps * ROUNDS) // page_size + 2
    rounds = ([Decode(batch)] * steps for _ in range(ROUNDS))
    before = [Extend(batch, rng.integers(1, 1024, size))]
    return Load(World(size, context_len, pages or most * size, page_size), before, rounds, (Decode,), steps)


def inside(size: int, page_size: int, times: int) -> Load:
    """Steps of one batch whose rows are never at a page's edge: over that they go together, in a step of its own."""
    batch, steps = Fresh()(size), page_size - 1
    pages = times * ROUNDS + 1
    a_page: list[Op] = [*[Decode(batch)] * steps, Turn(batch)]
    before = [Extend(batch, full(size, 1))]
    rounds = (a_page * times for _ in range(ROUNDS))
    return Load(World(size, pages * page_size, pages * size, page_size), before, rounds, (Decode,), steps * times)


# ---- release


def release(pages: int, size: int = 64, together: bool = True) -> Load:
    """Requests of 64 pages each, page size 16, taken and given back; together, or one by one."""
    names, times = Fresh(), 8 if together else 1
    world = World(size, 1024, pages, 16)

    def rounds() -> Iterator[Sequence[Op]]:
        for _ in range(ROUNDS):
            ops: list[Op] = []
            for _ in range(times):
                batch = names(size)
                ops.append(Extend(batch, full(size, 1024)))
                ops += [Release(batch)] if together else [Release(batch[at : at + 1]) for at in range(size)]
            yield ops

    return Load(world, (), rounds(), (Release,), times if together else size)


# ---- the whole step


def step(size: int, prompt: int, output: int, pages: int, steps: int) -> Load:
    """Who has said all it had to is released, as many start, and everybody decodes. Prompts are half to one and a half
    of `prompt`, outputs 1 to 2 * output. No prefix is shared."""
    rng, names = np.random.default_rng(SEED), Fresh()
    batch, left = names(size), rng.integers(1, 2 * output, size)

    def prompts(count: int) -> Names:
        return rng.integers(prompt // 2, prompt * 3 // 2, count)

    def one() -> Iterator[Op]:
        over = left == 0
        if over.any():
            gone = int(over.sum())
            yield Release(batch[over])
            batch[over], left[over] = names(gone), rng.integers(1, 2 * output, gone)
            yield Extend(batch[over], prompts(gone))
        yield Decode(batch.copy())
        left[:] -= 1

    def rounds() -> Iterator[Sequence[Op]]:
        for _ in range(ROUNDS):
            yield [op for _ in range(steps) for op in one()]

    before = [Extend(batch.copy(), prompts(size))]
    return Load(World(size, 2 * prompt + 2 * output, pages, 16), before, rounds(), (Release, Extend, Decode), steps)


W1 = partial(step, 256, 1024, 256, 100_000, 96)
LOADS: dict[str, Callable[[], Load]] = {
    "E1": partial(extend, 1, 16, 32),
    "E2": partial(extend, 32, 16, 8),
    "E3": partial(extend, 256, 16, 2),
    "E4": partial(extend, 1024, 64, 1),
    "E5": partial(extend, 256, 1, 2),
    "E6": partial(extend, 1, 1, 32),
    "E7": chunk,
    "D1": partial(decode, 256, 16, 64),
    "D2": partial(inside, 32, 16, 8),
    "D3": partial(decode, 1024, 16, 48),
    "D4": partial(decode, 256, 1, 128),
    "F1": partial(release, 100_000),
    "F2": partial(release, 1_000_000),
    "W1": W1,
    "W2": partial(step, 1024, 512, 256, 200_000, 16),
    "V1": W1,
}
