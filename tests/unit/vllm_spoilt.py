"""vLLM's own classes with a fault put in while they run, and its structures spoilt by hand: what a check says of each.

Run with the engine's own Python, by test_vllm.py, and printed as JSON: for each fault [rule, calls after shrinking],
for each spoilt structure the rule that its view breaks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

from kvledger.spec.action import name_of
from kvledger.spec.actions import Abort, Action, Decode, Extend, Finish, Submit
from kvledger.spec.rules import Broken
from kvledger.spec.world import World
from kvledger.tests.engines.vllm import VLLM, make
from kvledger.tests.engines.vllm_hunt import drawn, run
from kvledger.tests.engines.vllm_scheduler import Arrive, Move, Setting, Turn
from kvledger.tests.kit.lockstep import FULL, Lockstep
from kvledger.tests.kit.search import search
from kvledger.tests.kit.shrink import shrink

from vllm.v1.core import kv_cache_utils  # isort: skip  (after the stubs)
from vllm.v1.core.block_pool import BlockPool  # isort: skip
from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator  # isort: skip
from vllm.v1.core.kv_cache_manager import KVCacheManager  # isort: skip

BUDGET = 1_000  # actions; the zoo's faults take fewer


class Fault(NamedTuple):
    """`owner.name` is replaced by what `spoil` makes of it."""

    owner: Any
    name: str
    spoil: Callable[[Any], Callable[..., Any]]


def free_skipped(free: Any) -> Any:
    """A request that ends keeps its last block."""
    return lambda pool, blocks: free(pool, list(blocks)[1:])


def freed_twice(free: Any) -> Any:
    """The last block of a request goes back twice."""

    def spoilt(pool: Any, blocks: Any) -> None:
        blocks = list(blocks)
        free(pool, blocks)
        free(pool, blocks[:1])

    return spoilt


def freed_though_shared(free: Any) -> Any:
    """A block goes back with the first of its holders: it is handed out while another reads it."""

    def spoilt(pool: Any, blocks: Any) -> None:
        blocks = list(blocks)
        for block in blocks:
            block.ref_cnt = min(block.ref_cnt, 1)
        free(pool, blocks)

    return spoilt


def touched_without_count(_: Any) -> Any:
    """A match takes its blocks off the free queue, and counts nobody."""

    def spoilt(pool: Any, blocks: Any) -> None:
        for block in blocks:
            if block.ref_cnt == 0:
                pool.free_block_queue.remove(block)
                block.ref_cnt += 1

    return spoilt


def matched_to_the_end(get_computed_blocks: Any) -> Any:
    """No token is left to compute."""
    return lambda manager, request, most=None: get_computed_blocks(manager, request, request.num_tokens)


def matched_one_less(get_computed_blocks: Any) -> Any:
    """The last block of each match is computed again."""
    return lambda manager, request, most=None: get_computed_blocks(
        manager, request, max(0, request.num_tokens - 1 - manager.block_pool.hash_block_size)
    )


def published_ahead(cache_blocks: Any) -> Any:
    """A chunk publishes the whole prompt."""
    return lambda coordinator, request, computed: cache_blocks(coordinator, request, request.num_tokens)


def evicted_in_name_only(_: Any) -> Any:
    """A block that is handed out keeps its hash."""
    return lambda pool, block: False


def reset_while_held(_: Any) -> Any:
    """A reset asks nobody."""

    def spoilt(pool: Any) -> bool:
        for block in pool.blocks:
            pool._maybe_evict_cached_block(block)
        return True

    return spoilt


def salt_ignored(_: Any) -> Any:
    """The hash of a first block does not cover the salt."""
    return lambda request, start, end, features: (None, features)


def hash_not_chained(hash_block_tokens: Any) -> Any:
    """The hash of a block does not cover what comes before it."""
    return lambda function, parent, tokens, extra=None: hash_block_tokens(function, None, tokens, extra)


def one_too_many(allocate_new_blocks: Any) -> Any:
    """A block is held in advance."""

    def spoilt(coordinator: Any, req: str, tokens: int, *more: Any) -> Any:
        ahead = coordinator.block_pool.hash_block_size * bool(coordinator.block_pool.get_num_free_blocks() > 2)
        return allocate_new_blocks(coordinator, req, tokens + ahead, *more)

    return spoilt


def refused_too_early(get_num_blocks_to_allocate: Any) -> Any:
    """Room for one more block is asked for than is needed."""
    return lambda coordinator, *more, **named: get_num_blocks_to_allocate(coordinator, *more, **named) + 1


def refused_leaves_a_row(allocate_slots: Any) -> Any:
    """A refused start leaves an empty row behind."""

    def spoilt(manager: Any, request: Any, *more: Any, **named: Any) -> Any:
        granted = allocate_slots(manager, request, *more, **named)
        if granted is None:
            manager.coordinator.single_type_managers[0].req_to_blocks[request.request_id]
        return granted

    return spoilt


def rejected_dropped(allocate_new_blocks: Any) -> Any:
    """Blocks that were taken for rejected drafts leave the row, and go nowhere."""

    def spoilt(coordinator: Any, req: str, tokens: int, *more: Any) -> Any:
        row, size = coordinator.single_type_managers[0].req_to_blocks[req], coordinator.block_pool.hash_block_size
        del row[-(-tokens // size) :]
        return allocate_new_blocks(coordinator, req, tokens, *more)

    return spoilt


def pending_published(cache_blocks: Any) -> Any:
    """After the verified step the pending token counts as computed."""
    return lambda manager, request, computed: cache_blocks(manager, request, request.num_tokens)


FAULTS = {
    spoil.__name__: Fault(owner, name, spoil)
    for owner, name, spoil in (
        (BlockPool, "free_blocks", free_skipped),
        (BlockPool, "free_blocks", freed_twice),
        (BlockPool, "free_blocks", freed_though_shared),
        (BlockPool, "touch", touched_without_count),
        (BlockPool, "_maybe_evict_cached_block", evicted_in_name_only),
        (BlockPool, "reset_prefix_cache", reset_while_held),
        (KVCacheManager, "get_computed_blocks", matched_to_the_end),
        (KVCacheManager, "get_computed_blocks", matched_one_less),
        (KVCacheManager, "allocate_slots", refused_leaves_a_row),
        (KVCacheManager, "cache_blocks", pending_published),
        (KVCacheCoordinator, "cache_blocks", published_ahead),
        (KVCacheCoordinator, "allocate_new_blocks", one_too_many),
        (KVCacheCoordinator, "allocate_new_blocks", rejected_dropped),
        (KVCacheCoordinator, "get_num_blocks_to_allocate", refused_too_early),
        (kv_cache_utils, "generate_block_hash_extra_keys", salt_ignored),
        (kv_cache_utils, "hash_block_tokens", hash_not_chained),
    )
}


def found(fault: Fault) -> tuple[str, int] | None:
    """The rule that a short check says is broken, and in how many calls; None: it conforms."""
    with patch.object(fault.owner, fault.name, fault.spoil(getattr(fault.owner, fault.name))):
        outcome = search(make, name="vllm", budget=BUDGET, seed_number=0, grade=FULL)
        if outcome.finding is None:
            return None
        small = shrink(make, outcome.world, outcome.steps, outcome.finding, grade=FULL, name="vllm",
                       draining_since=outcome.draining_since, seconds=5)  # fmt: skip
    return small.finding.rule, len(small.steps)


# ---- what the engine says of itself is read from its structures: each of them, spoilt

WORLD = World(rows=4, context_len=16, pages=8, page_size=2)
CALLS: tuple[Action, ...] = (
    Submit("A", (1, 2, 3, 4, 5), 0),
    Extend((("A", 5, 6),)),  # pages 1 2 3, of which 1 and 2 are cached
    Submit("B", (1, 2, 7), 0),
    Extend((("B", 3, 8),)),  # pages 1 4
    Submit("C", (9, 9, 9), 0),
    Extend((("C", 3, 9),)),
    Finish("C", 3, False),  # page 5 stays cached
    Decode((("A", 0),)),
)


def cached_map(engine: VLLM) -> dict[Any, Any]:
    """The engine's map from hashes to blocks."""
    cached: dict[Any, Any] = engine.manager.block_pool.cached_block_hash_to_block._cache
    return cached


