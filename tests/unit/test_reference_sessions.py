"""The reference keeps a conversation's record between its turns: taken, trimmed, given back, closed, emptied.

Pages hold two tokens. The first turn of session S has row 2 and computes ABCDE into pages 1 to 3, slots 2 to 6.
"""

from __future__ import annotations

import pytest

from kvledger.reference.backend import Backend, make, make_chunk_cache
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
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.backend import Action, Freed, RecordView, Refused, Reply
from kvledger.spec.world import World
from kvledger.tests.unit.by_hand import adds_up, ok, records, start


def first_turn(rows: int = 2, pages: int = 8, context_len: int = 12, published: int = 0) -> Backend:
    """The first turn of S, a, runs; `published` tokens of it are the cache's."""
    backend = make(World(rows=rows, context_len=context_len, pages=pages, page_size=2))
    answer = start(backend, "a", "ABCDE", session="S")
    assert (answer.matched, answer.freed) == ([[]], None)
    if published:
        ok(backend, Checkpoint("a", published))
    return backend


def idle(keep: int = 5, **options: int) -> Backend:
    """S is idle, and keeps `keep` tokens."""
    backend = first_turn(**options)
    ok(backend, Finish("a", keep, False))
    return backend


def turn(backend: Backend, req: str, tokens: str, session: str = "S") -> None:
    """The next turn waits."""
    ok(backend, Submit(req, tuple(tokens), "n", session=session))


def went_on(answer: Reply) -> tuple[object, object]:
    """The new slots and what was freed, of a call in which nobody took a row or matched anything."""
    assert not answer.rows and not answer.matched and not answer.published and not answer.evicted
    [slots] = answer.slots
    return slots, answer.freed


# ---- a turn leaves its record, and the next one takes it


@pytest.mark.parametrize(("keep", "freed"), [(5, ()), (4, (3,)), (3, (3,)), (2, (2, 3)), (1, (2, 3))])
def test_a_session_keeps_what_its_turn_leaves(keep: int, freed: tuple[int, ...]) -> None:
    """Row, lock and [0, keep) stay, the page that holds position keep - 1 with them; the pages beyond go."""
    backend = first_turn()
    assert ok(backend, Finish("a", keep, False)).freed == Freed(freed)
    assert records(backend) == {"S": RecordView(2, 0, keep, keep)}
    assert backend.reqs == {}


def test_a_turn_goes_on_inside_a_page() -> None:
    """S has ABCDE, and position 5 is the second of page 3: slot 7. No row, no match, and nothing to trim."""
    backend = idle()
    turn(backend, "b", "ABCDEzFG")
    assert records(backend) == {"S": RecordView(2, 0, 5, 5)}  # while the turn waits
    answer = ok(backend, Extend((("b", 8, "y"),)))
    assert went_on(answer) == ([7, 8, 9], Freed())
    assert records(backend) == {"b": RecordView(2, 0, 8, 8)}
    assert ok(backend, Decode((("b", "x"),))).slots == [[10]]
    ok(backend, Finish("b", 9, False))
    assert backend.view().table == {"S": list(range(2, 11))}


def test_a_turn_of_one_token_more() -> None:
    """All that the session has counts; the one new token is what is computed."""
    backend = idle()
    turn(backend, "b", "ABCDEz")
    assert ok(backend, Extend((("b", 6, "y"),))).slots == [[7]]


@pytest.mark.parametrize(
    ("tokens", "slots", "freed"),
    [("ABCDX", [6], (3,)), ("ABCD", [5], (3,)), ("ABC", [4], (2, 3)), ("ABX", [4], (2, 3)), ("AX", [3], (2, 3))],
)
def test_a_turn_shorter_than_its_session_goes_back(tokens: str, slots: list[int], freed: tuple[int, ...]) -> None:
    """One token is left to compute, so it is written again in its place; the pages beyond are trimmed first."""
    backend = idle()
    turn(backend, "b", tokens)
    answer = ok(backend, Extend((("b", len(tokens), "y"),)))
    assert went_on(answer) == (slots, Freed(freed))
    assert records(backend) == {"b": RecordView(2, 0, len(tokens), len(tokens))}


