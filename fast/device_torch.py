"""What the device decides itself, in plain torch operators of fixed shapes, which a CUDA graph can hold.

No shape depends on data, and the host learns nothing: where it would branch, all lanes go on, and the dead ones read
and write the padding. A call first finds out whether all of it may be done; if not, its lanes are all dead, so a
refused call leaves no trace but the flag. rows: int64 [batch], 0 for a lane that is dead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvledger.fast.device_state import DeviceState, Fault
from kvledger.fast.plan import Plan


def decode(state: DeviceState, plan: Plan, rows: torch.Tensor) -> torch.Tensor:
    """One more position for each row. Its slot, 0 for a dead lane: int64 [batch]"""
    batch = _batch(state, rows)
    begins = batch.lengths
    none, full = batch.active & (begins == 0), batch.active & (begins >= plan.context_len)
    fine = batch.active & ~batch.wrong & ~none & ~full
    need = fine & (begins % plan.page_size == 0)
    ok = _decide(state, {
        Fault.OUT_OF_PAGES: need.sum() > _available(state),
        Fault.WRONG_ROW: (batch.wrong | none).any(),
        Fault.WRONG_LENGTH: full.any(),
    })  # fmt: skip
    need, fine = need & ok, fine & ok
    lines = batch.rows * plan.width + begins // plan.page_size
    _list(state, _take(state, need, need.cumsum(0) - 1), torch.where(need, lines, 0))
    state.seq_lens.index_add_(0, batch.rows, fine.to(torch.int64))
    return _slots(state, plan, fine, batch.rows, begins)


def extend(state: DeviceState, plan: Plan, rows: torch.Tensor, stops: torch.Tensor, tokens_max: int) -> torch.Tensor:
    """Positions [seq_len, stop) of each row. Their slots, member by member, then 0: int64 [tokens_max]"""
    batch = _batch(state, rows)
    begins = batch.lengths
    off = batch.active & ((stops <= begins) | (stops > plan.context_len))
    fine = batch.active & ~batch.wrong & ~off
    tokens = torch.where(fine, stops - begins, 0)
    pages = torch.where(fine, plan.new_pages(begins, stops), 0)
    ok = _decide(state, {
        Fault.OUT_OF_PAGES: pages.sum() > _available(state),
        Fault.WRONG_ROW: batch.wrong.any(),
        Fault.WRONG_LENGTH: off.any(),
        Fault.TOO_MANY: tokens.sum() > tokens_max,
    })  # fmt: skip
    whose, nth, there = _ragged(pages, pages_of(plan, tokens_max, len(rows)), ok)
    first_lines = batch.rows * plan.width + plan.pages_for(begins)
    lines = torch.where(there, first_lines.index_select(0, whose) + nth, 0)
    _list(state, _take(state, there, torch.arange(len(lines), device=lines.device)), lines)
    state.seq_lens.index_add_(0, batch.rows, torch.where(ok, tokens, 0))
    whose, nth, there = _ragged(tokens, tokens_max, ok)
    return _slots(state, plan, there, batch.rows.index_select(0, whose), begins.index_select(0, whose) + nth)


def cut(state: DeviceState, plan: Plan, rows: torch.Tensor, lengths: torch.Tensor, pages_max: int) -> torch.Tensor:
    """Of each row [0, length) stays. The pages that went back, then 0: int32 [pages_max]"""
    batch = _batch(state, rows)
    protected = state.protected_lens.index_select(0, batch.rows)
    inside = (lengths >= protected) & (lengths >= 1) & (lengths <= batch.lengths)
    _, pages = _give_back(state, plan, batch, inside, lengths, lengths, pages_max)
    return pages


def release(state: DeviceState, plan: Plan, rows: torch.Tensor, pages_max: int) -> torch.Tensor:
    """Everything that these rows hold is given up. The pages that went back, then 0: int32 [pages_max]"""
    batch = _batch(state, rows)
    protected = state.protected_lens.index_select(0, batch.rows)
    inside, nothing = torch.ones_like(batch.wrong), torch.zeros_like(protected)
    ok, pages = _give_back(state, plan, batch, inside, protected, nothing, pages_max)
    state.protected_lens.index_add_(0, batch.rows, torch.where(batch.active & ok, protected, 0), alpha=-1)
    return pages


def pages_of(plan: Plan, tokens: int, batch: int) -> int:
    """The most pages that so many new tokens of so many rows can need."""
    return min(tokens, (tokens + batch * (plan.page_size - 1)) // plan.page_size)


# ---- who, whether, and how many


@dataclass(frozen=True, eq=False)
class _Batch:
    """rows: as given, 0 for what is no row. active: lanes that are not dead. wrong: no row, or one that stands there
    twice. lengths: of each row, its tokens. [batch] each"""

    rows: torch.Tensor
    active: torch.Tensor
    wrong: torch.Tensor
    lengths: torch.Tensor


def _batch(state: DeviceState, rows: torch.Tensor) -> _Batch:
    inside = (rows >= 0) & (rows <= state.world.rows)
    there = torch.where(inside, rows, 0)
    active = there > 0
    lanes = torch.arange(len(rows), device=rows.device)
    state.lanes.index_copy_(0, there, lanes)  # of a row that stands there twice one lane remains
    twice = active & (state.lanes.index_select(0, there) != lanes)
    return _Batch(there, active, ~inside | twice, state.seq_lens.index_select(0, there))


def _decide(state: DeviceState, found: dict[Fault, torch.Tensor]) -> torch.Tensor:
    """Whether the call may be done, bool []. The first that may not is noted, and stops all that come after it."""
    stopped = state.err.any()
    faults = torch.stack([found.get(fault, state.never) for fault in Fault])
    state.err.copy_(torch.where(stopped, state.err, faults.to(torch.int32)))
    return ~(stopped | faults.any())


def _ragged(counts: torch.Tensor, lanes: int, ok: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Runs of count lanes, one behind the other: whose each is, the how-many-th of its run, and whether it is one."""
    ends = counts.cumsum(0)
    at = torch.arange(lanes, device=counts.device)
    whose = torch.searchsorted(ends, at, right=True).clamp(max=len(counts) - 1)
    return whose, at - (ends - counts).index_select(0, whose), (at < ends[-1]) & ok


