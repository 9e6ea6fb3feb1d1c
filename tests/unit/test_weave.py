"""From calls to requests: who shares a block shares its tokens, who goes on begins with an answer, who is a turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.tests.replay.request import TraceRequest, answer
from kvledger.tests.replay.weave import Call, weave


def said(request: TraceRequest) -> tuple[int, ...]:
    """Its prompt and its whole answer."""
    return request.prompt + answer(request.number, 0, request.samples)


def test_answers_are_fixed_and_every_second_one_is_alike() -> None:
    assert answer(0, 0, 3) == answer(4, 0, 3) == (-1, -2, -3) and answer(4, 1, 3) == (-2, -3)
    assert answer(3, 0, 2) == (-3_000_001, -3_000_002) and answer(2, 2, 2) == ()


def test_who_goes_on_begins_with_prompt_and_answer() -> None:
    """Blocks of 4: the parent's last one is filled in part, and the answer goes on in it."""
    one, two = weave([Call("ab", 6, 3), Call("acd", 11, 2, parent=0)], 4, 4)
    assert one.prompt == (0, 1, 2, 3, 4, 5) and two.prompt == (0, 1, 2, 3, 4, 5, -1, -2, -3, 6, 7)
    assert (one.session, one.keep, two.session, two.keep, two.after) == ("s0", 9, "s0", 0, ("r0",))


def test_who_shares_a_block_with_a_child_has_the_answer_in_it() -> None:
    *_, two, other = weave([Call("ab", 6, 3), Call("acd", 11, 2, parent=0), Call("ace", 10, 2)], 4, 4)
    assert other.prompt[:8] == two.prompt[:8] and other.prompt[8:] == (8, 9) and other.session is None


def test_the_first_child_is_the_next_turn_and_the_others_are_forks() -> None:
    children = [Call("acd", 11, 2, 0), Call("ace", 12, 2, 0)]
    requests = weave([Call("ab", 6, 3), *children, Call("acdf", 16, 1, 1), Call("acegh", 17, 1, 2)], 4, 4)
    assert [request.session for request in requests] == ["s0", "s0", "s2", "s0", "s2"]
    assert [request.keep for request in requests] == [9, 13, 14, 0, 0]
    assert requests[2].prompt[:9] == said(requests[0]) and requests[2].after == ("r0",)


def test_a_block_that_was_seen_with_other_tokens_makes_a_child_a_plain_request() -> None:
    """c was there before anybody could have gone on from ab in it."""
    calls = [Call("ac", 8, 1), Call("ab", 6, 3), Call("acd", 11, 2, parent=1)]
    requests = weave(calls, 4, 4)
    assert requests[2].prompt[:8] == requests[0].prompt and len(requests[2].prompt) == 11
    assert all(request.session is None and not request.keep for request in requests)


def test_an_answer_goes_on_as_far_as_it_fits() -> None:
    """An answer of 5 where the next prompt is 3 longer: two of its tokens, and one is left to compute."""
    one, two = weave([Call("ab", 6, 5), Call("acd", 9, 2, parent=0)], 4, 4)
    assert two.prompt[:8] == said(one)[:8] and len(two.prompt) == 9 and one.keep == 8


@pytest.mark.parametrize("block_tokens", [1, 2, 3, 7, 16])
@pytest.mark.parametrize(
    ("first", "output", "second"), [(16, 1, 17), (17, 0, 17), (31, 1, 32), (16, 17, 40), (5, 5, 11)]
)
def test_rounding_leaves_room_for_the_answer_and_a_token(
    block_tokens: int, first: int, output: int, second: int
) -> None:
    full = first // 16
    blocks = [*range(full), *range(10, 10 + -(-second // 16) - full)]
    calls = [Call([*range(full), *["part"] * (first % 16 > 0)], first, output), Call(blocks, second, 1, 0)]
    one, two = weave(calls, 16, block_tokens)
    assert two.prompt[: one.keep] == said(one) and one.keep == len(said(one)) < len(two.prompt)
    assert len(two.prompt) <= -(-second * block_tokens // 16) + 3


@settings(deadline=None, derandomize=True, database=None, max_examples=200)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 6), st.booleans()), max_size=12),
    block_tokens=st.integers(1, 4),
)
def test_one_block_one_text(shapes: list[tuple[int, int, int, bool]], block_tokens: int) -> None:
    """Whoever goes on from whom: a block has the same tokens wherever it stands, as far as it is filled."""
    calls = [Call("x", 3, 1)]
    for number, (back, more, output, same) in enumerate(shapes, 1):
        parent = max(0, number - 1 - back)
        full, length = calls[parent].input_len // 4, calls[parent].input_len + more
        own = 0 if same else number
        names = [*calls[parent].blocks[:full], *((own, place) for place in range(full, -(-length // 4)))]
        calls.append(Call(names, length, output, parent))
    tokens: dict[object, tuple[int, ...]] = {}
    for call, request in zip(calls, weave(calls, 4, block_tokens), strict=True):
        for place, name in enumerate(call.blocks):
            piece = request.prompt[place * block_tokens : (place + 1) * block_tokens]
            known = tokens.setdefault(name, piece)
            assert piece[: len(known)] == known[: len(piece)]
            tokens[name] = max(piece, known, key=len)
        assert len(request.prompt) >= call.input_len * block_tokens / 4