def test_a_turn_longer_than_its_row_ends_at_the_row() -> None:
    """Rows of 6 columns: the turn has 8 tokens, computes one, and leaves all 6 behind; the next one goes back to 3."""
    backend = idle(context_len=6)
    turn(backend, "b", "ABCDEFGH")
    assert backend.do(Extend((("b", 7, None),))) == Refused()
    assert records(backend) == {"S": RecordView(2, 0, 5, 5)}
    assert ok(backend, Extend((("b", 6, None),))).slots == [[7]]
    ok(backend, Finish("b", 6, False))
    turn(backend, "c", "ABCX")
    assert went_on(ok(backend, Extend((("c", 4, "y"),)))) == ([5], Freed((3,)))


def test_a_turn_in_parts() -> None:
    """Where it starts it says what was trimmed, here nothing; afterwards it is a request like any."""
    backend = idle()
    turn(backend, "b", "ABCDEFGH")
    assert went_on(ok(backend, Extend((("b", 6, None),)))) == ([7], Freed())
    assert went_on(ok(backend, Extend((("b", 8, "y"),)))) == ([8, 9], None)


def test_two_sessions_and_a_stranger_start_in_one_call() -> None:
    """b goes on with S inside page 3, d with T behind page 4, c is new: T has trimmed page 5, and c is given it."""
    backend = idle(rows=3)
    start(backend, "q", "QRST", session="T")
    ok(backend, Finish("q", 4, False))
    turn(backend, "b", "ABCDEF")
    turn(backend, "d", "QRX", "T")
    ok(backend, Submit("c", tuple("MN"), "n"))
    answer = ok(backend, Extend((("b", 6, "y"), ("c", 2, "y"), ("d", 3, "y"))))
    assert (answer.rows, answer.matched, answer.freed) == ([1], [[]], Freed((5,)))
    assert answer.slots == [[7], [10, 11], [12]]


def test_pages_of_one() -> None:
    """Slots 1 to 5: the session keeps 4, the turn goes back to 2, and is given slot 5, which has been free longer."""
    backend = make(World(rows=1, context_len=8, pages=5, page_size=1))
    start(backend, "a", "ABCDE", session="S")
    assert ok(backend, Finish("a", 4, False)).freed == Freed((5,))
    turn(backend, "b", "ABX")
    assert went_on(ok(backend, Extend((("b", 3, "y"),)))) == ([5], Freed((3, 4)))
    assert records(backend) == {"b": RecordView(1, 0, 3, 3)}


def test_a_turn_reads_what_the_turns_before_it_wrote() -> None:
    """b wrote position 3 again, and another one; the session reads what its turns wrote."""
    backend = first_turn()
    backend.write(range(2, 7), [11, 12, 13, 14, 15])
    ok(backend, Finish("a", 5, False))
    assert backend.read("S") == [11, 12, 13, 14, 15]
    turn(backend, "b", "ABCX")
    assert backend.read("b") == []
    backend.write(ok(backend, Extend((("b", 4, "y"),))).slots[0], [24])
    backend.write(ok(backend, Decode((("b", "w"),))).slots[0], [25])
    assert backend.read("b") == [11, 12, 13, 24, 25]
    assert backend.read("S") == []
    ok(backend, Finish("b", 5, False))
    assert backend.read("S") == [11, 12, 13, 24, 25]


# ---- what is published


def test_a_first_turn_publishes_and_a_later_one_does_not() -> None:
    """[0, 4) is the cache's, under the session's lock; what later turns add stays private."""
    backend = idle(published=4)
    assert records(backend) == {"S": RecordView(2, 4, 5, 5)}
    assert backend.do(Evict(1)) == Refused()
    turn(backend, "b", "ABCDEFGH")
    ok(backend, Extend((("b", 8, "y"),)))
    answer = ok(backend, Checkpoint("b", 8))
    assert (answer.slots, answer.published, answer.freed) == ([[]], {"b": 4}, Freed())
    assert records(backend) == {"b": RecordView(2, 4, 8, 8)}
    assert backend.do(Checkpoint("b", 3)) == Refused()
    assert ok(backend, Finish("b", 8, False)).published == {}
    assert start(backend, "other", "ABCDEF").matched == [[2, 3, 4, 5]]


def test_a_first_turn_starts_from_the_cache() -> None:
    """It reads page 1 under a lock, which its session keeps: the turn after it may not end below."""
    backend = make(World(rows=2, context_len=12, pages=8, page_size=2))
    start(backend, "x", "ABQ")
    ok(backend, Finish("x", 3, True))
    assert start(backend, "a", "ABCDE", session="S").matched == [[2, 3]]
    assert backend.do(Finish("a", 1, False)) == Refused()
    assert ok(backend, Finish("a", 2, False)).freed == Freed((2, 3))
    assert records(backend) == {"S": RecordView(2, 2, 2, 2)}
    assert backend.do(Evict(1)) == Refused()
    assert backend.do(Submit("b", tuple("AB"), "n", session="S")) == Refused()
    turn(backend, "b", "ABX")
    assert ok(backend, Extend((("b", 3, "y"),))).slots == [[4]]


