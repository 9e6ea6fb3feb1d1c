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
Where: TypeAlias = Ints | slice
NOWHERE: Ints = np.empty(0, np.int64)


def runs(firsts: Ints, counts: Ints) -> Where:
    """The numbers first, first + 1, ... of each, count of them, one run behind the other. [sum of counts]

    A single run is a slice, of which no index need be made, copied or looked up.
    """
    if len(firsts) == 1:
        first = int(firsts[0])
        return slice(first, first + int(counts[0]))
    ends = np.cumsum(counts)
    return np.repeat(firsts - (ends - counts), counts) + np.arange(counts.sum())


def joined(first: Where, second: Where) -> Where:
    """One behind the other."""
    if isinstance(first, slice) and isinstance(second, slice) and first.stop == second.start:
        return slice(first.start, second.stop)
    return np.concatenate([indices(first), indices(second)])


def indices(where: Where) -> Ints:
    """The same as an array."""
    return np.arange(where.start, where.stop) if isinstance(where, slice) else where


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

    def lines(self, rows: Ints, firsts: Ints, lasts: Ints) -> Where:
        """Where pages [first, last) of each row are listed, row by row. [sum of last - first]"""
        return runs(rows * self.width + firsts, lasts - firsts)

    def columns(self, rows: Ints, starts: Ints, stops: Ints) -> Where:
        """The columns of positions [start, stop), row by row. [sum of stop - start]"""
        return runs(rows * (self.width * self.page_size) + starts, stops - starts)

    def line_of(self, rows: Ints, positions: Ints) -> Ints:
        """The line in which one position of each row stands."""
        return rows * self.width + positions // self.page_size

    def at_edge(self, positions: Ints) -> Ints:
        """Which of these positions begin a page: their places in the batch."""
        return np.nonzero(positions % self.page_size == 0)[0]

    def to_edge(self, positions: Ints) -> int:
        """How many more positions each may take before the first begins a page; page_size for none."""
        return int((-positions % self.page_size).min(initial=self.page_size))

    def slots(self, pages: Pages, positions: Ints) -> Ints:
        """The slots of positions that stand in these pages."""
        return pages * self.page_size + positions % self.page_size

    def reserved(self, committed: Ints, allocated: Ints, tokens: Ints) -> Ints:
        """How far slots reach when `tokens` beyond committed have some: to a page's end, never less far than now,
        never past the row."""
        reach = self.pages_for(committed + tokens) * self.page_size
        return np.minimum(np.maximum(allocated, reach), self.context_len)
