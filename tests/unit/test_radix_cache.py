"""The reference's radix tree by itself: splits, locks, and who is evicted first."""

from __future__ import annotations

from kvledger.reference.allocator import PagedTokenToKVPoolAllocator
from kvledger.reference.radix_cache import RadixCache, RadixKey
from kvledger.reference.rows import ReqToTokenPool


def a_tree(pages: int, page_size: int) -> tuple[RadixCache, PagedTokenToKVPoolAllocator]:
    allocator = PagedTokenToKVPoolAllocator(pages * page_size, page_size)
    return RadixCache(ReqToTokenPool(1, 1), allocator, page_size), allocator


def put(tree: RadixCache, allocator: PagedTokenToKVPoolAllocator, tokens: str) -> list[int]:
    """Insert tokens under slots from the allocator; returns those slots."""
    [slots] = allocator.alloc_extend([0], [len(tokens)], [-1])
    there = tree.insert(RadixKey(tuple(tokens), "n"), slots)
    allocator.free(slots[:there])
    return slots


def test_a_split_keeps_the_locks() -> None:
    """Someone reads ABCDEF when a match ends behind AB: both halves are read by one, all 6 tokens stay protected."""
    tree, allocator = a_tree(pages=4, page_size=2)
    slots = put(tree, allocator, "ABCDEF")
    _, leaf = tree.match_prefix(RadixKey(tuple("ABCDEF"), "n"))
    tree.inc_lock_ref(leaf)
    found, upper = tree.match_prefix(RadixKey(tuple("ABCX"), "n"))  # C agrees, but half a page is none
    assert found == slots[:2]
    assert leaf.parent is upper and upper.parent is tree.root_node
    assert (leaf.lock_ref, upper.lock_ref) == (1, 1)
    assert (tree.protected_size, tree.evictable_size) == (6, 0)
    tree.inc_lock_ref(upper)
    tree.dec_lock_ref(leaf)
    assert (tree.protected_size, tree.evictable_size) == (2, 4)
    assert tree.evict(100) == 4
    assert tree.match_prefix(RadixKey(tuple("ABCDEF"), "n")).device_indices == slots[:2]


def test_the_least_recently_used_leaf_goes_first() -> None:
    """Inserted A, B, C; A is used again: B goes, then C, then A."""
    tree, allocator = a_tree(pages=3, page_size=1)
    pages = {letter: put(tree, allocator, letter)[0] for letter in "ABC"}
    tree.match_prefix(RadixKey(("A",), "n"))
    assert tree.evict(2) == 2
    assert allocator.freed == [pages["B"], pages["C"]]
    assert tree.evict(2) == 1
    assert allocator.freed[2:] == [pages["A"]]


def test_what_was_locked_can_go_once_unlocked() -> None:
    """The only leaf is passed over while it is read, and found again afterwards."""
    tree, allocator = a_tree(pages=1, page_size=1)
    put(tree, allocator, "A")
    _, leaf = tree.match_prefix(RadixKey(("A",), "n"))
    tree.inc_lock_ref(leaf)
    assert tree.evict(1) == 0
    tree.dec_lock_ref(leaf)
    assert tree.evict(1) == 1


def test_a_parent_goes_after_its_children_whatever_its_age() -> None:
    """AB, then its children C (older) and D; X is the youngest. C, D, then AB, whose last use was D's, then X."""
    tree, allocator = a_tree(pages=8, page_size=1)
    abc, abd, x = put(tree, allocator, "ABC"), put(tree, allocator, "ABD"), put(tree, allocator, "X")
    allocator.freed.clear()
    assert [tree.evict(1) for _ in range(5)] == [1, 1, 2, 1, 0]
    assert allocator.freed == [abc[2], abd[2], *abc[:2], *x]
