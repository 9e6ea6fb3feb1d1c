"""The three ways the table is written and read, in plain torch operators: as many for a thousand requests as for two.

A row is page-complete: when it is given a page, all slots of the page's line are written. So a position inside a page
that is there is never written, and what stands beyond a row's length is nothing to anybody. No call waits for the
device. lines: where the pages are listed, of plan; pages: int32 [n]. The lines and columns of one request are slices,
which cost less.
"""

from __future__ import annotations

import torch

from kvledger.fast.plan import Ints, Pages, Where
from kvledger.fast.tensors import Tensors


def write(tensors: Tensors, lines: Where, pages: Pages) -> None:
    """Each line lists its page."""
    if len(pages):
        _fill(tensors, *tensors.upload(lines, pages))


def extend(tensors: Tensors, lines: Where, pages: Pages, columns: Where) -> torch.Tensor:
    """Each line lists its page; then the slots of these columns. int64 [columns]"""
    there, listed, wanted = tensors.upload(lines, pages, columns)
    if len(pages):
        _fill(tensors, there, listed)
    if isinstance(wanted, slice):
        return tensors.columns[wanted].to(torch.int64)
    return tensors.columns.index_select(0, wanted).to(torch.int64)


def decode(tensors: Tensors, lines: Where, pages: Pages, slots: Ints) -> torch.Tensor:
    """Each line lists its page; then the slots, which the host knows already, on the device. int64 [slots]"""
    there, listed, out = tensors.upload(lines, pages, slots)
    if len(pages):
        _fill(tensors, there, listed)
    return out


def _fill(tensors: Tensors, lines: torch.Tensor | slice, pages: torch.Tensor) -> None:
    if len(tensors.offsets) == 1:  # a page of one slot has its number
        slots, table = pages, tensors.columns
    else:
        slots, table = torch.add(tensors.offsets, pages.unsqueeze(1), alpha=len(tensors.offsets)), tensors.lines
    if isinstance(lines, slice):
        table[lines] = slots
    else:
        table.index_copy_(0, lines, slots)
