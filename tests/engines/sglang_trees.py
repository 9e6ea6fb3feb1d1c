"""SGLang's prefix caches, and what each lists: its pages, under which key, with how many locks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from kvledger.spec.backend import CachedView
from kvledger.spec.world import PageId, Slot
from kvledger.tests.engines import sglang_start  # noqa: F401  # before anything of the engine's

# isort: split
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixCache, TreeNode
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache


class Tree(NamedTuple):
    """A cache that can be built. cached: its pages; locks: the receipts that its readers hold now."""

    name: str
    build: Callable[[CacheInitParams], Any]
    cached: Callable[[Any, Iterable[Any]], dict[PageId, CachedView]]
    sessions: bool = True
    disable: bool = False


def unified(core: str, params: Any) -> Any:
    """UnifiedRadixCache for full attention, with one of its two cores."""
    return UnifiedRadixCache(replace(params, tree_components=(ComponentType.FULL,), tree_core_backend=core))


def cached_nodes(tree: Any, _: Iterable[Any]) -> dict[PageId, CachedView]:
    """Page by page: the prefix that ends there, with its namespace in front, and the node's own count of locks."""
    found, size = {}, tree.page_size
    for prefix, slots, locks in nodes(tree.root_node if isinstance(tree, RadixCache) else tree.tree_core.root_node):
        first = len(prefix) - len(slots)
        for at in range(0, len(slots), size):
            found[slots[at] // size] = CachedView(prefix[: first + at + size], locks)
    return found


def nodes(root: Any) -> Iterator[tuple[tuple[Hashable, ...], list[Slot], int]]:
    """Each node below the root of a tree of Python objects: its prefix, its slots, its locks."""
    below = [((child.key.extra_key,), child) for child in root.children.values()]
    while below:
        prefix, node = below.pop()
        prefix = (*prefix, *node.key.raw_token_ids())
        full = node if isinstance(node, TreeNode) else node.component(ComponentType.FULL)
        yield prefix, full.value.tolist(), full.lock_ref
        below += [(prefix, child) for child in node.children.values()]


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


PYTHON = Tree("sglang", partial(unified, "python"), cached_nodes)
RUST = Tree("sglang-rust", partial(unified, "rust"), cached_rust)
RADIX = Tree("sglang-radix", RadixCache, cached_nodes, sessions=False)
NO_CACHE = Tree("sglang-no-cache", partial(unified, "python"), cached_nodes, disable=True)
