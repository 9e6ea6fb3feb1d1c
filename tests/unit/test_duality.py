"""`judge` accepts an answer iff `answers` yields it: the two halves of the law neither too strict nor too lax.

For one request every answer of a bounded shape is judged. Elsewhere it is the legal answers and everything one
change away from them: a refusal where grants are legal, a grant where none is. All that is not legal must break a
rule; any other exception fails the test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, count, islice, product
from typing import NamedTuple, TypeAlias

import pytest
from kvledger.spec.action import file_of
from kvledger.spec.actions import Action, Decode, Extend, decode, extend
from kvledger.spec.actions.taking import Member, demand, matches
from kvledger.spec.answer import Freed, Granted, Refused
from kvledger.spec.explore import explore, moves
from kvledger.spec.ledger import Ledger
from kvledger.spec.rules import RULES, Broken
from kvledger.spec.world import A3, B3, KEPT, PLAIN, WORLDS, Declaration, Scope, World

Answer: TypeAlias = Granted | Refused
SHORT = (None, "rows", "pages")

ONE_REQUEST = Scope(("r0",), (A3, B3), ("a",), max_kv=4)
EVERY = [(PLAIN, 0, 0), (KEPT, 0, 0)]  # publishes at checkpoint and finish; at extend and decode, and keeps duplicates

# every so manyeth state of a named world: candidates, and how many of them are legal
NEAR = {
    "TINY_A": (8, 0, 0),
    "TINY_B": (1, 0, 0),
    "NAMESPACES": (8, 0, 0),
    "DUPLICATES": (8, 0, 0),
    "BACKOFF": (32, 0, 0),
    "KEY_LAG": (16, 0, 0),
}
# what answers show only as slots, against a view, or over several calls
NOT_IN_ONE_ANSWER = {"REC-3", "TAB-1", "TAB-2", "ATOM-1", "LIVE-1"}


class Tally(NamedTuple):
    """Candidates judged, and which rules they broke: None for those accepted."""

    candidates: int
    verdicts: Counter[str | None]


@pytest.mark.parametrize(("declared", "candidates", "accepted"), EVERY, ids=["merged", "kept"])
def test_of_every_answer_exactly_the_legal_ones_are_accepted(
    declared: Declaration, candidates: int, accepted: int
) -> None:
    tally = judge_all(World(1, 4, 2, 2, declared), ONE_REQUEST, 1, every)
    assert (tally.candidates, tally.verdicts[None]) == (candidates, accepted)


@pytest.mark.parametrize("name", NEAR)
def test_of_what_is_near_a_legal_answer_exactly_the_legal_ones_are_accepted(name: str) -> None:
    _, candidates, accepted = NEAR[name]
    assert (near_tally(name).candidates, near_tally(name).verdicts[None]) == (candidates, accepted)


def test_every_rule_that_one_answer_can_break_is_named() -> None:
    named = {rule for name in NEAR for rule in near_tally(name).verdicts if rule is not None}
    assert named == {rule.id for rule in RULES.values() if rule.must and "ANSWER" in rule.shown_by} - NOT_IN_ONE_ANSWER


@cache
def near_tally(name: str) -> Tally:
    return judge_all(*WORLDS[name], NEAR[name][0], near)


def judge_all(world: World, scope: Scope, stride: int, candidates_of: Candidates) -> Tally:
    """Judge the candidates for every legal call in every so manyeth state."""
    judged, verdicts = 0, Counter[str | None]()
    for ledger in states(world, scope)[::stride]:
        for act in moves(ledger, scope):
            if file_of(act).requires(ledger, act) is None:
                legal = {replace(answer, freed=None): answer.freed or Freed() for answer in all_answers(ledger, act)}
                assert legal, f"{act} has no answer at all"
                candidates = {*legal, *candidates_of(ledger, act, legal)}
                judged += len(candidates)
                for candidate in candidates:
                    rule = verdict(ledger, act, candidate)
                    assert (rule is None) == (candidate in legal), f"{act}, {candidate}: {rule}"
                    verdicts[rule] += 1
                for answer, freed in legal.items():
                    assert verdict(ledger, act, replace(answer, freed=freed)) is None, f"{act}, {answer}: {freed}"
                    for wrong in near_freed(world, freed):
                        assert verdict(ledger, act, replace(answer, freed=wrong)) == "PAGE-6", f"{act}, {answer}"
    return Tally(judged, verdicts)
