"""The reference reserves slots for drafts and commits them, and gives back what was left over at each way to end."""

from __future__ import annotations

import pytest

from kvledger.reference.backend import Backend, make, make_chunk_cache
from kvledger.spec.actions import Abort, Checkpoint, Commit, Decode, Evict, Extend, Finish, Reserve, Retract, Submit
from kvledger.spec.backend import Action, Freed, RecordView, Refused
from kvledger.spec.world import World
from kvledger.tests.unit.by_hand import ok, records, start


def drafting(n: int, page_size: int = 2, context_len: int = 12) -> Backend:
    """a has 3 tokens with KV, in pages 1 and 2 where a page holds two, and slots for n tokens more."""
    backend = make(World(rows=2, context_len=context_len, pages=8, page_size=page_size))
    start(backend, "a", "ABC")
    ok(backend, Reserve("a", n))
    return backend


def test_a_reserve_as_observed_on_sglang() -> None:
    """Read off SGLang 0.5.23: 10 committed, 6 asked for, pages of 4: allocated 16, one new page."""
    backend = make(World(rows=1, context_len=32, pages=8, page_size=4))
    start(backend, "a", "ABCDEFGHIJ")
    assert ok(backend, Reserve("a", 6)).slots == [list(range(14, 20))]
    assert records(backend) == {"a": RecordView(1, 0, 10, 16)}
    assert ok(backend, Reserve("a", 1)).slots == [[]]  # they are there already
    assert ok(backend, Reserve("a", 7)).slots == [list(range(20, 24))]
    assert records(backend) == {"a": RecordView(1, 0, 10, 20)}


def test_a_reserve_in_pages_of_one_takes_what_it_is_asked_for() -> None:
    """No page to fill up: slots 4 and 5 for positions 3 and 4."""
    backend = drafting(2, page_size=1)
    assert backend.view().table == {"a": [1, 2, 3, 4, 5]}
    assert ok(backend, Reserve("a", 3)).slots == [[6]]


def test_a_commit_moves_what_is_committed_and_nothing_else() -> None:
    """Of 5 slots z and b get KV, then c, then d and e; c, d and f are pending in turn. Then columns come again."""
    backend = drafting(5)
    assert records(backend) == {"a": RecordView(2, 0, 3, 8)}
    table = backend.view().table
    for tokens, committed in (("bc", 5), ("d", 6), ("ef", 8)):
        assert backend.do(Decode((("a", "y"),))) == backend.do(Extend((("a", 4, "y"),))) == Refused()
        answer = ok(backend, Commit("a", tuple(tokens)))
        assert (answer.published, answer.slots, answer.freed) == ({}, (), None)
        assert records(backend) == {"a": RecordView(2, 0, committed, 8)} and backend.view().table == table
    assert backend.reqs["a"].tokens == list("ABCzbcdef")
    assert ok(backend, Decode((("a", "g"),))).slots == [[10]]
    assert ok(backend, Extend((("a", 10, "h"),))).slots == [[11]]


def test_a_reserve_evicts_only_what_is_missing() -> None:
    """Page 4 is free, pages 1 and 2 are cached, each by itself: c has page 3 and needs two more, then another."""
    backend = make(World(rows=2, context_len=12, pages=4, page_size=2))
    for req, tokens in (("a", "AB"), ("b", "CD")):
        start(backend, req, tokens)
        ok(backend, Finish(req, 2, True))
    start(backend, "c", "EF")
    answer = ok(backend, Reserve("c", 3))
    assert (answer.slots, answer.evicted) == ([[2, 3, 8, 9]], {1})
    assert ok(backend, Reserve("c", 5)).evicted == {2}
    assert backend.do(Reserve("c", 7)) == Refused("pages")


def test_a_reserve_stops_at_the_end_of_the_row() -> None:
    """Rows of 7 columns in pages of 4: beyond position 6 there is nothing, though page 2 has a slot more."""
    backend = make(World(rows=1, context_len=7, pages=4, page_size=4))
    start(backend, "a", "ABC")
    assert ok(backend, Reserve("a", 9)).slots == [[7, 8, 9, 10]]
    assert records(backend) == {"a": RecordView(1, 0, 3, 7)}
    assert backend.do(Commit("a", tuple("bcdef"))) == Refused()
    ok(backend, Commit("a", tuple("bcde")))
    assert ok(backend, Reserve("a", 1)).slots == [[]]  # the row is full
    assert backend.do(Commit("a", ("f",))) == Refused()
    assert ok(backend, Finish("a", 7, True)).freed == Freed(pages=(2,), rows=(1,))


