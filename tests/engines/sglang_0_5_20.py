"""SGLang 0.5.20: the record is req.kv, a ReqKvInfo that a session shares with its turn.

A row is only reused if it carries allocated KV (sglang#37167). The tree is UnifiedRadixCache with its Python core; it
holds the sessions itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kvledger.spec.backend import Refused, Reply
from kvledger.spec.world import PageId, ReqId, SessionId, Token
from kvledger.tests.engines.sglang import CAPABILITIES, NoRoom, SGLang
from kvledger.tests.engines.sglang_trees import Tree, cached_nodes

# isort: split
import torch
from sglang.srt.managers.schedule_batch import release_req
from sglang.srt.mem_cache.allocation import alloc_for_decode, alloc_for_extend, alloc_for_spec_decode
from sglang.srt.mem_cache.allocation_sizing import page_aligned_decode_alloc_lens
from sglang.srt.mem_cache.base_prefix_cache import CacheRequestOutcome
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.session.session_controller import SessionController


class SGLang0520(SGLang):
    """Of the generations that have ReqKvInfo, the first that is here."""

    capabilities = CAPABILITIES | {"DRAFTS"}
    controller = SessionController

    def record(self, holder: Any) -> Any:
        return holder.kv

    def session_slots(self) -> Mapping[SessionId, Any]:
        slots: Mapping[SessionId, Any] = self.tree.session.slots if self.kind.sessions else {}
        return slots

    def free_pages(self) -> list[PageId]:
        pages: list[PageId] = self.slots.get_all_free_pages().tolist()
        return pages

    def begin_turn(self, req: Any) -> None:
        if req.session._inflight:
            raise RuntimeError("Streaming session already has an active request.")
        req.session._inflight = True

    def lock(self, req: Any) -> None:
        req.lock_receipt = self.tree.inc_lock_ref(req.last_node).to_dec_params()

    def unlock(self, req: Any) -> None:
        self.tree.dec_lock_ref(req.last_node, req.lock_receipt)

    def reach(self, req: Any, upto: int) -> None:
        req.set_extend_range(len(req.prefix_indices), upto)

    def reached(self, req: Any) -> int:
        end: int = req.extend_range.end
        return end

    def allocate_extend(self, batch: Any) -> Any:
        return alloc_for_extend(batch)[0]

    def allocate_decode(self, batch: Any) -> Any:
        return alloc_for_decode(batch, token_per_req=1)

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

    def cut(self, req: Any, keep: int) -> bool:
        """A turn is cut anywhere: its next one may go on there. Else down to the prompt: the output may be thinking
        that is not worth caching."""
        prompt, owned = len(req.origin_input_ids), self.length(req)
        if req.session and (keep < owned or self.half_prefilled(req)):
            self.stop(req, keep)
        elif keep == prompt < owned:
            req.reasoning_tokens = req.finished_len
        else:
            return keep == owned
        return True

    def stop(self, req: Any, keep: int) -> None:
        """Text and output end there."""
        req.finished_len = max(0, keep - len(req.origin_input_ids))
        req.origin_input_ids = req.origin_input_ids[:keep]

    def owned(self, req: Any) -> int:
        length: int = req.effective_kv_committed_len()
        return length

    def preempt(self, req: Any) -> None:
        release_req(req=req, remaing_req_count=0, req_to_token_pool=self.rows, tree_cache=self.tree,
                    token_to_kv_pool_allocator=self.slots, hisparse_coordinator=None)  # fmt: skip

    def drop(self, req: Any) -> None:
        self.tree.finish(req.cache_request_handle, CacheRequestOutcome.ABORT)


def unified(params: Any, **core: str) -> Any:
    """UnifiedRadixCache for full attention."""
    return UnifiedRadixCache(replace(params, tree_components=(ComponentType.FULL,), **core))


make = partial(SGLang0520, Tree("sglang-0.5.20", unified, cached_nodes))
