"""The plan of fast: every index as one gets it token by token, in lists; and beyond what int32 can count."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.ledger import _batch
from kvledger.fast.plan import Ints, Plan, ragged

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

    def columns(self, row: int, start: int, stop: int) -> list[int]:
        size = self.page_size
        return [self.line(row, position) * size + position % size for position in range(start, stop)]


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
        assert plan.new_pages(*batch[1:]).tolist() == [len(by_token.lines(*member)) for member in members]
        assert plan.lines(*batch).tolist() == [line for member in members for line in by_token.lines(*member)]
        assert plan.columns(*batch).tolist() == [column for member in members for column in by_token.columns(*member)]
        assert plan.line_of(*batch[:2]).tolist() == [by_token.line(row, start) for row, start, _ in members]


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


def test_runs_of_numbers_one_behind_the_other() -> None:
    assert ragged(ints(5, 0, 9), ints(3, 0, 2)).tolist() == [5, 6, 7, 9, 10]
    assert ragged(ints(), ints()).dtype == np.int64


@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_a_table_with_more_columns_than_int32_can_count(page_size: int) -> None:
    """Row 3,000 of a table of a million columns: beyond 2^31, as Python counts. Nothing is allocated for it."""
    plan = Plan(page_size, 1_000_000)
    width = -(-1_000_000 // page_size)
    batch = ints(3_000), ints(999_970), ints(1_000_000)
    first = 3_000 * width * page_size + 999_970
    assert first > 2**31
    assert plan.columns(*batch).tolist() == list(range(first, first + 30))
    assert plan.lines(ints(2**31), *batch[1:])[-1] == 2**31 * width + 999_999 // page_size
    assert plan.line_of(ints(2**31), ints(999_999)).tolist() == [2**31 * width + 999_999 // page_size]


def test_rows_of_int32_are_counted_on_beyond_it() -> None:
    """Who hands in lengths of int32 gets int64 all the same: the ledger widens them; row 3,000 of a million columns."""
    rows, starts, stops = _batch(*np.array([[3_000], [999_999], [1_000_000]], np.int32))
    assert Plan(1, 1_000_000).columns(rows, starts, stops).tolist() == [3_000_999_999]


def test_the_last_slot_that_int32_can_hold() -> None:
    """The pool of 2^31 slots, the padding page with them: its last page's last slot is 2^31 - 1."""
    for page_size in (1, 2, 16, 2**16):
        last = np.array([2**31 // page_size - 1], np.int32)
        assert Plan(page_size, page_size).slots(last, ints(page_size - 1)).tolist() == [2**31 - 1]
