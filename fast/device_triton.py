"""The same as device_torch's decode and extend, bit for bit, as Triton kernels: any page size, and any batch.

decode is one program, for it must know of all lanes whether they may before it changes anything for one: one launch.
An extend is two. The first, one program again, decides and books; the second, a program for each member and each block
of its positions, lists the pages and reads the slots. In one launch each program would have to wait for all others.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvledger.fast.device_state import DeviceState, Fault
from kvledger.fast.plan import Plan

BLOCK = 256
OUT_OF_PAGES, WRONG_ROW, WRONG_LENGTH, TOO_MANY = (
    tl.constexpr(int(fault)) for fault in (Fault.OUT_OF_PAGES, Fault.WRONG_ROW, Fault.WRONG_LENGTH, Fault.TOO_MANY)
)


def decode(state: DeviceState, plan: Plan, rows: torch.Tensor) -> torch.Tensor:
    """As device_torch.decode. int64 [batch]"""
    rows = rows.contiguous()  # a kernel reads from an address on
    out = torch.empty_like(rows)
    _decode[(1,)](
        rows, out, state.stack, state.head, state.live, state.seq_lens, state.lanes, state.err, state.tensors.columns,
        len(rows), state.world.rows, state.world.pages, plan.context_len, plan.width, plan.page_size, len(state.err),
        triton.next_power_of_2(len(rows)), triton.next_power_of_2(len(state.err)),
    )  # fmt: skip
    return out


def extend(state: DeviceState, plan: Plan, rows: torch.Tensor, stops: torch.Tensor, tokens_max: int) -> torch.Tensor:
    """As device_torch.extend. int64 [tokens_max]"""
    rows, stops = rows.contiguous(), stops.contiguous()
    out = torch.zeros(tokens_max, dtype=torch.int64, device=rows.device)
    members = torch.empty((5, len(rows)), dtype=torch.int64, device=rows.device)
    _book[(1,)](
        rows, stops, members, state.stack, state.head, state.seq_lens, state.lanes, state.err,
        len(rows), tokens_max, state.world.rows, state.world.pages, plan.context_len, plan.page_size, len(state.err),
        triton.next_power_of_2(len(rows)), triton.next_power_of_2(len(state.err)),
    )  # fmt: skip
    longest = min(tokens_max + plan.page_size, plan.width * plan.page_size)  # to the end of the last page
    _fill[(len(rows), triton.cdiv(longest, BLOCK))](
        members, out, state.stack, state.live, state.tensors.columns, len(rows), plan.width, plan.page_size, BLOCK
    )
    return out


@triton.jit
def _who(rows, lanes_of, seq_lens, batch, num_rows, LANES: tl.constexpr):
    """For each lane its row, whether it is not dead, whether it is wrong, and how many tokens the row has."""
    lanes = tl.arange(0, LANES).to(tl.int64)
    given = tl.load(rows + lanes, lanes < batch, 0)
    inside = (given >= 0) & (given <= num_rows)
    row = tl.where(inside, given, 0)
    active = row > 0
    tl.store(lanes_of + row, lanes, active)
    tl.debug_barrier()
    twice = active & (tl.load(lanes_of + row, active, 0) != lanes)
    return row, active, (inside == 0) | twice, tl.load(seq_lens + row, active, 0)


@triton.jit
def _any(lanes):
    return tl.max(lanes.to(tl.int32), 0)


@triton.jit
def _decide(err, short, wrong, off, many, num_faults, FAULTS: tl.constexpr):
    """Whether the call may be done. The first that may not is noted, and stops all that come after it."""
    places = tl.arange(0, FAULTS)
    stopped = tl.max(tl.load(err + places, places < num_faults, 0), 0)
    tl.debug_barrier()
    found = tl.where(places == OUT_OF_PAGES, short, 0) | tl.where(places == WRONG_ROW, wrong, 0)
    found = found | tl.where(places == WRONG_LENGTH, off, 0) | tl.where(places == TOO_MANY, many, 0)
    tl.store(err + places, found, (places < num_faults) & (stopped == 0))
    return (stopped | tl.max(found, 0)) == 0


@triton.jit
def _decode(
    rows, out, stack, head, live, seq_lens, lanes_of, err, columns,
    batch, num_rows, num_pages, context_len, width, page_size, num_faults,
    LANES: tl.constexpr, FAULTS: tl.constexpr,
) -> None:  # fmt: skip
    row, active, wrong, begins = _who(rows, lanes_of, seq_lens, batch, num_rows, LANES)
    first = tl.load(head)
    wrong, full = wrong | (active & (begins == 0)), active & (begins >= context_len)
    fine = active & (wrong == 0) & (full == 0)
    need = fine & (begins % page_size == 0)
    needed = tl.sum(need.to(tl.int64), 0)
    short = (needed > num_pages + 1 - first).to(tl.int32)
    ok = _decide(err, short, _any(wrong), _any(full), 0, num_faults, FAULTS)
    need, fine = need & ok, fine & ok
    page = tl.load(stack + first + tl.cumsum(need.to(tl.int64), 0) - 1, need, 0)
    column = row * width * page_size + begins
    for offset in range(page_size):
        tl.store(columns + column + offset, page * page_size + offset, need)
    slot = tl.where(need, page * page_size, tl.load(columns + column, fine & (need == 0), 0))
    lanes = tl.arange(0, LANES)
    tl.store(out + lanes, slot.to(tl.int64), lanes < batch)
    tl.atomic_add(live + page, 1, need)
    tl.debug_barrier()
    tl.store(seq_lens + row, begins + 1, fine)
    tl.store(head, first + tl.where(ok, needed, 0))


@triton.jit
def _book(
    rows, stops, members, stack, head, seq_lens, lanes_of, err,
    batch, tokens_max, num_rows, num_pages, context_len, page_size, num_faults,
    LANES: tl.constexpr, FAULTS: tl.constexpr,
) -> None:  # fmt: skip
    """members, by lane: its row, its first new position, the one behind its last, where in the stack its first page
    stands and where in out its first slot goes. A lane for which nothing is to be done has no position."""
    row, active, wrong, begins = _who(rows, lanes_of, seq_lens, batch, num_rows, LANES)
    lanes = tl.arange(0, LANES)
    stop = tl.load(stops + lanes, lanes < batch, 0)
    first = tl.load(head)
    off = active & ((stop <= begins) | (stop > context_len))
    fine = active & (wrong == 0) & (off == 0)
    stop = tl.where(fine, stop, begins)
    tokens = stop - begins
    pages = (stop + page_size - 1) // page_size - (begins + page_size - 1) // page_size
    needed = tl.sum(pages, 0)
    short = (needed > num_pages + 1 - first).to(tl.int32)
    many = (tl.sum(tokens, 0) > tokens_max).to(tl.int32)
    ok = _decide(err, short, _any(wrong), _any(off), many, num_faults, FAULTS)
    stop = tl.where(ok, stop, begins)
    tl.store(members + lanes, row, lanes < batch)
    tl.store(members + batch + lanes, begins, lanes < batch)
    tl.store(members + 2 * batch + lanes, stop, lanes < batch)
    tl.store(members + 3 * batch + lanes, first + tl.cumsum(pages, 0) - pages, lanes < batch)
    tl.store(members + 4 * batch + lanes, tl.cumsum(tokens, 0) - tokens, lanes < batch)
    tl.debug_barrier()
    tl.store(seq_lens + row, stop, active & (wrong == 0))
    tl.store(head, first + tl.where(ok, needed, 0))


@triton.jit
def _fill(
    members, out, stack, live, columns, batch, width, page_size,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """One block of one member's positions, from its first new one to the end of its last page."""
    member = tl.program_id(0)
    row, begin = tl.load(members + member), tl.load(members + batch + member)
    stop = tl.load(members + 2 * batch + member)
    place, target = tl.load(members + 3 * batch + member), tl.load(members + 4 * batch + member)
    known = (begin + page_size - 1) // page_size  # pages that the row has
    end = (stop + page_size - 1) // page_size * page_size
    position = begin + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    fresh = (position < end) & (position // page_size >= known) & (stop > begin)
    page = tl.load(stack + place + position // page_size - known, fresh, 0)
    column = row * width * page_size + position
    there = tl.load(columns + column, (position < stop) & (fresh == 0), 0)
    slot = tl.where(fresh, page * page_size + (position % page_size).to(tl.int32), there)
    tl.store(columns + column, slot, fresh)
    tl.store(out + target + position - begin, slot.to(tl.int64), position < stop)
    tl.atomic_add(live + page, 1, fresh & (position % page_size == 0))


INTERPRETED = not isinstance(_fill, triton.JITFunction)
