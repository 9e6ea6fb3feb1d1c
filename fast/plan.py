"""Where things stand in the table: arithmetic on the host, from lengths to indices, a whole batch at a time. No torch.

A row is cut into lines of page_size columns; a line lists one page. All lines of all rows are numbered through, row by
row. Position i of row r stands in line r * width + i // page_size. Rows, lengths, positions and results are int64,
however small: the lines of a large table are more than int32 can count.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Pages: TypeAlias = npt.NDArray[np.int32]
Length = TypeVar("Length", int, Ints)


class Plan:
    """The shape of a table: rows of context_len columns, in pages of page_size. Arrays: one entry a batch member.

    width: lines of a row; the last may reach beyond its end.
    """

    def __init__(self, page_size: int, context_len: int) -> None:
        self.page_size, self.context_len = page_size, context_len
        self.width = self.pages_for(context_len)
        self.offsets = np.arange(page_size)
        self.numbers = np.arange(1_024)  # grows: a run is made by adding to these

    def pages_for(self, lengths: Length) -> Length:
        """How many pages positions [0, length) touch."""
        return -(-lengths // self.page_size)

    def new_pages(self, starts: Length, stops: Length) -> Length:
        """How many pages positions [start, stop) need that [0, start) has not."""
        return self.pages_for(stops) - self.pages_for(starts)

    def ragged(self, firsts: Ints, counts: Ints) -> Ints:
        """The numbers first, first + 1, ... of each, count of them, one run behind the other. [sum of counts]"""
        ends = np.cumsum(counts)
        runs = np.repeat(firsts - (ends - counts), counts)
        if len(runs) > len(self.numbers):
            self.numbers = np.arange(2 * len(runs))
        runs += self.numbers[: len(runs)]
        return runs

    def lines(self, rows: Ints, firsts: Ints, lasts: Ints) -> Ints:
        """Where pages [first, last) of each row are listed, row by row. [sum of last - first]"""
        return self.ragged(rows * self.width + firsts, lasts - firsts)

    def slots(self, pages: Pages, starts: Ints, stops: Ints) -> Ints:
        """The slots of positions [start, stop) of each row, row by row; none is empty. [sum of stop - start]

        pages: all that these positions touch.
        """
        if self.page_size == 1:
            return pages.astype(np.int64)
        firsts, counts = pages * np.int64(self.page_size), np.full(len(pages), self.page_size)
        touched = self.pages_for(stops) - starts // self.page_size
        ends = np.cumsum(touched)
        counts[ends - 1] -= -stops % self.page_size
        skipped = starts % self.page_size
        if np.count_nonzero(skipped):
            firsts[ends - touched] += skipped
            counts[ends - touched] -= skipped
        return self.ragged(firsts, counts)

    def slots_of(self, pages: Pages) -> Ints:
        """All slots of these pages. [pages * page_size]"""
        slots: Ints = pages[:, np.newaxis] * self.page_size + self.offsets
        return slots.ravel()

    def reserved(self, committed: Ints, allocated: Ints, tokens: Ints) -> Ints:
        """How far slots reach when `tokens` beyond committed have some: to a page's end, never less far than now,
        never past the row."""
        reach = self.pages_for(committed + np.minimum(tokens, self.context_len)) * self.page_size
        return np.minimum(np.maximum(allocated, reach), self.context_len)
