"""A situation arms a rule only where a wrong answer would break it: that answer is looked for, and judged.

The answers are those one change away from a legal one, in the states of the named worlds, one state in so many.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from kvledger.spec.action import file_of
from kvledger.spec.actions import Action
from kvledger.spec.explore import moves
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import RULES
from kvledger.spec.situations import SITUATIONS, Moment, possible
from kvledger.spec.worlds import WORLDS
from kvledger.tests.law.needs import of_action, verdict
from kvledger.tests.unit.reachable import reachable

Pair: TypeAlias = tuple[str, str]  # a situation, and a rule that it arms
STRIDE = {"TINY_A": 8, "TINY_B": 4, "NAMESPACES": 12, "DUPLICATES": 32, "BACKOFF": 48, "KEY_LAG": 64,
          "DRAFTS": 24, "SESSIONS": 64, "SMALL": 192, "SPLIT_ADMIT": 32}  # fmt: skip
PAIRS = {
    (name, rule)
    for name, situation in SITUATIONS.items()
    for rule in situation.arms
    if {"ANSWER", "FREED"}.intersection(RULES[rule].shown_by)
}
# Now and then the wrong answer is further away than one change, or only the books would show it.
FURTHER = {
    ("a held row grows", "REC-2"): "a decode lists nothing; its lengths show in the books",
    ("an inner page could be evicted", "EVICT-1"): "the call matches the inner page, so it must match less as well",
    ("more of a prompt is cached than a start may take", "CACHE-2"): "the parent of what is cached is gone: two pages",
    ("more is reserved than the row has columns", "DRAFT-1"): "pages are short as well, so it must be granted, too",
    ("the same tokens are cached in another namespace", "NS-1"): "the call evicts them, so it must keep them as well",
}


def test_a_situation_arms_only_what_a_wrong_answer_there_breaks() -> None:
    shown, hidden = searched()
    assert shown == PAIRS
    assert hidden == FURTHER.keys()


def test_what_a_situation_needs_it_never_does_without() -> None:
    """Explorers ask only of those that their world can have."""
    needing = {name: each for name, each in SITUATIONS.items() if each.needs is not None}
    assert {each.needs for each in needing.values()} >= {"DRAFTS", "SESSIONS", "SPLIT_ADMIT", "DUPLICATES"}
    for name, (world, scope) in WORLDS.items():
        lacking = [each for each in needing.values() if not world.has(each.needs or "")]
        assert not possible(world).keys() & {title for title, each in needing.items() if each in lacking}
        for ledger in reachable(world, scope)[:: 4 * STRIDE[name]]:
            for act in moves(ledger, scope):
                if file_of(act).requires(ledger, act) is None:
                    for answer in file_of(act).answers(ledger, act, True):
                        assert not any(each.holds(Moment(ledger, act, answer)) for each in lacking)


def searched() -> tuple[set[Pair], set[Pair]]:
    """The pairs that some transition shows by a wrong answer, and those that some transition does not."""
    shown, hidden = set[Pair](), set[Pair]()
    for name, (world, scope) in WORLDS.items():
        for ledger in reachable(world, scope)[:: STRIDE[name]]:
            for act in moves(ledger, scope):
                if file_of(act).requires(ledger, act) is None:
                    here = armed(ledger, act)
                    named = broken(ledger, act, {rule for _, rule in here})
                    shown |= {pair for pair in here if pair[1] in named}
                    hidden |= {pair for pair in here if pair[1] not in named}
    return shown, hidden


def armed(ledger: Ledger, act: Action) -> set[Pair]:
    """What the legal answers to this call arm, of what one answer can show."""
    moments = [Moment(ledger, act, answer) for answer in file_of(act).answers(ledger, act, True)]
    holding = {name for name, situation in SITUATIONS.items() if any(map(situation.holds, moments))}
    return {pair for pair in PAIRS if pair[0] in holding}


def broken(ledger: Ledger, act: Action, wanted: Collection[str]) -> set[str]:
    """Which of these rules an answer near a legal one breaks."""
    monitor = Monitor(ledger.world, count_armed=False)
    monitor.ledger = ledger
    missing = set(wanted)
    for trial in of_action(ledger, monitor, act):
        if not missing:
            break
        missing.discard(verdict(trial))
    return set(wanted) - missing
