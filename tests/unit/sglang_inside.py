"""What test_sglang.py asks of the real engine, run by its own interpreter: one process for all, for it takes seconds to
start. Prints one JSON object: question -> subject -> answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from kvledger.spec.actions import Action, Checkpoint, Decode, Retract
from kvledger.spec.backend import Make, Reply
from kvledger.spec.trace import read
from kvledger.spec.world import ReqId, World
from kvledger.tests.engines import sglang_0_5_23 as sglang
from kvledger.tests.engines.command import backends
from kvledger.tests.engines.sglang import runs
from kvledger.tests.engines.sglang_0_5_23 import NO_CACHE, PYTHON, RADIX, RUST
from kvledger.tests.engines.venvs import SGLANG
from kvledger.tests.kit import deviations
from kvledger.tests.kit.again import calls_stored, grade_of
from kvledger.tests.kit.check import still_shows
from kvledger.tests.kit.generate import POOLS
from kvledger.tests.kit.lockstep import FULL, Finding, Lockstep
from kvledger.tests.kit.search import Outcome, search
from kvledger.tests.kit.shrink import run_again
from kvledger.tests.unit.sglang_busy import changed, extend, submit

# isort: split
import torch
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.session.streaming_session import StreamingSession

ACTIONS = 1_000


class Repaired(sglang.SGLang0523):
    """The engine behind a caller that makes up for its known faults, so that others can be seen. Nothing of it is
    replaced."""

    def finish(self, rid: ReqId, keep: int, publish: bool) -> Reply:
        """No cut below what is published; and a session is handed no reserved slots."""
        req, before = self.reqs[rid], self.books()
        self.hand_in_drafts(req)
        keep = keep if req.session else max(keep, req.kv.cache_protected_len)
        return replace(super().finish(rid, keep, publish), freed=self.freed(before))

    def retract(self, rid: ReqId) -> Reply:
        """A turn is not the request before itself."""
        req, before = self.reqs[rid], self.books()
        self.hand_in_drafts(req)
        self.strike_out(req)
        return replace(super().retract(rid), freed=self.freed(before))

    def abort(self, rid: ReqId) -> Reply:
        """A turn that is gone is not the last request."""
        if not runs(self.reqs[rid]):
            self.strike_out(self.reqs[rid])
        return super().abort(rid)

    def hand_in_drafts(self, req: Any) -> None:
        if req.session:
            self.tree.session._free_tail(req.kv, req.kv.kv_committed_len)

    def strike_out(self, req: Any) -> None:
        if req.session:
            req.session.req_nodes.pop(req.rid, None)


MAKES: dict[str, Make] = {
    "sglang": partial(Repaired, PYTHON),
    "sglang-rust": partial(Repaired, RUST),
    "sglang-radix": partial(Repaired, RADIX),
    "sglang-no-cache": partial(Repaired, NO_CACHE),
}

# ---- faults, each patched into a class of the engine's


def instead(owner: object, name: str, body: Callable[..., Any]) -> Callable[[], AbstractContextManager[Any]]:
    """In place of what stands there: body is called with it, then with its arguments."""
    theirs = getattr(owner, name)
    return lambda: mock.patch.object(owner, name, lambda *args, **named: body(theirs, *args, **named))


def twice(theirs: Callable[..., Any], slots: Any, *args: object) -> Any:
    taken = theirs(slots, *args)
    if taken is not None:
        slots.free_pages = torch.cat((taken[-1:] // slots.page_size, slots.free_pages))
    return taken


def from_the_start(theirs: Callable[..., Any], tree: Any, params: Any) -> Any:
    return theirs(tree, replace(params, prev_prefix_len=0))


def without_row(theirs: Callable[..., Any], rows: Any, holder: Any) -> None:
    holder.kv.req_pool_idx = None


def every_leaf(theirs: Callable[..., Any], tree: Any, node: Any) -> None:
    theirs(tree, node)
    if node is not tree.root_node and not node.children:
        tree.evictable_leaves.add(node)


def row_kept(theirs: Callable[..., Any], sessions: Any, name: str) -> None:
    with mock.patch.object(sessions.cache.req_to_token_pool, "free", lambda slot: None):
        theirs(sessions, name)


def page_and_all(theirs: Callable[..., Any], sessions: Any, kv: Any, target: int, end: int) -> None:
    theirs(sessions, kv, target - target % sessions.cache.page_size, end)


FAULTS: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "a free frees nothing": ("sglang", instead(PagedTokenToKVPoolAllocator, "free_page_ids", lambda *_: None)),
    "a page is handed out twice": ("sglang", instead(PagedTokenToKVPoolAllocator, "alloc_extend", twice)),
    "an unlock unlocks nothing": ("sglang", instead(UnifiedRadixCache, "unlock", lambda *_: None)),
    "an insertion frees what is published": ("sglang", instead(UnifiedRadixCache, "insert", from_the_start)),
    "a row is not freed": ("sglang", instead(ReqToTokenPool, "free", without_row)),
    "a match takes the whole prompt": ("sglang-rust", instead(Req, "_compute_max_prefix_len", lambda _, req, end: end)),
    "a locked leaf is evicted": ("sglang-radix", instead(RadixCache, "_update_leaf_status", every_leaf)),
    "a close keeps the row": ("sglang-no-cache", instead(StreamingSession, "release_session", row_kept)),
    "a turn's tail takes its page along": ("sglang", instead(StreamingSession, "_free_kv_aligned", page_and_all)),
}


def searched(make: Make) -> Outcome:
    """A short check, in pools of whole pages."""
    sizes = tuple(pool for pool in POOLS if pool[0] > 1)
    return search(make, name="sglang", budget=ACTIONS, seed_number=0, grade=FULL, sizes=sizes)


def faults() -> dict[str, str | None]:
    """The rule that each breaks first."""
    found = {}
    for name, (make, spoil) in FAULTS.items():
        with spoil():
            finding = searched(MAKES[make]).finding
        found[name] = finding.rule if finding else None
    return found


def conform() -> dict[str, str | None]:
    """What breaks without a fault."""
    found = {name: searched(make).finding for name, make in MAKES.items()}
    return {name: finding.rule if finding else None for name, finding in found.items()}


def known() -> dict[str, list[bool]]:
    """Of each deviation that is listed: whether its run shows it, and whether it still does once it is repaired."""
    return {each.witness.name: [still_shows(each, read(each.witness).backend), shows_repaired(each)]
            for each in deviations.read_file(deviations.SHIPPED / "sglang.toml")
            if read(each.witness).backend in backends(SGLANG)}  # fmt: skip


def shows_repaired(deviation: deviations.Deviation) -> bool:
    trace = read(deviation.witness)
    make = MAKES.get(trace.backend, MAKES["sglang"])
    found, _ = run_again(make, trace.world, calls_stored(trace), grade=grade_of(trace), name="sglang", drain=False)
    return found is not None


def thinking() -> dict[str, str | None]:
    """A request that thinks, with strip_thinking_cache, is retracted twice. No action says that it thinks."""
    lockstep = Lockstep(sglang.make, World(rows=4, context_len=12, pages=6, page_size=4))
    acts: tuple[Action, ...] = (
        submit("A", 4), extend("A", 4), *(Decode((("A", token),)) for token in range(3)), Retract("A"),
        extend("A", 8), Checkpoint("A", 8),
    )  # fmt: skip
    for act in acts:
        lockstep.do(act)
    assert isinstance(lockstep.backend, sglang.SGLang0523)
    lockstep.backend.reqs["A"].reasoning_tokens = 3
    try:
        lockstep.do(Retract("A"))
    except Finding as finding:
        return {"retracted twice": finding.rule}
    return {"retracted twice": None}


def closed() -> dict[str, str | None]:
    """What sglang#37167 was before: a close in mid-turn."""
    trace = read(deviations.SHIPPED / "sglang-0.5.10-closed-in-mid-turn.itf.json")
    found, _ = run_again(sglang.make, trace.world, calls_stored(trace), grade=FULL, name="sglang", drain=True)
    return {"in mid-turn": found.rule if found else None}