# ---- what moves


def _available(state: DeviceState) -> torch.Tensor:
    return len(state.stack) - state.head


def _take(state: DeviceState, lanes: torch.Tensor, nth: torch.Tensor) -> torch.Tensor:
    """For each lane that is not dead the nth free page; else page 0. int32 [lanes]"""
    pages = state.stack.index_select(0, torch.where(lanes, state.head + nth, 0))
    state.live.index_add_(0, pages, lanes.to(torch.int32))
    state.head.add_(lanes.sum())
    return pages


def _list(state: DeviceState, pages: torch.Tensor, lines: torch.Tensor) -> None:
    """Each line lists its page; line 0 lists page 0 already."""
    offsets = state.tensors.offsets
    state.tensors.lines.index_copy_(0, lines, torch.add(offsets, pages.unsqueeze(1), alpha=len(offsets)))


def _slots(
    state: DeviceState, plan: Plan, lanes: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """The slot at each lane's row and position; of a dead one 0. int64 [lanes]"""
    columns = torch.where(lanes, rows * (plan.width * plan.page_size) + positions, 0)
    return state.tensors.columns.index_select(0, columns).to(torch.int64)


def _give_back(
    state: DeviceState,
    plan: Plan,
    batch: _Batch,
    inside: torch.Tensor,
    keep: torch.Tensor,
    stops: torch.Tensor,
    most: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pages behind [0, keep) of each row go to the front of the stack, and seq_len is stop. inside: whose may be.

    Whether it was done, and the pages, then 0. The counter is moved first, and back if the call is refused: so a page
    that goes back twice, in this call or since it was taken, is found, and the size of the pool costs nothing.
    """
    none = batch.active & (batch.lengths == 0)
    off = batch.active & ~none & ~inside
    fine = batch.active & ~batch.wrong & ~none & inside
    counts = torch.where(fine, plan.new_pages(keep, batch.lengths), 0)
    whose, nth, lanes = _ragged(counts, most, ~state.never)
    first_lines = batch.rows * plan.width + plan.pages_for(keep)
    lines = torch.where(lanes, first_lines.index_select(0, whose) + nth, 0)
    listed = state.tensors.lines[:, 0].index_select(0, lines) // plan.page_size
    exists = lanes & (listed > 0) & (listed <= state.world.pages)
    pages = torch.where(exists, listed, 0)
    state.live.index_add_(0, pages, exists.to(torch.int32), alpha=-1)
    ok = _decide(state, {
        Fault.DOUBLE_FREE: (state.live.index_select(0, pages) < 0).any(),
        Fault.NO_SUCH_PAGE: (lanes & ~exists).any(),
        Fault.WRONG_ROW: (batch.wrong | none).any(),
        Fault.WRONG_LENGTH: off.any(),
        Fault.TOO_MANY: counts.sum() > most,
    })  # fmt: skip
    state.live.index_add_(0, pages, (exists & ~ok).to(torch.int32))
    pages = torch.where(ok, pages, 0)
    state.head.sub_(torch.where(ok, counts.sum(), 0))
    at = torch.arange(len(pages), device=pages.device) + state.head
    state.stack.index_copy_(0, torch.where(lanes & ok, at, 0), pages)
    state.seq_lens.index_add_(0, batch.rows, torch.where(fine & ok, stops - batch.lengths, 0))
    return ok, pages
