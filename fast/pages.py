"""What is free: a stack of numbers with a head, for pages and for rows alike. On the host, exact, at any size.

Taking moves the head up, giving back moves it down and writes what came behind it: nothing is copied, moved or
searched, so the size of the pool costs nothing. Every number knows whether it is taken, so one that comes back twice
is found at once, before anything has changed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvledger.fast.plan import Ints, Pages

TAKEN = -1


class OutOfRoom(Exception):
    """Rows or pages do not suffice. Raised before anything is taken. short: "rows" or "pages"."""

    def __init__(self, short: str) -> None:
        super().__init__(f"not enough {short}")
        self.short = short


class DoubleFree(Exception):
    """A page or a row was given back that was not taken. Nothing has changed. The text names it."""


class FreeStack:
    """The numbers 1..size. stack[head:] are the free ones, int32, the next to go first. 0 is padding: never handed out.

    what: "page" or "row". place: where each free number stands in the stack, TAKEN for the others, int32 [size + 2];
    0 and size + 1 are never taken, and stand for all that is not in 1..size.
    """

    def __init__(self, size: int, what: str) -> None:
        self.what = what
        self.stack = np.arange(1, size + 1, dtype=np.int32)
        self.place = np.arange(-1, size + 1, dtype=np.int32)
        self.place[0] = 0
        self.head = 0

    @property
    def available(self) -> int:
        """How many are free."""
        return len(self.stack) - self.head

    def free(self) -> Pages:
        """Those that are free, the next to go first."""
        return self.stack[self.head :]

    def taken(self, numbers: Ints | Pages) -> npt.NDArray[np.bool_]:
        """Which of these are taken; nothing that is not in 1..size is. [n]"""
        taken: npt.NDArray[np.bool_] = self.place.take(numbers, mode="clip") == TAKEN
        return taken

    def repeated(self, numbers: Ints | Pages) -> Ints | Pages:
        """Those that stand in this list once more, further behind. All are taken."""
        if len(numbers) < 2:
            return numbers[:0]
        order = np.arange(len(numbers), dtype=np.int32)
        self.place[numbers] = order  # of a number that stands there twice the last place remains
        again: Ints | Pages = numbers[self.place[numbers] != order]
        self.place[numbers] = TAKEN
        return again

    def take(self, count: int) -> Pages:
        """So many. OutOfRoom if there are fewer."""
        stop = self.head + count
        if stop > len(self.stack):
            raise OutOfRoom(f"{self.what}s")
        numbers = self.stack[self.head : stop].copy()
        self.place[numbers] = TAKEN
        self.head = stop
        return numbers

    def check(self, numbers: Ints | Pages) -> None:
        """DoubleFree unless all of these may be given back: each is taken, and stands there once. Changes nothing."""
        taken = self.taken(numbers)
        if np.count_nonzero(taken) < len(numbers):
            free = numbers[~taken][0]
            raise DoubleFree(f"{self.what} {free} is given back, but was not taken: expected one in use")
        again = self.repeated(numbers)
        if len(again):
            raise DoubleFree(f"{self.what} {again[0]} is given back twice in one call: expected once")

    def give(self, numbers: Ints | Pages) -> None:
        """They are free again, the first of them the next to go. DoubleFree, and nothing has changed."""
        self.check(numbers)
        head = self.head - len(numbers)
        self.stack[head : self.head] = numbers
        self.place[numbers] = np.arange(head, self.head, dtype=np.int32)
        self.head = head
