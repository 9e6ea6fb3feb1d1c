"""The cases of the prefix tree: match, insert and evict, on trees of sequences of which half is shared by a family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from kvledger.fast.bench.cases import ROUNDS
from kvledger.fast.bench.pools import SEED, Load, Rng, tokens
from kvledger.fast.bench.work import Evict, Insert, Match, Op, Tokens
from kvledger.spec.world import World

PAGE_SIZE, FAMILIES = 16, 50


def sequences(rng: Rng, count: int, length: int) -> Iterator[Tokens]:
    """Half of each is one of 50 stems."""
    stems = [tokens(rng, length // 2) for _ in range(FAMILIES)]
    for _ in range(count):
        yield np.concatenate([stems[rng.integers(FAMILIES)], tokens(rng, length - length // 2)])


def world_for(count: int, length: int) -> World:
    return World(1, PAGE_SIZE, count * length // PAGE_SIZE + 1, PAGE_SIZE)


def match(length: int, count: int, some: int, times: int = 1) -> Load:
    """In each round some of the sequences that are there, in any order; all of those several times, as prefixes that
    many ask for are."""
    rng = np.random.default_rng(SEED)
    there = list(sequences(rng, count, length))

    def rounds() -> Iterator[Sequence[Op]]:
        for _ in range(ROUNDS):
            yield [Match(there[at]) for at in rng.integers(0, count, some)] * times

    return Load(world_for(count, length), [Insert(each) for each in there], rounds(), (Match,), some * times)


def insert(length: int, count: int, calls: int = 96) -> Load:
    """Sequences that are new, into a tree that grows."""
    rng = np.random.default_rng(SEED)
    new = sequences(rng, count + calls * ROUNDS, length)
    before = [Insert(next(new)) for _ in range(count)]

    def rounds() -> Iterator[Sequence[Op]]:
        for _ in range(ROUNDS):
            yield [Insert(next(new)) for _ in range(calls)]

    return Load(world_for(count + calls * ROUNDS, length), before, rounds(), (Insert,), calls)


def evict(leaves: int, calls: int = 64, times: int = ROUNDS) -> Load:
    """The least recently used leaf of one page, of so many under the root; as many new ones come between the rounds."""
    rng = np.random.default_rng(SEED)
    count = (leaves + calls * times) * PAGE_SIZE
    new = iter(rng.permutation(np.arange(count, dtype=np.int32).reshape(-1, PAGE_SIZE)))
    before = [Insert(next(new)) for _ in range(leaves)]

    def rounds() -> Iterator[Sequence[Op]]:
        for _ in range(times):
            yield [*[Evict(1)] * calls, *(Insert(next(new)) for _ in range(calls))]

    return Load(world_for(leaves + calls, PAGE_SIZE), before, rounds(), (Evict,), calls)


LOADS: dict[str, Callable[[], Load]] = {
    "R1": partial(match, 4096, 1000, 32, 4),
    "R2": partial(match, 32_768, 100, 16, 4),
    "R3": partial(insert, 4096, 500),
    "T1": partial(match, 4096, 1000, 32, 4),
    "T2": partial(insert, 4096, 500),
    "T3": partial(evict, 1000),
}
