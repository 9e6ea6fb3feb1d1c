"""The prefix cache of fast by itself: matches, splits, locks, and who is evicted first; then beside the reference's."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.plan import Pages
from kvledger.fast.prefix_cache import PrefixCache, key_of
from kvledger.reference.allocator import PagedTokenToKVPoolAllocator
from kvledger.reference.radix_cache import RadixCache, RadixKey
from kvledger.reference.rows import ReqToTokenPool


def key(tokens: str) -> bytes:
    """A letter a token."""
    return key_of(np.array([ord(letter) for letter in tokens], np.int32))


def pages(*numbers: int) -> Pages:
    return np.array(numbers, np.int32)


def test_a_split_keeps_the_locks_and_copies_no_pages() -> None:
    """Someone reads ABCDEF when a match ends behind AB: both halves are read by one, all 3 pages stay protected."""
    cache = PrefixCache(2)
    there, leaf = cache.insert(key("ABCDEF"), "n", pages(1, 2, 3))
    assert there.tolist() == [] and cache.match(key("ABCDEF"), "n").pages.tolist() == [1, 2, 3]
    cache.lock(leaf)
    found, upper = cache.match(key("ABCX"), "n")  # C agrees, but half a page is none
    assert found.tolist() == [1]
    assert leaf.parent is upper and upper.parent is cache.root and upper.pages.base is leaf.pages.base
    assert (leaf.lock_ref, upper.lock_ref) == (1, 1)
    assert (cache.protected, cache.evictable) == (3, 0)
    cache.lock(upper)
    cache.unlock(leaf)
    assert (cache.protected, cache.evictable) == (1, 2)
    assert cache.evict(100).tolist() == [2, 3]
    assert cache.match(key("ABCDEF"), "n").pages.tolist() == [1]


def test_what_is_there_stays() -> None:
    """Of ABCDE under 1 to 5 only DE is new to ABC under 7 to 9; the given array may change afterwards."""
    cache, given = PrefixCache(1), pages(1, 2, 3, 4, 5)
    cache.insert(key("ABC"), "n", pages(7, 8, 9))
    there, node = cache.insert(key("ABCDE"), "n", given)
    given[:] = 0
    assert there.tolist() == [7, 8, 9] and node.pages.tolist() == [4, 5]
    again = cache.insert(key("ABCDE"), "n", given)
    assert again.pages.tolist() == [7, 8, 9, 4, 5] and again.node is node


def test_namespaces_never_meet() -> None:
    """0 and "0" look alike, and are not one."""
    cache = PrefixCache(1)
    cache.insert(key("AB"), 0, pages(1, 2))
    assert cache.match(key("AB"), "0").pages.tolist() == []
    assert cache.match(key("AB"), 0).pages.tolist() == [1, 2]


def test_a_parent_goes_after_its_children_whatever_its_age() -> None:
    """AB, then its children C (older) and D; X is the youngest. C, D, then AB, whose last use was D's, then X."""
    cache = PrefixCache(1)
    for tokens, given in (("ABC", (1, 2, 3)), ("ABD", (1, 2, 4)), ("X", (5,))):
        cache.insert(key(tokens), "n", pages(*given))
    assert [cache.evict(1).tolist() for _ in range(5)] == [[3], [4], [1, 2], [5], []]


def test_tokens_that_are_not_int32_are_refused() -> None:
    """2^32 cut off to int32 is 0: the two would be one token."""
    for tokens in (np.array([2**32]), np.array([1.0], np.float32), np.zeros((1, 1), np.int32), [[1]]):
        with pytest.raises(TypeError, match=r"expected int32 \[n\]"):
            key_of(tokens)


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_it_does_what_the_references_does(page_size: int) -> None:
    """1,000 matches, inserts, locks, unlocks and evictions: the same pages are found, and the same go, in one order."""
    draw = Random(page_size)
    cache, allocator = PrefixCache(page_size), PagedTokenToKVPoolAllocator(4_000 * page_size, page_size)
    tree = RadixCache(ReqToTokenPool(1, 1), allocator, page_size)
    locked = []
    for _ in range(1_000):
        tokens = "".join(draw.choice("AB") * page_size for _ in range(draw.randint(0, 9)))
        tokens = tokens[: len(tokens) - draw.randrange(page_size)] + draw.choice(["", "C"])
        whole = tokens[: len(tokens) // page_size * page_size]
        match draw.randrange(5):
            case 0 | 1:
                [slots] = allocator.alloc_extend([0], [len(whole)], [-1])
                own = pages(*(slot // page_size for slot in slots[::page_size]))
                there = tree.insert(RadixKey(tuple(whole), "n"), slots)
                assert len(cache.insert(key(whole), "n", own).pages) * page_size == there
            case 2:
                ours, theirs = cache.match(key(tokens), "n"), tree.match_prefix(RadixKey(tuple(tokens), "n"))
                assert ours.pages.tolist() == [slot // page_size for slot in theirs.device_indices[::page_size]]
                if draw.random() < 0.5:
                    cache.lock(ours.node)
                    tree.inc_lock_ref(theirs.last_node)
                    locked.append((ours.node, theirs.last_node))
            case 3 if locked:
                node, last_node = locked.pop(draw.randrange(len(locked)))
                cache.unlock(node)
                tree.dec_lock_ref(last_node)
            case _:
                count = draw.randint(0, 6)
                allocator.freed.clear()
                tree.evict(count * page_size)
                assert cache.evict(count).tolist() == allocator.freed
        assert (cache.evictable * page_size, cache.protected * page_size) == (tree.evictable_size, tree.protected_size)
        assert sum(len(node.pages) for node in cache.nodes()) == cache.evictable + cache.protected
        assert len(cache.queue) <= sum(1 for _ in cache.nodes())