def test_keep_is_the_prompt_after_a_retraction_and_a_checkpoint_beyond_it() -> None:
    """[0, 2) is published before the retraction; after it the record has been with its session, and a checkpoint of all
    7 publishes nothing. So the prompt may be kept."""
    backend = first_turn()
    ok(backend, Checkpoint("a", 3))
    ok(backend, Decode((("a", "y"),)))
    ok(backend, Retract("a"))
    ok(backend, Extend((("a", 7, "x"),)))
    assert ok(backend, Checkpoint("a", 7)).published == {"a": 2}
    assert backend.do(Finish("a", 1, False)) == Refused()
    assert ok(backend, Finish("a", 3, False)).freed == Freed((3, 4))
    assert records(backend) == {"S": RecordView(2, 2, 3, 3)}


# ---- refused


def test_a_refused_turn_has_trimmed_its_session() -> None:
    """b goes back to 2 tokens: pages 2 and 3, its own tail, are room for it and x, and with 4 to 6 still not enough.

    A turn alone is never short once it trimmed something: it needs no more than it gave.
    """
    backend = idle(pages=6)
    turn(backend, "b", "ABX")
    ok(backend, Submit("x", tuple("0123456789"), "n"))
    both = Extend((("b", 3, "y"), ("x", 10, "y")))
    assert backend.do(both) == Refused("pages", freed=Freed((2, 3)))
    adds_up(backend)
    assert records(backend) == {"S": RecordView(2, 0, 2, 2)}
    assert backend.do(both) == Refused("pages", freed=Freed())
    assert backend.reqs["b"].tokens == list("ABX")
    assert went_on(ok(backend, Extend((("b", 3, "y"),)))) == ([4], Freed())


def test_what_a_turn_trims_is_room_for_the_same_call() -> None:
    """S has every page; of two that it trims the turn takes one again, and x the other."""
    backend = idle(pages=3)
    turn(backend, "b", "ABX")
    ok(backend, Submit("x", tuple("QR"), "n"))
    answer = ok(backend, Extend((("b", 3, "y"), ("x", 2, "y"))))
    assert (answer.slots, answer.freed) == ([[4], [6, 7]], Freed((2, 3)))


def test_a_turn_trims_though_somebody_else_is_why_it_is_refused() -> None:
    """No row is left for x. The turn is back where it was, trimmed to 2; x holds no lock."""
    backend = idle(rows=1, published=2)
    turn(backend, "b", "ABX")
    ok(backend, Submit("x", tuple("ABY"), "n"))
    assert backend.do(Extend((("x", 3, "y"), ("b", 3, "y")))) == Refused("rows", freed=Freed((2, 3)))
    adds_up(backend)
    assert records(backend) == {"S": RecordView(1, 2, 2, 2)}
    assert went_on(ok(backend, Extend((("b", 3, "y"),)))) == ([4], Freed())


def test_a_turn_that_was_refused_may_be_dropped_from_the_queue() -> None:
    """It was trimmed and that stays so; the next turn goes on from there."""
    backend = idle(pages=4)
    turn(backend, "b", "ABX")
    ok(backend, Submit("x", tuple("12345678"), "n"))
    assert backend.do(Extend((("b", 3, "y"), ("x", 8, "y")))) == Refused("pages", freed=Freed((2, 3)))
    assert ok(backend, Abort("b")).freed == Freed()
    assert records(backend) == {"S": RecordView(2, 0, 2, 2)}
    turn(backend, "c", "ABPQR")
    assert went_on(ok(backend, Extend((("c", 3, None),)))) == ([4], Freed())


# ---- aborted and retracted


def test_a_turn_that_waits_leaves_its_session_alone() -> None:
    """Dropped from the queue: a later turn, and a first one, whose session is then there and empty."""
    backend = idle()
    turn(backend, "b", "ABCDEF")
    assert ok(backend, Abort("b")).freed == Freed()
    assert records(backend) == {"S": RecordView(2, 0, 5, 5)}
    turn(backend, "c", "XY", "T")
    assert ok(backend, Abort("c")).freed == Freed()
    turn(backend, "d", "Q", "T")
    assert ok(backend, Extend((("d", 1, "y"),))).matched == [[]]
    assert backend.do(Submit("T", ("A",), "n")) == Refused()


