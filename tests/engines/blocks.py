"""A backend of vLLM's shape that needs no install: ref-counted blocks, no rows, a cache keyed by chained hashes.

vLLM's KVCacheManager over one full-attention group. A block gets its hash as soon as it is full, inside extend and
decode; two blocks may carry one hash. A block that nobody holds stands in the free queue; if it has a hash it is
still cached, and loses the hash when it is handed out: that is the eviction. Block 0 is the null block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from kvledger.spec.actions import Abort, Action, Decode, Evict, Extend, Finish, Flush, Retract, Submit
from kvledger.spec.backend import CachedView, Freed, RecordView, Refused, Reply, Totals, View
from kvledger.spec.world import Declaration, Namespace, PageId, ReqId, Slot, Token, World

BlockHash: TypeAlias = int
NO_PARENT: BlockHash = -1

DECLARED = Declaration(
    name="blocks",
    version="1",
    capabilities=frozenset({"PAGED", "PREFIX_CACHE", "DUPLICATES", "EVICT", "CHUNKED", "CONTENT", "VIEW", "GUARDED"}),
    publishes_on=frozenset({"extend", "decode"}),
    max_batch=1,
)


@dataclass(slots=True)
class KVCacheBlock:
    """A page. ref_cnt: how many requests hold it. block_hash: set while it is cached."""

    block_id: PageId
    ref_cnt: int = 0
    block_hash: BlockHash | None = None


@dataclass(slots=True)
class Request:
    """A live request. num_computed_tokens: positions with KV; 0 while it holds no blocks."""

    tokens: list[Token]
    namespace: Namespace
    match_limit: int | None
    publish: bool
    num_computed_tokens: int = 0


class Blocks:
    """All blocks of one world. A call has one member; one that its action does not allow is refused."""

    def __init__(self, world: World) -> None:
        self.page_size, self.context_len = world.page_size, world.context_len
        self.blocks = [KVCacheBlock(block_id) for block_id in range(world.pages + 1)]
        self.free_queue = OrderedDict((block.block_id, block) for block in self.blocks[1:])
        self.hashes: dict[tuple[BlockHash, Hashable], BlockHash] = {}
        self.cached: dict[BlockHash, dict[PageId, KVCacheBlock]] = {}  # duplicates in the order they came
        self.requests: dict[ReqId, Request] = {}
        self.req_to_blocks: dict[ReqId, list[KVCacheBlock]] = {}
        self.content = [0] * (len(self.blocks) * world.page_size)

    def declare(self) -> Declaration:
        return DECLARED

    def do(self, action: Action) -> Reply | Refused:
        match action:
            case Submit():
                return self.submit(action)
            case Extend(((req, upto, token),)) if req in self.requests:
                return self.extend(req, upto, token)
            case Decode(((req, token),)) if req in self.req_to_blocks and token is not None:
                return self.extend(req, self.requests[req].num_computed_tokens + 1, token)
            case Finish(req, keep) if req in self.req_to_blocks:
                return self.end(req) if 0 <= keep <= self.requests[req].num_computed_tokens else Refused()
            case Retract(req) if req in self.req_to_blocks:
                return Reply(freed=self.free(req))
            case Abort(req) if req in self.requests:
                return self.end(req)
            case Evict(n) if n >= 1:
                return self.evict(n)
            case Flush():
                return self.reset_prefix_cache()
        return Refused()

    def submit(self, act: Submit) -> Reply | Refused:
        if act.req in self.requests or not act.tokens or None in act.tokens:
            return Refused()
        if act.match_limit is not None and act.match_limit < 0:
            return Refused()
        self.requests[act.req] = Request(list(act.tokens), act.namespace, act.match_limit, act.publish)
        return Reply()

    def extend(self, req: ReqId, upto: int, token: Token | None) -> Reply | Refused:
        """KV up to `upto`; a decode is an extend by one. The sampled token is appended."""
        request, starts = self.requests[req], req not in self.req_to_blocks
        found = self.get_computed_blocks(request) if starts else []
        prefix = len(found) * self.page_size if starts else request.num_computed_tokens
        if not prefix < upto <= min(len(request.tokens), self.context_len):
            return Refused()
        if (token is not None) != (upto == len(request.tokens)):
            return Refused()
        evicted = self.allocate_slots(req, found, upto)
        if evicted is None:
            return Refused(short="pages")
        request.num_computed_tokens = upto
        published = self.cache_full_blocks(req, prefix)
        if token is not None:
            request.tokens.append(token)
        return Reply(
            matched=[self.slots(req, 0, prefix)] if starts else (),
            slots=[self.slots(req, prefix, upto)],
            published=published,
            evicted=evicted,
            freed=Freed(),
        )

    def end(self, req: ReqId) -> Reply:
        freed = self.free(req)
        del self.requests[req]
        return Reply(freed=freed)

    def evict(self, n: int) -> Reply | Refused:
        victims = [block for block in self.free_queue.values() if block.block_hash is not None][:n]
        for block in victims:
            self.drop_hash(block)
            self.free_queue.move_to_end(block.block_id, last=False)
        return Reply(evicted=frozenset(block.block_id for block in victims)) if victims else Refused()

    def reset_prefix_cache(self) -> Reply | Refused:
        if self.req_to_blocks:
            return Refused()
        cached = [block for block in self.blocks if block.block_hash is not None]
        for block in cached:
            self.drop_hash(block)
        return Reply(evicted=frozenset(block.block_id for block in cached))

    def get_computed_blocks(self, request: Request) -> list[KVCacheBlock]:
        """The longest cached prefix in whole blocks that leaves a token to compute. Of duplicates, the oldest."""
        limit = len(request.tokens) - 1
        if request.match_limit is not None:
            limit = min(limit, request.match_limit)
        found: list[KVCacheBlock] = []
        block_hash = self.root_hash(request)
        for index in range(limit // self.page_size):
            block_hash = self.hash_block(block_hash, request, index)
            if block_hash not in self.cached:
                break
            found.append(next(iter(self.cached[block_hash].values())))
        return found

    def allocate_slots(self, req: ReqId, found: list[KVCacheBlock], upto: int) -> frozenset[PageId] | None:
        """Locks `found`, then takes from the front of the queue what is missing. Answers which of these were cached.

        None, and nothing changes, if the queue is too short; blocks of `found` that stand in it do not count.
        """
        row = self.req_to_blocks.get(req, found)
        missing = -(-upto // self.page_size) - len(row)
        if missing > len(self.free_queue) - sum(block.ref_cnt == 0 for block in found):
            return None
        for block in found:
            block.ref_cnt += 1
            self.free_queue.pop(block.block_id, None)
        evicted = set()
        for _ in range(missing):
            block_id, block = self.free_queue.popitem(last=False)
            if block.block_hash is not None:
                self.drop_hash(block)
                evicted.add(block_id)
            block.ref_cnt = 1
            row.append(block)
        self.req_to_blocks[req] = row
        return frozenset(evicted)

    def cache_full_blocks(self, req: ReqId, prefix: int) -> dict[ReqId, int]:
        """Publishes the blocks filled since `prefix`. A duplicate is kept, so a row never changes."""
        request, row = self.requests[req], self.req_to_blocks[req]
        first, last = prefix // self.page_size, request.num_computed_tokens // self.page_size
        if not request.publish or first == last:
            return {}
        block_hash = row[first - 1].block_hash if first else self.root_hash(request)
        for index in range(first, last):
            assert block_hash is not None, "what a publishing request filled before has hashes"
            block_hash = self.hash_block(block_hash, request, index)
            row[index].block_hash = block_hash
            self.cached.setdefault(block_hash, {})[row[index].block_id] = row[index]
        return {req: last * self.page_size}

    def free(self, req: ReqId) -> Freed:
        """Gives back what a request holds, tail first, so that a prefix is evicted after what follows it."""
        freed = []
        self.requests[req].num_computed_tokens = 0
        for block in reversed(self.req_to_blocks.pop(req, [])):
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                self.free_queue[block.block_id] = block
                if block.block_hash is None:
                    self.free_queue.move_to_end(block.block_id, last=False)
                    freed.append(block.block_id)
        return Freed(pages=tuple(sorted(freed)))

    def drop_hash(self, block: KVCacheBlock) -> None:
        """The block is no longer cached."""
        assert block.block_hash is not None, "only a cached block has a hash to drop"
        duplicates = self.cached[block.block_hash]
        del duplicates[block.block_id]
        if not duplicates:
            del self.cached[block.block_hash]
        block.block_hash = None

    def root_hash(self, request: Request) -> BlockHash:
        """What the first block of a prefix is chained to: its namespace."""
        return self.intern(NO_PARENT, request.namespace)

    def hash_block(self, parent: BlockHash, request: Request, index: int) -> BlockHash:
        """The hash of a full block after a block with the hash `parent`."""
        return self.intern(parent, tuple(request.tokens[index * self.page_size : (index + 1) * self.page_size]))

    def intern(self, parent: BlockHash, content: Hashable) -> BlockHash:
        """A number for this pair alone: a hash that cannot collide, and is chained since `parent` is one too."""
        return self.hashes.setdefault((parent, content), len(self.hashes))

    def slots(self, req: ReqId, start: int, stop: int) -> list[Slot]:
        """The slots of positions [start, stop)."""
        row, size = self.req_to_blocks.get(req, []), self.page_size
        return [row[position // size].block_id * size + position % size for position in range(start, stop)]

    def view(self) -> View:
        cached = {b.block_id: CachedView(b.block_hash, b.ref_cnt) for b in self.blocks if b.block_hash is not None}
        free = [block_id for block_id, block in self.free_queue.items() if block.block_hash is None]
        evictable = len(self.free_queue) - len(free)
        private = sum(block.ref_cnt > 0 and block.block_hash is None for block in self.blocks)
        records, table = {}, {}
        for req, row in self.req_to_blocks.items():
            length = self.requests[req].num_computed_tokens
            hashed = sum(1 for _ in takewhile(lambda block: block.block_hash is not None, row))
            records[req] = RecordView(None, hashed * self.page_size, length, length)
            table[req] = self.slots(req, 0, length)
        totals = Totals(len(free), evictable, protected=len(cached) - evictable, private=private)
        return View(free_pages=free, records=records, table=table, cached=cached, totals=totals)

    def write(self, slots: Sequence[Slot], tags: Sequence[int]) -> None:
        for slot, tag in zip(slots, tags, strict=True):
            self.content[slot] = tag

    def read(self, req: ReqId) -> list[int]:
        return [self.content[slot] for slot in self.slots(req, 0, self.requests[req].num_computed_tokens)]


def make(world: World) -> Blocks:
    """A fresh backend in this world. It has no rows, so `world.rows` bounds nothing."""
    return Blocks(world)
