"""What reads KV through the table: an exact look at what the slots hold, and attention as an engine computes it.

    keys[grant.out_cache_loc], values[grant.out_cache_loc] = k, v           # what a forward pass writes
    out = attention(ledger.tensors, keys, values, queries, rows, starts, stops)
    check_content(ledger.tensors, written, rows, tokens)                    # raises where a row lists wrong slots

A pool holds one entry a slot, [slots, ...], those of the padding page with it, on the table's device. Rows and lengths
are sequences of integers or integer arrays [batch], on the host; one code path for CPU and CUDA. Only check_content
waits for the device, and so it alone can name a slot beyond the pool, which torch refuses in its own words. ValueError
names a row or a length that the table has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import scaled_dot_product_attention

from kvledger.fast.plan import Ints
from kvledger.fast.tensors import Tensors

LOST = "nothing: the pool ends before"


class WrongContent(Exception):
    """A slot that a row lists holds something else than the row's content there.

    row, position, slot, page: where it is. found: what the slot holds; None: there is no such slot. expected: int.
    """

    def __init__(self, row: int, position: int, slot: int, page: int, found: int | None, expected: int) -> None:
        holds = LOST if found is None else found
        where = f"row {row}, position {position}: slot {slot} of page {page}"
        super().__init__(f"{where} holds {holds}, expected {expected}")
        self.row, self.position, self.slot, self.page = row, position, slot, page
        self.found, self.expected = found, expected


def gather(tensors: Tensors, pool: torch.Tensor, rows: Any, lengths: Any) -> torch.Tensor:
    """What [0, length) of each row hold: pool [slots, ...] -> [batch, longest, ...], of its dtype.

    Behind a row's length stands zero. What the table lists there is nothing to anybody, and is not followed: the slot
    read instead is 0, of the padding page. Nor is what that holds shown: masked attention still multiplies what it does
    not look at by zero, and zero times NaN is NaN.
    """
    rows, lengths = _asked(tensors, rows, lengths)
    slots, live = _slots(tensors, rows, lengths)
    behind = ~live.view(*live.shape, *[1] * (pool.dim() - 1))
    return pool[slots].masked_fill(behind, 0)


def check_content(tensors: Tensors, pool: torch.Tensor, rows: Any, expected: Sequence[npt.ArrayLike]) -> None:
    """Each row reads what was written for it, exactly. Waits for the device. WrongContent, of the first that does not;
    but of a slot that is none before that.

    pool: an integer a slot, [slots], written beside K and V: a token, or better a number that stands for all tokens up
    to a position, as KV does. expected: of each row those of [0, length), integers [length].
    """
    content = [_whole(each) for each in expected]
    rows, lengths = _asked(tensors, rows, [len(each) for each in content])
    slots, live = (each.cpu().numpy() for each in _slots(tensors, rows, lengths))
    members, positions = live.nonzero()
    slots, wanted = slots[live], np.concatenate([_whole([]), *content])
    wrong, found = (slots < 0) | (slots >= len(pool)), None
    if not wrong.any():
        found = gather(tensors, pool, rows, lengths).cpu().numpy()[live]
        wrong = found != wanted
    if wrong.any():
        at = int(wrong.argmax())
        row, position, slot = int(rows[members[at]]), int(positions[at]), int(slots[at])
        holds = None if found is None else int(found[at])
        raise WrongContent(row, position, slot, slot // len(tensors.offsets), holds, int(wanted[at]))


def attention(
    tensors: Tensors,
    keys: torch.Tensor,
    values: torch.Tensor,
    queries: torch.Tensor,
    rows: Any,
    starts: Any,
    stops: Any,
) -> torch.Tensor:
    """Causal attention of positions [start, stop) of each row over [0, stop), whose K and V are written already.

    keys, values: floats [slots, heads, dim]. queries: [sum of (stop - start), heads, dim], member by member, as an
    extend hands out its slots; so is the result. Grouped queries have a multiple of those heads, and each group of
    neighbours one K and V. A decode is start = stop - 1; a prefill behind a cached prefix starts at its length. Rows
    of any lengths.
    """
    grouped = _grouped(keys, values, queries)
    rows, stops = _asked(tensors, rows, stops)
    starts = _whole(starts)
    if starts.shape != stops.shape or (starts < 0).any() or (starts >= stops).any():
        raise ValueError(f"starts {starts.tolist()}: expected one for each row, from 0, below stops {stops.tolist()}")
    counts = stops - starts
    if len(queries) != counts.sum():
        raise ValueError(f"{len(queries)} queries: expected {counts.sum()}, one for each position from start to stop")
    if not len(rows):
        return torch.empty_like(queries)
    most, longest = int(counts.max()), int(stops.max())
    begins, lanes = tensors.upload(starts, tensors.plan.ragged(np.arange(len(rows)) * most, counts))
    padded = queries.new_zeros(len(rows) * most, *queries.shape[1:]).index_copy_(0, lanes, queries)
    asking = begins.unsqueeze(1) + torch.arange(most, device=tensors.device)
    # Who asks looks at all up to itself, and that is the row's own: only a padded query reaches behind its row's stop.
    seen = torch.arange(longest, device=tensors.device) <= asking.unsqueeze(2)
    out = scaled_dot_product_attention(
        padded.unflatten(0, (len(rows), most)).transpose(1, 2),
        gather(tensors, keys, rows, stops).transpose(1, 2),
        gather(tensors, values, rows, stops).transpose(1, 2),
        attn_mask=seen.unsqueeze(1),
        enable_gqa=grouped,
    )
    return out.transpose(1, 2).flatten(0, 1).index_select(0, lanes)


def _grouped(keys: torch.Tensor, values: torch.Tensor, queries: torch.Tensor) -> bool:
    """Whether several heads of the queries share one of K and V; of one kind and width they must all be."""
    kinds = {each.dtype for each in (keys, values, queries)}
    if len(kinds) > 1 or not queries.is_floating_point():
        found = f"{keys.dtype}, {values.dtype}, {queries.dtype}"
        raise ValueError(f"keys, values, queries of {found}: expected one of floats")
    shapes = [tuple(each.shape) for each in (keys, values, queries)]
    if any(len(shape) != 3 for shape in shapes) or shapes[0] != shapes[1]:
        raise ValueError(f"keys, values, queries of shapes {shapes}: expected [slots, heads, dim] twice, 3 dimensions")
    (_, heads, dim), (_, asking, wide) = shapes[0], shapes[2]
    if wide != dim or not heads or asking % heads:
        raise ValueError(f"queries of {asking} heads of {wide}: expected {dim} wide, and a multiple of {heads} heads")
    return bool(asking != heads)


def _slots(tensors: Tensors, rows: Ints, lengths: Ints) -> tuple[torch.Tensor, torch.Tensor]:
    """The slots that each row lists, int64 [batch, longest], and which of them are its own; the others are slot 0."""
    longest = int(lengths.max(initial=0))
    there, ends = tensors.upload(rows, lengths)
    live = torch.arange(longest, device=tensors.device) < ends.unsqueeze(1)
    listed = tensors.req_to_token[:, :longest].index_select(0, there).to(torch.int64)
    return listed.masked_fill(~live, 0), live


def _asked(tensors: Tensors, rows: Any, lengths: Any) -> tuple[Ints, Ints]:
    """Rows that the table has, and as many lengths that fit into one. The same row may stand there twice."""
    rows, lengths = _whole(rows), _whole(lengths)
    last, width = tensors.req_to_token.shape[0] - 1, tensors.req_to_token.shape[1]
    if rows.ndim != 1 or rows.shape != lengths.shape:
        raise ValueError(f"a batch of shapes {rows.shape} and {lengths.shape}: expected a length for each row")
    for row, length in zip(rows.tolist(), lengths.tolist(), strict=True):
        if not 1 <= row <= last:
            raise ValueError(f"row {row}: expected one from 1 to {last}")
        if not 0 <= length <= width:
            raise ValueError(f"row {row}: expected a length from 0 to {width}, not {length}")
    return rows, lengths


def _whole(numbers: Any) -> Ints:
    given = np.asarray(numbers)
    return given.astype(np.int64, casting="same_kind" if given.size else "unsafe")
