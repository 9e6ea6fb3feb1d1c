"""How KV comes to a request: match the cache, make room, take a row and slots, write the row.

An extend writes the row from its first column, prefix and new slots; a decode adds one column; drafts get columns
ahead of what is known. Either the whole batch gets what it asks or nobody gets anything: every reason to refuse is
looked at before the first thing is taken.

SGLang: mem_cache/allocation.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvledger.reference.radix_cache import MatchResult, RadixCache
from kvledger.reference.request import Req
from kvledger.reference.rows import OutOfRoom, ReqKvInfo, ReqToTokenPool
from kvledger.spec.world import Row, Slot


def match_kv_cache(req: Req, tree_cache: RadixCache) -> MatchResult:
    """The longest cached prefix a request may start from: one token is left, for something must be computed."""
    length = len(req.tokens) - 1
    if req.match_limit is not None:
        length = min(length, req.match_limit)
    return tree_cache.match_prefix(req.key(length))


def check_room(num_rows: int, num_tokens: int, tree_cache: RadixCache) -> None:
    """OutOfRoom if rows lack, or if free pages and all that may be evicted do not hold num_tokens. Takes nothing."""
    if num_rows > tree_cache.req_to_token_pool.available_size():
        raise OutOfRoom("rows")
    if num_tokens > tree_cache.token_to_kv_pool_allocator.available_size() + tree_cache.evictable_size:
        raise OutOfRoom("pages")


def evict_from_tree_cache(num_tokens: int, tree_cache: RadixCache) -> None:
    """Make num_tokens available; only what is missing is evicted."""
    missing = num_tokens - tree_cache.token_to_kv_pool_allocator.available_size()
    if missing > 0:
        tree_cache.evict(missing)


def alloc_req_slots(reqs: Sequence[Req], req_to_token_pool: ReqToTokenPool) -> list[Row]:
    """Each request's row: its own, or a new one. OutOfRoom if rows lack."""
    return req_to_token_pool.alloc([req.kv for req in reqs])


def get_last_loc(indices: Sequence[Slot], prefix_len: int) -> Slot:
    """The slot of the last position before an extend; -1 if there is none. indices: by position."""
    return indices[prefix_len - 1] if prefix_len > 0 else -1


def write_cache_indices(
    rows: Sequence[Row],
    prefix_indices: Sequence[Sequence[Slot]],
    out_cache_loc: Sequence[Sequence[Slot]],
    req_to_token_pool: ReqToTokenPool,
) -> None:
    """Each row lists its prefix, then its new slots. Columns beyond are left alone."""
    for row, prefix, new in zip(rows, prefix_indices, out_cache_loc, strict=True):
        req_to_token_pool.write(row, 0, prefix)
        req_to_token_pool.write(row, len(prefix), new)


def alloc_for_extend(
    reqs: Sequence[Req], prefix_indices: Sequence[Sequence[Slot]], seq_lens: Sequence[int], tree_cache: RadixCache
) -> list[list[Slot]]:
    """Row and slots for positions [len(prefix), seq) of each request; returns the new slots.

    prefix_indices: of a request that starts, the slots it matched and has locked; of one that goes on, a later turn
    too, what its row lists. A prefix must be locked by now: the eviction in here would take it. OutOfRoom, and
    nothing has changed.
    """
    pool, allocator = tree_cache.req_to_token_pool, tree_cache.token_to_kv_pool_allocator
    prefix_lens = [len(prefix) for prefix in prefix_indices]
    num_tokens = allocator.get_num_new_pages(prefix_lens, seq_lens) * tree_cache.page_size
    starts = [not req.kv.holds_kv for req in reqs]

    check_room(sum(starts), num_tokens, tree_cache)
    rows = alloc_req_slots(reqs, pool)
    evict_from_tree_cache(num_tokens, tree_cache)
    last_loc = [get_last_loc(prefix, len(prefix)) for prefix in prefix_indices]
    out_cache_loc = allocator.alloc_extend(prefix_lens, seq_lens, last_loc)
    write_cache_indices(rows, prefix_indices, out_cache_loc, pool)
    for req, start, prefix_len, seq_len in zip(reqs, starts, prefix_lens, seq_lens, strict=True):
        if start:
            req.kv.cache_protected_len = prefix_len
        req.kv.kv_committed_len = req.kv.kv_allocated_len = seq_len
    return out_cache_loc


def alloc_for_decode(reqs: Sequence[Req], tree_cache: RadixCache) -> list[Slot]:
    """One more column for each request, behind what it has. OutOfRoom, and nothing has changed."""
    pool, allocator = tree_cache.req_to_token_pool, tree_cache.token_to_kv_pool_allocator
    rows = [req.kv.row for req in reqs]
    locs = [req.kv.kv_committed_len for req in reqs]
    seq_lens = [loc + 1 for loc in locs]
    num_tokens = allocator.get_num_new_pages(locs, seq_lens) * tree_cache.page_size

    check_room(0, num_tokens, tree_cache)
    evict_from_tree_cache(num_tokens, tree_cache)
    last_loc = [get_last_loc(pool.req_to_token[row], loc) for row, loc in zip(rows, locs, strict=True)]
    out_cache_loc = allocator.alloc_decode(seq_lens, last_loc)
    for req, row, loc, slot in zip(reqs, rows, locs, out_cache_loc, strict=True):
        pool.write(row, loc, [slot])
        req.kv.kv_committed_len = req.kv.kv_allocated_len = loc + 1
    return out_cache_loc


def page_aligned_decode_alloc_len(kv: ReqKvInfo, num_tokens: int, tree_cache: RadixCache) -> int:
    """How far a record's slots reach when num_tokens beyond what is committed have some: to a page's end, never less
    far than now, never beyond the row."""
    length = tree_cache.page_ceil(kv.kv_committed_len + num_tokens)
    return min(tree_cache.req_to_token_pool.max_context_len, max(kv.kv_allocated_len, length))


def alloc_for_spec_decode(req: Req, num_tokens: int, tree_cache: RadixCache) -> list[Slot]:
    """Slots for drafts, behind what the request has; what is committed stays. OutOfRoom, and nothing has changed."""
    pool, allocator = tree_cache.req_to_token_pool, tree_cache.token_to_kv_pool_allocator
    row, start = pool.req_to_token[req.kv.row], req.kv.kv_allocated_len
    end = page_aligned_decode_alloc_len(req.kv, num_tokens, tree_cache)
    num_slots = allocator.get_num_new_pages([start], [end]) * tree_cache.page_size

    check_room(0, num_slots, tree_cache)
    evict_from_tree_cache(num_slots, tree_cache)
    [slots] = allocator.alloc_extend([start], [end], [get_last_loc(row, start)])
    pool.write(req.kv.row, start, slots)
    req.kv.kv_allocated_len = end
    return slots
