"""The stride of fast: a batch that decodes again and again gets what it would get, asked for anew each time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.ledger import Grant, Ledger
from kvledger.fast.stride import Stride
from kvledger.spec.world import World


def a_ledger(page_size: int, prompts: list[int]) -> Ledger:
    ledger = Ledger(World(len(prompts) + 1, 50, 400, page_size))
    ledger.extend([0] * len(prompts), prompts, [ledger.admit(np.arange(0, dtype=np.int32)) for _ in prompts])
    return ledger


def said(grant: Grant) -> tuple[Any, ...]:
    return grant.rows.tolist(), grant.out_cache_loc.tolist(), grant.counts.tolist(), grant.evicted.tolist()


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_step_for_step_as_if_asked_for_anew(page_size: int) -> None:
    """40 steps of six rows that start at any place in a page, beside a ledger that forgets its batch each time."""
    draw = Random(page_size)
    prompts = [draw.randint(1, 9) for _ in range(6)]
    counting, anew = a_ledger(page_size, prompts), a_ledger(page_size, prompts)
    rows, batches = np.arange(1, 7), set()
    for _ in range(40):
        assert said(counting.decode(rows)) == said(anew.decode(rows.tolist()))  # a list is looked at each time
        assert counting.committed_len.tolist() == anew.committed_len.tolist() == counting.allocated_len.tolist()
        assert counting.tensors.req_to_token.tolist() == anew.tensors.req_to_token.tolist()
        assert counting.mirror.tolist() == anew.mirror.tolist()
        batches.add(counting.stride)
        assert anew.stride not in batches
    assert len(batches) == 1  # and that it did count


@pytest.mark.parametrize(
    "between",
    [
        lambda ledger: ledger.extend([1], [20]),
        lambda ledger: ledger.cut([1], [2]),
        lambda ledger: (ledger.reserve([1], [5]), ledger.commit([1], [1]), ledger.cut([1], [9])),
        lambda ledger: ledger.checkpoint(1, np.arange(9, dtype=np.int32), 8),
        lambda ledger: (ledger.release([1]), ledger.extend([0], [3], [ledger.admit(np.arange(0, dtype=np.int32))])),
        lambda ledger: ledger.decode([2, 1]),
        lambda ledger: ledger.decode([1]),
    ],
)
def test_whatever_else_happens_to_a_row_is_seen(between: Callable[[Ledger], object]) -> None:
    """The step after it begins where the row is then: as in a ledger that never counted."""
    counting, anew = a_ledger(4, [6, 7]), a_ledger(4, [6, 7])
    rows = np.array([1, 2])
    for _ in range(2):
        counting.decode(rows)
        anew.decode([1, 2])
    for ledger in (counting, anew):
        between(ledger)
    for _ in range(6):
        assert said(counting.decode(rows)) == said(anew.decode([1, 2]))
        assert counting.tensors.req_to_token.tolist() == anew.tensors.req_to_token.tolist()


def test_a_row_that_went_away_or_has_drafts_is_not_counted_on() -> None:
    ledger, rows = a_ledger(4, [6, 7]), np.array([1, 2])
    ledger.decode(rows)
    ledger.reserve([2], [3])
    with pytest.raises(ValueError, match="row 2: expected no slots reserved"):
        ledger.decode(rows)
    ledger.release([2])
    with pytest.raises(ValueError, match="row 2: expected a row that is held"):
        ledger.decode(rows)


def test_the_same_bytes_of_another_kind_are_other_rows() -> None:
    """Four int32 are two int64 in memory, and a column of two is not two."""
    ledger, rows = a_ledger(4, [6, 7]), np.array([1, 2])
    ledger.decode(rows)
    with pytest.raises(ValueError, match="row 0: expected a row that is held"):
        ledger.decode(rows.view(np.int32))
    with pytest.raises(ValueError, match="expected one entry for each member"):
        ledger.decode(rows.reshape(2, 1))
    assert ledger.decode(rows.astype(np.int32)).rows.tolist() == [1, 2]


def test_who_is_handed_the_rows_cannot_change_them() -> None:
    """Neither through the rows that were given nor through those that came back."""
    ledger, rows = a_ledger(4, [6, 7]), np.array([1, 2])
    grant = ledger.decode(rows)
    rows[0] = 2
    assert grant.rows.tolist() == [1, 2]
    for array in (grant.rows, grant.counts):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2


def test_a_full_row_ends_it() -> None:
    """Row 1 has 50 columns: from 48 tokens on two steps are left."""
    ledger, rows = a_ledger(4, [48, 3]), np.array([1, 2])
    ledger.decode(rows)
    stride = ledger.stride
    assert isinstance(stride, Stride) and stride.steps == 1
    ledger.decode(rows)
    with pytest.raises(ValueError, match="row 1: expected a column that is free"):
        ledger.decode(rows)
    assert ledger.committed_len[1] == 50 and ledger.decode([2]).out_cache_loc.tolist()
