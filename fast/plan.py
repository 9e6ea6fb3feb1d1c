"""Where things stand in the table: arithmetic on the host, from lengths to indices, a whole batch at a time. No torch.

A row is cut into lines of page_size columns; a line lists one page. All lines of all rows are numbered through, row by
row, and so are all columns. Position i of row r stands in line r * width + i // page_size. Rows, lengths, positions
and results are int64, however small: the columns of a large table are more than int32 can count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Pages: TypeAlias = npt.NDArray[np.int32]


def ragged(firsts: Ints, counts: Ints) -> Ints:
    """The numbers first, first + 1, ... of each, count of them, one run behind the other. [sum of counts]"""
    ends = np.cumsum(counts)
    return np.repeat(firsts - (ends - counts), counts) + np.arange(counts.sum())


@dataclass(frozen=True)
class Plan:
    """The shape of a table: rows of context_len columns, in pages of page_size. Arrays: one entry a batch member."""

    page_size: int
    context_len: int

    @property
    def width(self) -> int:
        """Lines of a row; the last may reach beyond its end."""
        return -(-self.context_len // self.page_size)

    def pages_for(self, lengths: Ints) -> Ints:
        """How many pages positions [0, length) touch."""
        return -(-lengths // self.page_size)

    def new_pages(self, starts: Ints, stops: Ints) -> Ints:
        """How many pages positions [start, stop) need that [0, start) has not."""
        return self.pages_for(stops) - self.pages_for(starts)

    def lines(self, rows: Ints, starts: Ints, stops: Ints) -> Ints:
        """The lines of those pages, row by row: where they are listed. [sum of new_pages]"""
        return ragged(rows * self.width + self.pages_for(starts), self.new_pages(starts, stops))

    def columns(self, rows: Ints, starts: Ints, stops: Ints) -> Ints:
        """The columns of positions [start, stop), row by row. [sum of stop - start]"""
        return ragged(rows * (self.width * self.page_size) + starts, stops - starts)

    def line_of(self, rows: Ints, positions: Ints) -> Ints:
        """The line in which one position of each row stands."""
        return rows * self.width + positions // self.page_size

    def slots(self, pages: Pages, positions: Ints) -> Ints:
        """The slots of positions that stand in these pages."""
        return pages * self.page_size + positions % self.page_size

    def reserved(self, committed: Ints, allocated: Ints, tokens: Ints) -> Ints:
        """How far slots reach when `tokens` beyond committed have some: to a page's end, never less far than now,
        never past the row."""
        reach = self.pages_for(committed + tokens) * self.page_size
        return np.minimum(np.maximum(allocated, reach), self.context_len)
