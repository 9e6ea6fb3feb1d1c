"""SGLang 0.5.23: a lock is a receipt on the request, and what is published its record says.

UnifiedRadixCache with its Python and its Rust core, or without a cache; and RadixCache. `make_unasked` does not ask for
room before it allocates, and shows what an out-of-memory error leaves behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from kvledger.spec.backend import CachedView
from kvledger.spec.world import PageId, Slot
from kvledger.tests.engines.sglang_0_5_20 import SGLang0520, unified
from kvledger.tests.engines.sglang_trees import Tree, cached_nodes

# isort: split
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.radix_cache import RadixCache


class SGLang0523(SGLang0520):
    """What is new since 0.5.20."""

    def lock(self, req: Any) -> None:
        req.lock = self.tree.lock(req.last_node)

    def unlock(self, req: Any) -> None:
        self.tree.unlock(req.lock)
        req.lock = None

    def locks(self) -> list[Any]:
        return [each.lock for each in (*self.reqs.values(), *self.session_slots().values()) if each.lock is not None]

    def match(self, req: Any) -> list[Slot]:
        slots: list[Slot] = self.tree.prefix_device_indices(req).tolist() if req.prefix_len else []
        return slots

    def prefix_len(self, req: Any) -> int:
        length: int = req.prefix_len
        return length

    def go_on(self, req: Any) -> None:
        req.init_next_round_input()
        req.prefix_len = req.kv.kv_committed_len

    def reach(self, req: Any, upto: int) -> None:
        req.extend_end = upto

    def reached(self, req: Any) -> int:
        end: int = req.extend_end
        return end

    def publish(self, req: Any) -> None:
        checkpoint_kv_cache(req, self.tree)

    def cut(self, req: Any, keep: int) -> bool:
        """The output can be cut by a stop."""
        cut = keep < self.length(req) or self.half_prefilled(req)
        if cut and not req.session and keep > max(len(req.origin_input_ids), req.kv.cache_protected_len):
            self.stop(req, keep)
            return True
        return super().cut(req, keep)

    def release(self, req: Any, publish: bool) -> int:
        kv = req.kv
        release_kv_cache(req, self.tree, checkpoint=publish)
        end: int = kv.cache_protected_len
        return end if kv is req.kv else 0  # of a turn its session says so from now on

    def drop(self, req: Any) -> None:
        super().drop(req)
        if req.session is not None:
            req.session.abort_req()


def cached_rust(tree: Any, locks: Iterable[Any]) -> dict[PageId, CachedView]:
    """The Rust core tells its pages and which are locked, not keys and counts. So a page is its own key here, which no
    other has; and a page that is locked has as many locks as receipts lie on its path, or one that nobody holds."""
    everything, unlocked = (
        set(in_pages(tree.tree_core.walk_for_kv_canary(only_unlocked, False).slot_indices, tree.page_size))
        for only_unlocked in (False, True)
    )
    read = Counter(page for lock in locks for page in in_pages(tree.path_device_indices(lock.node), tree.page_size))
    return {page: CachedView(page, 0 if page in unlocked else max(1, read[page])) for page in everything}


def in_pages(slots: Any, size: int) -> list[PageId]:
    """The pages of slots that fill them."""
    pages: list[PageId] = (slots[::size] // size).tolist()
    return pages


PYTHON = Tree("sglang", partial(unified, tree_core_backend="python"), cached_nodes)
RUST = Tree("sglang-rust", partial(unified, tree_core_backend="rust"), cached_rust)
RADIX = Tree("sglang-radix", RadixCache, cached_nodes, sessions=False)
NO_CACHE = PYTHON._replace(name="sglang-no-cache", disable=True)

make = partial(SGLang0523, PYTHON)
make_rust = partial(SGLang0523, RUST)
make_radix = partial(SGLang0523, RADIX)
make_no_cache = partial(SGLang0523, NO_CACHE)
make_unasked = partial(SGLang0523, PYTHON._replace(name="sglang-unasked"), asks=False)
