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
from kvledger.spec.actions import Abort, Action, Admit, Close, Defer, Extend, Finish, Retract, extend
from kvledger.spec.answer import Freed, Granted, Refused
from kvledger.spec.explore import Answer, moves
from kvledger.spec.ledger import Ledger
from kvledger.spec.rules import RULES, Broken
from kvledger.spec.world import Declaration, World
from kvledger.spec.worlds import A3, B3, KEPT, PLAIN, TWO, WORLDS, Scope
from kvledger.tests.law.near import SHORT, near, near_freed
from kvledger.tests.law.questions import LEAVES
from kvledger.tests.unit.reachable import BATCHES, EVERYWHERE, reachable

Tally: TypeAlias = Counter[str | None]  # how often each rule was broken; None: how many answers were accepted
Candidates: TypeAlias = Callable[[Ledger, Action, Collection[Answer]], Iterable[Answer]]

A2 = ("a", "a")
ONE_REQUEST = Scope(("r0",), (A3, B3), ("a",), max_kv=4)
# what is declared (publishes at checkpoint and finish; at extend and decode, and keeps duplicates): answers judged
EVERY = [(PLAIN, 144_595), (KEPT, 1_366_861)]
# of each named world, one state in so many: answers judged
NEAR = {
    "TINY_A": (4, 173_155),
    "TINY_B": (1, 73_238),
    "NAMESPACES": (8, 139_524),
    "DUPLICATES": (16, 190_276),
    "BACKOFF": (32, 144_470),
    "KEY_LAG": (64, 79_060),
    "DRAFTS": (8, 227_217),
    "SESSIONS": (24, 191_141),
    "SMALL": (64, 32_881),
    "SPLIT_ADMIT": (12, 152_334),
    "LEAVES": (4, 103_097),
    "BATCHES": (4, 31_891),
    "EVERYWHERE": (96, 87_725),
}
# and of worlds without a name: an inner key with several pages; several that publish in one call; all that may publish
OTHERS = {
    "LEAVES": (World(2, 2, 4, 1, LEAVES), Scope(TWO, (A2,), ("a",), max_kv=2)),
    "BATCHES": (World(2, 2, 4, 1, BATCHES), Scope(TWO, (A2,), ("a",), max_kv=2)),
    "EVERYWHERE": (
        World(2, 3, 3, 1, EVERYWHERE), Scope(TWO, (A2,), ("a",), max_kv=3, drafts=(1, 2), sessions=(None, "s"))
    ),
}  # fmt: skip
ENDS = (Finish, Retract, Abort, Defer, Close)
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


def test_what_another_reads_too_does_not_go_with_who_ends() -> None:
    """An end may evict what it alone has read, and nothing that anybody else reads as well."""
    ends = Counter[str]()
    for name in ("TINY_A", "SESSIONS", "SPLIT_ADMIT"):
        world, scope = WORLDS[name]
        for ledger in reachable(world, scope):
            shared = [page for page, state in ledger.pages.items() if state.locks > 1]
            for act in moves(ledger, scope) if shared else ():
                if isinstance(act, ENDS) and file_of(act).requires(ledger, act) is None:
                    ends[name_of(act)] += 1
                    assert {verdict(ledger, act, Granted(evicted=frozenset({page}))) for page in shared} == {"LOCK-2"}
    assert ends.keys() == {"finish", "retract", "abort", "defer", "close"} and min(ends.values()) > 20


def test_a_refusal_may_say_what_a_turn_has_given_up_for_it() -> None:
    """It may be silent of it, too; but it may not say that nothing was given up."""
    world, scope = WORLDS["SMALL"]
    refusals = 0
    for ledger in reachable(world, scope)[::4]:
        for act in moves(ledger, scope):
            if isinstance(act, Extend) and extend.requires(ledger, act) is None:
                for answer in extend.answers(ledger, act, True):
                    if isinstance(answer, Refused) and answer.freed is not None and answer.freed.pages:
                        refusals += 1
                        words = [answer.freed, None, Freed()]
                        rules = [verdict(ledger, act, replace(answer, freed=each)) for each in words]
                        assert rules == [None, None, "PAGE-6"]
    assert refusals > 10


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
                    rule, law = verdict(ledger, act, replace(answer, freed=said)), wrong_freed(ledger, act, said, freed)
                    assert rule == law, f"{answer} to {act} freeing {said}, not {freed}: {rule}, not {law}"
                    tally[rule] += 1
    return tally, yielded


def wrong_freed(ledger: Ledger, act: Action, said: Freed, law: Freed) -> str | None:
    """The rule that a list of what went back breaks, if it is another than the law's. What a session keeps must not be
    in it; where a session comes to its end, and nothing of it is kept, nothing may be missing."""
    if said == law:
        return None
    for holder, upto, rule in kept(ledger, act):
        pages = ledger.tables[holder][: -(-upto // ledger.world.page_size)]
        if ledger.records[holder].row in said.rows or set(pages).intersection(said.pages):
            return rule
    less = Counter(law.pages) - Counter(said.pages) or Counter(law.rows) - Counter(said.rows)
    return (emptied(ledger, act) if less else None) or "PAGE-6"


def kept(ledger: Ledger, act: Action) -> Iterator[tuple[str, int, str]]:
    """Who keeps row and [0, upto) for a session's sake, and the rule that says so."""
    records = ledger.records
    match act:
        case Finish(req, upto) if (name := ledger.requests[req].session) and not ledger.sessions[name].closing:
            yield req, upto, "SES-1"
        case Retract(req) if ledger.requests[req].session:
            yield req, records[req].committed_len, "SES-1"
        case Abort(req) if (name := ledger.requests[req].session or "") in records:
            if not ledger.sessions[name].closing:
                yield name, records[name].committed_len, "SES-4"
        case Close(name) if (turn := ledger.sessions[name].turn) is not None:
            yield from ((each, records[each].allocated_len, "SES-3") for each in (name, turn) if each in records)
        case Extend() | Admit():
            for req in [act.req] if isinstance(act, Admit) else [req for req, _, _ in act.batch]:
                lender = ledger.requests[req].session or ""
                if lender in records:
                    yield lender, min(records[lender].committed_len, len(ledger.requests[req].tokens) - 1), "SES-2"


def emptied(ledger: Ledger, act: Action) -> str | None:
    """The rule that says of a session that it is left with nothing."""
    match act:
        case Finish(req) | Abort(req) if (name := ledger.requests[req].session) is not None:
            if isinstance(act, Abort) and req in ledger.records:
                return "SES-4"
            return "SES-3" if ledger.sessions[name].closing else None
        case Close(name) if ledger.sessions[name].turn is None:
            return "SES-3"
    return None


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
