"""Page arithmetic beyond the posts of one function: what several say together, searched by CrossHair's own inputs.

Hypothesis asks CrossHair for arguments here, which finds the one number among all that draws would miss. It is search:
what is settled stands in proofs/. Never for a state machine, where it misses what plain draws find.
"""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvledger.spec.page import new_pages, page_of, pages_for, slot_of, whole_pages

THERE = importlib.util.find_spec("hypothesis_crosshair_provider") is not None
pytestmark = [
    pytest.mark.skipif(not THERE, reason="needs hypothesis-crosshair: pip install 'kvledger[test]'"),
    pytest.mark.filterwarnings("ignore:typing:DeprecationWarning"),  # CrossHair looks at all of typing
]
LENGTHS, SIZES = st.integers(min_value=0), st.sampled_from((1, 2, 4, 8, 16, 32, 64, 128, 256))
symbolic = settings(
    backend="crosshair" if THERE else "hypothesis",
    max_examples=30,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@symbolic
@given(LENGTHS, LENGTHS, LENGTHS, SIZES)
def test_pages_taken_in_two_steps_are_those_taken_in_one(prefix: int, more: int, rest: int, size: int) -> None:
    """A chunked prefill takes what one that is not chunked takes."""
    middle, upto = prefix + more, prefix + more + rest
    assert new_pages(prefix, middle, size) + new_pages(middle, upto, size) == new_pages(prefix, upto, size)
    assert pages_for(upto, size) - whole_pages(upto, size) in (0, 1)


@symbolic
@given(LENGTHS, LENGTHS, LENGTHS, SIZES)
def test_two_positions_of_a_page_have_two_slots(page: int, position: int, other: int, size: int) -> None:
    """And both lie in the page."""
    one, two = slot_of(page, position, size), slot_of(page, other, size)
    assert page_of(one, size) == page_of(two, size) == page
    assert (one == two) == (position % size == other % size)


def test_one_wrong_length_among_all_is_found() -> None:
    """Of a decode rule that forgets a page at one length and one size."""

    @symbolic
    @given(LENGTHS, SIZES)
    def right(length: int, size: int) -> None:
        wrong = 1 if length == 77_077 and size == 64 else 0
        assert new_pages(length, length + 1, size) - wrong == new_pages(length, length + 1, size)

    with pytest.raises(AssertionError):
        right()
