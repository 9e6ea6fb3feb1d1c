"""The reference as a backend: one method an action, and the books as they are.

Every method first asks what its action requires; a call that it forbids is refused and leaves no trace. What it then
does is written in allocation and release. What it says was evicted or freed is what went through the free lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvledger.reference import allocation, release
from kvledger.reference.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from kvledger.reference.books import Books
from kvledger.reference.radix_cache import RadixCache
from kvledger.reference.request import Req
from kvledger.reference.rows import OutOfRoom, ReqToTokenPool
from kvledger.spec.actions import Abort, Checkpoint, Decode, Evict, Extend, Finish, Flush, Retract, Submit
from kvledger.spec.backend import Action, Declaration, Freed, Refused, Reply, View, World
from kvledger.spec.world import PageId, ReqId, Slot

CACHE_WORDS = frozenset({"PREFIX_CACHE", "LEAF_FIRST", "EVICT", "CHECKPOINT"})
RADIX = Declaration(
    name="reference",
    version="1",
    capabilities=CACHE_WORDS | {"ROWS", "PAGED", "CHUNKED", "GUARDED", "CONTENT", "VIEW", "SCRAMBLE"},
    publishes_on=frozenset({"checkpoint", "finish"}),
)
NO_CACHE = replace(RADIX, capabilities=RADIX.capabilities - CACHE_WORDS)
FORBIDDEN = Refused()
STALE = -999_999_937  # no length: whoever reads it goes wrong at once


class Backend:
    """The requests, the three pools, and one tag a slot where an engine keeps K and V. Any page size."""

    # named here so that each can be replaced alone: a faulty backend of tests/zoo is this one but for one of them
    match_kv_cache = staticmethod(allocation.match_kv_cache)
    alloc_for_extend = staticmethod(allocation.alloc_for_extend)
    alloc_for_decode = staticmethod(allocation.alloc_for_decode)
    checkpoint_kv_cache = staticmethod(release.checkpoint_kv_cache)
    release_kv_cache = staticmethod(release.release_kv_cache)
    row_pool: type[ReqToTokenPool] = ReqToTokenPool
    token_allocator: type[TokenToKVPoolAllocator] = TokenToKVPoolAllocator
    paged_allocator: type[PagedTokenToKVPoolAllocator] = PagedTokenToKVPoolAllocator
    prefix_cache: type[RadixCache] = RadixCache

    def __init__(self, world: World, disable: bool = False) -> None:
        allocator = self.token_allocator if world.page_size == 1 else self.paged_allocator
        self.world = world
        self.reqs: dict[ReqId, Req] = {}
        self.req_to_token_pool = self.row_pool(world.rows, world.context_len)
        self.allocator = allocator(world.pages * world.page_size, world.page_size)
        self.tree_cache = self.prefix_cache(self.req_to_token_pool, self.allocator, world.page_size, disable)
        self.kv_buffer = [0] * (world.pages + 1) * world.page_size
        self.books = Books(self.tree_cache)

    def declare(self) -> Declaration:
        """SGLang's shape: merges duplicates, evicts leaves first, publishes on checkpoint and finish."""
        return NO_CACHE if self.tree_cache.disable else RADIX

    def do(self, action: Action, /) -> Reply | Refused:
        """Perform the action; Refused() if it is forbidden now."""
        self.allocator.freed.clear()
        self.req_to_token_pool.freed.clear()
        match action:
            case Submit():
                return self.submit(action)
            case Extend():
                return self.extend(action)
            case Decode():
                return self.decode(action)
            case Checkpoint():
                return self.checkpoint(action)
            case Finish():
                return self.finish(action)
            case Retract():
                return self.retract(action)
            case Abort():
                return self.abort(action)
            case Evict():
                return self.evict(action)
            case Flush():
                return self.flush(action)

    # ---- a request comes and grows

    def submit(self, act: Submit) -> Reply | Refused:
        """It waits, and holds nothing."""
        if act.req in self.reqs or not act.tokens or any(token is None for token in act.tokens):
            return FORBIDDEN
        if act.match_limit is not None and act.match_limit < 0:
            return FORBIDDEN
        root = self.tree_cache.root_node
        self.reqs[act.req] = Req(act.req, list(act.tokens), act.namespace, act.match_limit, act.publish, root)
        return Reply()

    def extend(self, act: Extend) -> Reply | Refused:
        """Who starts matches first, all before anybody takes anything, and locks what it matched."""
        reqs = self.members([rid for rid, _, _ in act.batch])
        if not reqs:
            return FORBIDDEN
        for req, (_, upto, token) in zip(reqs, act.batch, strict=True):
            reaches_end = upto == len(req.tokens)
            if upto > min(len(req.tokens), self.world.context_len) or (token is not None) != reaches_end:
                return FORBIDDEN
        matches = {req.rid: self.match_kv_cache(req, self.tree_cache) for req in reqs if not req.kv.holds_kv}
        prefixes = [matches[req.rid].device_indices if req.rid in matches else self.indices(req) for req in reqs]
        if any(upto <= len(prefix) for prefix, (_, upto, _) in zip(prefixes, act.batch, strict=True)):
            return FORBIDDEN

        for rid, match in matches.items():
            self.reqs[rid].move_lock(match.last_node, self.tree_cache)
        try:
            slots = self.alloc_for_extend(reqs, prefixes, [upto for _, upto, _ in act.batch], self.tree_cache)
        except OutOfRoom as refusal:
            for rid in matches:
                self.reqs[rid].move_lock(self.tree_cache.root_node, self.tree_cache)
            return Refused(refusal.short, evicted=self.evicted())
        for req, (_, _, token) in zip(reqs, act.batch, strict=True):
            if token is not None:
                req.tokens.append(token)
        rows = [self.reqs[rid].kv.row for rid in matches]
        matched = [match.device_indices for match in matches.values()]
        return Reply(rows=rows, matched=matched, slots=slots, evicted=self.evicted())

    def decode(self, act: Decode) -> Reply | Refused:
        """KV for each pending token; the sampled one is pending next."""
        reqs = self.members([rid for rid, _ in act.batch])
        if not reqs or any(token is None for _, token in act.batch):
            return FORBIDDEN
        if any(not req.caught_up() or req.kv.kv_committed_len >= self.world.context_len for req in reqs):
            return FORBIDDEN
        try:
            slots = self.alloc_for_decode(reqs, self.tree_cache)
        except OutOfRoom as refusal:
            return Refused(refusal.short, evicted=self.evicted())
        for req, (_, token) in zip(reqs, act.batch, strict=True):
            req.tokens.append(token)
        return Reply(slots=[[slot] for slot in slots], evicted=self.evicted())

    def checkpoint(self, act: Checkpoint) -> Reply | Refused:
        """A running request's prefix becomes shareable; it goes on reading it."""
        req = self.running(act.req)
        if req is None or not req.publish or self.tree_cache.disable:
            return FORBIDDEN
        start = req.kv.cache_protected_len
        if not (start <= self.tree_cache.page_floor(act.upto) and act.upto <= req.kv.kv_committed_len):
            return FORBIDDEN
        end = self.checkpoint_kv_cache(req, act.upto, self.tree_cache)
        return Reply(slots=[self.indices(req)[start:end]], published={act.req: end}, freed=self.freed())

    # ---- it ends: three ways, one release

    def finish(self, act: Finish) -> Reply | Refused:
        """Forgotten; [0, keep) may stay in the cache. keep below what the cache has already takes nothing from it."""
        req = self.running(act.req)
        if req is None or not 0 <= act.keep <= req.kv.kv_committed_len:
            return FORBIDDEN
        start = req.kv.cache_protected_len
        keep = act.keep if act.publish and req.publish else 0
        end = self.release_kv_cache(req, self.tree_cache, checkpoint=keep)
        del self.reqs[act.req]
        return Reply(published={act.req: end} if end > start else {}, freed=self.freed())

    def retract(self, act: Retract) -> Reply | Refused:
        """It waits again, with all its tokens, the pending one too; from its record nothing is read any more."""
        req = self.running(act.req)
        if req is None:
            return FORBIDDEN
        self.release_kv_cache(req, self.tree_cache)
        return Reply(freed=self.freed())

    def abort(self, act: Abort) -> Reply | Refused:
        """Forgotten, wherever it was."""
        req = self.reqs.get(act.req)
        if req is None:
            return FORBIDDEN
        if req.kv.holds_kv:
            self.release_kv_cache(req, self.tree_cache)
        del self.reqs[act.req]
        return Reply(freed=self.freed())

    # ---- the cache

    def evict(self, act: Evict) -> Reply | Refused:
        """At least n pages leave the cache, or all that may."""
        if act.n < 1 or self.tree_cache.evictable_size == 0:
            return FORBIDDEN
        self.tree_cache.evict(act.n * self.world.page_size)
        return Reply(evicted=self.evicted())

    def flush(self, act: Flush) -> Reply | Refused:
        """The whole cache goes; not while anybody runs."""
        if self.tree_cache.disable or any(req.kv.holds_kv for req in self.reqs.values()):
            return FORBIDDEN
        self.tree_cache.evict(self.tree_cache.evictable_size)
        return Reply(evicted=self.evicted())

    # ---- what the methods share

    def members(self, rids: Sequence[ReqId]) -> list[Req]:
        """The requests of a batch, in order; none if one is not live or stands there twice."""
        if len(set(rids)) != len(rids) or not self.reqs.keys() >= set(rids):
            return []
        return [self.reqs[rid] for rid in rids]

    def running(self, rid: ReqId) -> Req | None:
        """The request, if it holds a row."""
        req = self.reqs.get(rid)
        return req if req is not None and req.kv.holds_kv else None

    def indices(self, req: Req) -> list[Slot]:
        """The slots of [0, committed), as its row lists them."""
        return self.req_to_token_pool.req_to_token[req.kv.row][: req.kv.kv_committed_len]

    def evicted(self) -> frozenset[PageId]:
        """What this action let go through the allocator's free, in an action that makes room."""
        return frozenset(self.allocator.freed)

    def freed(self) -> Freed:
        """What this action let go through both pools' free, in an action that gives back."""
        return Freed(tuple(sorted(self.allocator.freed)), tuple(sorted(self.req_to_token_pool.freed)))

    # ---- what is shown: the books, and the content

    def view(self) -> View:
        """The books as they are."""
        return self.books.view(self.reqs)

    def write(self, slots: Sequence[Slot], tags: Sequence[int], /) -> None:
        """As a forward pass would: slots[i] now holds tags[i]."""
        for slot, tag in zip(slots, tags, strict=True):
            self.kv_buffer[slot] = tag

    def read(self, req: ReqId, /) -> list[int]:
        """The tags of [0, committed) of a live request, through the table; none of one that holds no row."""
        held = self.running(req)
        return [self.kv_buffer[slot] for slot in self.indices(held)] if held else []

    def scramble(self) -> None:
        """Spoil the stale lengths of every record that holds nothing."""
        for req in self.reqs.values():
            if not req.kv.holds_kv:
                req.kv.cache_protected_len = req.kv.kv_committed_len = STALE


def make(world: World) -> Backend:
    """The reference with its prefix cache."""
    return Backend(world)


def make_chunk_cache(world: World) -> Backend:
    """The reference without one: every request computes all of its prompt (ChunkCache)."""
    return Backend(world, disable=True)