# ---- books that are spoilt by hand


def nodes(engine: sglang.SGLang0523) -> list[Any]:
    return list(engine.tree.tree_core.root_node.children.values())


def a_row(engine: sglang.SGLang0523) -> None:
    engine.rows.free_slots.append(engine.reqs["A"].kv.req_pool_idx)


def a_page(engine: sglang.SGLang0523) -> None:
    engine.slots.free_pages = engine.slots.free_pages[1:]


def a_length(engine: sglang.SGLang0523) -> None:
    engine.reqs["A"].kv.kv_committed_len -= 1


def a_session(engine: sglang.SGLang0523) -> None:
    engine.tree.session.slots["S"].kv.kv_allocated_len -= 1


def a_column(engine: sglang.SGLang0523) -> None:
    engine.rows.req_to_token[engine.reqs["A"].kv.req_pool_idx, 0] += 4


def a_lock(engine: sglang.SGLang0523) -> None:
    nodes(engine)[0].component(ComponentType.FULL).lock_ref += 1


def a_key(engine: sglang.SGLang0523) -> None:
    nodes(engine)[0].key.token_ids[0] += 1


def a_node(engine: sglang.SGLang0523) -> None:
    engine.tree.tree_core.root_node.children.popitem()


def a_sum(engine: sglang.SGLang0523) -> None:
    engine.tree.tree_core.component_evictable_size_[ComponentType.FULL] += 4


SPOILT = (a_row, a_page, a_length, a_session, a_column, a_lock, a_key, a_node, a_sum)


def views() -> dict[str, list[str]]:
    """The parts of a view that change when one number of the engine's is changed."""
    return changed(sglang.make, SPOILT)


if __name__ == "__main__":
    json.dump({each.__name__: each() for each in (closed, conform, faults, known, thinking, views)}, sys.stdout)
