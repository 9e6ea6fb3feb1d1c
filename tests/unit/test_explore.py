"""The search is what it claims to be: it reaches every situation, and its two reductions lose and merge nothing.

Its first reduction takes one answer of each kind (`least`), its second one state of all that differ in names only
(`canon`). Small worlds are searched without either; in each the states must be the same, up to renaming.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache
from pathlib import Path

import pytest

from kvledger.spec.action import name_of, step
from kvledger.spec.actions import Abort, Action, Extend, Submit
from kvledger.spec.answer import Granted
from kvledger.spec.canon import canon, exact, with_tokens
from kvledger.spec.explore import Answer, Exploration, explore
from kvledger.spec.ledger import Ledger
from kvledger.spec.situations import SITUATIONS, Moment
from kvledger.spec.world import World
from kvledger.spec.worlds import (
    A3,
    B3,
    BIGRAM,
    HELD_BACK,
    JOINT,
    KEPT,
    PLAIN,
    SPECULATIVE,
    SPLIT,
    TALKING,
    TWO,
    WORLDS,
    Scope,
)
from kvledger.tests.law.questions import BIGRAM_TALKS, LEAVES, TALKS
from kvledger.tests.unit.reachable import BATCHES

ROOT = Path(__file__).parents[2]
# states, transitions, length of the longest shortest path
COUNTS = {
    "TINY_A": (675, 9_859, 15),
    "TINY_B": (166, 2_094, 10),
    "NAMESPACES": (845, 12_696, 15),
    "DUPLICATES": (895, 18_394, 18),
    "BACKOFF": (2_261, 34_791, 15),
    "KEY_LAG": (1_161, 17_527, 16),
    "DRAFTS": (1_168, 21_087, 15),
    "SESSIONS": (4_578, 60_787, 14),
    "SMALL": (4_533, 60_942, 16),
    "SPLIT_ADMIT": (1_433, 20_454, 16),
}
A2, B2 = ("a", "a"), ("a", "b")
SMALLER = {
    "one row": WORLDS["TINY_B"],
    "batches": (World(2, 3, 2, 2, PLAIN), Scope(TWO, (A3, B3), ("a",), max_kv=3)),
    "namespaces": (World(2, 3, 2, 2, PLAIN), Scope(TWO, (A3,), ("a",), max_kv=3, namespaces=("n", "m"))),
    "duplicates": (World(2, 3, 3, 2, KEPT), Scope(TWO, (A3,), ("a",), max_kv=3)),
    "duplicates of two pages": (World(2, 2, 3, 1, KEPT), Scope(TWO, (A2,), ("a",), max_kv=2)),
    "back-off and limits": (
        World(2, 2, 2, 1, HELD_BACK),
        Scope(TWO, (A2,), ("a",), max_kv=2, match_limits=(None, 1), publish=(True, False)),
    ),
    "duplicates, leaves first": (World(2, 2, 3, 1, LEAVES), Scope(TWO, (A2,), ("a",), max_kv=2)),
    "duplicates of three readers": (World(3, 2, 4, 1, KEPT), Scope((*TWO, "r2"), (A2,), ("a",), max_kv=1)),
    "merging in batches": (World(2, 2, 3, 1, BATCHES), Scope(TWO, (A2,), ("a",), max_kv=2)),
    "two letters": (World(2, 3, 2, 1, PLAIN), Scope(TWO, (("a",),), ("a", "b"), max_kv=2)),
    "key lag": (World(2, 3, 2, 1, BIGRAM), Scope(TWO, (A2, B2), ("a",), max_kv=3)),
    "key lag, three pages": (World(2, 3, 3, 1, BIGRAM), Scope(TWO, (A2,), ("a",), max_kv=3)),
    "drafts": (World(2, 3, 2, 2, SPECULATIVE), Scope(TWO, (A2,), ("a",), max_kv=3, drafts=(1, 2))),
    "sessions": (World(1, 2, 3, 1, TALKING), Scope(TWO, (A2,), ("a",), max_kv=2, sessions=(None, "s"))),
    "sessions that end inside a page": (
        World(2, 3, 3, 2, TALKING), Scope(TWO, (A2, A3), ("a",), max_kv=3, sessions=("s",))
    ),
    "two sessions": (World(1, 2, 2, 1, TALKING), Scope(TWO, (A2,), ("a",), max_kv=2, sessions=("s", "t"))),
    "sessions and bigram keys": (
        World(1, 2, 2, 1, BIGRAM_TALKS),
        Scope(TWO, (A2, B2, ("b", "a"), ("b", "b")), ("a", "b"), max_kv=2, sessions=("s",)),
    ),
    "admission apart": (World(2, 2, 2, 1, SPLIT), Scope(TWO, (A2,), ("a",), max_kv=2)),
    "drafts, sessions, admission": (
        World(1, 2, 2, 1, JOINT), Scope(TWO, (A2,), ("a",), max_kv=2, drafts=(1,), sessions=(None, "s"))
    ),
    "duplicates that a session reads": (
        World(2, 2, 3, 1, TALKS), Scope(TWO, (A2,), ("a",), max_kv=2, sessions=("s",))
    ),
    "duplicates that an admitted request reads": (
        World(2, 2, 2, 1, TALKS), Scope(TWO, (A2,), ("a",), max_kv=1, sessions=(None, "s"))
    ),
}  # fmt: skip


@cache
def explored(name: str) -> Exploration:
    return explore(*WORLDS[name])


@pytest.mark.parametrize("name", WORLDS)
def test_what_a_named_world_holds_is_pinned(name: str) -> None:
    assert explored(name)[:3] == COUNTS[name]


@pytest.mark.parametrize("name", WORLDS)
def test_the_readme_states_the_number_of_states(name: str) -> None:
    assert re.search(rf"{name} {explored(name).states:,}\b", (ROOT / "README.md").read_text())


def test_every_situation_is_reached_in_some_named_world() -> None:
    assert {name for world in WORLDS for name in explored(world).reached} == SITUATIONS.keys()


@pytest.mark.parametrize("name", WORLDS)
def test_the_path_to_a_situation_leads_there_by_lawful_steps(name: str) -> None:
    for situation, path in explored(name).reached.items():
        ledger = Ledger.start(WORLDS[name][0])
        for act, answer in path[:-1]:
            ledger = step(ledger, act, answer)
        assert SITUATIONS[situation].holds(Moment(ledger, *path[-1]))
        step(ledger, *path[-1])


@pytest.mark.parametrize("name", WORLDS)
def test_no_state_is_lost_by_forgetting_the_names_of_tokens(name: str) -> None:
    """What a scope may submit and sample must not tell states apart that `canon` takes for one."""
    images = {canon(Ledger.start(WORLDS[name][0]))}

    def note(before: Ledger, act: Action, answer: Answer, after: Ledger) -> None:
        images.add(canon(after))

    explore(*WORLDS[name], laws=False, state_of=lambda ledger: with_tokens(ledger)[0], on_transition=note)
    assert images == explored(name).seen


@pytest.mark.parametrize("name", ["TINY_A", "NAMESPACES", "DUPLICATES", "BACKOFF", "DRAFTS", "SESSIONS", "SPLIT_ADMIT"])
def test_one_answer_of_each_kind_reaches_what_all_answers_reach(name: str) -> None:
    assert explore(*WORLDS[name], least=False).seen == explored(name).seen


@pytest.mark.parametrize("name", SMALLER)
def test_the_reduced_search_sees_every_state_and_takes_only_like_states_for_one(name: str) -> None:
    """Like states have like successors: the same actions and kinds of answer lead to the same canonical states."""
    seen: dict[int, tuple[Ledger, set[Hashable]]] = {}

    def note(before: Ledger, act: Action, answer: Answer, after: Ledger) -> None:
        _, successors = seen.setdefault(id(before), (before, set()))
        successors.add((name_of(act), type(answer), canon(after)))

    assert explore(*SMALLER[name], least=False, state_of=exact, on_transition=note).states == len(seen)
    like: dict[Hashable, set[Hashable]] = {}
    for ledger, successors in seen.values():
        assert like.setdefault(canon(ledger), successors) == successors
    every, reduced = (explore(*SMALLER[name], least=least, laws=False).seen for least in (False, True))
    assert like.keys() == every == reduced


def test_who_reads_which_of_several_pages_is_part_of_the_state() -> None:
    """A, B and C have two pages each, of the same tokens. Under the first key A and B read one page, C another. Under
    the second, A reads with B, or with C: then C leaves another number of pages behind."""
    world = World(3, 4, 9, 1, KEPT)
    with_b = cached_for_three(world, b=(1, 2), c=(7, 8))
    with_c = cached_for_three(world, b=(1, 5), c=(7, 2))
    left = [
        sorted(len(step(ledger, Abort(req), Granted()).evictable()) for req in "ABC") for ledger in (with_b, with_c)
    ]
    assert left == [[0, 0, 2], [0, 1, 1]]
    assert canon(with_b) != canon(with_c)
    assert canon(with_b) == canon(cached_for_three(world, b=(4, 5), c=(1, 2)))  # B and C change places


def cached_for_three(world: World, b: tuple[int, int], c: tuple[int, int]) -> Ledger:
    """A, B and C compute pages of their own. A publishes two of its; b, c: what the rows of B and C list there."""
    ledger = Ledger.start(world)
    for row, (req, lists) in enumerate({"A": (1, 2), "B": b, "C": c}.items(), 1):
        ledger = step(ledger, Submit(req, A3, "n", match_limit=0), Granted())
        pages = tuple(range(3 * row - 2, 3 * row + 1))
        ledger = step(ledger, Extend(((req, 3, "a"),)), Granted((row,), ((),), (pages,), ((req, lists),)))
    return ledger
