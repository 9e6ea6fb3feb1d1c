"""`judge` accepts an answer iff `answers` yields it: the two halves of the law, neither too strict nor too lax.

For one request every answer of a bounded shape is judged. Elsewhere it is the legal answers and everything one
change away from them: a refusal where grants are legal, a grant where none is. What is not legal must break a
rule; any other exception fails the test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from typing import TypeAlias

import pytest

from kvledger.spec.action import file_of, members_of, name_of
from kvledger.spec.actions import Action, Extend, extend
from kvledger.spec.answer import Freed, Granted, Refused
from kvledger.spec.explore import Answer, moves
from kvledger.spec.ledger import Ledger
from kvledger.spec.rules import RULES, Broken
from kvledger.spec.world import Declaration, World
from kvledger.spec.worlds import A3, B3, KEPT, PLAIN, TWO, WORLDS, Scope
from kvledger.tests.law.near import SHORT, near, near_freed
from kvledger.tests.unit.reachable import BATCHES, LEAVES, reachable

Tally: TypeAlias = Counter[str | None]  # how often each rule was broken; None: how many answers were accepted
Candidates: TypeAlias = Callable[[Ledger, Action, Collection[Answer]], Iterable[Answer]]

A2 = ("a", "a")
ONE_REQUEST = Scope(("r0",), (A3, B3), ("a",), max_kv=4)
# what is declared (publishes at checkpoint and finish; at extend and decode, and keeps duplicates): answers judged
EVERY = [(PLAIN, 144_157), (KEPT, 1_366_087)]
# of each named world, one state in so many: answers judged
NEAR = {
    "TINY_A": (4, 157_865),
    "TINY_B": (1, 65_289),
    "NAMESPACES": (8, 130_230),
    "DUPLICATES": (16, 174_700),
    "BACKOFF": (32, 137_124),
    "KEY_LAG": (64, 76_010),
    "LEAVES": (4, 88_009),
    "BATCHES": (4, 29_587),
}
# and of worlds without a name: an inner key with several pages; several that publish in one call
OTHERS = {
    "LEAVES": (World(2, 2, 4, 1, LEAVES), Scope(TWO, (A2,), ("a",), max_kv=2)),
    "BATCHES": (World(2, 2, 4, 1, BATCHES), Scope(TWO, (A2,), ("a",), max_kv=2)),
}
# these show only in slots, in views, or over several calls
NOT_IN_ONE_ANSWER = {"REC-2", "TAB-1", "LIVE-1"}  # slots, and what came before: the monitor's


@pytest.mark.parametrize(("declared", "judged"), EVERY, ids=["merged", "kept"])
def test_of_all_answers_exactly_the_legal_ones_are_accepted(declared: Declaration, judged: int) -> None:
    tally, legal = judge_all(World(1, 4, 2, 2, declared), ONE_REQUEST, 1, every)
    assert tally.total() == judged
    assert tally[None] == 2 * legal  # once without a word of what went back, once with it


@pytest.mark.parametrize("name", NEAR)
def test_of_what_is_near_a_legal_answer_exactly_the_legal_ones_are_accepted(name: str) -> None:
    tally, legal = judge_near(name)
    assert tally.total() == NEAR[name][1]
    assert tally[None] == 2 * legal


def test_every_rule_that_one_answer_can_break_is_named() -> None:
    named = {rule for name in NEAR for rule in judge_near(name)[0]} - {None}
    shown = {rule.id for rule in RULES.values() if rule.must and {"ANSWER", "FREED"}.intersection(rule.shown_by)}
    assert named == shown - NOT_IN_ONE_ANSWER


def test_the_order_of_a_batch_decides_nothing() -> None:
    """Who publishes a key first, and who merges then, is the backend's affair, whoever stands first in the call."""
    world, scope = OTHERS["BATCHES"]
    pairs = 0
    for ledger in reachable(world, scope):
        for act in moves(ledger, scope):
            if not isinstance(act, Extend) or len(act.batch) < 2 or extend.requires(ledger, act) is not None:
                continue
            pairs += 1
            assert outcomes(ledger, act) == outcomes(ledger, Extend(act.batch[::-1]))
    assert pairs > 1


def outcomes(ledger: Ledger, act: Extend) -> set[Hashable]:
    """What each legal grant gives to whom, by name."""
    reqs = [req for req, _, _ in act.batch]
    starting = [req for req in reqs if not ledger.holds_row(req)]
    return {
        (
            frozenset(zip(reqs, answer.pages, strict=True)),
            frozenset(zip(starting, zip(answer.rows, answer.matched, strict=True), strict=True)),
            answer.published,
            answer.evicted,
            answer.freed,
        )
        for answer in extend.answers(ledger, act, False)
        if isinstance(answer, Granted)
    }


@cache
def judge_near(name: str) -> tuple[Tally, int]:
    return judge_all(*{**WORLDS, **OTHERS}[name], NEAR[name][0], near)


def judge_all(world: World, scope: Scope, stride: int, candidates: Candidates) -> tuple[Tally, int]:
    """Judge the candidates for every call that may be made in every so manyeth state; and wrong lists of what went
    back with each legal one, as `freed` None says nothing and is always accepted. Also how many answers were yielded
    as legal ones: each once, for what goes back follows from the rest."""
    tally: Tally = Counter()
    yielded = 0
    for ledger in reachable(world, scope)[::stride]:
        for act in moves(ledger, scope):
            file = file_of(act)
            if file.requires(ledger, act) is not None:
                continue
            answers = list(file.answers(ledger, act, False))
            yielded += len(answers)
            legal = {replace(each, freed=None): each.freed or Freed() for each in answers}
            assert legal, f"no answer to {act} in {ledger}"
            for answer in {*legal, *candidates(ledger, act, legal)}:
                rule = verdict(ledger, act, answer)
                assert (rule is None) == (answer in legal), f"{answer} to {act} in {ledger}: {rule}"
                tally[rule] += 1
            for answer, freed in legal.items():
                for said in {freed, *near_freed(freed, world)}:
                    rule = verdict(ledger, act, replace(answer, freed=said))
                    assert rule == (None if said == freed else "PAGE-6"), f"{answer} freeing {said}: {rule}"
                    tally[rule] += 1
    return tally, yielded


def verdict(ledger: Ledger, act: Action, answer: Answer) -> str | None:
    """The rule that this answer breaks, if any."""
    try:
        file_of(act).judge(ledger, act, answer)
    except Broken as broken:
        return broken.rule
    return None


# ---- all answers, of a bounded shape


def every(ledger: Ledger, act: Action, _: Collection[Answer]) -> Iterator[Answer]:
    """Two pages at most in each list, any row, any pages evicted; all against all. For one request."""
    pages = range(ledger.world.pages + 1)
    lists = [each for length in range(3) for each in product(pages, repeat=length)]
    evictions = [frozenset(each) for size in range(len(pages)) for each in combinations(pages[1:], size)]
    evictions.append(frozenset({0}))
    yield from (Refused(short, gone) for short in SHORT for gone in evictions)
    taking = members_of(ledger, act)
    may_publish = name_of(act) in ledger.world.declared.publishes_on
    for row, matched, new, stays, gone in product(
        [(), *((row,) for row in range(ledger.world.rows + 2))] if taking else [()],
        [(each,) for each in lists] if any(member.starts for member in taking) else [()],
        [(each,) for each in lists] if taking else [()],
        lists if may_publish else [(), (1,)],
        evictions,
    ):
        yield Granted(row, matched, new, (("r0", stays),) if stays else (), gone)
