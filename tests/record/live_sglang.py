"""A small serving loop over SGLang's own classes: what `kvledger record --of sglang` records, and measures.

It batches, prefills in chunks, decodes, checkpoints, finishes, aborts, retracts when memory is short, and holds
conversations of three turns, as the scheduler does, with no model. Nothing of kvledger is called in it.
"""

from __future__ import annotations

from array import array
from collections import deque
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from kvledger.tests.engines import sglang_start  # noqa: F401  # before anything of the engine's

# isort: split
import torch
from sglang.srt.managers.io_struct import CloseSessionReqInput, OpenSessionReqInput
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH, Req, ScheduleBatch, release_req
from sglang.srt.mem_cache.allocation import alloc_for_decode, alloc_for_extend
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.session.session_controller import SessionController
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

PAGE, PAGES, ROWS, WIDTH = 16, 56, 12, 512
RUNNING, TALKS, CHUNK, ANSWER = 6, 2, 64, 24
BUFFERS, MODEL = SimpleNamespace(device="cpu"), SimpleNamespace(is_encoder_decoder=False)


class Server:
    """Pools, tree, sessions, and the queues of a scheduler. actions: calls that give or take KV, so far."""

    def __init__(self, seed: int, page: int = PAGE, *, is_eagle: bool = False) -> None:
        self.random, self.page, size = Random(seed), page, PAGES * PAGE
        self.rows = ReqToTokenPool(ROWS, WIDTH, "cpu", enable_memory_saver=False)
        paged = partial(PagedTokenToKVPoolAllocator, page_size=page)
        kind = TokenToKVPoolAllocator if page == 1 else paged
        self.slots = kind(size=size, dtype=torch.float16, device="cpu", kvcache=BUFFERS, need_sort=False)
        self.tree = UnifiedRadixCache(CacheInitParams(
            False, self.rows, self.slots, page, is_eagle=is_eagle, tree_components=(ComponentType.FULL,),
            tree_core_backend="python",
        ))  # fmt: skip
        self.sessions = SessionController(self.tree)
        self.waiting: deque[Any] = deque()
        self.prefilling: list[Any] = []
        self.decoding: list[Any] = []
        self.arrived = self.actions = 0

    def serve(self, actions: int) -> None:
        """So many calls, and then on until everybody has ended."""
        while self.actions < actions or self.waiting or self.prefilling or self.decoding:
            while self.actions < actions and len(self.waiting) < RUNNING:
                self.arrive()
            self.round()

    def round(self) -> None:
        """Some start, each that prefills gets a chunk, each that decodes a token."""
        while self.waiting and len(self.prefilling) + len(self.decoding) < RUNNING and self.start():
            pass
        for req in self.prefilling:
            self.prefill(req)
        self.decoding += [req for req in self.prefilling if not req.inflight_middle_chunks]
        self.prefilling = [req for req in self.prefilling if req.inflight_middle_chunks]
        self.decode()

    def arrive(self) -> None:
        """One of four system prompts and a question; every fifth begins a conversation, unless there are enough."""
        self.arrived += 1
        question = [self.random.randrange(10, 99) for _ in range(self.random.randrange(8, 120))]
        req = self.request(f"r{self.arrived}", [self.arrived % 4] * 40 + question)
        if self.arrived % 5 == 0 and len(self.sessions.sessions) < TALKS:
            name = f"talk {self.arrived}"
            self.sessions.open(OpenSessionReqInput(capacity_of_str_len=0, session_id=name, streaming=True))
            self.join(req, name)
        self.waiting.append(req)

    def request(self, rid: str, tokens: list[int]) -> Any:
        return Req(rid, "", array("q", tokens), SamplingParams(temperature=0, max_new_tokens=ANSWER))

    def join(self, req: Any, name: str) -> None:
        """It is a turn of this conversation."""
        req.session = self.sessions.get(name)
        req.session._inflight = True

    def start(self) -> bool:
        """Who has waited longest is matched and locked, if there is room for it and for all who prefill."""
        req = self.waiting[0]
        req.init_next_round_input(self.tree)
        req.extend_end = req.prefix_len
        req.lock = self.tree.lock(req.last_node)
        left = [self.length(each) - each.extend_end + self.page for each in (*self.prefilling, req)]
        if not self.slots.check_decode_capacity(num_tokens=sum(left), tree_cache=self.tree):
            self.tree.unlock(req.lock)
            req.lock = None
            return False
        self.prefilling.append(self.waiting.popleft())
        return True

    def prefill(self, req: Any) -> None:
        """One chunk more; behind the last one a token is sampled. What it has is published."""
        if req.inflight_middle_chunks:
            req.init_next_round_input()
            req.prefix_len = req.kv.kv_committed_len
        upto = min(self.length(req), req.prefix_len + CHUNK)
        batch = self.batch([req], [upto])
        batch.prefix_lens, batch.extend_num_tokens = [req.prefix_len], upto - req.prefix_len
        batch.extend_lens = [batch.extend_num_tokens]
        need = batch.extend_num_tokens + self.page
        while not self.slots.check_decode_capacity(num_tokens=need, tree_cache=self.tree):
            self.retract(self.decoding.pop())
        alloc_for_extend(batch)
        req.extend_end, req.inflight_middle_chunks = upto, int(upto < self.length(req))
        if not req.inflight_middle_chunks:
            self.sample(req)
        checkpoint_kv_cache(req, self.tree)
        self.actions += 2

    def decode(self) -> None:
        """A token for each; when there is no room for all, the last one gives way."""
        while self.decoding:
            batch = self.batch(self.decoding, [req.kv.kv_committed_len for req in self.decoding])
            if batch.check_decode_mem():
                break
            self.retract(self.decoding.pop())
        if not self.decoding:
            return
        alloc_for_decode(batch, 1)
        self.actions += 1
        for req in self.decoding:
            self.sample(req)
        for req in list(self.decoding):
            if len(req.output_ids) >= ANSWER:
                self.end(req)

    def length(self, req: Any) -> int:
        return len(req.origin_input_ids) + len(req.output_ids)

    def sample(self, req: Any) -> None:
        req.output_ids.append(self.random.randrange(100, 199))

    def end(self, req: Any) -> None:
        """It has said enough, or its client is gone. A conversation has three turns."""
        self.decoding.remove(req)
        gone = self.random.random() < 0.1
        if gone:
            req.finished_reason = FINISH_ABORT("gone")
        else:
            req.finished_reason, req.finished_len = FINISH_LENGTH(len(req.output_ids)), len(req.output_ids)
        session, tokens = req.session, [*req.origin_input_ids, *req.output_ids]
        release_kv_cache(req, self.tree, checkpoint=not gone)
        self.actions += 1
        if session is None:
            return
        if gone or len(tokens) > 200:
            self.sessions.close(CloseSessionReqInput(session_id=session.session_id))
            return
        self.arrived += 1
        turn = self.request(f"r{self.arrived}", tokens + [self.random.randrange(10, 99) for _ in range(20)])
        self.join(turn, session.session_id)
        self.waiting.append(turn)

    def retract(self, req: Any) -> None:
        """It gives back what it has and waits again, in front."""
        release_req(req=req, remaing_req_count=0, req_to_token_pool=self.rows, tree_cache=self.tree,
                    token_to_kv_pool_allocator=self.slots, hisparse_coordinator=None)  # fmt: skip
        self.waiting.appendleft(req)
        self.actions += 1

    def batch(self, reqs: list[Any], lengths: list[int]) -> Any:
        batch = ScheduleBatch(reqs, self.rows, self.slots, self.tree, MODEL, device="cpu")
        batch.spec_algorithm = SpeculativeAlgorithm.NONE
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor(lengths)
        batch.req_pool_indices = batch.req_pool_indices_cpu = torch.tensor([req.kv.req_pool_idx or 0 for req in reqs])
        return batch
