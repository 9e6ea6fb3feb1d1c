"""How the table is written, in plain torch operators: as many for a thousand requests as for one.

A row is page-complete: when it is given a page, all slots of the page's line are written. So a position inside a page
that is there is never written, and what stands beyond a row's length is nothing to anybody. The host knows every slot,
for it has decided: the table is not read back, and no call waits for the device. lines: where the pages are listed, of
plan, int64 [n]; pages: int32 [n].
"""

from __future__ import annotations

import numpy as np
import torch

from kvledger.fast.plan import Ints, Pages
from kvledger.fast.tensors import Tensors


def run(tensors: Tensors, line: int, slots: Ints) -> torch.Tensor:
    """The lines from this one on list whole pages, of which these are all slots. Returns those, on the device."""
    first = line * tensors.plan.page_size
    [there] = tensors.upload(slots)
    tensors.columns[first : first + len(slots)] = there
    return there


def grow(tensors: Tensors, lines: Ints, pages: Pages, slots: Ints) -> torch.Tensor:
    """Each line lists its page; and these slots, on the device. int64 [slots]"""
    if not len(pages):
        [out] = tensors.upload(slots)
        return out
    size = tensors.plan.page_size
    if size == 1:  # a page is its slot
        there, listed, out = tensors.upload(lines, pages, slots)
        tensors.columns.scatter_(0, there, listed)
    else:
        there, listed, out = tensors.upload(lines, pages[:, np.newaxis], slots)
        tensors.lines.index_copy_(0, there, torch.add(tensors.offsets, listed, alpha=size))
    return out
