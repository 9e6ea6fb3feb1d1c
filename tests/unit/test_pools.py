"""The reference's two pools by themselves: rows, and pages of KV slots."""

from __future__ import annotations

import pytest

from kvledger.reference.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from kvledger.reference.rows import OutOfRoom, ReqKvInfo, ReqToTokenPool


def test_a_row_is_reused_only_by_who_carries_kv() -> None:
    """A row number without KV is what a hand-written release leaves behind (sglang#37167)."""
    pool = ReqToTokenPool(size=2, max_context_len=4)
    record = ReqKvInfo()
    assert pool.alloc([record]) == [2]
    record.kv_allocated_len = 3
    assert pool.alloc([record, ReqKvInfo()]) == [2, 1]
    with pytest.raises(OutOfRoom):
        pool.alloc([ReqKvInfo()])
    record.kv_allocated_len = 0
    with pytest.raises(AssertionError, match="carries no KV"):
        pool.alloc([record])
    pool.free(record)
    with pytest.raises(AssertionError, match="holds no KV"):
        pool.free(record)
    assert pool.free_slots == [2]


def test_a_page_is_freed_once() -> None:
    """First in, first out by slots; last in, first out by pages; never twice, never the padding page."""
    tokens, pages = TokenToKVPoolAllocator(3), PagedTokenToKVPoolAllocator(6, 2)
    for allocator, order in ((tokens, [2, 3, 1]), (pages, [1, 2, 3])):
        [slots] = allocator.alloc_extend([0], [1], [-1])
        allocator.free(slots)
        with pytest.raises(AssertionError, match="already free"):
            allocator.free(slots)
        with pytest.raises(AssertionError, match="padding"):
            allocator.free([0])
        assert list(allocator.free_pages) == order and allocator.freed == [1]
    with pytest.raises(OutOfRoom):
        pages.alloc_extend([0, 0], [4, 3], [-1, -1])
    assert pages.available_size() == 6
    with pytest.raises(AssertionError, match="first of its page"):
        pages.free([3])
