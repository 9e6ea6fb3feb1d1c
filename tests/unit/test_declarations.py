"""Whatever may be declared can be lived by: the oracle, in two moods, under declarations that no engine makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvledger.spec.backend import Declaration, View, World
from kvledger.spec.page import pages_for
from kvledger.spec.world import CAPABILITIES, OPTIONS, PUBLISHING
from kvledger.tests.engines.oracle import Oracle, Policy
from kvledger.tests.kit.lockstep import Grade
from kvledger.tests.kit.search import search

ALL = frozenset(CAPABILITIES) - {"SCRAMBLE"}
ONE = ALL - {"DUPLICATES"}
SGLANG = frozenset({"checkpoint", "finish"})
DECLARED = [
    Declaration("without rows", "", ONE - {"ROWS"}, SGLANG),
    Declaration("without pages", "", ONE - {"PAGED"}, SGLANG),
    Declaration("without chunks", "", ONE - {"CHUNKED"}, SGLANG),
    Declaration("without evict", "", ONE - {"EVICT"}, SGLANG),
    Declaration("without checkpoint", "", ONE - {"CHECKPOINT"}, frozenset({"finish"})),
    Declaration("pages and nothing else", "", frozenset({"PAGED"})),
    Declaration("headroom without a cache", "", frozenset({"PAGED", "ROWS", "CHUNKED", "VIEW"}), headroom=2),
    Declaration("duplicates, leaves first", "", ALL - {"CHECKPOINT"}, frozenset({"extend", "finish"}), max_batch=1),
    Declaration("duplicates, everything publishes", "", ALL, frozenset(PUBLISHING)),
    Declaration("bigrams with duplicates", "", ALL - {"LEAF_FIRST"}, frozenset(PUBLISHING), key_lag=1, headroom=1),
    Declaration("two pages back", "", ONE, SGLANG | {"abort"}, match_backoff=2, max_batch=2),
    Declaration("lengths by the page", "", ONE, SGLANG, exact_lengths=False),
    Declaration("merges while it extends", "", ONE, SGLANG | {"extend", "decode"}, max_batch=1),
    Declaration("merges while it extends, in batches", "", ONE, SGLANG | {"extend", "decode"}),
    Declaration("knows no option of a submit", "", ONE, SGLANG, declines=frozenset(OPTIONS)),
    Declaration("one namespace, and no way to empty the cache of a page", "", ONE - {"EVICT"}, SGLANG,
                declines=frozenset({"NAMESPACES"})),
]  # fmt: skip


class Rounded(Oracle):
    """Shows allocated_len as a block manager does, if it declares so: up to the page's end."""

    def view(self) -> View:
        """The oracle's, with rounded lengths."""
        view, size = super().view(), self.ledger.world.page_size
        if self.policy.declared.exact_lengths or view.records is None:
            return view
        records = {
            req: shown._replace(allocated_len=pages_for(shown.allocated_len, size) * size)
            for req, shown in view.records.items()
        }
        return replace(view, records=records)


@pytest.mark.parametrize("needless", [False, True], ids=["least", "needless"])
@pytest.mark.parametrize("declared", DECLARED, ids=lambda declared: declared.name)
def test_nobody_is_accused(declared: Declaration, needless: bool) -> None:
    """1,500 actions, every step compared; a finding accuses the law or the kit."""

    def make(world: World) -> Oracle:
        return Rounded(world, Policy("random" if needless else "lifo", declared, needless=needless))

    outcome = search(make, name=declared.name, budget=1_500, seed_number=0, grade=Grade())
    assert outcome.finding is None, (outcome.finding.rule, dict(outcome.finding.facts))
    assert outcome.actions >= 1_500
