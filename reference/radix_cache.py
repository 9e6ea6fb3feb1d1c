"""The prefix cache: a compressed tree of token prefixes with the slots that hold their KV.

A node holds the tokens of one edge, whole pages only, and their slots. A match or an insert that ends inside a node
splits it there. lock_ref counts the requests that read a node: a lock is taken from a node up to the root, so below
an unlocked node all is unlocked, and whatever is unlocked can be evicted leaf by leaf.

SGLang: RadixCache (mem_cache/radix_cache.py). With disable it is ChunkCache: nothing matches, nothing is inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, TypeAlias

from kvledger.reference.allocator import TokenToKVPoolAllocator
from kvledger.reference.rows import ReqToTokenPool
from kvledger.spec.world import Namespace, Slot, Token

ChildKey: TypeAlias = tuple[Namespace, tuple[Token, ...]]


class RadixKey(NamedTuple):
    """What KV is shared by. extra_key is part of the key at every node: namespaces never meet."""

    token_ids: tuple[Token, ...]
    extra_key: Namespace


class MatchResult(NamedTuple):
    """device_indices: the slots of the prefix found, whole pages. last_node: where it ends; valid once locked."""

    device_indices: list[Slot]
    last_node: TreeNode


@dataclass(slots=True, eq=False)
class TreeNode:
    """One edge and the node at its end. len(value) == len(key.token_ids), a multiple of page_size.

    queued: it has an entry in the eviction queue.
    """

    key: RadixKey
    value: list[Slot]
    parent: TreeNode | None
    children: dict[ChildKey, TreeNode] = field(default_factory=dict)
    lock_ref: int = 0
    last_access_time: int = 0
    queued: bool = False


class RadixCache:
    """The tree, and the two pools behind it, as release and allocation reach them.

    evictable_size, protected_size: tokens of unlocked and of locked nodes.
    """

    def __init__(
        self,
        req_to_token_pool: ReqToTokenPool,
        token_to_kv_pool_allocator: TokenToKVPoolAllocator,
        page_size: int,
        disable: bool = False,
    ) -> None:
        self.req_to_token_pool = req_to_token_pool
        self.token_to_kv_pool_allocator = token_to_kv_pool_allocator
        self.page_size = page_size
        self.disable = disable
        self.root_node = TreeNode(RadixKey((), None), [], None)
        self.evictable_size = 0
        self.protected_size = 0
        self.clock = count(1)
        self.eviction_queue: list[tuple[int, TreeNode]] = []

    # ---- match and insert

    def match_prefix(self, key: RadixKey) -> MatchResult:
        """The longest cached prefix of the key, in whole pages. Takes no lock; refreshes the path it walks."""
        node = self.root_node
        slots: list[Slot] = []
        length = 0 if self.disable else self.page_floor(len(key.token_ids))
        while len(slots) < length:
            child = node.children.get(self.child_key(key, len(slots)))
            if child is None:
                break
            common = self.common_len(child, key, len(slots))
            if common < len(child.value):
                child = self.split_node(child, common)
            child.last_access_time = next(self.clock)
            slots += child.value
            node = child
        return MatchResult(slots, node)

    def insert(self, key: RadixKey, value: Sequence[Slot]) -> int:
        """What is missing of the key enters under one new leaf, with value's slots. Whole pages only.

        Returns how many tokens were there already: their slots stay as they are, and value's are duplicates.
        """
        if self.disable:
            return 0
        found, node = self.match_prefix(key)
        there = len(found)
        if there < len(key.token_ids):
            leaf = TreeNode(RadixKey(key.token_ids[there:], key.extra_key), list(value[there:]), node)
            leaf.last_access_time = next(self.clock)
            node.children[self.child_key(key, there)] = leaf
            self.evictable_size += len(leaf.value)
            self.offer(leaf)
        return there

    def page_floor(self, length: int) -> int:
        """The length without its last page if that is not whole."""
        return length // self.page_size * self.page_size

    def page_ceil(self, length: int) -> int:
        """The length with all of its last page."""
        return -(-length // self.page_size) * self.page_size

    def child_key(self, key: RadixKey, start: int) -> ChildKey:
        """Under which key a child stands: two children of a node differ in their first page."""
        return key.extra_key, key.token_ids[start : start + self.page_size]

    def common_len(self, node: TreeNode, key: RadixKey, start: int) -> int:
        """How many tokens of the node's edge agree with the key from start on, in whole pages."""
        edge = node.key.token_ids
        tokens = key.token_ids[start : start + len(edge)]
        if tokens == edge:
            return len(edge)
        differing = (i for i, (one, other) in enumerate(zip(tokens, edge, strict=False)) if one != other)
        return self.page_floor(next(differing, len(tokens)))

    def split_node(self, node: TreeNode, at: int) -> TreeNode:
        """The first `at` tokens become a new parent, which is returned. Whoever reads the child reads the parent."""
        parent = node.parent
        assert parent is not None and 0 < at < len(node.value)
        tokens, extra_key = node.key
        upper = TreeNode(RadixKey(tokens[:at], extra_key), node.value[:at], parent)
        upper.lock_ref = node.lock_ref
        upper.last_access_time = node.last_access_time
        upper.children[self.child_key(node.key, at)] = node
        parent.children[self.child_key(node.key, 0)] = upper
        node.key, node.value, node.parent = RadixKey(tokens[at:], extra_key), node.value[at:], upper
        return upper

    # ---- locks

    def inc_lock_ref(self, node: TreeNode) -> None:
        """One more request reads the path from the root to this node. The root itself needs no lock."""
        while node.parent is not None:
            if node.lock_ref == 0:
                self.evictable_size -= len(node.value)
                self.protected_size += len(node.value)
            node.lock_ref += 1
            node = node.parent

    def dec_lock_ref(self, node: TreeNode) -> None:
        """One request less reads the path from the root to this node."""
        while node.parent is not None:
            assert node.lock_ref > 0, "unlock of a node that nobody reads"
            node.lock_ref -= 1
            if node.lock_ref == 0:
                self.evictable_size += len(node.value)
                self.protected_size -= len(node.value)
                self.offer(node)
            node = node.parent

    # ---- eviction

    def evict(self, num_tokens: int) -> int:
        """Unlocked leaves go, least recently used first, until num_tokens have gone or nothing is left to take.

        Whole nodes go, so it may be more than was asked. Returns how many tokens went.
        """
        evicted = 0
        while evicted < num_tokens and (leaf := self.pop_leaf()) is not None:
            self.token_to_kv_pool_allocator.free(leaf.value)
            self.delete_leaf(leaf)
            evicted += len(leaf.value)
        return evicted

    def is_evictable_leaf(self, node: TreeNode) -> bool:
        """Nobody reads it and nothing hangs on it. Never the root."""
        return node.lock_ref == 0 and not node.children and node.parent is not None

    def offer(self, node: TreeNode) -> None:
        """A node that has become an evictable leaf enters the queue, once."""
        if self.is_evictable_leaf(node) and not node.queued:
            node.queued = True
            heappush(self.eviction_queue, (node.last_access_time, node))

    def pop_leaf(self) -> TreeNode | None:
        """The least recently used evictable leaf. An entry may be older than its node: then it goes back, renewed."""
        while self.eviction_queue:
            time, node = heappop(self.eviction_queue)
            node.queued = False
            if self.is_evictable_leaf(node) and node.last_access_time == time:
                return node
            self.offer(node)
        return None

    def delete_leaf(self, leaf: TreeNode) -> None:
        """The leaf leaves the tree; its parent may be the next."""
        parent = leaf.parent
        assert parent is not None
        del parent.children[self.child_key(leaf.key, 0)]
        self.evictable_size -= len(leaf.value)
        self.offer(parent)
