"""The plan of fast: every index as one gets it token by token, in lists; and beyond what int32 can count."""

from __future__ import annotations

from itertools import takewhile
from random import Random

import pytest

pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.plan import Ints, Plan, indices, joined, runs

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
        lines = plan.lines(batch[0], *map(plan.pages_for, batch[1:]))
        assert indices(lines).tolist() == [line for member in members for line in by_token.lines(*member)]
        columns = indices(plan.columns(*batch)).tolist()
        assert columns == [column for member in members for column in by_token.columns(*member)]
        assert plan.line_of(*batch[:2]).tolist() == [by_token.line(row, start) for row, start, _ in members]
        edges = [place for place, start in enumerate(starts) if start % page_size == 0]
        assert plan.at_edge(batch[1]).tolist() == edges
        steps = [sum(1 for _ in takewhile(lambda at: at % page_size, range(start, WIDTH * 2))) for start in starts]
        assert plan.to_edge(batch[1]) == min(steps, default=page_size)


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
    """A single run is a slice; an empty one too, and no runs at all are an array."""
    assert indices(runs(ints(5, 0, 9), ints(3, 0, 2))).tolist() == [5, 6, 7, 9, 10]
    assert indices(runs(ints(), ints())).dtype == np.int64
    assert runs(ints(5), ints(3)) == slice(5, 8) and indices(runs(ints(5), ints(0))).tolist() == []


def test_one_behind_the_other() -> None:
    """Slices that meet are one slice; of all others the numbers."""
    assert joined(slice(4, 6), slice(6, 9)) == slice(4, 9)
    assert indices(joined(slice(4, 6), slice(7, 9))).tolist() == [4, 5, 7, 8]
    assert indices(joined(slice(4, 6), ints(1, 9))).tolist() == [4, 5, 1, 9]
    assert indices(joined(ints(1, 9), slice(4, 6))).tolist() == [1, 9, 4, 5]


@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_a_table_with_more_columns_than_int32_can_count(page_size: int) -> None:
    """Row 3,000 of a table of a million columns: beyond 2^31, as Python counts. Nothing is allocated for it."""
    plan = Plan(page_size, 1_000_000)
    width = -(-1_000_000 // page_size)
    batch = ints(3_000), ints(999_970), ints(1_000_000)
    first = 3_000 * width * page_size + 999_970
    assert first > 2**31
    assert indices(plan.columns(*batch)).tolist() == list(range(first, first + 30))
    two = (np.repeat(numbers, 2) for numbers in batch)
    assert indices(plan.columns(*two)).tolist() == list(range(first, first + 30)) * 2
    lines = plan.lines(ints(2**31), *map(plan.pages_for, batch[1:]))
    assert indices(lines)[-1] == 2**31 * width + 999_999 // page_size


def test_the_last_slot_that_int32_can_hold() -> None:
    """The pool of 2^31 slots, the padding page with them: its last page's last slot is 2^31 - 1."""
    for page_size in (1, 2, 16, 2**16):
        last = np.array([2**31 // page_size - 1], np.int32)
        assert Plan(page_size, page_size).slots(last, ints(page_size - 1)).tolist() == [2**31 - 1]
