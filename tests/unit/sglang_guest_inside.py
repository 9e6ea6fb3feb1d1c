"""What test_sglang_generations.py asks of an older SGLang, run by an interpreter that can import it. Takes the name of
the backend; prints one JSON object: question -> answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from kvledger.spec.action import name_of
from kvledger.spec.actions import Extend, Submit
from kvledger.spec.answer import Refused
from kvledger.spec.trace import Step, read
from kvledger.spec.world import World
from kvledger.tests.engines.sglang import SGLang
from kvledger.tests.kit import deviations
from kvledger.tests.kit.check import still_shows
from kvledger.tests.kit.deviations import Deviation
from kvledger.tests.kit.generate import POOLS
from kvledger.tests.kit.load import load_backend, page_sizes
from kvledger.tests.kit.lockstep import FULL, Finding
from kvledger.tests.kit.search import BUDGETS, Outcome, search
from kvledger.tests.kit.shrink import shrink
from kvledger.tests.unit.sglang_busy import busy, changed

# isort: split
import torch
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool

NAME = sys.argv[1]
MAKE: Callable[[World], Any] = load_backend(NAME)
KNOWN = deviations.known(NAME, None)
CLOSED = deviations.SHIPPED / "sglang-0.5.10-closed-in-mid-turn.itf.json"
SIZES = tuple(pool for pool in POOLS if pool[0] in page_sizes(NAME))


def searched(known: tuple[Deviation, ...], budget: int, sizes: Any = SIZES) -> Outcome:
    return search(MAKE, name=NAME, budget=budget, seed_number=0, grade=FULL, sizes=sizes, known=known)


# ---- a close in mid-turn


class InTime(Deviation):
    """A close while a turn lives, unless it leaves one row with two holders: free, and the turn's."""

    def explains(self, finding: Finding, world: World, steps: Sequence[Step]) -> bool:
        """As the entry does, but for what the engine's books say after it."""
        if not super().explains(finding, world, steps):
            return False
        engine = MAKE(world)
        for step in steps:
            engine.do(step.act)
        view = engine.view()
        return not any(record.row in view.free_rows for record in view.records.values())


def found() -> dict[str, Any] | None:
    """What the ci profile finds by itself where it is not told of one row with two holders; shrunk. None: it is not
    told."""
    known = tuple(InTime(**vars(each)) if each.witness == CLOSED else each for each in KNOWN)
    if known == KNOWN:
        return None
    outcome = searched(known, BUDGETS["ci"])
    assert outcome.finding is not None
    small = shrink(MAKE, outcome.world, outcome.steps, outcome.finding, grade=FULL, name=NAME, known=known,
                   draining_since=outcome.draining_since)  # fmt: skip
    return {"rule": small.finding.rule, "by": name_of(small.steps[-1].act), "actions": len(small.steps)}


def rows() -> dict[str, Any]:
    """Who has which row once a session was closed in mid-turn, and two more requests came."""
    trace = read(CLOSED)
    engine = MAKE(trace.world)
    for step in trace.steps:
        engine.do(step.act)
    for req in ("C", "D"):
        engine.do(Submit(req, (req,), 0))
    answer = engine.do(Extend((("C", 1, 0), ("D", 1, 0))))
    turn = engine.view().records["B"].row
    return {"turn": turn, "others": answer.short if isinstance(answer, Refused) else answer.rows}


# ---- what is known, and what is not: faults, each patched into a class of the engine's


def known() -> dict[str, bool]:
    """Whether each run still shows what its entry says."""
    return {each.witness.name: still_shows(each, NAME) for each in KNOWN}


def instead(owner: object, name: str, body: Callable[..., Any]) -> AbstractContextManager[Any]:
    """In place of what stands there: body is called with it, then with its arguments."""
    theirs = getattr(owner, name)
    return mock.patch.object(owner, name, lambda *args, **named: body(theirs, *args, **named))


def twice(theirs: Callable[..., Any], slots: Any, *args: object) -> Any:
    taken = theirs(slots, *args)
    if taken is not None:
        slots.free_pages = torch.cat((taken[-1:] // slots.page_size, slots.free_pages))
    return taken


def without_row(theirs: Callable[..., Any], pool: Any, holder: Any) -> None:
    getattr(holder, "kv", holder).req_pool_idx = None


def faults() -> dict[str, str | None]:
    """The rule that each breaks first, in pools of whole pages."""
    tree = type(getattr(busy(MAKE).tree, "inner", busy(MAKE).tree))
    spoils = {
        "a page is handed out twice": instead(PagedTokenToKVPoolAllocator, "alloc_extend", twice),
        "a row is not freed": instead(ReqToTokenPool, "free", without_row),
        "an unlock unlocks nothing": instead(tree, "dec_lock_ref", lambda *_, **__: None),
    }
    rules = {}
    for name, spoil in spoils.items():
        with spoil:
            finding = searched(KNOWN, BUDGETS["quick"], [pool for pool in SIZES if pool[0] > 1]).finding
        rules[name] = finding.rule if finding else None
    return rules


# ---- books that are spoilt by hand


def root(engine: SGLang) -> Any:
    return getattr(engine.tree, "tree_core", engine.tree).root_node


def a_row(engine: SGLang) -> None:
    engine.rows.free_slots.append(engine.record(engine.reqs["A"]).req_pool_idx)


def a_page(engine: SGLang) -> None:
    engine.slots.free_pages = engine.slots.free_pages[1:]


def a_length(engine: SGLang) -> None:
    engine.record(engine.reqs["A"]).kv_committed_len -= 1


def a_session(engine: SGLang) -> None:
    engine.record(engine.session_slots()["S"]).kv_allocated_len -= 1


def a_column(engine: SGLang) -> None:
    engine.rows.req_to_token[engine.record(engine.reqs["A"]).req_pool_idx, 0] += 4


def a_lock(engine: SGLang) -> None:
    node = next(iter(root(engine).children.values()))
    getattr(node, "component_data", [node])[0].lock_ref += 1


def a_node(engine: SGLang) -> None:
    root(engine).children.popitem()


SPOILT = (a_row, a_page, a_length, a_session, a_column, a_lock, a_node)


def views() -> dict[str, list[str]]:
    """The parts of a view that change when one number of the engine's is changed."""
    return changed(MAKE, SPOILT)


if __name__ == "__main__":
    json.dump({each.__name__: each() for each in (found, rows, known, faults, views)}, sys.stdout)
