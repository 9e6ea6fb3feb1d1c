"""The prefix cache: a compressed tree of token prefixes with the pages that hold their KV. On the host.

A key is the bytes of the tokens, so that one edge is compared by one memcmp however long it is. A node has whole pages
only; a match or an insert that ends inside one splits it, and both halves go on looking into the same array of pages.
A lock is taken from a node up to the root, so below an unlocked node all is unlocked, and whatever is unlocked can go
leaf by leaf. The least recently used leaf goes first, exactly: an entry of the queue may be older than its node, and
is then renewed when its turn comes, so that a use costs nothing and the queue is never longer than the tree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kvledger.fast.plan import Pages

NO_PAGES: Pages = np.empty(0, np.int32)
INT32 = np.dtype(np.int32)
ChildKey: TypeAlias = tuple[Hashable, bytes]


def key_of(tokens: npt.ArrayLike) -> bytes:
    """The key of these tokens, int32 [n]. TypeError if they are not: cut off to it, two could be one."""
    given = np.asarray(tokens)
    if given.dtype != INT32 or given.ndim != 1:
        raise TypeError(f"tokens of {given.dtype} {list(given.shape)}: expected int32 [n]")
    return given.tobytes()


class Prefix(NamedTuple):
    """What was found of a key. pages: in order, int32 [n], often the tree's own array: not to be written to. node:
    where it ends; valid once locked."""

    pages: Pages
    node: Node


@dataclass(slots=True, eq=False)
class Node:
    """One edge and the node at its end. key: its tokens; pages: one for page_size of them.

    lock_ref: how many read it; of the root one more. tick: of its last use. queued: it has an entry in the queue.
    """

    namespace: Hashable
    key: bytes
    pages: Pages
    parent: Node | None
    children: dict[ChildKey, Node] = field(default_factory=dict)
    lock_ref: int = 0
    tick: int = 0
    queued: bool = False


class PrefixCache:
    """The tree. Keys: the int32 tokens of a prefix, as bytes. evictable, protected: pages of unlocked, locked nodes."""

    def __init__(self, page_size: int) -> None:
        self.page_bytes = page_size * INT32.itemsize
        self.root = Node(None, b"", NO_PAGES, None, lock_ref=1)
        self.evictable = 0
        self.protected = 0
        self.clock = count(1)
        self.queue: list[tuple[int, Node]] = []

    # ---- match and insert

    def match(self, key: bytes, namespace: Hashable) -> Prefix:
        """The longest cached prefix of the key, in whole pages. Takes no lock; the path it walks is used now."""
        node, found, at, step = self.root, list[Pages](), 0, self.page_bytes
        while (child := node.children.get((namespace, key[at : at + step]))) is not None:
            if not key.startswith(child.key, at):
                child = self.split(child, self.common_pages(child, key, at))
            child.tick = next(self.clock)
            found.append(child.pages)
            at += len(child.key)
            node = child
        return Prefix(np.concatenate(found) if len(found) > 1 else found[0] if found else NO_PAGES, node)

    def insert(self, key: bytes, namespace: Hashable, pages: Pages) -> Prefix:
        """What is missing of the key enters as one new leaf, with a copy of its part of pages. Whole pages only.

        Returns the pages of it that were there before, and stay, so that the ones given for them are duplicates; and
        the node where all of the key ends now.
        """
        return self.insert_behind(self.match(key, namespace), key, namespace, pages)

    def insert_behind(self, found: Prefix, key: bytes, namespace: Hashable, pages: Pages) -> Prefix:
        """As insert, of a key that was just matched."""
        there = len(found.pages)
        if there == len(pages):
            return found
        leaf = Node(namespace, key[there * self.page_bytes :], pages[there:].copy(), found.node, tick=next(self.clock))
        found.node.children[self.child_key(leaf)] = leaf
        self.evictable += len(leaf.pages)
        self.offer(leaf)
        return Prefix(found.pages, leaf)

    def child_key(self, node: Node) -> ChildKey:
        """Under which key it stands in its parent: two children of a node differ in their first page."""
        return node.namespace, node.key[: self.page_bytes]

    def common_pages(self, node: Node, key: bytes, at: int) -> int:
        """How many pages of the node's edge agree with the key from byte `at` on; not all of them."""
        length = min(len(node.key), len(key) - at)
        differ = np.frombuffer(node.key, np.uint8, length) != np.frombuffer(key, np.uint8, length, at)
        first = int(differ.argmax()) if differ.any() else length
        return first // self.page_bytes

    def split(self, node: Node, at: int) -> Node:
        """Its first `at` pages become a new parent, which is returned. Whoever reads the child reads the parent."""
        parent = node.parent
        assert parent is not None and 0 < at < len(node.pages)
        cut = at * self.page_bytes
        upper = Node(node.namespace, node.key[:cut], node.pages[:at], parent, {}, node.lock_ref, node.tick)
        parent.children[self.child_key(upper)] = upper
        node.key, node.pages, node.parent = node.key[cut:], node.pages[at:], upper
        upper.children[self.child_key(node)] = node
        return upper

    def nodes(self) -> Iterator[Node]:
        """All but the root, each behind its parent."""
        ahead = [self.root]
        while ahead:
            children = ahead.pop().children.values()
            yield from children
            ahead += children

    # ---- locks

    def lock(self, node: Node) -> None:
        """One more reads the path from the root to this node. The root itself needs no lock."""
        while node.parent is not None:
            if node.lock_ref == 0:
                self.evictable -= len(node.pages)
                self.protected += len(node.pages)
            node.lock_ref += 1
            node = node.parent

    def unlock(self, node: Node) -> None:
        """One less reads the path from the root to this node."""
        while node.parent is not None:
            assert node.lock_ref > 0, "unlock of a node that nobody reads"
            node.lock_ref -= 1
            if node.lock_ref == 0:
                self.evictable += len(node.pages)
                self.protected -= len(node.pages)
                self.offer(node)
            node = node.parent

    # ---- eviction

    def evict(self, count: int) -> Pages:
        """Unlocked leaves go, least recently used first, until count pages have gone or nothing is left to take.

        Whole nodes go, so it may be more than was asked. Returns their pages, which are in nobody's hands now.
        """
        gone, evicted = [NO_PAGES], 0
        while evicted < count and (leaf := self.pop_leaf()) is not None:
            self.remove(leaf)
            gone.append(leaf.pages)
            evicted += len(leaf.pages)
        return np.concatenate(gone)

    def is_evictable_leaf(self, node: Node) -> bool:
        """Nobody reads it and nothing hangs on it. Never the root."""
        return node.lock_ref == 0 and not node.children and node.parent is not None

    def offer(self, node: Node) -> None:
        """A node that has become an evictable leaf enters the queue, once, by its own last use."""
        if self.is_evictable_leaf(node) and not node.queued:
            node.queued = True
            heappush(self.queue, (node.tick, node))

    def pop_leaf(self) -> Node | None:
        """The least recently used evictable leaf."""
        while self.queue:
            tick, node = heappop(self.queue)
            node.queued = False
            if self.is_evictable_leaf(node) and node.tick == tick:
                return node
            self.offer(node)
        return None

    def remove(self, leaf: Node) -> None:
        """The leaf leaves the tree; its parent may be the next."""
        parent = leaf.parent
        assert parent is not None
        del parent.children[self.child_key(leaf)]
        self.evictable -= len(leaf.pages)
        self.offer(parent)
