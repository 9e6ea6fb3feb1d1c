"""The plan of fast: every index as one gets it token by token, in lists; and beyond what int32 can count."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.ledger import _batch
from kvledger.fast.plan import Ints, Plan

WIDTH = 23  # columns: no multiple of 3, 4 or 16


def ints(*numbers: int) -> Ints:
    return np.array(numbers, np.int64)


class TokenByToken:
    """The same questions, one position at a time."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.lines_of_a_row = len(range(0, WIDTH, page_size))

    def pages(self, length: int) -> int:
        return len({position // self.page_size for position in range(length)})

    def line(self, row: int, position: int) -> int:
        return row * self.lines_of_a_row + position // self.page_size

    def lines(self, row: int, start: int, stop: int) -> list[int]:
        """A line is new at the position that begins its page."""
        return [self.line(row, position) for position in range(start, stop) if position % self.page_size == 0]

    def slots(self, pages: Mapping[int, int], start: int, stop: int) -> list[int]:
        """pages: by ordinal."""
        size = self.page_size
        return [pages[position // size] * size + position % size for position in range(start, stop)]


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_each_index_is_as_token_by_token(page_size: int) -> None:
    """200 batches of up to 5 rows, of every length that a row can have, empty ranges too."""
    draw, plan, by_token = Random(page_size), Plan(page_size, WIDTH), TokenByToken(page_size)
    for _ in range(200):
        rows = [draw.randint(1, 9) for _ in range(draw.randint(0, 5))]
        ranges = [sorted((draw.randint(0, WIDTH), draw.randint(0, WIDTH))) for _ in rows]
        starts, stops = ([pair[side] for pair in ranges] for side in (0, 1))
        members = list(zip(rows, starts, stops, strict=True))
        batch = ints(*rows), ints(*starts), ints(*stops)
        assert plan.pages_for(batch[2]).tolist() == [by_token.pages(stop) for stop in stops]
        lines = plan.lines(batch[0], *map(plan.pages_for, batch[1:]))
        assert lines.tolist() == [line for member in members for line in by_token.lines(*member)]


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_what_is_reserved_reaches_a_pages_end_or_the_rows(page_size: int) -> None:
    """The first end of a page, or of the row, at or behind what is asked for; and never less far than now."""
    plan = Plan(page_size, WIDTH)
    ends = {*range(0, WIDTH, page_size), WIDTH}
    for committed in range(1, WIDTH):
        for allocated in (committed, min(committed + 5, WIDTH)):
            for tokens in (1, 2, 7, 40):
                asked = min(committed + tokens, WIDTH)
                expected = max(allocated, min(end for end in ends if end >= asked))
                assert plan.reserved(ints(committed), ints(allocated), ints(tokens)).tolist() == [expected]


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_slots_are_as_token_by_token(page_size: int) -> None:
    """200 batches of rows of any pages, and in them of any ranges but empty ones."""
    draw, plan, by_token = Random(page_size), Plan(page_size, WIDTH), TokenByToken(page_size)
    for _ in range(200):
        starts, stops, listed, slots = [], [], list[int](), list[int]()
        for _ in range(draw.randint(0, 5)):
            start, stop = sorted(draw.sample(range(WIDTH + 1), 2))
            touched = {position // page_size: draw.randint(1, 99) for position in range(start, stop)}
            slots += by_token.slots(touched, start, stop)
            starts.append(start)
            stops.append(stop)
            listed += touched.values()
        pages = np.array(listed, np.int32)
        assert plan.slots(pages, ints(*starts), ints(*stops)).tolist() == slots
        whole = [page * page_size + offset for page in listed for offset in range(page_size)]
        assert plan.slots_of(pages).tolist() == whole


def test_runs_of_numbers_one_behind_the_other() -> None:
    """Short ones, none, and more numbers than were ever wanted before."""
    plan = Plan(1, 1)
    assert plan.ragged(ints(5, 0, 9), ints(3, 0, 2)).tolist() == [5, 6, 7, 9, 10]
    assert plan.ragged(ints(), ints()).dtype == np.int64
    assert plan.ragged(ints(7, 3), ints(5_000, 1)).tolist() == [*range(7, 5_007), 3]
    assert plan.ragged(ints(1), ints(2)).tolist() == [1, 2]


@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_a_table_with_more_lines_than_int32_can_count(page_size: int) -> None:
    """Rows beyond 2^31, and a row far down a table of a million columns, as Python counts. Nothing is allocated."""
    plan = Plan(page_size, 1_000_000)
    width = -(-1_000_000 // page_size)
    first, last = plan.pages_for(ints(999_970)), plan.pages_for(ints(1_000_000))
    for row in (3_000_000, 2**31, 2**40):
        assert row * width > 2**31
        expected = range(row * width + -(-999_970 // page_size), (row + 1) * width)
        assert plan.lines(ints(row), first, last).tolist() == list(expected)


def test_rows_of_int32_are_counted_on_beyond_it() -> None:
    """Who hands in rows and lengths of int32 gets int64 all the same: the ledger widens them."""
    rows, firsts, lasts = _batch(*np.array([[3_000], [999_999], [1_000_000]], np.int32))
    assert Plan(1, 1_000_000).lines(rows, firsts, lasts).tolist() == [3_000_999_999]


def test_the_last_slot_that_int32_can_hold() -> None:
    """The pool of 2^31 slots, the padding page with them: its last page's last slot is 2^31 - 1."""
    for page_size in (1, 2, 16, 2**16):
        plan, last = Plan(page_size, page_size), np.array([2**31 // page_size - 1], np.int32)
        assert plan.slots(last, ints(page_size - 1), ints(page_size)).tolist() == [2**31 - 1]
        assert plan.slots_of(last)[-1] == 2**31 - 1
