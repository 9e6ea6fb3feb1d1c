"""Any page size: sizes that are no power of two, rows that no whole number of pages fills, pools of one page."""

from __future__ import annotations

import pytest

from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.check import check, make_arguments
from kvledger.tests.kit.generate import Pool
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Grade
from kvledger.tests.kit.search import search
from kvledger.tests.kit.verdict import HOLDS, NOT_DECLARED

ODD = ((3, 3, 6, 10), (5, 4, 7, 24), (7, 2, 4, 20), (16, 3, 4, 24), (32, 2, 1, 24))  # page_size, rows, pages, width


@pytest.mark.parametrize("name", ["reference", "chunk_cache", "blocks", "oracle-random", "oracle-adversarial"])
@pytest.mark.parametrize("sizes", ODD, ids=lambda sizes: f"page {sizes[0]}")
def test_nobody_is_accused(name: str, sizes: Pool) -> None:
    """600 actions each, every step compared, the drain probe after every run."""
    outcome = search(load_backend(name), name=name, budget=600, seed_number=3, grade=Grade(), sizes=(sizes,))
    assert outcome.finding is None, (outcome.finding.rule, outcome.finding.facts)
    assert outcome.actions >= 600
    assert outcome.world.page_size == sizes[0]


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_every_rule_is_reached_with_one_page_size_alone(page_size: int) -> None:
    """Where every page is one slot TAB-1, which speaks of what lies inside a page, is not declared."""
    args = make_arguments("ci", 0)
    args.page_size = [page_size]
    report = check("reference", args)
    assert report.code == 0, report.text
    words = {verdict.rule.id: verdict.word for verdict in report.verdicts if verdict.word != HOLDS}
    assert words == ({"TAB-1": NOT_DECLARED} if page_size == 1 else {})


@pytest.mark.parametrize(("pages", "page_size"), [(2**31 - 1, 1), (2**30 - 1, 2), (2**15 - 1, 2**16), (1, 2**30)])
def test_the_largest_pools(pages: int, page_size: int) -> None:
    """2^31 slots with those of the padding page: what a table of int32 can address; one page more is too much."""
    World(1, 1, pages, page_size)
    with pytest.raises(WrongInput, match="expected"):
        World(1, 1, pages + 1, page_size)
