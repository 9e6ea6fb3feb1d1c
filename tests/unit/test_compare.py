"""Each way in which a backend's books can disagree with the law, one corruption of an honest view for each.

The honest run: a reads a cached page and has one of its own; b has left two cached pages, one prefix and its
beginning; c has left one in another namespace; d waits; some pages and rows are free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kvledger.reference import backend as reference
from kvledger.spec.actions import Action, Checkpoint, Extend, Finish, Flush, Submit
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.backend import CachedView, Make, RecordView, View
from kvledger.spec.compare import RULE_OF, differences
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.page import CACHED, PRIVATE, Page
from kvledger.spec.rules import RULES, Broken
from kvledger.spec.world import Declaration, World
from kvledger.tests.engines import blocks

WORLD = World(rows=3, context_len=8, pages=9, page_size=2)
RUN: tuple[Action, ...] = (
    Submit("a", (1, 2, 3), "n"), Extend((("a", 3, 0),)), Checkpoint("a", 3),
    Submit("b", (5, 6, 7, 8), "n"), Extend((("b", 4, 0),)), Finish("b", 4, True),
    Submit("c", (1, 2, 3), "m"), Extend((("c", 3, 0),)), Finish("c", 3, True),
    Submit("d", (1,), "n"),
)  # fmt: skip
TWINS: tuple[Action, ...] = (  # both compute their one page for themselves, and both publish it
    Submit("a", (1, 2), "n"), Extend((("a", 2, 0),)), Submit("b", (1, 2), "n"), Extend((("b", 2, 0),)),
)  # fmt: skip
Corrupt = Callable[[View, Ledger], View]


def performed(make: Make, acts: Sequence[Action]) -> tuple[Monitor, View]:
    """A run that is judged, and the books after it."""
    backend = make(WORLD)
    monitor = Monitor(replace(WORLD, declared=backend.declare()))
    for act in acts:
        monitor.step(act, backend.do(act))
    view = backend.view()
    assert view is not None
    return monitor, view


def page(ledger: Ledger, fits: Callable[[Page], bool]) -> int:
    """The first page that fits."""
    return next(number for number in range(1, WORLD.pages + 1) if fits(ledger.page(number)))


def private(ledger: Ledger) -> int:
    return page(ledger, lambda state: state.kind == PRIVATE)


def locked(ledger: Ledger) -> int:
    return page(ledger, lambda state: state.locks > 0)


def cached(ledger: Ledger) -> int:
    return page(ledger, lambda state: state.kind == CACHED and not state.locks)


def record(view: View, **changes: int) -> View:
    assert view.records is not None
    return replace(view, records={"a": view.records["a"]._replace(**changes)})


def without_cause(view: View) -> View:
    return replace(view, records={**(view.records or {}), "d": RecordView(2, 0, 1, 1)})


def column(view: View, move: int) -> View:
    assert view.table is not None
    first, *others = view.table["a"]
    return replace(view, table={"a": [first + move, *others]})


def rows(view: View, *more: int) -> View:
    assert view.free_rows is not None
    return replace(view, free_rows=[*view.free_rows, *more])


def pages(view: View, *more: int) -> View:
    assert view.free_pages is not None
    return replace(view, free_pages=[*view.free_pages, *more])


def shown(view: View, number: int, key: object = "of its own") -> View:
    return replace(view, cached={**(view.cached or {}), number: CachedView(key, 0)})


def one_key(view: View, ledger: Ledger, near: bool) -> View:
    """Two pages under one key: of one namespace, or of two."""
    assert view.cached is not None
    roots = {number: ledger.index[ledger.page(number).owner].root for number in view.cached}
    for one in view.cached:
        for other in view.cached:
            if one != other and (roots[one] == roots[other]) == near and not ledger.page(other).locks:
                return shown(view, other, view.cached[one].key)
    raise AssertionError


def totals(view: View) -> View:
    assert view.totals is not None
    return replace(view, totals=view.totals._replace(available=view.totals.available + 1))


def more_locks(view: View, number: int) -> View:
    assert view.cached is not None
    key, locks = view.cached[number]
    return replace(view, cached={**view.cached, number: CachedView(key, locks + 1)})


CASES: dict[str, Corrupt] = {
    "holds KV without cause": lambda view, _: without_cause(view),
    "holds no KV though it should": lambda view, _: replace(view, records={}),
    "is on another row": lambda view, ledger: record(view, row=WORLD.rows + 1 - (ledger.records["a"].row or 0)),
    "has lengths out of order": lambda view, _: record(view, committed_len=4),
    "has other lengths": lambda view, _: record(view, protected_len=0),
    "row 0 is on the free list": lambda view, _: rows(view, 0),
    "a row that does not exist is on the free list": lambda view, _: rows(view, WORLD.rows + 1),
    "the row is on the free list more than once": lambda view, _: rows(view, *(view.free_rows or ())),
    "a held row is on the free list": lambda view, ledger: rows(view, ledger.records["a"].row or 0),
    "a free row is not on the free list": lambda view, _: replace(view, free_rows=list(view.free_rows or ())[1:]),
    "a column lies at the wrong offset": lambda view, _: column(view, 1),
    "a column lists another page": lambda view, _: column(view, WORLD.page_size),
    "page 0 is on the free list": lambda view, _: pages(view, 0),
    "a page that does not exist is on the free list": lambda view, _: pages(view, WORLD.pages + 1),
    "the page is on the free list more than once": lambda view, _: pages(view, *(view.free_pages or ())[:1]),
    "a private page is on the free list": lambda view, ledger: pages(view, private(ledger)),
    "a cached page is on the free list": lambda view, ledger: pages(view, cached(ledger)),
    "a locked page is on the free list": lambda view, ledger: pages(view, locked(ledger)),
    "a free page is not on the free list": lambda view, _: replace(view, free_pages=list(view.free_pages or ())[1:]),
    "a private page is in the cache": lambda view, ledger: shown(view, private(ledger)),
    "a free page is in the cache": lambda view, ledger: shown(view, page(ledger, lambda state: not state.kind)),
    "a cached page is not in the cache": lambda view, _: replace(view, cached={}),
    "two namespaces have one key": lambda view, ledger: one_key(view, ledger, near=False),
    "two prefixes have one key": lambda view, ledger: one_key(view, ledger, near=True),
    "one prefix has two keys": lambda view, ledger: shown(view, max(view.cached or ())),
    "the page has other locks": lambda view, ledger: more_locks(view, cached(ledger)),
    "the totals differ": lambda view, _: totals(view),
}


def honest(kind: str) -> tuple[Monitor, View]:
    """The run in which this disagreement can be."""
    twins = kind == "one prefix has two keys"
    return performed(blocks.make, TWINS) if twins else performed(reference.make, RUN)


def test_there_is_a_case_for_every_kind_and_a_rule_behind_it() -> None:
    assert CASES.keys() == RULE_OF.keys()
    assert set(RULE_OF.values()) <= set(RULES)


@pytest.mark.parametrize("kind", CASES)
def test_each_disagreement_breaks_its_rule(kind: str) -> None:
    """Granted: the mapped rule. Refused: ATOM-1. A probe: GUARD-1. The facts say which, about what, and both sides."""
    monitor, view = honest(kind)
    assert list(differences(monitor.ledger, view)) == []
    monitor.compare(view, Flush(), Granted())
    wrong = CASES[kind](view, monitor.ledger)
    for answer, rule in ((Granted(), RULE_OF[kind]), (Refused("pages"), "ATOM-1"), (None, "GUARD-1")):
        with pytest.raises(Broken) as broken:
            monitor.compare(wrong, Flush(), answer)
        assert (broken.value.rule, broken.value.facts["kind"]) == (rule, kind)
        assert broken.value.facts["law"] != broken.value.facts["backend"] and broken.value.facts["by"] == "flush"


def test_what_went_wrong_first_is_named_first() -> None:
    """Records before rows before pages, then the table, the cache and the sums: the rest may follow from these."""
    monitor, right = performed(reference.make, RUN)
    broken = ["has other lengths", "a free row is not on the free list", "a free page is not on the free list",
              "a column lists another page", "the page has other locks", "the totals differ"]  # fmt: skip
    wrong = right
    for kind in reversed(broken):
        wrong = CASES[kind](wrong, monitor.ledger)
    assert [found.kind for found in differences(monitor.ledger, wrong)] == broken


@pytest.mark.parametrize(("rows", "kinds"), [(True, ["a free row is not on the free list"] * 3), (False, [])])
def test_who_has_no_rows_shows_none(rows: bool, kinds: list[str]) -> None:
    declared = Declaration("mine", capabilities=frozenset({"PAGED", *(["ROWS"] * rows)}))
    empty = Monitor(replace(WORLD, declared=declared)).ledger
    assert [found.kind for found in differences(empty, View(free_rows=[]))] == kinds


def test_what_is_not_shown_is_not_compared() -> None:
    monitor, _ = honest("the totals differ")
    assert list(differences(monitor.ledger, View())) == []


@pytest.mark.parametrize(
    ("corrupt", "kinds"),
    [
        # a table of a request that holds nothing
        (lambda view: replace(view, table={**view.table, "d": [2, 3]}), ["holds KV without cause"]),
        # each part of the totals
        (lambda view: replace(view, totals=view.totals._replace(evictable=9)), ["the totals differ"]),
        (lambda view: replace(view, totals=view.totals._replace(protected=9)), ["the totals differ"]),
        (lambda view: replace(view, totals=view.totals._replace(private=9)), ["the totals differ"]),
        # each length
        (lambda view: record(view, protected_len=-2), ["has lengths out of order", "has other lengths"]),
        (lambda view: record(view, committed_len=2), ["has other lengths"]),
        (lambda view: record(view, allocated_len=4), ["has other lengths"]),
        (lambda view: record(view, allocated_len=9), ["has lengths out of order", "has other lengths"]),
        # every row and page that is lost, once
        (lambda view: replace(view, free_rows=[]), ["a free row is not on the free list"] * 2),
        (lambda view: replace(view, free_pages=view.free_pages[2:]), ["a free page is not on the free list"] * 2),
        # a list that is too short, and one that says nothing of a request
        (lambda view: replace(view, table={"a": view.table["a"][:-1]}), ["a column lists another page"]),
        (lambda view: replace(view, table={}), ["a column lists another page"]),
        # what lies behind the allocated length is nobody's
        (lambda view: replace(view, table={"a": [*view.table["a"], 0, 1]}), []),
    ],
)
def test_how_many_disagreements_there_are(corrupt: Callable[[View], View], kinds: list[str]) -> None:
    monitor, view = performed(reference.make, RUN)
    assert [found.kind for found in differences(monitor.ledger, corrupt(view))] == kinds


def test_lengths_by_the_page_are_held_to_the_page() -> None:
    """Declared exact_lengths False: allocated 3 is shown as 4, and 3 or 6 would be wrong; committed stays exact."""
    backend = reference.make(WORLD)
    loose = Monitor(replace(WORLD, declared=replace(backend.declare(), exact_lengths=False)))
    for act in RUN:
        loose.step(act, backend.do(act))
    view = backend.view()
    assert view is not None
    right = record(view, allocated_len=4)
    assert list(differences(loose.ledger, right)) == []
    for wrong in (view, record(view, allocated_len=6), record(right, committed_len=4)):
        assert [found.kind for found in differences(loose.ledger, wrong)] == ["has other lengths"]
