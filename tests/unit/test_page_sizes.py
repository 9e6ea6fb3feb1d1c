"""Any page size: sizes that are no power of two, rows that no whole number of pages fills, pools of one page."""

from __future__ import annotations

import pytest

from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Grade
from kvledger.tests.kit.search import search

ODD = ((3, 3, 6), (5, 4, 7), (7, 2, 4), (16, 3, 4), (32, 2, 1))  # page_size, rows, pages; rows are 24 columns wide


@pytest.mark.parametrize("name", ["reference", "chunk_cache", "blocks", "oracle-random", "oracle-adversarial"])
@pytest.mark.parametrize("sizes", ODD, ids=lambda sizes: f"page {sizes[0]}")
def test_nobody_is_accused(name: str, sizes: tuple[int, int, int]) -> None:
    """600 actions each, every step compared, the drain probe after every run."""
    outcome = search(load_backend(name), name=name, budget=600, seed_number=3, grade=Grade(), sizes=(sizes,))
    assert outcome.finding is None, (outcome.finding.rule, outcome.finding.facts)
    assert outcome.actions >= 600
    assert outcome.world.page_size == sizes[0]
