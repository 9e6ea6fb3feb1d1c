"""SGLang under the law, whatever its generation: its own pools, trees, sessions and requests, called as its scheduler
calls them.

What is real: ReqToTokenPool, the two allocators, the prefix caches, the sessions and their SessionController, Req,
ScheduleBatch as the carrier of a batch, and every function between them. What the scheduler does between those calls is
done here in its order, and nothing is repaired. Kept are ids: a request's Req, who is admitted, and the numbers that
stand for tokens and namespaces. What an answer says was evicted, freed or published is read off the engine's books,
before the call and after it.

A generation is a subclass, sglang_0_5_10.py and on: it names its functions, and has its own way of what it does
otherwise. Before it allocates, the scheduler asks for room, and so does an engine here, unless it is built not to.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, TypeVar

from kvledger.spec.action import name_of
from kvledger.spec.backend import Action, Declaration, Freed, RecordView, Refused, Reply, Totals, View, World
from kvledger.spec.world import Holder, Namespace, PageId, ReqId, Row, SessionId, Slot, Token
from kvledger.tests.engines.sglang_start import VERSION
from kvledger.tests.engines.sglang_trees import Tree

# isort: split
import torch
from sglang.srt.managers.io_struct import CloseSessionReqInput, OpenSessionReqInput
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH, Req, ScheduleBatch
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import evict_from_tree_cache, release_kv_cache
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils.common import ceil_align, get_num_new_pages

T = TypeVar("T")
CACHE = frozenset({"PREFIX_CACHE", "LEAF_FIRST", "EVICT", "CHECKPOINT"})
CAPABILITIES = CACHE | {"ROWS", "PAGED", "CHUNKED", "SESSIONS", "SPLIT_ADMIT", "VIEW", "CONTENT"}
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


class SGLang(ABC):
    """One engine: pools, tree, sessions, and the requests that a scheduler would have in its queues."""

    # What a generation names: what it can, what it is never asked for, its SessionController, the Req's field that
    # counts chunks on their way, and the law's number of its first row.
    capabilities: ClassVar[frozenset[str]] = CAPABILITIES
    declines: ClassVar[frozenset[str]] = frozenset()
    controller: ClassVar[type[Any]]
    chunks: ClassVar[str] = "inflight_middle_chunks"
    first_row: ClassVar[Row] = 0

    def __init__(self, tree: Tree, world: World, asks: bool = True) -> None:
        size, tokens = world.page_size, world.pages * world.page_size
        kind = TokenToKVPoolAllocator if size == 1 else partial(PagedTokenToKVPoolAllocator, page_size=size)
        self.kind, self.asks, self.page_size, self.width = tree, asks, size, world.context_len
        self.rows = ReqToTokenPool(world.rows, world.context_len, "cpu", enable_memory_saver=False)
        self.slots = kind(size=tokens, dtype=torch.float16, device="cpu", kvcache=BUFFERS, need_sort=False)
        self.tree = tree.build(CacheInitParams(tree.disable, self.rows, self.slots, size))
        self.tree.pretty_print = lambda: None  # part of its out-of-memory message
        self.sessions = self.controller(self.tree)
        self.reqs: dict[ReqId, Any] = {}
        self.admitted: set[ReqId] = set()
        self.numbers: dict[tuple[str, Hashable], int] = {}
        self.content = [0] * (tokens + size)

    def declare(self) -> Declaration:
        lacks = (CACHE if self.kind.disable else set()) | (set() if self.kind.sessions else {"SESSIONS"})
        return Declaration(self.kind.name, VERSION, self.capabilities - lacks, PUBLISHES_ON, declines=self.declines)

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
            self.begin_turn(req)
        self.reqs[rid] = req
        return Reply()

    def match_prefix(self, rid: ReqId) -> Reply:
        req = self.reqs[rid]
        req.init_next_round_input(self.tree)
        return Reply(matched=[self.match(req)])

    def admit(self, rid: ReqId) -> Reply:
        req, before = self.reqs[rid], self.books()
        self.take_in(req)
        return Reply(matched=[] if holds(self.record(req)) else [self.match(req)], freed=self.freed(before))

    def defer(self, rid: ReqId) -> Reply:
        before = self.books()
        self.give_up(self.reqs[rid])
        return Reply(freed=self.freed(before))

    def take_in(self, req: Any) -> None:
        """Admission: match, then lock what was found. A later turn borrows its session's record in the match."""
        req.init_next_round_input(self.tree)
        self.lock(req)
        self.admitted.add(req.rid)

    def give_up(self, req: Any) -> None:
        """It does not start after all, and will be matched again."""
        self.unlock(req)
        self.admitted.remove(req.rid)

    # ---- it grows

    def extend(self, members: Sequence[tuple[ReqId, int, Token | None]]) -> Reply | Refused:
        """Each that waits is admitted; then the batch allocates, all of it or nothing."""
        reqs, ends = [self.reqs[rid] for rid, _, _ in members], [upto for _, upto, _ in members]
        before = self.books()
        waiting = [req for req in reqs if not runs(req) and req.rid not in self.admitted]
        for req in waiting:
            self.take_in(req)
        trimmed = self.freed(before)
        for req in reqs:
            if runs(req):
                self.go_on(req)
        fresh = [req for req in reqs if not holds(self.record(req))]
        batch, before = self.batch(reqs, ends), self.books()
        batch.prefix_lens = [self.prefix_len(req) for req in reqs]
        batch.extend_lens = [upto - prefix for prefix, upto in zip(batch.prefix_lens, ends, strict=True)]
        batch.extend_num_tokens = sum(batch.extend_lens)
        short = "rows" if len(fresh) > self.rows.available_size() else "pages"
        try:
            room = short != "rows" and self.room(batch.prefix_lens, ends)
            slots = self.allocated(room, partial(self.allocate_extend, batch))
        except NoRoom:
            for req in waiting:
                self.give_up(req)
            return Refused(short, self.evicted(before), trimmed)
        for req, (_, upto, token) in zip(reqs, members, strict=True):
            if not runs(req) or self.half_prefilled(req):  # else it decodes in a batch of others that prefill
                self.reach(req, upto)
            req.extend_batch_idx += 1
            setattr(req, self.chunks, int(token is None))
            if token is not None:
                req.output_ids.append(self.number("token", token))
        return Reply(
            rows=[self.first_row + self.record(req).req_pool_idx for req in fresh],
            matched=[self.row(self.record(req))[:prefix] for req, prefix in zip(reqs, batch.prefix_lens, strict=True)
                     if req in fresh],
            slots=[part.tolist() for part in slots.split(batch.extend_lens)],
            evicted=self.evicted(before),
            freed=trimmed,
        )  # fmt: skip

    def decode(self, members: Sequence[tuple[ReqId, Token]]) -> Reply | Refused:
        """One more column for each. Where there is no room for all, the scheduler retracts one and asks again."""
        reqs, before = [self.reqs[rid] for rid, _ in members], self.books()
        batch = self.batch(reqs, [self.length(req) for req in reqs])
        try:
            slots = self.allocated(batch.check_decode_mem(), partial(self.allocate_decode, batch))
        except NoRoom:
            return Refused("pages", self.evicted(before))
        for req, (_, token) in zip(reqs, members, strict=True):
            req.output_ids.append(self.number("token", token))
        return Reply(slots=slots[:, None].tolist(), evicted=self.evicted(before))

    def batch(self, reqs: list[Any], lengths: list[int]) -> Any:
        """The scheduler's batch, with what the allocation functions read of it."""
        batch = ScheduleBatch(reqs=reqs, req_to_token_pool=self.rows, token_to_kv_pool_allocator=self.slots,
                              tree_cache=self.tree, model_config=MODEL, device="cpu")  # fmt: skip
        batch.spec_algorithm = SpeculativeAlgorithm.NONE
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor(lengths)
        rows = torch.tensor([self.record(req).req_pool_idx or 0 for req in reqs])
        batch.req_pool_indices = batch.req_pool_indices_cpu = rows
        return batch

    def room(self, now: list[int], then: list[int]) -> bool:
        """Whether slots can be had for rows to grow so far, when all has been evicted that may be."""
        pages = get_num_new_pages(torch.tensor(then), self.page_size, torch.tensor(now))
        evict_from_tree_cache(self.tree, pages * self.page_size)
        fits: bool = self.slots.available_size() >= pages * self.page_size
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
        record = self.record(req)
        start = record.cache_protected_len
        self.reach(req, min(upto, self.reached(req)))
        self.publish(req)
        end = record.cache_protected_len
        return Reply(slots=[self.row(record)[start:end]], published={rid: end}, freed=self.freed(before))

    # ---- it ends

    def finish(self, rid: ReqId, keep: int, publish: bool) -> Reply:
        """The output may have been cut, where the engine can cut it; where not, nothing more is cached."""
        req, before = self.reqs.pop(rid), self.books()
        start = self.record(req).cache_protected_len
        req.finished_reason = FINISH_LENGTH(len(req.output_ids))
        req.finished_len = len(req.output_ids)
        return self.ended(req, start, self.release(req, self.cut(req, keep) and publish), before)

    def retract(self, rid: ReqId) -> Reply:
        """Its release could also make room for those who go on: that is what evict is asked for here."""
        before = self.books()
        self.preempt(self.reqs[rid])
        self.admitted.discard(rid)
        return Reply(freed=self.freed(before))

    def abort(self, rid: ReqId) -> Reply:
        """Dropped from the waiting queue; or ended, with what it has computed published unless it still prefills."""
        req, before = self.reqs.pop(rid), self.books()
        start = end = self.record(req).cache_protected_len
        if runs(req):
            req.finished_reason = FINISH_ABORT()
            end = self.release(req, not self.half_prefilled(req))
        else:
            if rid in self.admitted:
                self.give_up(req)
            self.drop(req)
        return self.ended(req, start, end, before)

    def ended(self, req: Any, start: int, end: int, before: Books) -> Reply:
        """A close that waited for this is made up for."""
        self.admitted.discard(req.rid)
        self.sessions.maybe_reap(time.monotonic(), interval=-1)
        return Reply(published={req.rid: end} if end > start else {}, freed=self.freed(before))

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
        return Books(Counter(self.free_pages()), Counter(self.free_rows()), set(self.cached()))

    def free_rows(self) -> list[Row]:
        return [self.first_row + row for row in self.rows.free_slots]

    def cached(self) -> dict[PageId, Any]:
        """What the tree lists."""
        return {} if self.kind.disable else self.kind.cached(self.tree, self.locks())

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
        lent = {self.lender(req) for req in self.reqs.values() if runs(req)}
        held: dict[Holder, Any] = {
            name: self.record(slot) for name, slot in self.session_slots().items() if name not in lent
        }
        held |= {rid: self.record(req) for rid, req in self.reqs.items() if runs(req) or self.lender(req) is None}
        return {holder: record for holder, record in held.items() if holds(record)}

    def lender(self, req: Any) -> SessionId | None:
        """The session whose row this request has."""
        slot = None if req.session is None else self.session_slots().get(req.session.session_id)
        lent = slot is not None and self.record(slot).req_pool_idx == self.record(req).req_pool_idx
        return req.session.session_id if lent else None

    def row(self, record: Any) -> list[Slot]:
        """All columns of a record's row."""
        columns: list[Slot] = self.rows.req_to_token[record.req_pool_idx].tolist()
        return columns

    def view(self) -> View:
        records, size = self.records(), self.page_size
        private = sum(ceil_align(each.kv_allocated_len, size) - each.cache_protected_len for each in records.values())
        sizes = (self.slots.available_size(), self.tree.evictable_size(), self.tree.protected_size(), private)
        return View(
            free_rows=self.free_rows(),
            free_pages=self.free_pages(),
            records={
                holder: RecordView(self.first_row + each.req_pool_idx, each.cache_protected_len,
                                   each.kv_committed_len, each.kv_allocated_len)
                for holder, each in records.items()
            },
            table={holder: self.row(each)[: each.kv_allocated_len] for holder, each in records.items()},
            cached=self.cached(),
            totals=Totals(*(tokens // size for tokens in sizes)),
        )  # fmt: skip

    # ---- content, and the numbers that stand for tokens and namespaces

    def write(self, slots: Sequence[Slot], tags: Sequence[int]) -> None:
        for slot, tag in zip(slots, tags, strict=True):
            self.content[slot] = tag

    def read(self, holder: Holder) -> list[int]:
        record = self.records().get(holder)
        return [] if record is None else [self.content[slot] for slot in self.row(record)[: record.kv_committed_len]]

    def number(self, kind: str, thing: Hashable) -> int:
        return self.numbers.setdefault((kind, thing), len(self.numbers))

    def ids(self, tokens: Iterable[Token]) -> Sequence[int]:
        return array("q", [self.number("token", token) for token in tokens])

    # ---- what a generation may have its own way of: here as it was before 0.5.23

    def length(self, req: Any) -> int:
        """How far it is computed."""
        committed: int = self.record(req).kv_committed_len
        return committed

    def half_prefilled(self, req: Any) -> bool:
        """Whether chunks of it are still to come."""
        return bool(getattr(req, self.chunks))

    def match(self, req: Any) -> list[Slot]:
        """What was found in the cache."""
        slots: list[Slot] = req.prefix_indices.tolist()
        return slots

    def prefix_len(self, req: Any) -> int:
        """From where it extends."""
        return len(req.prefix_indices)

    def go_on(self, req: Any) -> None:
        """A later chunk goes on where the last one ended: as without a cache, where nobody has published it."""
        req.init_next_round_input()
        columns = self.rows.req_to_token[self.record(req).req_pool_idx, : self.length(req)]
        req.prefix_indices = columns.to(torch.int64)

    def publish(self, req: Any) -> None:
        """What its extend reached goes to the cache, between two chunks or after the last."""
        self.tree.cache_unfinished_req(req, chunked=self.half_prefilled(req))

    def cut(self, req: Any, keep: int) -> bool:
        """Have no more of it kept, as far as the engine can; whether that may be published."""
        return keep == self.length(req)

    def release(self, req: Any, publish: bool) -> int:
        """Give back what it holds; how far it is published then, which its record does not say."""
        start, owned, turn = self.record(req).cache_protected_len, self.owned(req), req.session is not None
        release_kv_cache(req, self.tree, is_insert=publish)
        listed = publish and not turn and not req.skip_radix_cache_insert
        return self.listed(req, start, owned) if listed else start

    def listed(self, req: Any, start: int, upto: int) -> int:
        """How far the cache lists its tokens."""
        keys, size = {each.key for each in self.cached().values()}, self.page_size
        tokens = (req.extra_key, *req.origin_input_ids, *req.output_ids)
        ends = range(start + size, upto + 1, size)
        return next((end - size for end in ends if tokens[: 1 + end] not in keys), start + len(ends) * size)

    def owned(self, req: Any) -> int:
        """How far it owns its KV when it is released."""
        return self.length(req)

    def locks(self) -> list[Any]:
        """The receipts of those who read the cache now, where there are any."""
        return []

    @abstractmethod
    def record(self, holder: Any) -> Any:
        """What keeps a request's row and lengths, or a session's."""

    @abstractmethod
    def session_slots(self) -> Mapping[SessionId, Any]:
        """The sessions that keep a record."""

    @abstractmethod
    def free_pages(self) -> list[PageId]:
        """As the allocator lists them."""

    @abstractmethod
    def begin_turn(self, req: Any) -> None:
        """What Session.create_req notes, which appends to the last turn and no more."""

    @abstractmethod
    def lock(self, req: Any) -> None:
        """Lock what was matched."""

    @abstractmethod
    def unlock(self, req: Any) -> None:
        """And let go of it."""

    @abstractmethod
    def reach(self, req: Any, upto: int) -> None:
        """Say how far its last extend went."""

    @abstractmethod
    def reached(self, req: Any) -> int:
        """How far its last extend went."""

    @abstractmethod
    def allocate_extend(self, batch: Any) -> Any:
        """Rows and slots: the slots, one after the other."""

    @abstractmethod
    def allocate_decode(self, batch: Any) -> Any:
        """One slot each."""

    @abstractmethod
    def preempt(self, req: Any) -> None:
        """Give back what it holds, so that it waits again."""

    @abstractmethod
    def drop(self, req: Any) -> None:
        """It leaves the waiting queue for good."""


def holds(record: Any) -> bool:
    """Whether a row is registered."""
    return record.req_pool_idx is not None


def runs(req: Any) -> bool:
    """Whether it has extended since it last waited."""
    return bool(req.extend_batch_idx)
