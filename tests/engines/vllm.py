"""vLLM 0.33.0: its own KVCacheManager, BlockPool and Request, one full-attention group, on a CPU and without a model.

The adapter does what vLLM's scheduler does around them: match and allocate in one go, advance a request's count of
computed tokens, append what was sampled. vLLM's page 0 is its null block, so page ids agree with the law's. A page gets
its hash inside allocate_slots, or after the verified step; a page that nobody holds stands in the free queue, and is
still cached if it has a hash. What an answer says of pages is read from the engine before and after the call.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from kvledger.spec.actions import (
    Abort,
    Action,
    Commit,
    Decode,
    Evict,
    Extend,
    Finish,
    Flush,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.backend import CachedView, Freed, RecordView, Refused, Reply, Totals, View
from kvledger.spec.page import pages_for
from kvledger.spec.world import Declaration, PageId, ReqId, Slot, Token, World
from kvledger.tests.engines import stubs

stubs.install(
    *("aiohttp", "cpuinfo", "fastapi", "huggingface_hub", "llguidance", "openai", "openai_harmony"),
    *("partial_json_parser", "prometheus_client", "pybase64", "safetensors", "transformers", "uvloop", "xgrammar"),
)

import torch  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402

init_none_hash(sha256)
logging.getLogger("vllm").setLevel(logging.ERROR)  # a reset that is refused is no news here

DECLARED = Declaration(
    name="vllm",
    version="0.33.0",
    capabilities=frozenset({"PAGED", "PREFIX_CACHE", "DUPLICATES", "EVICT", "CHUNKED", "DRAFTS", "VIEW"}),
    publishes_on=frozenset({"extend", "decode", "commit"}),
    max_batch=1,
    exact_lengths=False,  # it counts what is allocated in pages
    declines=frozenset({"BARRED"}),  # a request may decline to read the cache, not to fill it
)
Key = Hashable


class Books(NamedTuple):
    """What the engine's structures say of pages. free: repetitions kept; cached: whatever a match may find."""

    free: Counter[PageId]
    cached: dict[PageId, Key]


class Seen:
    """What can be seen of a KVCacheManager and its requests, read from their own structures."""

    def __init__(self, manager: Any, requests: Mapping[ReqId, Any]) -> None:
        self.pool, (self.rows,) = manager.block_pool, manager.coordinator.single_type_managers
        self.size, self.requests = self.rows.block_size, requests

    def books(self) -> Books:
        cached: dict[PageId, Key] = {}
        for key, blocks in self.pool.cached_block_hash_to_block._cache.items():
            for block in blocks.values() if isinstance(blocks, dict) else [blocks]:
                if block.block_id not in cached or key != block.block_hash:  # a key that is not its hash is told
                    cached[block.block_id] = key
        return Books(Counter(self.free_pages()), cached)

    def gone(self, before: Books, handed: Sequence[PageId] = ()) -> tuple[set[PageId], Freed]:
        """What left the cache, and what came back without having been in it. handed: pages handed out since `before`:
        one that was cached has left, though it may stand under a key again by now."""
        after = self.books()
        evicted = {page for page, key in before.cached.items() if page in handed or after.cached.get(page) != key}
        freed = (after.free - before.free).elements()
        return evicted, Freed(tuple(sorted(page for page in freed if page not in before.cached)))

    def published(self, req: ReqId) -> dict[ReqId, int]:
        """How far the engine says that this request's pages are cached."""
        return {req: self.rows.num_cached_block.get(req, 0) * self.size}

    def row(self, req: ReqId) -> list[PageId]:
        return [block.block_id for block in self.rows.req_to_blocks.get(req, ())]

    def slots(self, req: ReqId) -> list[Slot]:
        """Of all pages of the row, to their ends."""
        return [page * self.size + offset for page in self.row(req) for offset in range(self.size)]

    def queue(self) -> Iterator[Any]:
        """The blocks of the free queue, first to go first; a chain that has been broken ends somewhere, too."""
        block = self.pool.free_block_queue.fake_free_list_head.next_free_block
        for _ in self.pool.blocks:
            if block is None or block is self.pool.free_block_queue.fake_free_list_tail:
                return
            yield block
            block = block.next_free_block

    def free_pages(self) -> list[PageId]:
        """The free queue without what is cached and read by nobody, which the law calls evictable."""
        return [block.block_id for block in self.queue() if block.block_hash is None or block.ref_cnt]

    def view(self) -> View:
        blocks, evictable = self.pool.blocks[1:], sum(block.block_hash is not None for block in self.queue())
        records = {}
        for req in self.rows.req_to_blocks:
            length = committed(self.requests[req]) if req in self.requests else 0
            records[req] = RecordView(None, self.published(req)[req], length, len(self.row(req)) * self.size)
        return View(
            free_pages=self.free_pages(),
            records=records,
            table={req: self.slots(req) for req in records},
            cached={page: CachedView(key, self.pool.blocks[page].ref_cnt) for page, key in self.books().cached.items()},
            totals=Totals(
                self.pool.get_num_free_blocks() - evictable,
                evictable,
                protected=sum(block.ref_cnt > 0 and block.block_hash is not None for block in blocks),
                private=sum(block.ref_cnt > 0 and block.block_hash is None for block in blocks),
            ),
        )


