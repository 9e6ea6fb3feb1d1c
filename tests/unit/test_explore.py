"""The search is what it claims to be: it reaches every situation, and its two reductions lose and merge nothing.

Its first reduction takes one answer of each kind (`least`), its second one state of all that differ in names only
(`canon`). Small worlds are searched without either; in each the states must be the same, up to renaming.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache

import pytest

from kvledger.spec.action import name_of, step
from kvledger.spec.actions import Action
from kvledger.spec.canon import canon, exact, with_tokens
from kvledger.spec.explore import Answer, Exploration, explore
from kvledger.spec.ledger import Ledger
from kvledger.spec.situations import SITUATIONS, Moment
from kvledger.spec.world import World
from kvledger.spec.worlds import A3, B3, BIGRAM, HELD_BACK, KEPT, PLAIN, TWO, WORLDS, Scope

# states, transitions, length of the longest shortest path
COUNTS = {
    "TINY_A": (675, 9_859, 15),
    "TINY_B": (166, 2_094, 10),
    "NAMESPACES": (845, 12_696, 15),
    "DUPLICATES": (895, 18_394, 18),
    "BACKOFF": (2_261, 34_791, 15),
    "KEY_LAG": (1_161, 17_527, 16),
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
    "key lag": (World(2, 3, 2, 1, BIGRAM), Scope(TWO, (A2, B2), ("a",), max_kv=3)),
    "key lag, three pages": (World(2, 3, 3, 1, BIGRAM), Scope(TWO, (A2,), ("a",), max_kv=3)),
}


@cache
def explored(name: str) -> Exploration:
    return explore(*WORLDS[name])


@pytest.mark.parametrize("name", WORLDS)
def test_what_a_named_world_holds_is_pinned(name: str) -> None:
    assert explored(name)[:3] == COUNTS[name]


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

    explore(*WORLDS[name], state_of=with_tokens, on_transition=note)
    assert images == explored(name).seen


@pytest.mark.parametrize("name", ["TINY_A", "NAMESPACES", "DUPLICATES", "BACKOFF"])
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
    assert like.keys() == explore(*SMALLER[name], least=False).seen == explore(*SMALLER[name]).seen
