"""The table of fast: a page is written as a whole line."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast import table_torch
from kvledger.fast.plan import Ints, Pages, Plan
from kvledger.fast.tensors import Tensors


def ints(*numbers: int) -> Ints:
    return np.array(numbers, np.int64)


def pages(*numbers: int) -> Pages:
    return np.array(numbers, np.int32)


def test_a_page_is_written_as_a_whole_line() -> None:
    """Rows of 5 columns in pages of 3: row 1 lists page 7 first, row 2 page 4 last, of which two columns show."""
    tensors = Tensors(2, Plan(page_size=3, context_len=5), "cpu")
    out = table_torch.grow(tensors, ints(2, 5), pages(7, 4), ints(22, 23, 12))
    assert tensors.req_to_token.tolist() == [[0] * 5, [21, 22, 23, 0, 0], [0, 0, 0, 12, 13]]
    assert (out.dtype, out.tolist()) == (torch.int64, [22, 23, 12])
    assert tensors.req_to_token.dtype == torch.int32 and list(tensors.req_to_token.shape) == [3, 5]


def test_lines_that_follow_each_other() -> None:
    """Both lines of row 1, written at once; what is written is what is returned."""
    tensors = Tensors(2, Plan(page_size=3, context_len=5), "cpu")
    out = table_torch.run(tensors, 2, ints(21, 22, 23, 12, 13, 14))
    assert tensors.req_to_token.tolist() == [[0] * 5, [21, 22, 23, 12, 13], [0] * 5]
    assert (out.dtype, out.tolist()) == (torch.int64, [21, 22, 23, 12, 13, 14])


def test_nothing_new_is_nothing_written() -> None:
    tensors = Tensors(1, Plan(2, 4), "cpu")
    assert table_torch.grow(tensors, ints(), pages(), ints(9)).tolist() == [9]
    assert not tensors.columns.any()


@pytest.mark.parametrize("page_size", [1, 2, 16, 2**16])
def test_the_last_page_that_int32_can_number(page_size: int) -> None:
    """In a pool of 2^31 slots its last slot is 2^31 - 1; of the pool nothing is allocated."""
    tensors = Tensors(1, Plan(page_size, page_size), "cpu")
    table_torch.grow(tensors, ints(1), pages(2**31 // page_size - 1), ints())
    assert tensors.req_to_token[1].tolist() == list(range(2**31 - page_size, 2**31))
