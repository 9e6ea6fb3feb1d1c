"""The three ways the table is written and read, in plain torch operators: as many for one request as for a thousand.

A row is page-complete: when it is given a page, all slots of the page's line are written. So a position inside a page
that is there is never written, and what stands beyond a row's length is nothing to anybody. No call waits for the
device. lines: int64 [n] of plan. pages: int32 [n], listed there.
"""

from __future__ import annotations

import torch

from kvledger.fast.plan import Ints, Pages
from kvledger.fast.tensors import Tensors


def write(tensors: Tensors, lines: Ints, pages: Pages) -> None:
    """Each line lists its page."""
    if len(lines):
        _fill(tensors, *tensors.upload(lines, pages))


def extend(tensors: Tensors, lines: Ints, pages: Pages, columns: Ints) -> torch.Tensor:
    """Each line lists its page; then the slots of these columns. int64 [columns]"""
    there, listed, wanted = tensors.upload(lines, pages, columns)
    if len(lines):
        _fill(tensors, there, listed)
    return tensors.columns.index_select(0, wanted).to(torch.int64)


def decode(tensors: Tensors, lines: Ints, pages: Pages, slots: Ints) -> torch.Tensor:
    """Each line lists its page; then the slots, which the host knows already, on the device. int64 [slots]"""
    there, listed, out = tensors.upload(lines, pages, slots)
    if len(lines):
        _fill(tensors, there, listed)
    return out


def _fill(tensors: Tensors, lines: torch.Tensor, pages: torch.Tensor) -> None:
    firsts = pages.to(torch.int32).unsqueeze(1)
    tensors.lines.index_copy_(0, lines, torch.add(tensors.offsets, firsts, alpha=len(tensors.offsets)))