def test_an_aborted_turn_empties_its_session() -> None:
    """All of its private pages and the row come back; the next turn is a first turn: it matches, and it publishes."""
    backend = idle(published=4)
    turn(backend, "b", "ABCDEFGH")
    ok(backend, Extend((("b", 7, None),)))
    assert ok(backend, Abort("b")).freed == Freed((3, 4), rows=(2,))
    assert records(backend) == {}
    turn(backend, "c", "ABCDEF")
    answer = ok(backend, Extend((("c", 6, "y"),)))
    assert (answer.rows, answer.matched, answer.freed) == ([2], [[2, 3, 4, 5]], None)
    assert ok(backend, Checkpoint("c", 6)).published == {"c": 6}
    assert backend.do(Submit("d", tuple("A"), "m", session="S")) == Refused()


def test_an_aborted_turn_does_not_bind_the_next_one() -> None:
    """Its tokens are forgotten: other ones may come, even a single one."""
    backend = idle()
    turn(backend, "b", "ABCDEF")
    ok(backend, Extend((("b", 6, "y"),)))
    ok(backend, Abort("b"))
    assert start(backend, "c", "X", session="S").rows == [2]


def test_a_retracted_turn_leaves_its_record_and_starts_from_it() -> None:
    """6 of 7 tokens have KV; the session has them while the turn waits, and no other turn may come in between."""
    backend = idle()
    turn(backend, "b", "ABCDEF")
    ok(backend, Extend((("b", 6, "y"),)))
    assert ok(backend, Retract("b")).freed == Freed()
    assert records(backend) == {"S": RecordView(2, 0, 6, 6)}
    assert backend.do(Retract("b")) == backend.do(Submit("c", tuple("ABCDEFG"), "n", session="S")) == Refused()
    assert went_on(ok(backend, Extend((("b", 7, "x"),)))) == ([8], Freed())


def test_a_retracted_first_turn_publishes_nothing_more() -> None:
    """Its record has been with the session. Aborted then, and started anew, a turn publishes again."""
    backend = first_turn()
    assert ok(backend, Retract("a")).freed == Freed()
    assert went_on(ok(backend, Extend((("a", 6, "y"),)))) == ([7], Freed())
    assert ok(backend, Checkpoint("a", 6)).published == {"a": 0}
    ok(backend, Abort("a"))
    start(backend, "b", "ABC", session="S")
    assert ok(backend, Checkpoint("b", 3)).published == {"b": 2}


def test_a_half_prefilled_turn_is_retracted() -> None:
    """Of 9 tokens 7 have KV: the session keeps 7, inside page 4, and the turn goes on there."""
    backend = idle()
    turn(backend, "b", "ABCDEFGHI")
    ok(backend, Extend((("b", 7, None),)))
    assert ok(backend, Retract("b")).freed == Freed()
    assert records(backend) == {"S": RecordView(2, 0, 7, 7)}
    assert went_on(ok(backend, Extend((("b", 9, "y"),)))) == ([9, 10], Freed())


def test_a_retracted_turn_that_is_dropped_leaves_its_record() -> None:
    """It waits, so its session keeps what it had computed."""
    backend = idle()
    turn(backend, "b", "ABCDEFGHI")
    ok(backend, Extend((("b", 7, None),)))
    ok(backend, Retract("b"))
    assert ok(backend, Abort("b")).freed == Freed()
    assert records(backend) == {"S": RecordView(2, 0, 7, 7)}
    turn(backend, "c", "ABCDEFGX")
    assert ok(backend, Extend((("c", 8, "y"),))).slots == [[9]]


# ---- with drafts


@pytest.mark.parametrize(
    ("action", "freed", "left"),
    [
        (Finish("a", 5, False), Freed((4, 5)), {"S": RecordView(2, 0, 5, 5)}),
        (Finish("a", 4, False), Freed((3, 4, 5)), {"S": RecordView(2, 0, 4, 4)}),
        (Finish("a", 1, False), Freed((2, 3, 4, 5)), {"S": RecordView(2, 0, 1, 1)}),
        (Retract("a"), Freed((4, 5)), {"S": RecordView(2, 0, 5, 5)}),
        (Abort("a"), Freed((1, 2, 3, 4, 5), rows=(2,)), {}),
    ],
    ids=repr,
)
def test_a_session_keeps_no_drafts(action: Action, freed: Freed, left: dict[str, RecordView]) -> None:
    """a has 5 tokens with KV in pages 1 to 3, and drafts in the rest of page 3, in 4 and 5."""
    backend = first_turn()
    ok(backend, Reserve("a", 5))
    assert records(backend) == {"a": RecordView(2, 0, 5, 10)}
    assert ok(backend, action).freed == freed
    assert records(backend) == left