def block(engine: VLLM, page: int) -> Any:
    """One block of the engine's."""
    return engine.manager.block_pool.blocks[page]


def rows(engine: VLLM) -> Any:
    """The engine's rows and what it knows of them."""
    return engine.manager.coordinator.single_type_managers[0]


def lose_a_free_block(engine: VLLM) -> None:
    engine.manager.block_pool.free_block_queue.popleft()


def queue_a_held_block(engine: VLLM) -> None:
    engine.manager.block_pool.free_block_queue.append(block(engine, 3))


def miscount_the_queue(engine: VLLM) -> None:
    engine.manager.block_pool.free_block_queue.num_free_blocks += 1


def lose_an_evictable_block(engine: VLLM) -> None:
    engine.manager.block_pool.free_block_queue.remove(block(engine, 5))


def count_a_reader_more(engine: VLLM) -> None:
    block(engine, 1).ref_cnt += 1


def forget_a_hash(engine: VLLM) -> None:
    del cached_map(engine)[block(engine, 2).block_hash]


def move_a_hash(engine: VLLM) -> None:
    cached_map(engine)[block(engine, 1).block_hash] = {1: block(engine, 1), 2: block(engine, 2)}


def hash_a_private_block(engine: VLLM) -> None:
    cached_map(engine)["another"] = block(engine, 4)


