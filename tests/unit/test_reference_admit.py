"""The reference admits: a request matches and locks before it takes a row, and may be deferred, aborted, started.

Pages hold two tokens. Page 1 is cached under AB, pages 1 and 2 under ABCD.
"""

from __future__ import annotations

import pytest

from kvledger.reference.backend import Backend, make, make_chunk_cache
from kvledger.spec.actions import Abort, Admit, Checkpoint, Defer, Evict, Extend, Finish, Flush, MatchPrefix, Submit
from kvledger.spec.backend import Action, Freed, RecordView, Refused, Reply
from kvledger.spec.world import World
from kvledger.tests.unit.by_hand import adds_up, ok, records, start


def cached(rows: int = 2, pages: int = 6) -> Backend:
    """ABCD is cached, and b, which may start from AB, waits."""
    backend = make(World(rows=rows, context_len=12, pages=pages, page_size=2))
    start(backend, "a", "ABCD")
    ok(backend, Finish("a", 4, True))
    ok(backend, Submit("b", tuple("ABX"), "n"))
    return backend


def locks(backend: Backend) -> dict[int, int]:
    """How many read each cached page."""
    return {page: shown.locks for page, shown in (backend.view().cached or {}).items()}


def test_a_question_changes_nothing() -> None:
    """It is told what it would start from, also once more is cached."""
    backend = cached()
    ok(backend, MatchPrefix("b"))  # where the match ends the edge is split
    before = backend.view()
    assert ok(backend, MatchPrefix("b")) == Reply(matched=[[2, 3]])
    assert backend.view() == before and backend.reqs["b"].match is None
    ok(backend, Submit("c", tuple("ABCDE"), "n", 3))
    assert ok(backend, MatchPrefix("c")).matched == [[2, 3]]  # its match_limit
    ok(backend, Submit("d", tuple("ABCDE"), "m"))
    assert ok(backend, MatchPrefix("d")).matched == [[]]


def test_an_admitted_request_locks_and_holds_no_row() -> None:
    """Page 1 cannot be evicted, page 2 can."""
    backend = cached()
    assert ok(backend, Admit("b")) == Reply(matched=[[2, 3]])
    assert (locks(backend), records(backend)) == ({1: 1, 2: 0}, {})
    assert ok(backend, Evict(2)).evicted == {2}
    assert backend.read("b") == []


def test_it_starts_with_what_it_was_admitted_with() -> None:
    """More is cached by then: it does not match again, and locks nothing twice."""
    backend = make(World(rows=2, context_len=12, pages=8, page_size=2))
    for req in ("a", "b"):
        ok(backend, Submit(req, tuple("ABCDE"), "n"))
    assert ok(backend, Admit("b")).matched == [[]]
    ok(backend, Extend((("a", 5, "z"),)))
    ok(backend, Checkpoint("a", 5))
    ok(backend, Submit("c", tuple("ABCDE"), "n"))
    assert ok(backend, Admit("c")).matched == [[2, 3, 4, 5]]
    answer = ok(backend, Extend((("b", 2, None),)))
    assert (answer.matched, answer.slots, answer.freed) == ([[]], [[8, 9]], None)
    ok(backend, Finish("a", 5, True))
    answer = ok(backend, Extend((("c", 5, "z"),)))
    assert (answer.rows, answer.matched, len(answer.slots[0])) == ([2], [[2, 3, 4, 5]], 1)
    assert locks(backend) == {1: 1, 2: 1}
    ok(backend, Finish("c", 5, True))
    assert locks(backend) == {1: 0, 2: 0}


def test_a_deferred_request_matches_again() -> None:
    """Its lock is dropped, so what it had matched may go."""
    backend = cached()
    ok(backend, Admit("b"))
    assert ok(backend, Defer("b")) == Reply()
    assert locks(backend) == {1: 0, 2: 0}
    assert ok(backend, Evict(2)).evicted == {1, 2}
    assert ok(backend, Admit("b")).matched == [[]]
    assert ok(backend, Extend((("b", 3, "z"),))).matched == [[]]


def test_an_aborted_request_drops_its_lock() -> None:
    """And nothing is freed."""
    backend = cached()
    ok(backend, Admit("b"))
    assert ok(backend, Abort("b")).freed == Freed()
    assert locks(backend) == {1: 0, 2: 0} and backend.reqs == {}


