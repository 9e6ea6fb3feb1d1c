"""Each faulty backend against the monitor, driven by hand: the rule, at the very step in which it struck.

Pages hold two tokens; a letter is a token, and every request samples "z".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import pytest

from kvledger.reference import backend as reference
from kvledger.spec.actions import Abort, Checkpoint, Close, Evict, Extend, Finish, Reserve, Retract, Submit
from kvledger.spec.backend import Action, Make, World
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import RULES, Broken
from kvledger.tests.kit.strike import struck
from kvledger.tests.zoo import FAULTS


def start(req: str, tokens: str, namespace: str = "n", session: str | None = None) -> list[Action]:
    """It comes, and all of it is computed."""
    return [Submit(req, tuple(tokens), namespace, session=session), Extend(((req, len(tokens), "z"),))]


# a, the first turn of S, has ABC; or has drafts in the rest of page 2 and in page 3
TURN, DRAFTS = start("a", "ABC", session="S"), [*start("a", "ABC"), Reserve("a", 2)]
CASES: list[tuple[str, int, list[Action]]] = [  # fault, pages, actions
    # page 2, private, goes back; and again
    ("freed_twice", 4, [*start("a", "ABC"), Finish("a", 3, True)]),
    # twins computed AB each for itself
    ("duplicate_kept", 4, [*start("a", "ABC"), *start("b", "ABC"), Checkpoint("a", 3), Checkpoint("b", 3)]),
    # a reads the older leaf, nobody the younger
    ("locked_evicted", 4, [*start("a", "AB"), Checkpoint("a", 2), *start("b", "XY"), Finish("b", 2, True), Evict(1)]),
    # a grant of one page needs an eviction, and a reads the older leaf
    ("locked_evicted", 3, [*start("a", "AB"), Checkpoint("a", 2), *start("b", "XY"), Finish("b", 2, True),
                           *start("c", "UVW")]),
    # all of b is cached
    ("full_match", 4, [*start("a", "ABCD"), Finish("a", 4, True), *start("b", "ABCD")]),
    # b needs two pages and there is one; then c needs the row that b had been given
    ("refused_keeps_row", 2, [*start("a", "AB"), *start("b", "XYZ"), Abort("b"), *start("c", "C")]),
    # a comes back with its pending token
    ("stale_reuse", 4, [*start("a", "ABC"), Retract("a"), Extend((("a", 4, "z"),))]),
    # the pending token is the second of page 2
    ("pending_published", 4, [*start("a", "ABC"), Checkpoint("a", 3)]),
    ("pending_published", 4, [*start("a", "ABC"), Finish("a", 3, True)]),
    # equal tokens, one in n and one in m
    ("shared_across_namespaces", 4, [*start("a", "ABC"), Finish("a", 3, True), *start("b", "ABC", "m")]),
    # S has pages 1 and 2
    ("freed_after_handover", 4, [*TURN, Finish("a", 3, False)]),
    # page 3 is lost; of a turn as well
    ("tail_kept_on_retract", 4, [*DRAFTS, Retract("a")]),
    ("tail_kept_on_retract", 4, [*TURN, Reserve("a", 2), Retract("a")]),
    # page 2 comes back twice
    ("tail_start_floored", 4, [*DRAFTS, Retract("a")]),
    ("tail_start_floored", 4, [*DRAFTS, Abort("a")]),
    ("tail_start_floored", 4, [*DRAFTS, Finish("a", 3, True)]),
    ("aborted_turn_keeps_record", 4, [*TURN, Abort("a")]),
    # while a runs, and while a later turn waits
    ("close_twice", 4, [*TURN, Close("S")]),
    ("close_twice", 4, [*TURN, Finish("a", 3, False), Submit("b", tuple("ABCz"), "n", session="S"), Close("S")]),
    ("borrowed_slot_counted_twice", 4, TURN),
    # page 1 is cached, and b goes on at position 1
    ("turn_restarts_below_protected", 4, [*TURN, Checkpoint("a", 3), Finish("a", 3, False),
                                          *start("b", "ABCz", session="S")]),
    # page 3 holds drafts alone, page 2 one
    ("drafts_published", 4, [*DRAFTS, Checkpoint("a", 3)]),
    ("drafts_published", 4, [*DRAFTS, Finish("a", 3, True)]),
    # position 6 of 0 to 5
    ("past_row_end", 4, [*start("a", "ABCD"), Reserve("a", 3)]),
]  # fmt: skip


class Verdict(NamedTuple):
    """The rule that broke first and the step; None and 0 if none did. struck: the step of the first strike, or 0."""

    rule: str | None
    step: int
    struck: int


def drive(make: Make, pages: int, actions: Sequence[Action], *, view: bool) -> Verdict:
    """Perform and judge, and with view compare the books, up to the first finding. Two rows of six columns."""
    world = World(rows=2, context_len=6, pages=pages, page_size=2)
    world = replace(world, declared=make(world).declare())
    backend, monitor, first_strike = make(world), Monitor(world), 0
    struck()
    for number, action in enumerate(actions, 1):
        reply = backend.do(action)
        first_strike = first_strike or (number if struck() else 0)
        try:
            answer = monitor.step(action, reply)
            if view and (books := backend.view()) is not None:
                monitor.compare(books, action, answer)
        except Broken as broken:
            return Verdict(broken.rule, number, first_strike)
    monitor.finish()
    return Verdict(None, 0, first_strike)


def load(fault: str) -> ModuleType:
    """The module of a fault."""
    return import_module(f"kvledger.tests.zoo.{fault}")


@pytest.mark.parametrize(("fault", "pages", "actions"), CASES)
def test_a_fault_is_found_where_it_struck(fault: str, pages: int, actions: list[Action]) -> None:
    """With the books: its rule, at the step of the strike. The honest reference goes through the same actions."""
    module = load(fault)
    rule, step, first_strike = drive(module.make, pages, actions, view=True)
    assert (rule, step) == (module.RULE, first_strike)
    assert drive(reference.make, pages, actions, view=True) == Verdict(None, 0, 0)


@pytest.mark.parametrize(("fault", "pages", "actions"), CASES)
def test_a_fault_is_found_by_answers_alone(fault: str, pages: int, actions: list[Action]) -> None:
    """Without the books: the rule that follows, not before the strike; or none, if answers are as they should be."""
    module = load(fault)
    rule, step, first_strike = drive(module.make, pages, actions, view=False)
    assert rule == module.BLIND and 0 < first_strike <= (step or len(actions))
    assert step == (0 if rule is None else len(actions))


def test_every_fault_is_driven_and_says_what_it_breaks() -> None:
    """A case each; rules that exist; the reference's declaration under a name of its own."""
    assert {fault for fault, _, _ in CASES} == set(FAULTS)
    world = World(rows=2, context_len=6, pages=4, page_size=2)
    for fault in FAULTS:
        module = load(fault)
        assert {module.RULE, module.BLIND or module.RULE} <= RULES.keys()
        assert module.make(world).declare() == replace(reference.make(world).declare(), name=fault)