@pytest.mark.parametrize(
    ("action", "published", "pages"),
    [
        (Finish("a", 3, True), {"a": 2}, (2, 3, 4)),
        (Finish("a", 1, True), {}, (1, 2, 3, 4)),
        (Finish("a", 3, False), {}, (1, 2, 3, 4)),
        (Retract("a"), {}, (1, 2, 3, 4)),
        (Abort("a"), {}, (1, 2, 3, 4)),
    ],
    ids=repr,
)
def test_drafts_come_back_however_it_ends(action: Action, published: dict[str, int], pages: tuple[int, ...]) -> None:
    """a has pages 1 and 2, with a slot to spare, and drafts in the rest of page 2, in 3 and 4. Each comes back once."""
    backend = drafting(5)
    answer = ok(backend, action)
    assert (answer.published, answer.freed) == (published, Freed(pages, rows=(2,)))
    assert records(backend) == {}


@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("accepted", range(1, 6))
@pytest.mark.parametrize("page_size", [1, 2, 3, 4])
def test_every_page_comes_back_once(n: int, accepted: int, page_size: int) -> None:
    """Wherever committed and allocated lie in their pages: a finish takes [0, committed), and all else comes back."""
    backend = drafting(n, page_size)
    if accepted <= n:
        ok(backend, Commit("a", tuple("bcdef"[:accepted])))
    _, _, committed, allocated = records(backend)["a"]
    whole = committed // page_size
    answer = ok(backend, Finish("a", committed, True))
    assert answer.freed == Freed(tuple(range(whole + 1, -(-allocated // page_size) + 1)), rows=(2,))


def test_a_checkpoint_leaves_drafts_alone() -> None:
    """Positions 0 and 1 are the cache's now; page 2 is not whole, pages 3 and 4 are drafts, and stay reserved."""
    backend = drafting(5)
    assert backend.do(Checkpoint("a", 4)) == Refused()
    answer = ok(backend, Checkpoint("a", 3))
    assert (answer.slots, answer.published, answer.freed) == ([[2, 3]], {"a": 2}, Freed())
    assert records(backend) == {"a": RecordView(2, 2, 3, 8)}
    assert ok(backend, Finish("a", 2, True)).freed == Freed(pages=(2, 3, 4), rows=(2,))


def test_keep_may_end_below_what_is_published_and_drafted() -> None:
    """a comes back after a retraction with 6 tokens, publishes all, drafts, and ends with its prompt of 3 as keep.

    Pages 1 to 3 are the cache's; the drafts in pages 4 and 5 come back, and nothing else.
    """
    backend = make(World(rows=1, context_len=12, pages=8, page_size=2))
    start(backend, "a", "ABC")
    for token in "def":
        ok(backend, Decode((("a", token),)))
    ok(backend, Retract("a"))
    ok(backend, Extend((("a", 7, "g"),)))
    ok(backend, Checkpoint("a", 7))
    ok(backend, Reserve("a", 2))
    assert records(backend) == {"a": RecordView(1, 6, 7, 10)}
    answer = ok(backend, Finish("a", 3, True))
    assert (answer.published, answer.freed) == ({}, Freed(pages=(4, 5), rows=(1,)))
    assert ok(backend, Evict(8)).evicted == {1, 2, 3}


def test_a_retracted_request_forgets_its_drafts() -> None:
    """It starts again with the tokens that it has, the accepted ones too."""
    backend = drafting(5)
    ok(backend, Commit("a", tuple("bc")))
    ok(backend, Retract("a"))
    ok(backend, Extend((("a", 6, "d"),)))
    assert records(backend) == {"a": RecordView(2, 0, 6, 6)}


def test_what_was_drafted_is_read_once_it_is_committed() -> None:
    """The forward pass writes all slots ahead; two of them count."""
    backend = drafting(4)
    table = backend.view().table
    assert table is not None
    backend.write(table["a"], [10, 11, 12, 13, 14, 15, 16, 17])
    assert backend.read("a") == [10, 11, 12]
    ok(backend, Commit("a", tuple("bc")))
    assert backend.read("a") == [10, 11, 12, 13, 14]


def test_drafts_without_a_prefix_cache() -> None:
    """Nothing stays."""
    backend = make_chunk_cache(World(rows=1, context_len=12, pages=8, page_size=2))
    assert backend.declare().has("DRAFTS")
    start(backend, "a", "ABC")
    ok(backend, Reserve("a", 3))
    assert ok(backend, Finish("a", 3, True)).freed == Freed(pages=(1, 2, 3), rows=(1,))
    ok(backend, Submit("b", ("B",), "n"))
