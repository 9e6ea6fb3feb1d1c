"""`judge` accepts an answer iff `answers` yields it: the two halves of the law, neither too strict nor too lax.

For one request every answer of a bounded shape is judged. Elsewhere it is the legal answers and everything one
change away from them: a refusal where grants are legal, a grant where none is. What is not legal must break a
rule; any other exception fails the test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain, combinations, count, islice, product
from typing import TypeAlias

import pytest

from kvledger.spec.action import file_of, members_of, name_of
from kvledger.spec.actions import Action
from kvledger.spec.actions.answering import matches
from kvledger.spec.actions.taking import demand
from kvledger.spec.answer import Freed, Granted, Refused
from kvledger.spec.explore import Answer, moves
from kvledger.spec.ledger import Ledger
from kvledger.spec.rules import RULES, Broken
from kvledger.spec.world import Declaration, PageId, World
from kvledger.spec.worlds import A3, B3, KEPT, PLAIN, WORLDS, Scope
from kvledger.tests.unit.reachable import reachable

Tally: TypeAlias = Counter[str | None]  # how often each rule was broken; None: how many answers were accepted
Candidates: TypeAlias = Callable[[Ledger, Action, Collection[Answer]], Iterable[Answer]]

SHORT = (None, "rows", "pages")
ONE_REQUEST = Scope(("r0",), (A3, B3), ("a",), max_kv=4)
# what is declared (publishes at checkpoint and finish; at extend and decode, and keeps duplicates): judged, accepted
EVERY = [(PLAIN, 144_157, 526), (KEPT, 1_366_087, 1_052)]
# of each named world, one state in so many: judged, accepted
NEAR = {
    "TINY_A": (4, 157_865, 8_546),
    "TINY_B": (1, 65_289, 5_160),
    "NAMESPACES": (8, 130_230, 6_852),
    "DUPLICATES": (16, 174_700, 7_568),
    "BACKOFF": (32, 137_124, 5_868),
    "KEY_LAG": (64, 76_010, 2_530),
}
# these show only in slots, in views, or over several calls
NOT_IN_ONE_ANSWER = {"REC-2", "TAB-1", "LIVE-1"}  # slots, and what came before: the monitor's


@pytest.mark.parametrize(("declared", "judged", "accepted"), EVERY, ids=["merged", "kept"])
def test_of_all_answers_exactly_the_legal_ones_are_accepted(declared: Declaration, judged: int, accepted: int) -> None:
    tally = judge_all(World(1, 4, 2, 2, declared), ONE_REQUEST, 1, every)
    assert (tally.total(), tally[None]) == (judged, accepted)


@pytest.mark.parametrize("name", NEAR)
def test_of_what_is_near_a_legal_answer_exactly_the_legal_ones_are_accepted(name: str) -> None:
    tally = judge_near(name)
    assert (tally.total(), tally[None]) == NEAR[name][1:]


def test_every_rule_that_one_answer_can_break_is_named() -> None:
    named = {rule for name in NEAR for rule in judge_near(name)} - {None}
    shown = {rule.id for rule in RULES.values() if rule.must and {"ANSWER", "FREED"}.intersection(rule.shown_by)}
    assert named == shown - NOT_IN_ONE_ANSWER


@cache
def judge_near(name: str) -> Tally:
    return judge_all(*WORLDS[name], NEAR[name][0], near)


def judge_all(world: World, scope: Scope, stride: int, candidates: Candidates) -> Tally:
    """Judge the candidates for every call that may be made in every so manyeth state; and wrong lists of what went
    back with each legal one, as `freed` None says nothing and is always accepted."""
    tally: Tally = Counter()
    for ledger in reachable(world, scope)[::stride]:
        for act in moves(ledger, scope):
            file = file_of(act)
            if file.requires(ledger, act) is not None:
                continue
            legal = {replace(each, freed=None): each.freed or Freed() for each in file.answers(ledger, act, False)}
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
    return tally


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


# ---- answers near the legal ones


def near(ledger: Ledger, act: Action, legal: Collection[Answer]) -> Iterator[Answer]:
    """One change away from each legal answer; and some grants, for where none is legal."""
    world, room = ledger.world, frozenset(ledger.evictable())
    pages = range(world.pages + 2)
    yield from plain_grants(ledger, act)
    yield from (Refused(short, gone) for short in SHORT for gone in (frozenset[PageId](), room))
    for answer in legal:
        for page in pages:
            yield replace(answer, evicted=answer.evicted ^ {page})
            yield from (replace(answer, evicted=answer.evicted ^ {page, other}) for other in answer.evicted - {page})
        if isinstance(answer, Refused):
            continue
        if answer.pages:
            yield from (replace(answer, rows=rows) for rows in changed(answer.rows, range(world.rows + 2)))
        yield from (replace(answer, matched=lists) for lists in one_changed(answer.matched, pages))
        yield from (replace(answer, pages=lists) for lists in one_changed(answer.pages, pages))
        stays = dict(answer.published)
        for req in [*ledger.requests, "nobody"]:
            for changed_to in changed(stays.get(req, ()), pages):
                published = {**stays, req: changed_to}
                yield replace(answer, published=tuple(each for each in published.items() if each[1]))


def plain_grants(ledger: Ledger, act: Action) -> Iterator[Granted]:
    """What a backend would answer that counts its rows and pages from 1 on, whoever has them."""
    taking = members_of(ledger, act)
    starting = sum(member.starts for member in taking)
    for gone in (frozenset[PageId](), frozenset(ledger.evictable())):
        ids = count(1)
        pages = tuple(tuple(islice(ids, asked)) for asked in demand(ledger, taking))
        yield Granted(tuple(range(1, starting + 1)), next(matches(ledger, taking)), pages, evicted=gone)


def near_freed(freed: Freed, world: World) -> Iterator[Freed]:
    """One page or row more, less, or another."""
    yield from (freed._replace(pages=tuple(sorted(pages))) for pages in changed(freed.pages, range(world.pages + 1)))
    yield from (freed._replace(rows=tuple(sorted(rows))) for rows in changed(freed.rows, range(world.rows + 1)))


def changed(items: tuple[int, ...], ids: Collection[int]) -> Iterator[tuple[int, ...]]:
    """One item another, the last one gone, or one more at the end."""
    for at in range(len(items)):
        yield from ((*items[:at], each, *items[at + 1 :]) for each in ids)
    yield from chain([items[:-1]], ((*items, each) for each in ids))


def one_changed(lists: tuple[tuple[int, ...], ...], ids: Collection[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """One of the lists changed in one place."""
    for at, each in enumerate(lists):
        yield from ((*lists[:at], other, *lists[at + 1 :]) for other in changed(each, ids))
