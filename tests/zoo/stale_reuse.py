"""A retract leaves row and length in the record; when the request starts again they pass for a row that it holds.

Stale row: sgl-project/sglang#37167 (a released record's stale length passes for a held row). The row went to the
free list when it was released, so the next request gets it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvledger.reference.backend import Backend
from kvledger.reference.rows import ReqKvInfo, ReqToTokenPool
from kvledger.spec.actions import Extend
from kvledger.spec.backend import Declaration, Refused, Reply, World
from kvledger.spec.world import Row
from kvledger.tests.kit.strike import strike

RULE = BLIND = "REC-1"


class Rows(ReqToTokenPool):
    """left: the row and the length that a release leaves behind. reused: rows that nobody handed out again."""

    def __init__(self, size: int, max_context_len: int) -> None:
        super().__init__(size, max_context_len)
        self.left: dict[ReqKvInfo, tuple[Row, int]] = {}
        self.reused: list[Row] = []

    def free(self, record: ReqKvInfo) -> None:
        """The row goes back, and is remembered."""
        self.left[record] = record.row, record.kv_allocated_len
        super().free(record)

    def alloc(self, records: Sequence[ReqKvInfo]) -> list[Row]:
        """Asks what the record says, not whether it was released."""
        for record in records:
            if not record.holds_kv and record in self.left:
                strike()
                record.req_pool_idx, record.kv_allocated_len = self.left[record]
                self.reused.append(record.row)
        return super().alloc(records)


class StaleReuse(Backend):
    """The answer lists the rows that were handed out; one that was reused is none of them."""

    row_pool = Rows
    req_to_token_pool: Rows

    def declare(self) -> Declaration:
        """As the reference."""
        return replace(super().declare(), name="stale_reuse")

    def extend(self, act: Extend) -> Reply | Refused:
        """The reference's, less the reused rows."""
        answer = super().extend(act)
        if isinstance(answer, Refused):
            return answer
        return replace(answer, rows=[row for row in answer.rows if row not in self.req_to_token_pool.reused])


def make(world: World) -> Backend:
    """The reference with this fault."""
    return StaleReuse(world)
