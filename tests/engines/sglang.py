"""SGLang 0.5.23 under the law: its own pools, trees, sessions and requests, called as its scheduler calls them.

What is real here: ReqToTokenPool, the two allocators, UnifiedRadixCache with its Python and its Rust core, RadixCache,
StreamingSession and SessionController, Req, ScheduleBatch as the carrier of a batch, and every function between them:
match, lock, alloc_for_extend, alloc_for_decode, alloc_for_spec_decode, checkpoint_kv_cache, release_kv_cache,
release_req, evict, reset. What the scheduler does between those calls is done here in its order, and nothing is
repaired. Kept are ids alone: request -> Req, and the number that stands for a token or a namespace. What an answer says
was evicted, freed or published is read off the engine's books before and after the call.

`make` asks for room before it allocates, as the scheduler does; `make_unasked` does not, and shows what an
out-of-memory error leaves behind.
"""

from __future__ import annotations

import logging
import os
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from kvledger.spec.action import name_of
from kvledger.spec.backend import (
    Action,
    CachedView,
    Declaration,
    Freed,
    RecordView,
    Refused,
    Reply,
    Totals,
    View,
    World,
)
from kvledger.spec.world import Holder, Namespace, PageId, ReqId, Row, Slot, Token
from kvledger.tests.engines import stubs

stubs.install("torchvision", "tvm_ffi", "gguf", "xgrammar", "sgl_kernel")
os.environ.setdefault("TRITON_INTERPRET", "1")  # the row write of alloc_for_spec_decode is a Triton kernel
logging.getLogger("sglang").setLevel(logging.CRITICAL)  # an out-of-memory error is an answer here
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    from sglang.srt import runtime_context
    from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH, Req, ScheduleBatch, release_req
    from sglang.srt.managers.scheduler_components.pool_stats_observer import kv_private_tokens
    from sglang.srt.mem_cache.allocation import alloc_for_decode, alloc_for_extend
    from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
    from sglang.srt.mem_cache.base_prefix_cache import CacheRequestOutcome, EvictParams
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
    from sglang.srt.mem_cache.radix_cache import RadixCache
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
    from sglang.srt.sampling.sampling_params import SamplingParams
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.utils.common import get_num_new_pages
    from sglang.version import __version__

torch.set_num_threads(1)  # tensors of a few numbers
# strip_thinking_cache concerns requests with reasoning_tokens alone: how an end below the prompt's is said.
SETTINGS = ServerArgs(model_path="dummy", device="cpu", attention_backend="torch_native", strip_thinking_cache=True)
SETTINGS._mamba_cache_chunk_size = 64  # or a model's configuration is looked for
runtime_context.publish(SETTINGS, role="tokenizer")
CPU = type("Device", (), {"device": "cpu"})()  # all that an allocator asks of the KV buffers
SAMPLING = SamplingParams(temperature=0, max_new_tokens=1 << 20)

CACHE = frozenset({"PREFIX_CACHE", "LEAF_FIRST", "EVICT", "CHECKPOINT"})
CAPABILITIES = CACHE | {"ROWS", "PAGED", "CHUNKED", "VIEW", "CONTENT"}
PUBLISHES_ON = frozenset({"checkpoint", "finish", "abort"})


class Kind(NamedTuple):
    """A tree and how its pages are read. asks: whether room is asked for before it is taken."""

    name: str
    tree: Callable[[Any], Any]
    cached: Callable[[SGLang], dict[PageId, CachedView]]
    disable: bool = False
    asks: bool = True


class Books(NamedTuple):
    """What the engine lists as free and as cached, at one moment."""

    pages: Counter[PageId]
    rows: Counter[Row]
    cached: set[PageId]


