"""SGLang's prefix caches, and what each lists: its pages, under which key, with how many locks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from kvledger.spec.backend import CachedView
from kvledger.spec.world import PageId, Slot


class Tree(NamedTuple):
    """A cache that can be built, of CacheInitParams. cached: its pages; locks: the receipts that its readers hold."""

    name: str
    build: Callable[[Any], Any]
    cached: Callable[[Any, Iterable[Any]], dict[PageId, CachedView]]
    sessions: bool = True
    disable: bool = False


def cached_nodes(tree: Any, _: Iterable[Any]) -> dict[PageId, CachedView]:
    """Page by page: the prefix that ends there, with its namespace in front, and the node's own count of locks."""
    found, size = {}, tree.page_size
    for prefix, slots, locks in nodes(tree.tree_core.root_node if hasattr(tree, "tree_core") else tree.root_node):
        first = len(prefix) - len(slots)
        for at in range(0, len(slots), size):
            found[slots[at] // size] = CachedView(prefix[: first + at + size], locks)
    return found


def nodes(root: Any) -> Iterator[tuple[tuple[Hashable, ...], list[Slot], int]]:
    """Each node below the root of a tree of Python objects: its prefix, its slots, its locks."""
    below = [((child.key.extra_key,), child) for child in root.children.values()]
    while below:
        prefix, node = below.pop()
        prefix = (*prefix, *node.key)
        full = node.component_data[0] if hasattr(node, "component_data") else node  # of full attention
        yield prefix, full.value.tolist(), full.lock_ref
        below += [(prefix, child) for child in node.children.values()]