def test_a_turn_goes_on_over_what_was_drafted() -> None:
    """z and b were accepted; position 7 is the second of page 4, whose slot was a draft's."""
    backend = first_turn()
    ok(backend, Reserve("a", 4))
    ok(backend, Commit("a", tuple("bc")))
    assert ok(backend, Finish("a", 7, False)).freed == Freed((5,))
    turn(backend, "b", "ABCDEzbXY")
    assert ok(backend, Extend((("b", 9, "y"),))).slots == [[9, 10]]


# ---- closed


def test_a_closed_session_gives_everything_back() -> None:
    """Its lock, its private pages and its row; the id is free then, for a session or a request."""
    backend = idle(published=2)
    answer = ok(backend, Close("S"))
    assert (answer.freed, records(backend)) == (Freed((2, 3), rows=(2,)), {})
    assert backend.do(Close("S")) == Refused()
    assert ok(backend, Evict(1)).evicted == {1}
    start(backend, "b", "XY", namespace="m", session="S")
    ok(backend, Abort("b"))
    assert ok(backend, Close("S")).freed == Freed()
    start(backend, "S", "AB")


def ended(backend: Backend, end: Action, freed: Freed) -> None:
    """The turn's end says what the close gives back, and the session is gone."""
    assert ok(backend, end).freed == freed
    assert records(backend) == {} and backend.sessions == {} and backend.reqs == {}
    assert backend.do(Close("S")) == Refused()


def test_a_close_waits_for_a_turn_that_waits() -> None:
    """The session keeps its record until the turn is dropped."""
    backend = idle()
    turn(backend, "b", "ABCDEF")
    assert ok(backend, Close("S")) == Reply()
    assert records(backend) == {"S": RecordView(2, 0, 5, 5)}
    assert backend.do(Close("S")) == Refused()
    ended(backend, Abort("b"), Freed((1, 2, 3), rows=(2,)))


def test_a_close_waits_for_a_first_turn_that_waits() -> None:
    """There is nothing to give back yet; then the turn has run."""
    backend = make(World(rows=2, context_len=12, pages=8, page_size=2))
    turn(backend, "a", "ABCDE")
    assert ok(backend, Close("S")) == Reply()
    ok(backend, Extend((("a", 5, "z"),)))
    ended(backend, Finish("a", 5, False), Freed((1, 2, 3), rows=(2,)))


@pytest.mark.parametrize("defers", [False, True])
def test_a_close_waits_for_a_turn_that_is_admitted(defers: bool) -> None:
    """Admitted, it had its session trimmed to 2; dropped then, or deferred first."""
    backend = idle()
    turn(backend, "b", "ABX")
    assert ok(backend, Admit("b")).freed == Freed((2, 3))
    assert ok(backend, Close("S")) == Reply()
    if defers:
        ok(backend, Defer("b"))
    ended(backend, Abort("b"), Freed((1,), rows=(2,)))


@pytest.mark.parametrize("end", [Finish("b", 6, False), Finish("b", 2, False), Abort("b")], ids=repr)
@pytest.mark.parametrize("drafts", [0, 4])
def test_a_close_waits_for_a_turn_that_runs(end: Action, drafts: int) -> None:
    """Whatever it would have kept, and its drafts: all comes back at the end."""
    backend = idle(published=2)
    turn(backend, "b", "ABCDEF")
    ok(backend, Extend((("b", 6, "y"),)))
    if drafts:
        ok(backend, Reserve("b", drafts))
    before = backend.view()
    assert ok(backend, Close("S")) == Reply()
    assert backend.view() == before
    assert ok(backend, Checkpoint("b", 6)).published == {"b": 2}
    ended(backend, end, Freed((2, 3, 4, 5) if drafts else (2, 3), rows=(2,)))


def test_a_retraction_does_not_end_a_turn() -> None:
    """The close goes on waiting."""
    backend = first_turn()
    assert ok(backend, Close("S")) == Reply()
    assert ok(backend, Retract("a")).freed == Freed()
    assert records(backend) == {"S": RecordView(2, 0, 5, 5)}
    ok(backend, Extend((("a", 6, "y"),)))
    ended(backend, Finish("a", 6, False), Freed((1, 2, 3), rows=(2,)))


