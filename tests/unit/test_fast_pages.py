"""The stack of fast: what is taken, what goes back, and that nothing goes back twice."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.pages import DoubleFree, FreeStack, OutOfRoom


def test_last_in_first_out() -> None:
    """As SGLang's paged allocator: what comes back goes to the front, in its order."""
    pages = FreeStack(5, "page")
    first = pages.take(3)
    assert first.tolist() == [1, 2, 3] and first.dtype == np.int32
    pages.give(np.array([3, 1]))
    assert pages.free().tolist() == [3, 1, 4, 5] and pages.available == 4
    assert pages.take(2).tolist() == [3, 1]
    assert first.tolist() == [1, 2, 3]  # what was handed out does not change behind its holder's back


def test_the_same_list_as_with_a_queue() -> None:
    """1,000 random takes and gives, against a list that is rebuilt each time."""
    draw, pages, free, taken = Random(0), FreeStack(20, "page"), deque(range(1, 21)), list[int]()
    for _ in range(1_000):
        count = draw.randint(0, len(free))
        expected = [free.popleft() for _ in range(count)]
        assert pages.take(count).tolist() == expected
        taken += expected
        back = draw.sample(taken, draw.randint(0, len(taken)))
        pages.give(np.array(back, np.int32))
        free.extendleft(reversed(back))
        taken = [page for page in taken if page not in back]
        assert pages.free().tolist() == list(free)
        assert pages.taken(np.arange(-1, 23)).tolist() == [number in taken for number in range(-1, 23)]


@pytest.mark.parametrize(
    ("back", "says"),
    [
        ([2, 4], "page 4 is given back, but was not taken"),
        ([2, 0], "page 0 is given back, but was not taken"),
        ([2, -1], "page -1 is given back, but was not taken"),
        ([2, 7], "page 7 is given back, but was not taken"),
        ([2, 3, 2], "page 2 is given back twice in one call"),
    ],
)
def test_who_gives_back_what_is_not_taken_changes_nothing(back: list[int], says: str) -> None:
    """1, 2 and 3 of 6 are taken. The padding page, a page that does not exist, a free one, one twice."""
    pages = FreeStack(6, "page")
    pages.take(3)
    for _ in range(2):
        with pytest.raises(DoubleFree, match=says):
            pages.give(np.array(back))
        assert pages.free().tolist() == [4, 5, 6]
    pages.give(np.array([1, 2, 3]))
    assert pages.available == 6


def test_freed_handed_out_and_freed_again() -> None:
    """What a count of references that is looked at later would miss: each free is looked at when it is made."""
    pages = FreeStack(2, "page")
    [page] = pages.take(1)
    pages.give(np.array([page]))
    with pytest.raises(DoubleFree):
        pages.give(np.array([page]))
    assert pages.take(2).tolist() == [page, 2]


def test_out_of_room_takes_nothing() -> None:
    rows = FreeStack(2, "row")
    with pytest.raises(OutOfRoom, match="not enough rows") as raised:
        rows.take(3)
    assert raised.value.short == "rows" and rows.take(2).tolist() == [1, 2]