def committed(request: Any) -> int:
    """How many tokens of a request have KV: vLLM counts those of a step under way as computed, too."""
    return int(request.num_computed_tokens - request.num_in_flight_tokens)


class Numbers:
    """vLLM's tokens are whole numbers, its salts are text: equal words get one and the same, others never do."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, word: Hashable) -> int:
        return self._numbers.setdefault(word, len(self._numbers))

    def salt(self, namespace: Hashable) -> str:
        return f"salt {self(namespace)}"  # an empty one would be none


def pool_of(world: World) -> KVCacheConfig:
    """One group of full-attention layers, and vLLM's null block on top."""
    spec = FullAttentionSpec(block_size=world.page_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return KVCacheConfig(
        num_blocks=world.pages + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )


class VLLM:
    """One pool, driven call by call."""

    def __init__(self, world: World) -> None:
        self.size = world.page_size
        self.manager = KVCacheManager(pool_of(world), world.context_len, self.size, self.size)
        self.hasher = get_request_block_hasher(self.size, sha256)
        self.requests: dict[ReqId, Any] = {}
        self.number = Numbers()
        self.seen = Seen(self.manager, self.requests)

    def declare(self) -> Declaration:
        return DECLARED

    def do(self, action: Action) -> Reply | Refused:
        match action:
            case Submit():
                return self.submit(action)
            case Extend(((req, upto, token),)):
                return self.extend(req, upto, token)
            case Decode(((req, token),)):
                return self.extend(req, committed(self.requests[req]) + 1, token)
            case Reserve(req, n):
                return self.reserve(req, n)
            case Commit(req, tokens):
                return self.commit(req, tokens)
            case Retract(req):
                return self.preempt(self.requests[req])
            case Finish(req) | Abort(req):
                return self.free(self.requests.pop(req))
            case Evict(n):
                return self.evict(n)
            case Flush():
                return self.reset_prefix_cache()
        return Refused()

    def submit(self, act: Submit) -> Reply:
        tokens = [self.number(token) for token in act.tokens]
        params = SamplingParams(extra_args={"match_limit": act.match_limit})
        salt = self.number.salt(act.namespace)
        self.requests[act.req] = Request(act.req, tokens, params, None, cache_salt=salt, block_hasher=self.hasher)
        return Reply()

    def extend(self, req: ReqId, upto: int, token: Token | None) -> Reply | Refused:
        """KV up to `upto`; a decode is an extend by one."""
        request, before = self.requests[req], self.seen.books()
        start, found, starts = request.num_computed_tokens, None, request.status != RequestStatus.RUNNING
        if starts:
            limit = request.sampling_params.extra_args["match_limit"]
            most = None if limit is None else min(limit, request.num_tokens - 1)
            found, start, _ = self.manager.get_computed_blocks(request, most)
        granted = self.manager.allocate_slots(request, upto - start, start if starts else 0, found)
        if granted is None:
            return self.refused(before)
        request.status, request.num_computed_tokens = RequestStatus.RUNNING, upto
        if token is not None:
            request.append_output_token_ids(self.number(token))
        evicted, freed = self.seen.gone(before, self.seen.row(req)[pages_for(start, self.size) :])
        slots, published = self.seen.slots(req), self.seen.published(req)
        return Reply((), [slots[:start]] if starts else (), [slots[start:upto]], published, evicted, freed)

    def reserve(self, req: ReqId, n: int) -> Reply | Refused:
        """Slots for the pending token and n - 1 drafts. Until they are verified they count as in flight.

        schedule() publishes here the page that the pending token fills, since the forward pass follows at once. The law
        looks between the two, where such a page has no KV yet: so publication waits for the commit, as it may for a
        transfer.
        """
        request, before = self.requests[req], self.seen.books()
        start, held = committed(request), request.num_computed_tokens
        request.num_computed_tokens, request.num_in_flight_tokens = start, 0  # what was rejected last time
        granted = self.manager.allocate_slots(request, n, delay_cache_blocks=True)
        upto = held if granted is None else max(held, min(start + n, self.manager.max_model_len))
        request.num_computed_tokens, request.num_in_flight_tokens = upto, upto - start
        if granted is None:
            return self.refused(before)
        evicted, freed = self.seen.gone(before, self.seen.row(req)[pages_for(held, self.size) :])
        return Reply(slots=[self.seen.slots(req)[held:upto]], evicted=evicted, freed=freed)

    def commit(self, req: ReqId, tokens: tuple[Token, ...]) -> Reply:
        """update_from_output: so many tokens have landed, and what is computed by now is published."""
        request, before = self.requests[req], self.seen.books()
        request.num_in_flight_tokens -= len(tokens)
        request.append_output_token_ids([self.number(token) for token in tokens])
        self.manager.cache_blocks(request, committed(request))
        evicted, freed = self.seen.gone(before)
        return Reply(published=self.seen.published(req), evicted=evicted, freed=freed)

    def preempt(self, request: Any) -> Reply:
        reply = self.free(request)
        request.status, request.num_computed_tokens, request.num_in_flight_tokens = RequestStatus.PREEMPTED, 0, 0
        return reply

    def free(self, request: Any) -> Reply:
        before = self.seen.books()
        self.manager.free(request)
        evicted, freed = self.seen.gone(before)
        return Reply(evicted=evicted, freed=freed)

    def evict(self, n: int) -> Reply:
        """The next n cached pages of the free queue, which are those that would go first, lose their hashes."""
        before = self.seen.books()
        cached = (block.block_id for block in self.seen.queue() if block.block_hash is not None)
        self.manager.evict_blocks(set(islice(cached, n)))
        evicted, freed = self.seen.gone(before)
        return Reply(evicted=evicted, freed=freed)

    def reset_prefix_cache(self) -> Reply | Refused:
        before, done = self.seen.books(), self.manager.reset_prefix_cache()
        evicted, freed = self.seen.gone(before)
        return Reply(evicted=evicted, freed=freed) if done else Refused(None, evicted, freed)

    def view(self) -> View:
        return self.seen.view()

    def refused(self, before: Books) -> Refused:
        return Refused("pages", *self.seen.gone(before))


def make(world: World) -> VLLM:
    """A fresh pool in this world. It has no rows, so `world.rows` bounds nothing."""
    return VLLM(world)
