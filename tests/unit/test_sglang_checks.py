"""What SGLang checks by itself, computed on anybody's books: which of its two checks sees which fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kvledger.reference import backend as reference
from kvledger.spec.actions import Extend, Finish, Submit
from kvledger.spec.backend import View
from kvledger.spec.world import World
from kvledger.tests.zoo.sglang_checks import idle_sum_holds, page_check_holds

WORLD = World(rows=2, context_len=4, pages=4, page_size=2)


def books(running: bool) -> View:
    backend = reference.make(WORLD)
    backend.do(Submit("a", (1, 2, 3), "n"))
    backend.do(Extend((("a", 3, 0),)))
    if not running:
        backend.do(Finish("a", 3, True))
    view = backend.view()
    assert view is not None
    return view


def free(view: View, *more: int) -> View:
    return replace(view, free_pages=[*(view.free_pages or ()), *more])


@pytest.mark.parametrize(
    ("running", "spoil", "sum_holds", "pages_hold"),
    [
        (False, lambda view: view, True, True),
        (True, lambda view: view, True, True),
        # a page too few, a row too few: only the sum sees it, and only at idle
        (False, lambda view: replace(view, totals=view.totals._replace(available=1)), False, True),
        (False, lambda view: replace(view, free_rows=view.free_rows[1:]), False, True),
        (True, lambda view: replace(view, totals=view.totals._replace(available=1)), True, True),
        # a page twice on the free list, a page of a request on it, lengths that do not climb: only the page check does
        (True, lambda view: free(view, view.free_pages[0]), True, False),
        (True, lambda view: free(view, view.table["a"][0] // 2), True, False),
        (True, lambda view: replace(view, records={"a": view.records["a"]._replace(committed_len=4)}), True, False),
    ],
)
def test_what_sglang_would_see(
    running: bool, spoil: Callable[[View], View], sum_holds: bool, pages_hold: bool
) -> None:
    view = spoil(books(running))
    assert (idle_sum_holds(view, WORLD), page_check_holds(view, WORLD)) == (sum_holds, pages_hold)


def test_what_an_idle_session_holds_is_counted() -> None:
    """Its rows and private pages are no leak; but for a session that nobody knows, they say nothing."""
    backend = reference.make(WORLD)
    backend.do(Submit("a", (1, 2, 3), "n", session="s"))
    backend.do(Extend((("a", 3, 0),)))
    backend.do(Finish("a", 3, False))
    view = backend.view()
    assert view is not None and list(view.records or ()) == ["s"]
    lost = replace(view, totals=view.totals._replace(available=1)) if view.totals else view
    assert idle_sum_holds(view, WORLD, {"s"}) and not idle_sum_holds(lost, WORLD, {"s"})
    assert idle_sum_holds(lost, WORLD)
