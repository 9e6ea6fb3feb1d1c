"""The real vLLM's BlockPool as a contender: page ids, one list a request. No table, no slots, no caching."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kvledger.fast.bench.ours import slots_of
from kvledger.fast.bench.work import MOST_NAMES, Call, Chunk, Decode, Extend, Release, Slots
from kvledger.spec.world import World
from kvledger.tests.engines.vllm import DECLARED

# isort: split
from vllm.v1.core.block_pool import BlockPool

VERSION = DECLARED.version


class VLLM:
    """The pool, and the blocks and the length of each request."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pool = BlockPool(world.pages + 1, enable_caching=False, hash_block_size=world.page_size)
        self.blocks: dict[int, list[Any]] = {}
        self.lengths = np.zeros(MOST_NAMES, np.int64)

    def prepare(self, op: Any) -> Call:
        match op:
            case Extend(names, uptos) | Chunk(names, uptos):
                return partial(self.take, *self.grown(names, uptos))
            case Decode(names):
                return partial(self.take, *self.grown(names, self.lengths[names] + 1))
            case Release(names):
                return partial(self.give, [self.blocks.pop(name) for name in names.tolist()])
        raise TypeError(op)

    def grown(self, names: Any, uptos: Any) -> tuple[list[list[Any]], list[int]]:
        """The lists of those that need blocks, and how many each does."""
        size = self.world.page_size
        needs = -(-uptos // size) - -(-self.lengths[names] // size)
        self.lengths[names] = uptos
        short = needs > 0
        lists = [self.blocks.setdefault(name, []) for name in names[short].tolist()]
        return lists, needs[short].tolist()

    def take(self, lists: list[list[Any]], needs: list[int]) -> None:
        get = self.pool.get_new_blocks
        for blocks, need in zip(lists, needs, strict=True):
            blocks += get(need)

    def give(self, lists: list[list[Any]]) -> None:
        for blocks in lists:
            self.pool.free_blocks(reversed(blocks))

    def note(self, op: Any, result: Any) -> None:
        if isinstance(op, Release):
            self.lengths[op.names] = 0

    def slots(self, op: Any, result: Any) -> Slots | None:
        return None

    def row(self, name: int) -> Slots:
        pages = [block.block_id for block in self.blocks[name]]
        return slots_of(pages, self.world.page_size)[: self.lengths[name]]

    def running(self) -> list[int]:
        return list(self.blocks)

    def free(self) -> Slots:
        return np.array([block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()], np.int64)