class SGLang:
    """One engine: pools, tree, sessions, and the requests that a scheduler would have in its queues."""

    def __init__(self, kind: Kind, world: World) -> None:
        size = world.page_size
        self.kind, self.page_size = kind, size
        tokens, like = world.pages * size, (torch.float16, "cpu", CPU)
        self.rows = ReqToTokenPool(world.rows, world.context_len, "cpu", enable_memory_saver=False)
        self.slots = (
            TokenToKVPoolAllocator(tokens, *like, need_sort=False)
            if size == 1
            else PagedTokenToKVPoolAllocator(tokens, size, *like, need_sort=False)
        )
        self.tree = kind.tree(CacheInitParams(kind.disable, self.rows, self.slots, size))
        self.tree.pretty_print = lambda: None  # part of its out-of-memory message
        self.reqs: dict[ReqId, Any] = {}
        self.numbers: dict[tuple[str, Hashable], int] = {}
        self.content = [0] * (tokens + size)

    def declare(self) -> Declaration:
        capabilities = CAPABILITIES - CACHE if self.kind.disable else CAPABILITIES
        return Declaration(self.kind.name, __version__, capabilities, PUBLISHES_ON)

    def do(self, action: Action) -> Reply | Refused:
        answer: Reply | Refused = getattr(self, name_of(action))(*action)
        return answer

    # ---- a request comes and grows

    def submit(
        self, rid: ReqId, tokens: Sequence[Token], namespace: Namespace, match_limit: int | None, publish: bool
    ) -> Reply:
        """It stands in the waiting queue. A match_limit is what a request for its prompt's log probabilities has."""
        req = Req(rid, "", self.ids(tokens), SAMPLING, return_logprob=match_limit is not None,
                  extra_key=str(self.number("namespace", namespace)))  # fmt: skip
        req.logprob_start_len = -1 if match_limit is None else match_limit
        req.skip_radix_cache_insert = not publish
        self.reqs[rid] = req
        return Reply()

    def extend(self, members: Sequence[tuple[ReqId, int, Token | None]]) -> Reply | Refused:
        """Admission matches and locks each that starts; then the batch allocates, all of it or nothing."""
        reqs = [self.reqs[rid] for rid, _, _ in members]
        starting = [req for req in reqs if not runs(req)]
        for req in starting:
            self.admit(req)
        fresh = [req for req in starting if not req.kv.holds_kv]
        for req in reqs:
            if runs(req):  # a later chunk resumes after the last one
                req.init_next_round_input()
                req.prefix_len = req.kv.kv_committed_len
        ends = [upto for _, upto, _ in members]
        batch = self.batch(reqs, ends)
        batch.prefix_lens = [req.prefix_len for req in reqs]
        batch.extend_lens = [upto - req.prefix_len for req, upto in zip(reqs, ends, strict=True)]
        batch.extend_num_tokens = sum(batch.extend_lens)
        before = self.books()
        short = "rows" if len(fresh) > self.rows.available_size() else "pages"
        prefixes = torch.tensor(batch.prefix_lens)
        pages = get_num_new_pages(batch.seq_lens_cpu, self.page_size, prefixes)
        fits = short == "pages" and self.slots.check_decode_capacity(
            num_tokens=pages * self.page_size, tree_cache=self.tree
        )
        if (self.kind.asks and not fits) or (out := self.allocated(alloc_for_extend, batch)) is None:
            for req in starting:
                self.give_up(req)
            return Refused(short, self.evicted(before))
        for req, (_, upto, token) in zip(reqs, members, strict=True):
            if not runs(req) or req.inflight_middle_chunks:  # else it decodes in a batch of others that prefill
                req.extend_end = upto
            req.extend_batch_idx += 1
            req.inflight_middle_chunks = int(token is None)
            if token is not None:
                req.output_ids.append(self.number("token", token))
        return Reply(
            rows=[req.kv.req_pool_idx for req in fresh],
            matched=[self.row(req.kv)[: req.prefix_len] for req in starting],
            slots=[part.tolist() for part in out[0].split(batch.extend_lens)],
            evicted=self.evicted(before),
        )

    def admit(self, req: Any) -> None:
        """What the scheduler does once it wants to start a request: match, then lock what was found."""
        req.init_next_round_input(self.tree)
        req.lock = self.tree.lock(req.last_node)

    def give_up(self, req: Any) -> None:
        """The scheduler does not start it after all."""
        self.tree.unlock(req.lock)
        req.lock = None

    def decode(self, members: Sequence[tuple[ReqId, Token]]) -> Reply | Refused:
        """One more column for each. The scheduler asks for room first, and retracts somebody if there is none."""
        reqs = [self.reqs[rid] for rid, _ in members]
        batch = self.batch(reqs, [req.kv.kv_committed_len for req in reqs])
        batch.req_pool_indices = batch.req_pool_indices_cpu = torch.tensor([req.kv.req_pool_idx for req in reqs])
        before = self.books()
        if self.kind.asks and not batch.check_decode_mem():
            return Refused("pages", self.evicted(before))
        if (out := self.allocated(alloc_for_decode, batch, 1)) is None:
            return Refused("pages", self.evicted(before))
        for req, (_, token) in zip(reqs, members, strict=True):
            req.output_ids.append(self.number("token", token))
        return Reply(slots=out[:, None].tolist(), evicted=self.evicted(before))

    def batch(self, reqs: list[Any], lengths: list[int]) -> Any:
        """The scheduler's batch, with what the allocation functions read of it."""
        batch = ScheduleBatch(reqs, self.rows, self.slots, self.tree, Model, device="cpu")
        batch.spec_algorithm = SpeculativeAlgorithm.NONE
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor(lengths)
        return batch

    def allocated(self, allocate: Callable[..., Any], *args: object) -> Any:
        """What an allocation function gives; None where it runs out of memory."""
        try:
            return allocate(*args)
        except RuntimeError:
            return None

    def checkpoint(self, rid: ReqId, upto: int) -> Reply:
        """The engine publishes up to the end of the last extend, and no further while a request runs."""
        req, before = self.reqs[rid], self.books()
        start = req.kv.cache_protected_len
        req.extend_end = min(upto, req.extend_end)
        checkpoint_kv_cache(req, self.tree)
        end = req.kv.cache_protected_len
        return Reply(slots=[self.row(req.kv)[start:end]], published={rid: end}, freed=self.freed(before))

    # ---- it ends

    def finish(self, rid: ReqId, keep: int, publish: bool) -> Reply:
        """The output may have been cut by a stop, or, down to the prompt, be thinking that is not worth caching. Where
        the engine cannot cut, it caches nothing more."""
        req, before = self.reqs.pop(rid), self.books()
        prompt, owned, start = len(req.origin_input_ids), req.kv.kv_committed_len, req.kv.cache_protected_len
        req.finished_reason = FINISH_LENGTH(len(req.output_ids))
        req.finished_len = len(req.output_ids)
        if max(prompt, start) < keep < owned:
            req.finished_len = keep - prompt
        elif keep == prompt < owned:
            req.reasoning_tokens = req.finished_len
        elif keep < owned:
            publish = False
        release_kv_cache(req, self.tree, checkpoint=publish)
        return self.given_back(req, start, before)

    def retract(self, rid: ReqId) -> Reply:
        """release_req could also make room for those who go on: that is what evict is asked for here."""
        before = self.books()
        release_req(req=self.reqs[rid], remaing_req_count=0, req_to_token_pool=self.rows, tree_cache=self.tree,
                    token_to_kv_pool_allocator=self.slots, hisparse_coordinator=None)  # fmt: skip
        return Reply(freed=self.freed(before))

    def abort(self, rid: ReqId) -> Reply:
        """Dropped from the waiting queue; or ended, with what it has computed published unless it still prefills."""
        req, before = self.reqs.pop(rid), self.books()
        start = req.kv.cache_protected_len
        if runs(req):
            req.to_finish = FINISH_ABORT()
            req.update_finish_state()
            release_kv_cache(req, self.tree, checkpoint=not req.inflight_middle_chunks)
            return self.given_back(req, start, before)
        self.tree.finish(req.cache_request_handle, CacheRequestOutcome.ABORT)
        return Reply(freed=self.freed(before))

    def given_back(self, req: Any, start: int, before: Books) -> Reply:
        """What an ended request left: its record still says how far it was published."""
        end = req.kv.cache_protected_len
        return Reply(published={req.rid: end} if end > start else {}, freed=self.freed(before))

    # ---- the cache

    def evict(self, n: int) -> Reply:
        before = self.books()
        self.tree.evict(EvictParams(num_tokens=n * self.page_size))
        return Reply(evicted=self.evicted(before))

    def flush(self) -> Reply | Refused:
        """The scheduler's flush_cache wants to be idle: nobody runs and nobody waits."""
        if self.reqs:
            return Refused()
        before = self.books()
        self.tree.reset()
        self.rows.clear()
        self.slots.clear()
        return Reply(evicted=self.evicted(before), freed=self.freed(before))

    # ---- the books

    def books(self) -> Books:
        return Books(Counter(self.free_pages()), Counter(self.rows.free_slots), self.cached_pages())

    def free_pages(self) -> list[PageId]:
        pages: list[PageId] = self.slots.get_all_free_pages().tolist()
        return pages

    def cached_pages(self) -> set[PageId]:
        return set() if self.kind.disable else {slot // self.page_size for slot in values(self.tree)}

    def evicted(self, before: Books) -> set[PageId]:
        """What left the cache since."""
        return before.cached - self.cached_pages()

    def freed(self, before: Books) -> Freed:
        """What came onto the free lists since and was not in the cache before, as often as it stands there."""
        now = self.books()
        pages = now.pages - before.pages - Counter(before.cached - now.cached)
        return Freed(tuple(pages.elements()), tuple((now.rows - before.rows).elements()))

    def records(self) -> dict[Holder, Any]:
        """Every record that a live request holds."""
        return {rid: req.kv for rid, req in self.reqs.items() if req.kv.holds_kv}

    def row(self, kv: Any) -> list[Slot]:
        """All columns of a record's row."""
        columns: list[Slot] = self.rows.req_to_token[kv.req_pool_idx].tolist()
        return columns

    def view(self) -> View:
        records, size = self.records(), self.page_size
        sizes = (self.slots.available_size(), self.tree.evictable_size(), self.tree.protected_size())
        private = sum(kv_private_tokens(kv, size) for kv in records.values())
        return View(
            free_rows=list(self.rows.free_slots),
            free_pages=self.free_pages(),
            records={
                holder: RecordView(kv.req_pool_idx, kv.cache_protected_len, kv.kv_committed_len, kv.kv_allocated_len)
                for holder, kv in records.items()
            },
            table={holder: self.row(kv)[: kv.kv_allocated_len] for holder, kv in records.items()},
            cached={} if self.kind.disable else self.kind.cached(self),
            totals=Totals(*(tokens // size for tokens in (*sizes, private))),
        )

    # ---- content, and the numbers that stand for tokens and namespaces

    def write(self, slots: Sequence[Slot], tags: Sequence[int]) -> None:
        for slot, tag in zip(slots, tags, strict=True):
            self.content[slot] = tag

    def read(self, holder: Holder) -> list[int]:
        kv = self.records().get(holder)
        return [] if kv is None else [self.content[slot] for slot in self.row(kv)[: kv.kv_committed_len]]

    def number(self, kind: str, thing: Hashable) -> int:
        return self.numbers.setdefault((kind, thing), len(self.numbers))

    def ids(self, tokens: Iterable[Token]) -> array[int]:
        return array("q", [self.number("token", token) for token in tokens])


class Model:
    """All that is asked of a model's configuration."""

    is_encoder_decoder = False


def runs(req: Any) -> bool:
    """Whether it has extended since it last waited."""
    return bool(req.extend_batch_idx)


# ---- the pages of a tree: what it lists, under which key, with how many locks


def values(tree: Any) -> list[Slot]:
    """Every slot of the tree, page by page."""
    found: list[Slot] = tree.all_values_flatten().tolist()
    return found


def nodes(tree: Any) -> Iterator[tuple[tuple[Hashable, ...], list[Slot], int]]:
    """Each node of a tree that is made of Python objects: its prefix with the namespace in front, its slots, locks."""
    root = tree.root_node if isinstance(tree, RadixCache) else tree.tree_core.root_node
    stack = [((child.key.extra_key,), child) for child in root.children.values()]
    while stack:
        prefix, node = stack.pop()
        prefix = (*prefix, *node.key.raw_token_ids())
        full = node.component_data[ComponentType.FULL] if hasattr(node, "component_data") else node
        yield prefix, full.value.tolist(), full.lock_ref
        stack += [(prefix, child) for child in node.children.values()]


def cached_nodes(engine: SGLang) -> dict[PageId, CachedView]:
    """Page by page, the prefix that ends with it."""
    found = {}
    for prefix, slots, locks in nodes(engine.tree):
        first = len(prefix) - len(slots)
        for at in range(0, len(slots), engine.page_size):
            key = prefix[: first + at + engine.page_size]
            found[slots[at] // engine.page_size] = CachedView(key, locks)
    return found


def cached_rust(engine: SGLang) -> dict[PageId, CachedView]:
    """The Rust core tells pages and whether they are locked, not tokens and counts: a page is its own key here, and of
    a locked page the receipts on its path are counted that the engine's requests hold."""
    core, size = engine.tree.tree_core, engine.page_size
    pages, unlocked = (
        {slot // size for slot in core.walk_for_kv_canary(only, False).slot_indices.tolist()} for only in (False, True)
    )
    receipts = Counter(
        slot // size
        for lock in (req.lock for req in engine.reqs.values())
        if lock is not None
        for slot in engine.tree.path_device_indices(lock.node)[::size].tolist()
    )
    return {page: CachedView(page, 0 if page in unlocked else max(1, receipts[page])) for page in pages}


def unified(core: str, params: Any) -> Any:
    """The tree of 0.5.23, with one of its two cores."""
    return UnifiedRadixCache(replace(params, tree_components=(ComponentType.FULL,), tree_core_backend=core))


PYTHON = Kind("sglang", partial(unified, "python"), cached_nodes)
RUST = PYTHON._replace(name="sglang-rust", tree=partial(unified, "rust"), cached=cached_rust)
RADIX = PYTHON._replace(name="sglang-radix", tree=RadixCache)
NO_CACHE = PYTHON._replace(name="sglang-no-cache", disable=True)

make = partial(SGLang, PYTHON)
make_rust = partial(SGLang, RUST)
make_radix = partial(SGLang, RADIX)
make_no_cache = partial(SGLang, NO_CACHE)
make_unasked = partial(SGLang, PYTHON._replace(name="sglang-unasked", asks=False))
