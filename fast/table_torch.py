"""How the table is written, in plain torch operators: as many for a thousand requests as for one.

A row is page-complete: when it is given a page, all slots of the page's line are written. So a position inside a page
that is there is never written, and what stands beyond a row's length is nothing to anybody. The host knows every slot,
for it has decided: the table is not read back, and no call waits for the device. lines: where the pages are listed, of
plan, int64 [n]; pages: int32 [n].
"""

from __future__ import annotations

import torch

from kvledger.fast.plan import Ints, Pages
from kvledger.fast.tensors import Tensors


def run(tensors: Tensors, line: int, slots: Ints) -> torch.Tensor:
    """The lines from this one on list whole pages, of which these are all slots. Returns those, on the device."""
    first = line * len(tensors.offsets)
    [there] = tensors.upload(slots)
    tensors.columns[first : first + len(slots)] = there
    return there


def grow(tensors: Tensors, lines: Ints, pages: Pages, slots: Ints) -> torch.Tensor:
    """Each line lists its page; and these slots, on the device. int64 [slots]"""
    if not len(pages):
        [out] = tensors.upload(slots)
    else:
        there, listed, out = tensors.upload(lines, pages, slots)
        _fill(tensors, there, listed)
    return out


def _fill(tensors: Tensors, lines: torch.Tensor, pages: torch.Tensor) -> None:
    if len(tensors.offsets) == 1:  # a page of one slot has its number
        tensors.columns.index_copy_(0, lines, pages)
    else:
        slots = torch.add(tensors.offsets, pages.unsqueeze(1), alpha=len(tensors.offsets))
        tensors.lines.index_copy_(0, lines, slots)