def test_who_is_refused_stays_admitted() -> None:
    """b and c match page 1; of a call that wants too much b keeps its lock, and c, not admitted, has none."""
    backend = cached(pages=4)
    ok(backend, Submit("c", tuple("AB1234567"), "n"))
    ok(backend, Admit("b"))
    assert backend.do(Extend((("b", 3, "z"), ("c", 9, "z")))) == Refused("pages")
    adds_up(backend)
    assert locks(backend) == {1: 1, 2: 0} and backend.reqs["b"].match is not None
    assert backend.do(Extend((("b", 2, None),))) == Refused()
    assert ok(backend, Extend((("b", 3, "z"),))).matched == [[2, 3]]


def test_what_is_admitted_is_no_room() -> None:
    """Two pages are free and one may be evicted: page 1 is b's."""
    backend = cached(pages=4)
    ok(backend, Admit("b"))
    ok(backend, Submit("c", tuple("1234567"), "n"))
    assert backend.do(Extend((("c", 7, "z"),))) == Refused("pages")
    assert ok(backend, Extend((("c", 6, None),))).evicted == {2}


def test_a_flush_waits_for_who_is_admitted() -> None:
    """Also where it matched nothing."""
    backend = make(World(rows=1, context_len=12, pages=4, page_size=2))
    ok(backend, Submit("b", tuple("ABX"), "n"))
    ok(backend, Admit("b"))
    assert backend.do(Flush()) == Refused()
    ok(backend, Defer("b"))
    ok(backend, Flush())


def with_turn(tokens: str) -> Backend:
    """S is idle with ABCDE, [0, 2) published; its turn t waits."""
    backend = make(World(rows=2, context_len=12, pages=6, page_size=2))
    start(backend, "a", "ABCDE", session="S")
    ok(backend, Checkpoint("a", 2))
    ok(backend, Finish("a", 5, False))
    ok(backend, Submit("t", tuple(tokens), "n", session="S"))
    return backend


@pytest.mark.parametrize(("tokens", "freed"), [("ABCDEF", ()), ("ABX", (2, 3))])
def test_an_admitted_turn_has_its_session_trimmed(tokens: str, freed: tuple[int, ...]) -> None:
    """It matches nothing and takes no row; then it starts, and nothing is left to trim."""
    backend = with_turn(tokens)
    length = min(5, len(tokens) - 1)
    answer = ok(backend, Admit("t"))
    assert (list(answer.matched), answer.freed) == ([], Freed(freed))
    assert records(backend) == {"S": RecordView(2, 2, length, length)}
    for action in (Admit("t"), MatchPrefix("t"), Finish("t", 2, False)):
        assert backend.do(action) == Refused()
    answer = ok(backend, Extend((("t", len(tokens), "z"),)))
    assert (answer.rows, answer.matched, answer.freed) == ([], [], Freed())
    assert records(backend) == {"t": RecordView(2, 2, len(tokens), len(tokens))}


@pytest.mark.parametrize("end", [Defer("t"), Abort("t")], ids=repr)
def test_an_admitted_turn_that_does_not_start_leaves_the_session_trimmed(end: Action) -> None:
    """The record is the session's, its lock too."""
    backend = with_turn("ABX")
    ok(backend, Admit("t"))
    answer = ok(backend, end)
    assert answer.freed in (None, Freed())
    assert records(backend) == {"S": RecordView(2, 2, 2, 2)}
    assert locks(backend) == {1: 1}
    if "t" not in backend.reqs:
        ok(backend, Submit("t", tuple("ABX"), "n", session="S"))
    assert ok(backend, Admit("t")).freed == Freed()


def test_a_first_turn_is_admitted_like_any_request() -> None:
    """It matches, and starts with a row of its own."""
    backend = cached()
    ok(backend, Submit("t", tuple("ABCDE"), "n", session="S"))
    assert ok(backend, MatchPrefix("t")).matched == [[2, 3, 4, 5]]
    assert ok(backend, Admit("t")) == Reply(matched=[[2, 3, 4, 5]])
    answer = ok(backend, Extend((("t", 5, "z"),)))
    assert (answer.rows, answer.matched, answer.freed) == ([2], [[2, 3, 4, 5]], None)


def test_without_a_prefix_cache() -> None:
    """Who is admitted has matched nothing."""
    backend = make_chunk_cache(World(rows=1, context_len=8, pages=4, page_size=2))
    assert backend.declare().has("SPLIT_ADMIT")
    ok(backend, Submit("a", tuple("ABC"), "n"))
    assert ok(backend, MatchPrefix("a")) == ok(backend, Admit("a")) == Reply(matched=[[]])
    answer = ok(backend, Extend((("a", 3, "z"),)))
    assert (answer.rows, answer.matched, answer.slots) == ([1], [[]], [[2, 3, 4]])
