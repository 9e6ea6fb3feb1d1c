"""How KV leaves a request: to the prefix cache, which then owns it, or back to the free lists.

The end of a request is not the end of its KV. First the cache takes over what is worth keeping, then what is left
goes back, then the lock, then the row. There is one release; whoever ends a request or a session calls it. A session
that keeps a record gives back its tail alone.

SGLang: checkpoint (cache_unfinished_req), release_kv_cache (mem_cache/common.py), _free_tail (session/).
"""

from __future__ import annotations

from kvledger.reference.radix_cache import RadixCache
from kvledger.reference.request import KvHolder
from kvledger.reference.rows import ReqKvInfo


def checkpoint_kv_cache(req: KvHolder, up_to: int, tree_cache: RadixCache) -> int:
    """The whole pages of [0, up_to) pass from the request to the cache; it reads them from there, under its lock.

    Where the cache has a prefix already, the cache's pages are the ones that stay: the request's own are freed and
    its row is pointed at the cache's. up_to: at most kv_committed_len. Returns cache_protected_len, the length that
    is now the cache's; it never shrinks.
    """
    kv = req.kv
    row = tree_cache.req_to_token_pool.req_to_token[kv.row]
    start, end = kv.cache_protected_len, tree_cache.page_floor(up_to)
    if end <= start:
        return start
    key = req.key(end)
    there = tree_cache.insert(key, row[:end])
    tree_cache.token_to_kv_pool_allocator.free(row[start:there])
    indices, node = tree_cache.match_prefix(key)
    tree_cache.req_to_token_pool.write(kv.row, start, indices[start:])
    req.move_lock(node, tree_cache)
    kv.cache_protected_len = len(indices)
    return kv.cache_protected_len


def free_tail(kv: ReqKvInfo, length: int, tree_cache: RadixCache) -> None:
    """The whole pages beyond [0, length) go back, drafts too; the page that holds its last position stays.

    The lengths are the caller's to set. length: at least cache_protected_len.
    """
    row = tree_cache.req_to_token_pool.req_to_token[kv.row]
    tree_cache.token_to_kv_pool_allocator.free(row[tree_cache.page_ceil(length) : kv.kv_allocated_len])


def release_kv_cache(req: KvHolder, tree_cache: RadixCache, *, checkpoint: int = 0) -> int:
    """All that a request or an idle session holds is given up: [0, checkpoint) to the cache, every other private page
    to be free.

    checkpoint: how many tokens are worth keeping; 0 publishes nothing. Returns the length that is the cache's.
    """
    kv = req.kv
    assert kv.holds_kv and kv.kv_allocated_len > 0, "release of a record that holds nothing"
    protected_len = checkpoint_kv_cache(req, checkpoint, tree_cache)
    free_tail(kv, protected_len, tree_cache)
    req.move_lock(tree_cache.root_node, tree_cache)
    tree_cache.req_to_token_pool.free(kv)
    kv.kv_allocated_len = 0
    return protected_len
