"""The fast ledger as a contender: each operation is one public call, its arguments are numpy arrays."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kvledger.fast.bench.work import (
    MOST_NAMES,
    Call,
    Chunk,
    Decode,
    Evict,
    Extend,
    Insert,
    Match,
    Publish,
    Release,
    Slots,
    Turn,
)
from kvledger.fast.ledger import Ledger
from kvledger.fast.plan import Pages
from kvledger.fast.prefix_cache import Prefix, key_of
from kvledger.spec.world import World

NOTHING = np.empty(0, np.int32)


class Ours:
    """A ledger, and the row of each request."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = Ledger(world)
        self.rows = np.zeros(MOST_NAMES, np.int64)

    def prepare(self, op: Any) -> Call:
        ledger = self.ledger
        match op:
            case Extend(names, uptos, keys):
                prefixes = [ledger.admit(key) for key in keys or [NOTHING] * len(names)]
                return partial(ledger.extend, np.zeros(len(names), np.int64), uptos, prefixes)
            case Chunk(names, uptos):
                return partial(ledger.extend, self.rows[names], uptos)
            case Decode(names) | Turn(names):
                return partial(ledger.decode, self.rows[names])
            case Release(names):
                return partial(ledger.release, self.rows[names])
            case Publish(name, tokens, upto):
                return partial(ledger.checkpoint, int(self.rows[name]), tokens, upto)
            case Insert(tokens):
                return partial(self.insert, tokens, ledger.pages.take(len(tokens) // self.world.page_size))
            case Match(tokens):
                return partial(ledger.match, tokens)
            case Evict(pages):
                return partial(ledger.evict, pages)
        raise TypeError(op)

    def insert(self, tokens: Any, pages: Pages) -> tuple[Pages, Prefix]:
        """What a checkpoint does with the tree."""
        return pages, self.ledger.cache.insert(key_of(tokens), None, pages)

    def note(self, op: Any, result: Any) -> None:
        match op:
            case Extend(names):
                self.rows[names] = result.rows
            case Release(names):
                self.rows[names] = 0
            case Insert():
                pages, before = result
                self.ledger.pages.give(pages[: len(before.pages)])

    def slots(self, op: Any, result: Any) -> Slots | None:
        match op:
            case Extend() | Chunk() | Decode():
                return np.asarray(result.out_cache_loc.numpy(), np.int64)
            case Match():
                return slots_of(result.pages, self.world.page_size)
        return None

    def row(self, name: int) -> Slots:
        row = self.rows[name]
        columns = self.ledger.tensors.req_to_token[row, : int(self.ledger.committed_len[row])]
        return np.asarray(columns.numpy(), np.int64)

    def running(self) -> list[int]:
        return [int(name) for name in np.flatnonzero(self.rows)]

    def free(self) -> Slots:
        return self.ledger.pages.free().astype(np.int64)


def slots_of(pages: Any, page_size: int) -> Slots:
    """All slots of these pages, in order."""
    firsts: Slots = np.asarray(pages, np.int64)[:, None] * page_size
    return (firsts + np.arange(page_size)).reshape(-1)
