"""The table of rows, req_to_token[row][position] -> slot, and the record that says which row is whose.

A row is a place in the table, not the name of a request: a request gets one when it starts, keeps it through
every chunk and every decoded column, and gives it back when it is released. The table is dense and allocated once.

SGLang: ReqToTokenPool (mem_cache/memory_pool.py), ReqKvInfo (managers/schedule_batch.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvledger.spec.world import Row, Slot


class OutOfRoom(Exception):
    """Rows or pages do not suffice. Raised before anything is taken. short: "rows" or "pages"."""

    def __init__(self, short: str) -> None:
        super().__init__(f"not enough {short}")
        self.short = short


@dataclass(slots=True, eq=False)
class ReqKvInfo:
    """The KV record of one request or session. Lengths in tokens; while a row is held,

        0 <= cache_protected_len <= kv_committed_len <= kv_allocated_len <= context length.

    [0, cache_protected_len) belongs to the prefix cache, the rest to this record, in whole pages. What lies above
    kv_committed_len is over-allocation: slots for drafts, without KV that counts. Once the row is given back, only
    "no row, nothing allocated" is true: the other two lengths are stale and nobody reads them.

    from_session: it was in a session once, so nothing of it is published any more.
    """

    req_pool_idx: Row | None = None
    cache_protected_len: int = 0
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    from_session: bool = False

    @property
    def holds_kv(self) -> bool:
        """Whether a row is registered: the only way anybody asks."""
        return self.req_pool_idx is not None

    @property
    def over_allocated(self) -> bool:
        """Whether a row is held, with more slots than KV."""
        return self.holds_kv and self.kv_allocated_len > self.kv_committed_len

    @property
    def row(self) -> Row:
        """The row held. AssertionError if none is."""
        row = self.req_pool_idx
        if row is None:
            raise AssertionError("a record that holds no KV has no row")
        return row


class ReqToTokenPool:
    """Rows 1..size of max_context_len columns each. Row 0 is padding: never handed out.

    freed: every row given back, in order, until the reader clears it.
    """

    def __init__(self, size: int, max_context_len: int) -> None:
        self.size = size
        self.max_context_len = max_context_len
        self.req_to_token: list[list[Slot]] = [[0] * max_context_len for _ in range(size + 1)]
        self.free_slots: list[Row] = list(range(1, size + 1))
        self.freed: list[Row] = []

    def available_size(self) -> int:
        """How many rows are free."""
        return len(self.free_slots)

    def alloc(self, records: Sequence[ReqKvInfo]) -> list[Row]:
        """Each record's row, in order: the one it holds, or a new one from the tail of the free list.

        Only a record that carries allocated KV may reuse its row: a row number without KV is what a hand-written
        release leaves behind, and by now somebody else may hold that row (sglang#37167).
        OutOfRoom if the new ones do not suffice.
        """
        fresh = [record for record in records if not record.holds_kv]
        assert all(record.kv_allocated_len > 0 for record in records if record.holds_kv), "a reused row carries no KV"
        if len(fresh) > len(self.free_slots):
            raise OutOfRoom("rows")
        first = len(self.free_slots) - len(fresh)
        for record, row in zip(fresh, self.free_slots[first:], strict=True):
            record.req_pool_idx = row
        del self.free_slots[first:]
        return [record.row for record in records]

    def write(self, row: Row, start: int, slots: Sequence[Slot]) -> None:
        """Columns [start, start + len(slots)) of a row list these slots."""
        self.req_to_token[row][start : start + len(slots)] = slots

    def free(self, record: ReqKvInfo) -> None:
        """The row goes back, and no KV with it: that is release_kv_cache's, before. Old slots stay in the columns."""
        row = record.row
        self.free_slots.append(row)
        self.freed.append(row)
        record.req_pool_idx = None
