"""A batch that decodes again and again: asked for once, and then its steps are counted.

Who comes to a page's edge in which step is known beforehand. A row's phase is how far its next position lies behind the
edge before it, and every step adds one to all phases. So rows are sorted by phase once, and each step takes a slice.
"""

from __future__ import annotations

import numpy as np

from kvledger.fast.plan import Ints, Pages, Plan


class Stride:
    """Rows, int64 [batch], of which none is full or has slots reserved. Void as soon as anything else happens to one.

    counts: one for each. steps: how many are left until a row is full. taken: how many no length knows of yet.
    """

    def __init__(self, plan: Plan, rows: Ints, positions: Ints, mirror: Pages) -> None:
        self.rows, self.counts = rows, np.ones_like(rows)
        self.rows.flags.writeable = self.counts.flags.writeable = False  # they are handed out at every step
        self.key, self.page_size = rows.tobytes(), plan.page_size
        self.taken = 0
        self.steps = plan.context_len - int(positions.max(initial=0))
        whole, phases = np.divmod(positions, plan.page_size)
        lines = rows * plan.width + whole
        self.slots: Ints = mirror[lines] * np.int64(plan.page_size) + phases  # of a row at an edge: nothing yet
        self.lines = lines + (phases > 0)  # where the next page of each is listed
        self.by_phase = phases.argsort(kind="stable")  # pages go in the order of the batch
        self.groups = [0, *np.cumsum(np.bincount(phases, minlength=plan.page_size)).tolist()]
        self.phase = 0  # of those whose next position begins a page

    def goes_on(self, rows: object) -> bool:
        """Whether these are its rows, and none of them is full."""
        return (
            isinstance(rows, np.ndarray)
            and rows.dtype is self.rows.dtype
            and rows.shape == self.rows.shape
            and rows.tobytes() == self.key
            and self.steps > 0
        )

    def edges(self) -> Ints:
        """Which of the rows need a page now: their places in the batch."""
        return self.by_phase[self.groups[self.phase] : self.groups[self.phase + 1]]

    def turn(self, edges: Ints, pages: Pages) -> Ints:
        """Those have got these pages. Returns the lines where they are listed."""
        firsts = pages * np.int64(self.page_size)
        if len(edges) == len(self.rows):
            lines, self.lines, self.slots = self.lines, self.lines + 1, firsts
            return lines
        self.slots[edges] = firsts
        lines = self.lines[edges]
        self.lines[edges] = lines + 1
        return lines

    def step(self) -> Ints:
        """One token for each row. Returns the slots. [batch]"""
        slots = self.slots
        self.slots = slots + 1
        self.steps -= 1
        self.taken += 1
        self.phase = (self.phase or self.page_size) - 1
        return slots
