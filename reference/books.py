"""The books as they are: what the real structures and their own counters say, for whoever checks them.

Nothing here is computed from what was answered. SGLang: pool statistics (managers/scheduler_components/).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from kvledger.reference.radix_cache import RadixCache, TreeNode
from kvledger.reference.request import KvHolder
from kvledger.spec.backend import CachedView, RecordView, Totals, View
from kvledger.spec.world import Holder, PageId


class Books:
    """Reads the pools behind a tree. names: cache keys by (key before, tokens of the page), interned across views."""

    def __init__(self, tree_cache: RadixCache) -> None:
        self.tree_cache = tree_cache
        self.names: dict[tuple[Hashable, Hashable], int] = {}

    def view(self, holders: Mapping[Holder, KvHolder]) -> View:
        """Everything, in pages and tokens as View has it. holders: the live requests and the sessions.

        A record is shown once, under whoever holds it: a turn while it runs, else its session.
        """
        tree, page_size = self.tree_cache, self.tree_cache.page_size
        pool, allocator = tree.req_to_token_pool, tree.token_to_kv_pool_allocator
        records = {
            name: RecordView(kv.row, kv.cache_protected_len, kv.kv_committed_len, kv.kv_allocated_len)
            for name, kv in ((name, holder.kv) for name, holder in holders.items())
            if kv.holds_kv
        }
        private = sum(-(-kv.allocated_len // page_size) - kv.protected_len // page_size for kv in records.values())
        return View(
            free_rows=list(pool.free_slots),
            free_pages=list(allocator.free_pages),
            records=records,
            table={name: pool.req_to_token[holders[name].kv.row][: kv.allocated_len] for name, kv in records.items()},
            cached=self.cached(),
            totals=Totals(
                available=allocator.available_size() // page_size,
                evictable=tree.evictable_size // page_size,
                protected=tree.protected_size // page_size,
                private=private,
            ),
        )

    def cached(self) -> dict[PageId, CachedView]:
        """Every page of the tree. Two keys are equal iff the namespace and all tokens up to the page's end are."""
        page_size = self.tree_cache.page_size
        shown: dict[PageId, CachedView] = {}
        paths: list[tuple[TreeNode, Hashable]] = [
            (child, ("namespace", child.key.extra_key)) for child in self.tree_cache.root_node.children.values()
        ]
        while paths:
            node, key = paths.pop()
            for start in range(0, len(node.value), page_size):
                tokens = node.key.token_ids[start : start + page_size]
                key = self.names.setdefault((key, tokens), len(self.names))
                shown[node.value[start] // page_size] = CachedView(key, node.lock_ref)
            paths += [(child, key) for child in node.children.values()]
        return shown