def swap_a_row(engine: VLLM) -> None:
    rows(engine).req_to_blocks["A"].reverse()


def lose_a_row(engine: VLLM) -> None:
    del rows(engine).req_to_blocks["B"]


def count_more_as_computed(engine: VLLM) -> None:
    engine.requests["A"].num_computed_tokens += 1


def count_more_as_cached(engine: VLLM) -> None:
    rows(engine).num_cached_block["B"] += 1


SPOILT = (
    lose_a_free_block, queue_a_held_block, miscount_the_queue, lose_an_evictable_block, count_a_reader_more,
    forget_a_hash, move_a_hash, hash_a_private_block, swap_a_row, lose_a_row, count_more_as_computed,
    count_more_as_cached,
)  # fmt: skip


def shown(spoil: Callable[[VLLM], None]) -> str | None:
    """The rule that the view breaks once a structure is spoilt; None: it shows nothing."""
    lockstep = Lockstep(make, WORLD)
    for act in CALLS:
        answer = lockstep.do(act)
    assert isinstance(lockstep.backend, VLLM)
    spoil(lockstep.backend)
    try:
        lockstep.monitor.compare(lockstep.backend.view(), CALLS[-1], answer)
    except Broken as broken:
        return broken.rule
    return None


# ---- what comes of a chunk that the scheduler takes back


def served() -> tuple[str, str, int] | None:
    """The rule, the action and the step that show who reads what was never computed, if the scheduler is believed.

    A has 8 of 12 tokens and B 2 of 4 when the third turn begins. A's chunk [8, 10) takes two of the three pages left, B
    needs two for its own, and A is retracted: position 9 is evicted for B, position 8 stays cached. Once B has gone A
    starts again, from what it finds.
    """
    world = World(8, context_len=13, pages=13, page_size=1, declared=drawn("priority", 0)[0].world.declared)
    late, soon = Arrive("A", tuple(range(12)), outputs=1, priority=1), Arrive("B", (20, 21, 22, 23), 1, priority=0)
    program: list[Move] = [late, Turn(), soon, Turn(), Turn(), Abort("B"), Turn()]
    finding, watch = run(Setting(world, "priority", chunk=2, budget=6), program, trusting=True)
    return None if finding is None else (finding.rule, name_of(watch.steps[-1].act), len(watch.steps))


if __name__ == "__main__":
    said = {
        "served": served(),
        "faults": {name: found(fault) for name, fault in FAULTS.items()},
        "spoilt": {spoil.__name__: shown(spoil) for spoil in SPOILT},
    }
    json.dump(said, sys.stdout, indent=1)
