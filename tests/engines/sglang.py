"""SGLang 0.5.23 under the law: its own pools, trees, sessions and requests, called as its scheduler calls them.

What is real: ReqToTokenPool, the two allocators, UnifiedRadixCache with its Python and its Rust core, RadixCache,
StreamingSession and SessionController, Req, ScheduleBatch as the carrier of a batch, and every function between them:
match, lock, alloc_for_extend, alloc_for_decode, alloc_for_spec_decode, checkpoint_kv_cache, release_kv_cache,
release_req, evict, reset. What the scheduler does between those calls is done here in its order, and nothing is
repaired. Kept are ids: a request's Req, and the numbers that stand for tokens and namespaces. What an answer says was
evicted, freed or published is read off the engine's books, before the call and after it.

Before it allocates, the scheduler asks for room, and so does `make`; `make_unasked` does not, and shows what an
out-of-memory error leaves behind.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from kvledger.spec.action import name_of
from kvledger.spec.backend import Action, Declaration, Freed, RecordView, Refused, Reply, Totals, View, World
from kvledger.spec.world import Holder, Namespace, PageId, ReqId, Row, SessionId, Slot, Token
from kvledger.tests.engines.sglang_start import VERSION
from kvledger.tests.engines.sglang_trees import NO_CACHE, PYTHON, RADIX, RUST, Tree

# isort: split
import torch
from sglang.srt.managers.io_struct import CloseSessionReqInput, OpenSessionReqInput
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH, Req, ScheduleBatch, release_req
from sglang.srt.managers.scheduler_components.pool_stats_observer import kv_private_tokens
from sglang.srt.mem_cache.allocation import alloc_for_decode, alloc_for_extend, alloc_for_spec_decode
from sglang.srt.mem_cache.allocation_sizing import page_aligned_decode_alloc_lens
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import CacheRequestOutcome, EvictParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.session.session_controller import SessionController
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils.common import get_num_new_pages

T = TypeVar("T")
CACHE = frozenset({"PREFIX_CACHE", "LEAF_FIRST", "EVICT", "CHECKPOINT"})
CAPABILITIES = CACHE | {"ROWS", "PAGED", "CHUNKED", "DRAFTS", "SESSIONS", "SPLIT_ADMIT", "VIEW", "CONTENT"}
PUBLISHES_ON = frozenset({"checkpoint", "finish", "abort"})
SAMPLING = SamplingParams(temperature=0, max_new_tokens=1 << 20)
# All that is asked of the KV buffers, and of a model's configuration.
BUFFERS, MODEL = SimpleNamespace(device="cpu"), SimpleNamespace(is_encoder_decoder=False)


class NoRoom(Exception):
    """The engine says that it has none, or its allocation runs out of memory."""


class Books(NamedTuple):
    """What the engine lists as free and as cached, at one moment."""

    pages: Counter[PageId]
    rows: Counter[Row]
    cached: set[PageId]


class SGLang:
    """One engine: pools, tree, sessions, and the requests that a scheduler would have in its queues."""

    def __init__(self, tree: Tree, asks: bool, world: World) -> None:
        size, tokens = world.page_size, world.pages * world.page_size
        kind = TokenToKVPoolAllocator if size == 1 else partial(PagedTokenToKVPoolAllocator, page_size=size)
        self.kind, self.asks, self.page_size, self.width = tree, asks, size, world.context_len
        self.rows = ReqToTokenPool(world.rows, world.context_len, "cpu", enable_memory_saver=False)
        self.slots = kind(size=tokens, dtype=torch.float16, device="cpu", kvcache=BUFFERS, need_sort=False)
        self.tree = tree.build(CacheInitParams(tree.disable, self.rows, self.slots, size))
        self.tree.pretty_print = lambda: None  # part of its out-of-memory message
        self.sessions = SessionController(self.tree)
        self.reqs: dict[ReqId, Any] = {}
        self.numbers: dict[tuple[str, Hashable], int] = {}
        self.content = [0] * (tokens + size)

    def declare(self) -> Declaration:
        lacks = (CACHE if self.kind.disable else set()) | (set() if self.kind.sessions else {"SESSIONS"})
        return Declaration(self.kind.name, VERSION, CAPABILITIES - lacks, PUBLISHES_ON)

    def do(self, action: Action) -> Reply | Refused:
        """One method an action, with its fields."""
        answer: Reply | Refused = getattr(self, name_of(action))(*action)
        return answer

    # ---- a request comes

    def submit(self, rid: ReqId, tokens: Sequence[Token], namespace: Namespace, match_limit: int | None,
               publish: bool, session: SessionId | None) -> Reply:  # fmt: skip
        """It stands in the waiting queue. With a match_limit it is one that wants its prompt's log probabilities."""
        req = Req(rid, "", self.ids(tokens), SAMPLING, return_logprob=match_limit is not None,
                  extra_key=str(self.number("namespace", namespace)))  # fmt: skip
        req.logprob_start_len = -1 if match_limit is None else match_limit
        req.skip_radix_cache_insert = not publish
        if session is not None:
            if session not in self.sessions:
                self.sessions.open(OpenSessionReqInput(capacity_of_str_len=0, session_id=session, streaming=True))
            req.session = self.sessions.get(session)
            req.session._inflight = True  # as Session.create_req does, which appends to the last turn and no more
        self.reqs[rid] = req
        return Reply()

    def match_prefix(self, rid: ReqId) -> Reply:
        req = self.reqs[rid]
        req.init_next_round_input(self.tree)
        return Reply(matched=[self.match(req)])

    def admit(self, rid: ReqId) -> Reply:
        req, before = self.reqs[rid], self.books()
        self.take_in(req)
        return Reply(matched=[] if req.kv.holds_kv else [self.match(req)], freed=self.freed(before))

    def defer(self, rid: ReqId) -> Reply:
        before = self.books()
        self.give_up(self.reqs[rid])
        return Reply(freed=self.freed(before))

    def take_in(self, req: Any) -> None:
        """Admission: match, then lock what was found. A later turn borrows its session's record in the match."""
        req.init_next_round_input(self.tree)
        req.extend_end = req.prefix_len
        req.lock = self.tree.lock(req.last_node)

    def give_up(self, req: Any) -> None:
        """It does not start after all, and will be matched again."""
        self.tree.unlock(req.lock)
        req.lock = req.extend_end = None

    def match(self, req: Any) -> list[Slot]:
        slots: list[Slot] = self.tree.prefix_device_indices(req).tolist() if req.prefix_len else []
        return slots

    # ---- it grows

    def extend(self, members: Sequence[tuple[ReqId, int, Token | None]]) -> Reply | Refused:
        """Each that waits is admitted; then the batch allocates, all of it or nothing."""
        reqs, ends = [self.reqs[rid] for rid, _, _ in members], [upto for _, upto, _ in members]
        before = self.books()
        waiting = [req for req in reqs if waits(req)]
        for req in waiting:
            self.take_in(req)
        trimmed = self.freed(before)
        for req in reqs:
            if runs(req):  # a later chunk goes on where the last one ended
                req.init_next_round_input()
                req.prefix_len = req.kv.kv_committed_len
        fresh = [req for req in reqs if not req.kv.holds_kv]
        batch, before = self.batch(reqs, ends), self.books()
        batch.prefix_lens = [req.prefix_len for req in reqs]
        batch.extend_lens = [upto - req.prefix_len for req, upto in zip(reqs, ends, strict=True)]
        batch.extend_num_tokens = sum(batch.extend_lens)
        short = "rows" if len(fresh) > self.rows.available_size() else "pages"
        try:
            room = short != "rows" and self.room(batch.prefix_lens, ends)
            slots, *_ = self.allocated(room, partial(alloc_for_extend, batch))
        except NoRoom:
            for req in waiting:
                self.give_up(req)
            return Refused(short, self.evicted(before), trimmed)
        for req, (_, upto, token) in zip(reqs, members, strict=True):
            if not runs(req) or req.inflight_middle_chunks:  # else it decodes in a batch of others that prefill
                req.extend_end = upto
            req.extend_batch_idx += 1
            req.inflight_middle_chunks = int(token is None)
            if token is not None:
                req.output_ids.append(self.number("token", token))
        return Reply(
            rows=[req.kv.req_pool_idx for req in fresh],
            matched=[self.row(req.kv)[: req.prefix_len] for req in fresh],
            slots=[part.tolist() for part in slots.split(batch.extend_lens)],
            evicted=self.evicted(before),
            freed=trimmed,
        )

    def decode(self, members: Sequence[tuple[ReqId, Token]]) -> Reply | Refused:
        """One more column for each. Where there is no room for all, the scheduler retracts one and asks again."""
        reqs, before = [self.reqs[rid] for rid, _ in members], self.books()
        batch = self.batch(reqs, [req.kv.kv_committed_len for req in reqs])
        try:
            slots = self.allocated(batch.check_decode_mem(), partial(alloc_for_decode, batch, 1))
        except NoRoom:
            return Refused("pages", self.evicted(before))
        for req, (_, token) in zip(reqs, members, strict=True):
            req.output_ids.append(self.number("token", token))
        return Reply(slots=slots[:, None].tolist(), evicted=self.evicted(before))

    def reserve(self, rid: ReqId, n: int) -> Reply | Refused:
        """Slots for a verification of n tokens. A row is as wide as the context here, so the last page is cut there."""
        req, before = self.reqs[rid], self.books()
        if req.kv.kv_committed_len + n > self.width:
            return Refused()
        [now], [most], _ = page_aligned_decode_alloc_lens([req], reserve=n, page_size=self.page_size)
        end = min(most, self.width)
        batch, then = self.batch([req], [now]), torch.tensor([end])
        take = partial(
            alloc_for_spec_decode, self.tree, self.rows, reqs=[req], batch=batch, num_needed_tokens=end - now,
            req_pool_indices=batch.req_pool_indices, cur_kv_lens=batch.seq_lens, cur_kv_lens_cpu=batch.seq_lens_cpu,
            nxt_kv_lens=then, nxt_kv_lens_cpu=then,
        )  # fmt: skip
        try:
            self.allocated(self.room([now], [end]), take)
        except NoRoom:
            return Refused("pages", self.evicted(before))
        return Reply(slots=[self.row(req.kv)[now:end]], evicted=self.evicted(before))

    def commit(self, rid: ReqId, tokens: Sequence[Token]) -> Reply:
        """What processing a verification's result does."""
        req = self.reqs[rid]
        req.kv.kv_committed_len += len(tokens)
        req.output_ids.extend(self.ids(tokens))
        return Reply()

    def batch(self, reqs: list[Any], lengths: list[int]) -> Any:
        """The scheduler's batch, with what the allocation functions read of it."""
        batch = ScheduleBatch(reqs, self.rows, self.slots, self.tree, MODEL, device="cpu")
        batch.spec_algorithm = SpeculativeAlgorithm.NONE
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor(lengths)
        batch.req_pool_indices = batch.req_pool_indices_cpu = torch.tensor([req.kv.req_pool_idx or 0 for req in reqs])
        return batch

    def room(self, now: list[int], then: list[int]) -> bool:
        """Whether slots can be had for rows to grow so far, when all has been evicted that may be."""
        pages = get_num_new_pages(torch.tensor(then), self.page_size, torch.tensor(now))
        fits: bool = self.slots.check_decode_capacity(num_tokens=pages * self.page_size, tree_cache=self.tree)
        return fits

    def allocated(self, room: bool, allocate: Callable[[], T]) -> T:
        """What an allocation gives. Raises NoRoom."""
        if self.asks and not room:
            raise NoRoom
        try:
            return allocate()
        except RuntimeError as error:
            if "out of memory" not in str(error).lower():
                raise
            raise NoRoom from None

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
        """The output may have been cut by a stop; or, down to the prompt, be thinking that is not worth caching. Where
        the engine could not cut, nothing more is cached. A turn is cut anywhere: its next one may go on there."""
        req, before = self.reqs.pop(rid), self.books()
        prompt, owned, start = len(req.origin_input_ids), req.kv.kv_committed_len, req.kv.cache_protected_len
        req.finished_reason = FINISH_LENGTH(len(req.output_ids))
        req.finished_len = len(req.output_ids)
        cut = keep < owned or req.inflight_middle_chunks
        if cut and (req.session or keep > max(prompt, start)):
            req.origin_input_ids = req.origin_input_ids[:keep]
            req.finished_len = max(0, keep - prompt)
        elif keep == prompt < owned:
            req.reasoning_tokens = req.finished_len
        elif keep < owned:
            publish = False
        release_kv_cache(req, self.tree, checkpoint=publish)
        return self.ended(req, start, before)

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
            return self.ended(req, start, before)
        if not waits(req):
            self.give_up(req)
        self.tree.finish(req.cache_request_handle, CacheRequestOutcome.ABORT)
        if req.session is not None:
            req.session.abort_req()
        return self.ended(req, start, before)

    def ended(self, req: Any, start: int, before: Books) -> Reply:
        """A close that waited for this is made up for. How far the request published its record still says."""
        self.sessions.maybe_reap(time.monotonic(), interval=-1)
        end = req.kv.cache_protected_len
        return Reply(published={req.rid: end} if runs(req) and end > start else {}, freed=self.freed(before))

    def close(self, session: SessionId) -> Reply:
        before = self.books()
        self.sessions.close(CloseSessionReqInput(session_id=session))
        return Reply(freed=self.freed(before))

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
        return Books(Counter(self.free_pages()), Counter(self.rows.free_slots), set(self.cached()))

    def free_pages(self) -> list[PageId]:
        pages: list[PageId] = self.slots.get_all_free_pages().tolist()
        return pages

    def cached(self) -> dict[PageId, Any]:
        """What the tree lists."""
        slots = self.tree.session.slots.values() if self.kind.sessions else ()
        locks = [each.lock for each in (*self.reqs.values(), *slots) if each.lock is not None]
        return {} if self.kind.disable else self.kind.cached(self.tree, locks)

    def evicted(self, before: Books) -> set[PageId]:
        """What left the cache since."""
        return before.cached - set(self.cached())

    def freed(self, before: Books) -> Freed:
        """What came onto the free lists since and was not in the cache before, as often as it stands there."""
        now = self.books()
        pages = now.pages - before.pages - Counter(before.cached - now.cached)
        return Freed(tuple(pages.elements()), tuple((now.rows - before.rows).elements()))

    def records(self) -> dict[Holder, Any]:
        """Every record that holds KV, once: a session's under its own name, but while a turn runs on it."""
        held = {id(kv): (session, kv) for session, kv in self.tree.session_records().items()}
        held |= {id(req.kv): (rid, req.kv) for rid, req in self.reqs.items() if runs(req) or id(req.kv) not in held}
        return {holder: kv for holder, kv in held.values() if kv.holds_kv}

    def row(self, kv: Any) -> list[Slot]:
        """All columns of a record's row."""
        columns: list[Slot] = self.rows.req_to_token[kv.req_pool_idx].tolist()
        return columns

    def view(self) -> View:
        records, size = self.records(), self.page_size
        private = sum(kv_private_tokens(kv, size) for kv in records.values())
        sizes = (self.slots.available_size(), self.tree.evictable_size(), self.tree.protected_size(), private)
        return View(
            free_rows=list(self.rows.free_slots),
            free_pages=self.free_pages(),
            records={
                holder: RecordView(kv.req_pool_idx, kv.cache_protected_len, kv.kv_committed_len, kv.kv_allocated_len)
                for holder, kv in records.items()
            },
            table={holder: self.row(kv)[: kv.kv_allocated_len] for holder, kv in records.items()},
            cached=self.cached(),
            totals=Totals(*(tokens // size for tokens in sizes)),
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


def runs(req: Any) -> bool:
    """Whether it has extended since it last waited."""
    return bool(req.extend_batch_idx)


def waits(req: Any) -> bool:
    """Whether it is not even admitted."""
    return req.extend_end is None


make = partial(SGLang, PYTHON, True)
make_rust = partial(SGLang, RUST, True)
make_radix = partial(SGLang, RADIX, True)
make_no_cache = partial(SGLang, NO_CACHE, True)
make_unasked = partial(SGLang, PYTHON._replace(name="sglang-unasked"), False)