# ---- the cache


def test_a_flush_empties_idle_sessions_too() -> None:
    """S, whose turn waits, and T, whose turn had matched S's pages, read the cache: all of it goes, and their own."""
    backend = idle(published=4)
    start(backend, "t", "ABXYZ", session="T")
    assert backend.do(Flush()) == Refused()
    ok(backend, Finish("t", 5, False))
    turn(backend, "b", "ABCDEF")
    answer = ok(backend, Flush())
    assert (answer.evicted, answer.freed) == ({1, 2}, Freed((3, 4, 5), rows=(1, 2)))
    assert records(backend) == {}
    backend.scramble()
    answer = ok(backend, Extend((("b", 6, "y"),)))
    assert (answer.matched, len(answer.rows), len(answer.slots[0])) == ([[]], 1, 6)
    assert ok(backend, Checkpoint("b", 6)).published == {"b": 6}
    assert start(backend, "u", "Q", session="T").rows


def test_a_retracted_turn_after_a_flush_is_a_first_turn() -> None:
    """Its record was with the session and is gone: it has all its tokens, and publishes again."""
    backend = first_turn()
    ok(backend, Retract("a"))
    assert ok(backend, Flush()).freed == Freed((1, 2, 3), rows=(2,))
    ok(backend, Extend((("a", 6, "y"),)))
    assert ok(backend, Checkpoint("a", 6)).published == {"a": 6}


def test_a_flush_waits_for_a_turn_that_is_admitted() -> None:
    """It holds no row of its own; its session does."""
    backend = idle()
    turn(backend, "b", "ABCDEF")
    ok(backend, Admit("b"))
    assert backend.do(Flush()) == Refused()
    ok(backend, Defer("b"))
    assert ok(backend, Flush()).freed == Freed((1, 2, 3), rows=(2,))


def test_eviction_leaves_what_a_session_reads() -> None:
    """Page 1 is read by the idle session; page 4, nobody's, is what makes room."""
    backend = idle(published=2, pages=4)
    start(backend, "x", "XY")
    ok(backend, Finish("x", 2, True))
    assert start(backend, "y", "PQ").evicted == {4}
    ok(backend, Submit("w", ("W",), "n"))
    assert backend.do(Extend((("w", 1, "y"),))) == Refused("rows")


# ---- books


def test_an_idle_record_is_not_stale() -> None:
    """Scrambled before every step, a conversation goes as it went."""
    answers = []
    for scrambled in (False, True):
        backend, said = make(World(rows=2, context_len=12, pages=8, page_size=2)), []
        steps: list[Action] = [
            Submit("a", tuple("ABCDE"), "n", session="S"), Extend((("a", 5, "z"),)), Checkpoint("a", 5), Retract("a"),
            Extend((("a", 6, "y"),)), Finish("a", 6, False), Submit("b", tuple("ABCDEX"), "n", session="S"), Admit("b"),
            Defer("b"), Extend((("b", 6, "y"),)), Abort("b"), Submit("c", tuple("ABC"), "n", session="S"),
            Extend((("c", 3, "y"),)), Finish("c", 3, False), Flush(), Submit("d", tuple("XY"), "n", session="S"),
            Extend((("d", 2, "y"),)), Close("S"), Finish("d", 2, False),
        ]  # fmt: skip
        for action in steps:
            said.append((ok(backend, action), backend.view()))
            if scrambled:
                backend.scramble()
                assert backend.view() == said[-1][1]
        answers.append(said)
    assert answers[0] == answers[1]


def test_sessions_without_a_prefix_cache() -> None:
    """Nothing is matched or published; the record alone goes from turn to turn."""
    backend = make_chunk_cache(World(rows=1, context_len=8, pages=4, page_size=2))
    assert backend.declare().has("SESSIONS")
    start(backend, "a", "ABC", session="S")
    ok(backend, Finish("a", 3, False))
    assert records(backend) == {"S": RecordView(1, 0, 3, 3)}
    turn(backend, "b", "ABCDE")
    assert went_on(ok(backend, Extend((("b", 5, "y"),)))) == ([5, 6], Freed())
    assert backend.do(Flush()) == backend.do(Checkpoint("b", 2)) == Refused()
    assert ok(backend, Abort("b")).freed == Freed((1, 2, 3), rows=(1,))
