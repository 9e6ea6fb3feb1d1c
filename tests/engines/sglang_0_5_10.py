"""SGLang 0.5.10: the record's fields stand on the request, and SessionAwareCache keeps a copy of them for the session.

It lends its row by number. Rows count from 0, there is no padding row: the law's row is the engine's and one more. Who
allocates sets the lengths, as ScheduleBatch.prepare_for_extend and prepare_for_decode do. There is nothing that bars a
request from publishing, and no output is cut: what a turn has computed, its session keeps. DRAFTS cannot be asked for:
EagleDraftInput.prepare_for_decode reserves twice a constant of the server's settings, not a number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from kvledger.spec.world import PageId, SessionId, Token, World
from kvledger.tests.engines.sglang import SGLang
from kvledger.tests.engines.sglang_start import settings
from kvledger.tests.engines.sglang_trees import Tree, cached_nodes

# isort: split
import torch
from sglang.srt.managers.session_controller import SessionController, SessionReqNode
from sglang.srt.mem_cache.common import alloc_for_decode, alloc_for_extend
from sglang.srt.mem_cache.radix_cache import RadixCache
from sglang.srt.mem_cache.session_aware_cache import SessionAwareCache


class SGLang0510(SGLang):
    """Of the generations whose Req has the record's fields."""

    declines = frozenset({"BARRED"})
    controller = SessionController
    chunks = "is_chunked"
    first_row = 1

    def __init__(self, tree: Tree, world: World) -> None:
        super().__init__(tree, world)
        settings.page_size = world.page_size  # read by release_kv_cache

    def record(self, holder: Any) -> Any:
        return holder

    def session_slots(self) -> Mapping[SessionId, Any]:
        slots: Mapping[SessionId, Any] = self.tree.slots
        return slots

    def free_pages(self) -> list[PageId]:
        pages: list[PageId] = torch.cat((self.slots.free_pages, self.slots.release_pages)).tolist()
        return pages

    def ids(self, tokens: Iterable[Token]) -> list[int]:
        return list(super().ids(tokens))

    def begin_turn(self, req: Any) -> None:
        nodes = req.session.req_nodes
        if nodes:
            _, last = nodes.popitem()
            last.req.session = None
        nodes[req.rid] = SessionReqNode(req)

    def lock(self, req: Any) -> None:
        self.tree.inc_lock_ref(req.last_node)

    def unlock(self, req: Any) -> None:
        self.tree.dec_lock_ref(req.last_node)

    def reach(self, req: Any, upto: int) -> None:
        req.fill_ids = req.fill_ids[:upto]

    def reached(self, req: Any) -> int:
        return len(req.fill_ids)

    def allocate_extend(self, batch: Any) -> Any:
        slots, *_ = alloc_for_extend(batch)
        for req, length in zip(batch.reqs, batch.seq_lens.tolist(), strict=True):
            req.kv_committed_len = req.kv_allocated_len = length
        return slots

    def allocate_decode(self, batch: Any) -> Any:
        slots = alloc_for_decode(batch, token_per_req=1)
        for req in batch.reqs:
            req.kv_committed_len += 1
            req.kv_allocated_len += 1
        return slots

    def preempt(self, req: Any) -> None:
        self.batch([req], [self.length(req)]).release_req(0, remaing_req_count=0, server_args=settings)

    def drop(self, req: Any) -> None:
        """Its session takes no notice."""


def session_aware(params: Any) -> Any:
    """The tree with sessions around it."""
    return SessionAwareCache(RadixCache(params))


make = partial(SGLang0510, Tree("sglang-0.5.10", session_aware, cached_nodes))
