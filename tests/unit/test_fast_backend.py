"""The fast backend: nobody accuses it, whatever the page size, and it owns what the reference owns, step by step."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import pytest

from kvledger.reference.backend import RADIX
from kvledger.reference.backend import make as make_reference
from kvledger.spec.actions import Abort, Action, Checkpoint, Close, Extend, Finish, Flush, Retract, Submit
from kvledger.spec.backend import Refused, Reply, View
from kvledger.spec.world import World
from kvledger.tests.kit.generate import POOLS, Pool
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Grade
from kvledger.tests.kit.search import search
from kvledger.tests.unit.test_page_sizes import ODD
from kvledger.tests.unit.test_reference_random import Caller
from kvledger.tests.unit.written import Bench


def test_without_torch_there_is_one_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    says = "kvledger check: backend 'fast': needs torch: pip install 'kvledger[fast]'"
    assert bench.complaint("check", "fast").strip() == says


torch = pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
from kvledger.fast.backend import DECLARED, Backend, make, make_cuda


def test_it_declares_what_the_reference_declares() -> None:
    assert DECLARED.capabilities == RADIX.capabilities and DECLARED.publishes_on == RADIX.publishes_on


@pytest.mark.parametrize("sizes", [pool for pool in POOLS if pool[0] in (1, 3, 4, 16)] + list(ODD), ids=str)
def test_nobody_is_accused(sizes: Pool) -> None:
    """600 actions each, every step compared, the drain probe after every run."""
    outcome = search(load_backend("fast"), name="fast", budget=600, seed_number=3, grade=Grade(), sizes=(sizes,))
    assert outcome.finding is None, (outcome.finding.rule, outcome.finding.facts)
    assert outcome.actions >= 600


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_nobody_is_accused_on_cuda() -> None:
    """All pools, 1,000 actions."""
    outcome = search(make_cuda, name="fast on CUDA", budget=1_000, seed_number=3, grade=Grade())
    assert outcome.finding is None, (outcome.finding.rule, outcome.finding.facts)


@pytest.mark.parametrize("page_size", [1, 2, 3, 4])
def test_it_owns_what_the_reference_owns(page_size: int) -> None:
    """Calls at random, allowed and forbidden: the same is granted, and every page is whose it is in the reference."""
    for seed in range(6):
        world = World(rows=3, context_len=9, pages=12 // page_size, page_size=page_size)
        reference, fast = make_reference(world), make(world)
        caller = Caller(reference, seed)
        for _ in range(300):
            action = caller.call()
            theirs, ours = reference.do(action), fast.do(action)
            assert said(ours) == said(theirs), action
            assert owned(fast.view(), world) == owned(reference.view(), world), action
            reference.scramble()
            fast.scramble()
        drained(fast)


def said(answer: Reply | Refused) -> list[Any]:
    """An answer without the names of pages and rows: of how many it speaks, where."""
    freed = answer.freed and [len(part) for part in answer.freed]
    if isinstance(answer, Refused):
        return [answer.short, len(answer.evicted), freed]
    counts = [[len(each) for each in part] for part in (answer.matched, answer.slots)]
    return [len(answer.rows), *counts, dict(answer.published), len(answer.evicted), freed]


def owned(view: View, world: World) -> list[Any]:
    """Who holds how much; and of every page, without its name, who lists it where, its state and its locks."""
    assert view.records is not None and view.table is not None
    assert view.cached is not None and view.free_pages is not None
    listed: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for holder, slots in view.table.items():
        for position in range(0, len(slots), world.page_size):
            listed[slots[position] // world.page_size].append((holder, position))
    pages = [
        (page in view.free_pages, view.cached[page].locks if page in view.cached else -1, sorted(listed[page]))
        for page in range(1, world.pages + 1)
    ]
    return [{holder: record[1:] for holder, record in view.records.items()}, sorted(pages), view.totals]


def drained(backend: Backend) -> None:
    """Everything ends, the cache is emptied: then all is free, once."""
    for req in list(backend.reqs):
        backend.do(Abort(req))
    for session in list(backend.sessions):
        backend.do(Close(session))
    backend.ledger.evict(backend.ledger.cache.evictable)
    view = backend.view()
    assert sorted(view.free_pages or ()) == list(range(1, backend.world.pages + 1))
    assert sorted(view.free_rows or ()) == list(range(1, backend.world.rows + 1))
    assert not view.cached and not view.records


def test_a_turn_whose_session_was_emptied_starts_like_any_request() -> None:
    """Turn b went on with the record that a left, was retracted, and a flush took the record: b publishes again."""
    backend = make(World(rows=2, context_len=8, pages=8, page_size=1))
    calls: list[Action] = [
        Submit("a", (1, 2), 0, session="S"), Extend((("a", 2, 0),)), Finish("a", 2, False),
        Submit("b", (1, 2, 3), 0, session="S"), Extend((("b", 3, 0),)), Checkpoint("b", 3),
    ]  # fmt: skip
    for call in calls:
        answer = backend.do(call)
    assert isinstance(answer, Reply) and answer.published == {"b": 0}
    for call in (Retract("b"), Flush(), Extend((("b", 4, 0),)), Checkpoint("b", 3)):
        answer = backend.do(call)
    assert isinstance(answer, Reply) and answer.published == {"b": 3}


def test_equal_tokens_are_one_whatever_their_type() -> None:
    """1, 1.0 and True are equal, so they are one token; "1" is another."""
    backend = make(World(rows=2, context_len=8, pages=8, page_size=1))
    calls: list[Action] = [Submit("a", (1, "1", 2), 0), Extend((("a", 3, 0),)), Submit("b", (True, "1", 3), 0)]
    for call in calls:
        assert isinstance(backend.do(call), Reply)
    assert backend.reqs["a"].tokens[:2] == backend.reqs["b"].tokens[:2]
    assert len(set(backend.reqs["a"].tokens)) == 4
