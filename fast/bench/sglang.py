"""The real SGLang as a contender: its own pools and its own RadixCache, called as alloc_for_extend, alloc_for_decode
and release_kv_cache call them."""

from __future__ import annotations

from array import array
from functools import partial
from types import SimpleNamespace
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
from kvledger.spec.world import World
from kvledger.tests.engines.sglang_start import VERSION as VERSION

# isort: split
import torch
from sglang.srt.mem_cache.allocation import write_cache_indices
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

BUFFERS = SimpleNamespace(device="cpu")
NO_PREFIX = torch.empty(0, dtype=torch.int64)


def key_of(tokens: Any) -> Any:
    """As a request keeps its tokens."""
    return RadixKey(array("q", tokens.astype(np.int64).tobytes()))


class SGLang:
    """Rows, slots and tree; and of each request its row, its length and what the tree has of it."""

    def __init__(self, world: World) -> None:
        self.world, size = world, world.page_size
        kind = TokenToKVPoolAllocator if size == 1 else partial(PagedTokenToKVPoolAllocator, page_size=size)
        self.pool = ReqToTokenPool(world.rows, world.context_len, "cpu", enable_memory_saver=False)
        self.allocator = kind(
            size=world.pages * size, dtype=torch.float16, device="cpu", kvcache=BUFFERS, need_sort=False
        )
        self.tree = self.made_tree(CacheInitParams(False, self.pool, self.allocator, size))
        self.rows = np.zeros(MOST_NAMES, np.int64)
        self.lengths = np.zeros(MOST_NAMES, np.int64)
        self.questions: dict[int, tuple[Any, Any]] = {}
        self.reqs: dict[int, Any] = {}  # of those that read the tree, or have published

    def made_tree(self, params: Any) -> Any:
        return RadixCache(params)

    def prepare(self, op: Any) -> Call:
        match op:
            case Extend(names, uptos, keys):
                begins = self.admitted(names, keys)
                prefixes = [self.reqs[name].found if name in self.reqs else NO_PREFIX for name in names.tolist()]
                last = torch.tensor([int(prefix[-1]) if len(prefix) else -1 for prefix in prefixes])
                return partial(self.start, *self.grown(names, begins, uptos), last, prefixes)
            case Chunk(names, uptos):
                begins, rows = self.lengths[names], self.rows[names]
                grown = self.grown(names, begins, uptos)
                return partial(self.go_on, *grown, rows.tolist(), torch.from_numpy(rows), begins.tolist())
            case Decode(names) | Turn(names):
                now = torch.from_numpy(self.lengths[names])
                self.lengths[names] += 1
                return partial(self.decode, torch.from_numpy(self.rows[names]), now, now - 1, now + 1)
            case Release(names):
                protected = [self.reqs[name].kv.cache_protected_len if name in self.reqs else 0 for name in names]
                spans = zip(self.rows[names].tolist(), protected, self.lengths[names].tolist(), strict=True)
                locks = [self.reqs[name].lock for name in names if name in self.reqs]
                return partial(self.release, list(spans), locks, self.rows[names].tolist())
            case Publish(name, tokens, upto):
                req = self.reqs.setdefault(name, self.req())
                req.kv.req_pool_idx = int(self.rows[name])
                req.full_untruncated_fill_ids = req.origin_input_ids = array("q", tokens.astype(np.int64).tobytes())
                return partial(self.tree.checkpoint, req, up_to=upto)
            case Insert(tokens):
                return partial(self.insert, key_of(tokens), self.allocator.alloc(len(tokens)))
            case Match(tokens):
                return partial(self.match, self.asked(tokens))
            case Evict(pages):
                return partial(self.tree.evict, EvictParams(num_tokens=pages * self.world.page_size))
        raise TypeError(op)

    # ---- what is timed

    def start(self, lengths: Any, total: int, last_loc: Any, prefixes: list[Any]) -> Any:
        """Rows, slots, and both written to the table."""
        rows = self.pool.alloc_rows(len(prefixes))
        return rows, self.grow(lengths, total, torch.tensor(rows, dtype=torch.int64), last_loc, prefixes)

    def go_on(self, lengths: Any, total: int, rows: list[int], there: Any, begins: list[int]) -> Any:
        """A later chunk: its prefix is read from the row."""
        table = self.pool.req_to_token
        prefixes = [table[row][:begin].to(torch.int64) for row, begin in zip(rows, begins, strict=True)]
        last_loc = torch.cat([prefix[-1:] for prefix in prefixes]) if self.world.page_size > 1 else None
        return rows, self.grow(lengths, total, there, last_loc, prefixes)

    def grow(self, lengths: Any, total: int, rows: Any, last_loc: Any, prefixes: list[Any]) -> Any:
        """Slots, written to the table."""
        begins, uptos, counts = lengths
        if self.world.page_size == 1:
            out = self.allocator.alloc(total)
        else:
            out = self.allocator.alloc_extend(begins, begins, uptos, uptos, last_loc, total)
        write_cache_indices(out, rows, rows, begins, begins, uptos, uptos, counts, counts, prefixes, self.pool)
        return out

    def decode(self, rows: Any, now: Any, last: Any, then: Any) -> Any:
        """One slot each, written behind the row's last."""
        if self.world.page_size == 1:
            out = self.allocator.alloc(len(rows))
        else:
            last_loc = self.pool.req_to_token[rows, last]
            out = self.allocator.alloc_decode(then, then, last_loc)
        self.pool.write((rows, now), out.to(torch.int32))
        return out

    def release(self, spans: list[tuple[int, int, int]], locks: list[Any], rows: list[int]) -> None:
        """A group of frees, as the end of a step makes one."""
        table, allocator = self.pool.req_to_token, self.allocator
        allocator.free_group_begin()
        for row, start, end in spans:
            allocator.free_segment(table[row][start:end], start_pos=start)
        for lock in locks:
            self.tree.unlock(lock)
        self.pool.free_rows(rows)
        allocator.free_group_end()

    def match(self, params: Any) -> Any:
        """The slots of what was found."""
        return self.tree.path_device_indices(self.tree.match_prefix(params).last_device_node)

    def insert(self, key: Any, value: Any) -> Any:
        return value, self.tree.insert(InsertParams(key=key, value=value))

    # ---- what is not

    def asked(self, tokens: Any) -> Any:
        """The question after these tokens: one for the same array, as ours is asked with the same array again."""
        if id(tokens) not in self.questions:
            # The array is kept with it, so that nobody else gets its id.
            self.questions[id(tokens)] = tokens, MatchPrefixParams(key=key_of(tokens))
        return self.questions[id(tokens)][1]

    def admitted(self, names: Any, keys: Any) -> Any:
        """How much each finds in the tree, under a lock."""
        begins = np.zeros(len(names), np.int64)
        for at, (name, key) in enumerate(zip(names.tolist(), keys, strict=False)):
            node = self.tree.match_prefix(MatchPrefixParams(key=key_of(key))).last_device_node
            found = self.tree.path_device_indices(node)
            if len(found):
                self.reqs[name] = self.req()
                self.reqs[name].kv.cache_protected_len = begins[at] = len(found)
                self.reqs[name].last_node, self.reqs[name].lock = node, self.tree.lock(node)
                self.reqs[name].found = found
        return begins

    def grown(self, names: Any, begins: Any, uptos: Any) -> tuple[Any, int]:
        """From where to where each grows, by how much, and all of them together."""
        self.lengths[names] = uptos
        counts = uptos - begins
        return [torch.from_numpy(np.array(each)) for each in (begins, uptos, counts)], int(counts.sum())

    def req(self) -> Any:
        """What a checkpoint reads of a request."""
        kv = SimpleNamespace(req_pool_idx=0, cache_protected_len=0, cache_inserted_len=0, swa_evict_floor=0)
        return SimpleNamespace(kv=kv, lock=None, last_node=None, priority=0, extra_key=None, cache_salt=None)

    def note(self, op: Any, result: Any) -> None:
        match op:
            case Extend(names):
                self.rows[names], _ = result
            case Release(names):
                self.rows[names] = 0
                for name in names.tolist():
                    self.reqs.pop(name, None)
            case Insert():
                value, inserted = result
                self.allocator.free_segment(value[: inserted.prefix_len], start_pos=0)

    def slots(self, op: Any, result: Any) -> Slots | None:
        match op:
            case Extend() | Chunk():
                return np.asarray(result[1].numpy(), np.int64)
            case Decode() | Match():
                return np.asarray(result.numpy(), np.int64)
        return None

    def row(self, name: int) -> Slots:
        return np.asarray(self.pool.req_to_token[int(self.rows[name]), : int(self.lengths[name])].numpy(), np.int64)

    def running(self) -> list[int]:
        return [int(name) for name in np.flatnonzero(self.rows)]

    def free(self) -> Slots:
        return np.asarray(self.allocator.get_all_free_pages().numpy(), np.int64)


class SGLangRust(SGLang):
    """With the tree whose core is in Rust, called as UnifiedRadixCache calls it; eviction by its own driver."""

    def made_tree(self, params: Any) -> Any:
        params.tree_components, params.tree_core_backend = (ComponentType.FULL,), "rust"
        return UnifiedRadixCache(params)

    def match(self, params: Any) -> Any:
        core = self.tree.tree_core
        return self.tree.path_device_indices(core.match_prefix(params).last_device_node)

    def insert(self, key: Any, value: Any) -> Any:
        core = self.tree.tree_core
        step = core.begin_insert(InsertParams(key=key, value=value))
        while step.result is None:
            step = core.resume_insert()
        core.end_insert()
        return value, step.result
