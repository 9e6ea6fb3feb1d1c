"""The reference says no: what is refused and what is forbidden leave no trace, and what was released nobody reads."""

from __future__ import annotations

import pytest

from kvledger.reference.backend import Backend, make
from kvledger.spec.actions import (
    Abort,
    Admit,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Defer,
    Evict,
    Extend,
    Finish,
    Flush,
    MatchPrefix,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.backend import Action, RecordView, Refused
from kvledger.spec.world import World
from kvledger.tests.unit.by_hand import ok, start


@pytest.mark.parametrize(
    ("rows", "pages", "short"),
    [(1, 9, "rows"), (2, 5, "pages"), (1, 5, "rows")],
    ids=["rows", "pages", "both"],
)
def test_a_refused_extend_leaves_no_trace(rows: int, pages: int, short: str) -> None:
    """b and c match page 1 and need two pages each; page 1 is cached, but what a call has matched is no room.

    With 5 pages 4 are free besides page 1: e holds one of them, so 3 are left for a demand of 4.
    """
    backend = make(World(rows=rows + 1, context_len=8, pages=pages, page_size=2))
    start(backend, "a", "AB")
    ok(backend, Finish("a", 2, True))
    start(backend, "e", "E")
    for req in ("b", "c"):
        ok(backend, Submit(req, tuple("ABCDE"), "n"))
    before = backend.view()
    assert backend.do(Extend((("b", 5, "z"), ("c", 5, "z")))) == Refused(short)
    assert backend.view() == before
    assert backend.reqs["b"].tokens == list("ABCDE")
    ok(backend, Extend((("b", 5, "z"),)))  # half of it fits


def test_a_refused_decode_leaves_no_trace() -> None:
    """a and b fill a page each and both need another; there is one."""
    backend = make(World(rows=2, context_len=8, pages=3, page_size=2))
    start(backend, "a", "AB")
    start(backend, "b", "CD")
    before = backend.view()
    assert backend.do(Decode((("a", "y"), ("b", "y")))) == Refused("pages")
    assert backend.view() == before
    assert ok(backend, Decode((("a", "y"),))).slots == [[6]]


FORBIDDEN: list[Action] = [
    Submit("run", ("A",), "n"),
    Submit("new", (), "n"),
    Submit("new", ("A", None), "n"),
    Submit("new", ("A",), "n", -1),
    Submit("idle", ("A",), "n"),  # a session's id
    Submit("new", ("A",), "n", session="new"),
    Submit("new", ("A",), "n", session="run"),  # a request's id
    Submit("new", ("A",), "n", 3, session="other"),  # a turn with a limit
    Submit("new", tuple("STUV"), "m", session="idle"),  # another namespace
    Submit("new", tuple("STXV"), "n", session="idle"),  # other tokens
    Submit("new", tuple("ST"), "n", session="idle"),  # below protected
    Submit("new", ("D",), "n", session="plain"),  # nothing to go on from
    Submit("new", tuple("GHIJ"), "n", session="busy"),
    Submit("new", tuple("EFGH"), "n", session="asked"),
    Admit("nobody"),
    Admit("run"),
    Admit("ready"),
    Defer("nobody"),
    Defer("wait"),
    Defer("run"),
    MatchPrefix("nobody"),
    MatchPrefix("run"),
    MatchPrefix("ready"),
    MatchPrefix("turn"),  # it goes on with its session's record
    Extend(()),
    Extend((("wait", 3, None), ("nobody", 1, None))),
    Extend((("wait", 1, None), ("wait", 2, None))),
    Extend((("wait", 5, None),)),  # the end without a token
    Extend((("wait", 4, "z"),)),  # a token before the end
    Extend((("wait", 6, "z"),)),  # beyond its tokens
    Extend((("wait", 2, None),)),  # matched already
    Extend((("ready", 2, None),)),  # admitted with it
    Extend((("turn", 3, None),)),  # its session has it
    Extend((("turn", 4, "z"), ("wait", 2, None))),
    Extend((("half", 2, None),)),  # computed already
    Extend((("long", 7, "z"),)),  # wider than a row
    Extend((("draft", 3, "y"),)),  # over-allocated
    Decode(()),
    Decode((("run", "y"), ("run", "y"))),
    Decode((("run", None),)),
    Decode((("half", "y"),)),  # not caught up
    Decode((("wait", "y"),)),
    Decode((("ready", "y"),)),
    Decode((("full", "y"),)),  # its row is full
    Decode((("draft", "y"),)),  # over-allocated
    Reserve("nobody", 1),
    Reserve("wait", 1),
    Reserve("half", 1),
    Reserve("run", 0),
    Commit("nobody", ("y",)),
    Commit("wait", ("y",)),
    Commit("run", ("y",)),  # no slot for the pending token
    Commit("draft", ()),
    Commit("draft", ("y", None)),
    Commit("draft", tuple("wxy")),  # a slot too few
    Checkpoint("wait", 0),
    Checkpoint("ready", 0),
    Checkpoint("idle", 2),
    Checkpoint("run", 4),
    Checkpoint("run", 1),  # below protected
    Checkpoint("run", -1),
    Checkpoint("draft", 3),  # drafts
    Finish("wait", 0, False),
    Finish("ready", 0, False),
    Finish("idle", 3, False),
    Finish("run", 4, True),
    Finish("run", -1, True),
    Finish("draft", 3, True),
    Finish("lives", 3, True),  # a turn publishes nothing
    Finish("lives", 1, False),  # below protected
    Finish("first", 0, False),  # leaves nothing
    Retract("wait"),
    Retract("ready"),
    Retract("idle"),
    Abort("nobody"),
    Abort("idle"),
    Close("nobody"),
    Close("run"),
    Close("closed"),  # once is enough
    Evict(0),
    Flush(),
]


@pytest.mark.parametrize("action", FORBIDDEN, ids=repr)
def test_a_forbidden_call_is_refused_and_leaves_no_trace(action: Action) -> None:
    """run: 3 of 4 tokens with KV, 2 published. half: 2 of 4. full: 6 of 7, a row's width. wait: none of 5. ready:
    admitted. draft: 2 of 3, with slots for 4.

    Sessions: idle has 3 tokens, 2 published, and plain 1; the turn lives of busy runs, like first of new1 and gone of
    closed, which was closed; turn of asked waits.
    """
    backend = make(World(rows=10, context_len=6, pages=30, page_size=2))
    start(backend, "run", "ABC")
    ok(backend, Checkpoint("run", 3))
    ok(backend, Submit("half", tuple("JKLM"), "n"))
    ok(backend, Extend((("half", 2, None),)))
    start(backend, "full", "UVWXYZ")
    ok(backend, Submit("wait", tuple("ABXYZ"), "n"))
    ok(backend, Submit("long", tuple("1234567"), "n"))
    ok(backend, Submit("ready", tuple("ABQ"), "n"))
    ok(backend, Admit("ready"))
    start(backend, "draft", "PQ")
    ok(backend, Reserve("draft", 1))
    start(backend, "one", "STU", session="idle")
    ok(backend, Checkpoint("one", 3))
    ok(backend, Finish("one", 3, False))
    start(backend, "one", "D", session="plain")
    ok(backend, Finish("one", 1, False))
    start(backend, "lives", "GHI", session="busy")
    ok(backend, Checkpoint("lives", 3))
    start(backend, "first", "1", session="new1")
    start(backend, "gone", "2", session="closed")
    ok(backend, Close("closed"))
    start(backend, "one", "EFG", session="asked")
    ok(backend, Finish("one", 3, False))
    ok(backend, Submit("turn", tuple("EFGz"), "n", session="asked"))
    before, known = backend.view(), memory(backend)
    assert backend.do(action) == Refused()
    assert backend.view() == before
    assert memory(backend) == known


def memory(backend: Backend) -> list[object]:
    """What no view shows: tokens, who is admitted, and what the sessions know."""
    asked = [(req.rid, list(req.tokens), req.match, req.last_node) for req in backend.reqs.values()]
    kept = [(name, list(each.tokens), each.turn, each.closing) for name, each in backend.sessions.items()]
    return [asked, kept]


def test_a_refused_reserve_leaves_no_trace() -> None:
    """a needs a page more than b has left; two more slots stand in the page that it has."""
    backend = make(World(rows=2, context_len=12, pages=3, page_size=4))
    start(backend, "a", "AB")
    start(backend, "b", "CDEF")
    start_of_b = backend.view()
    ok(backend, Reserve("b", 1))
    before = backend.view()
    assert before != start_of_b
    assert backend.do(Reserve("a", 3)) == Refused("pages")
    assert backend.view() == before
    assert ok(backend, Reserve("a", 2)).slots == [[6, 7]]


def test_nobody_reads_a_released_record() -> None:
    """A retracted request starts again with all its tokens, whatever became of its old lengths."""
    answers = []
    for scrambled in (False, True):
        backend = make(World(rows=1, context_len=8, pages=4, page_size=2))
        start(backend, "a", "ABC")
        ok(backend, Checkpoint("a", 3))
        ok(backend, Retract("a"))
        before = backend.view()
        if scrambled:
            backend.scramble()
        assert backend.view() == before and backend.reqs["a"].kv.kv_allocated_len == 0
        assert backend.do(Decode((("a", "y"),))) == Refused()
        answers.append(ok(backend, Extend((("a", 4, "y"),))))
        assert backend.view().records == {"a": RecordView(1, 2, 4, 4)}
    assert answers[0] == answers[1]
