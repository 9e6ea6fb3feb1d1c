"""Every state of a world is counted as another search counts it, and a law that fails is told with the path to it."""

from __future__ import annotations

import re
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from signal import SIGTERM

import pytest

from kvledger.proofs import worlds
from kvledger.proofs.parts import PARTS
from kvledger.proofs.status import differences, listed
from kvledger.spec.edit import Edit
from kvledger.spec.situations import SITUATIONS
from kvledger.spec.worlds import LARGE, WORLDS
from kvledger.tests.unit.test_explore import COUNTS


def test_a_world_by_itself_agrees_with_what_is_pinned() -> None:
    """The counts that test_explore.py pins, which it holds against searches without reductions."""
    found = worlds.search("worlds: TINY_B", "TINY_B")
    states, transitions, depth = COUNTS["TINY_B"]
    said = f"{states:,} states of world TINY_B, all; {transitions:,} transitions, depth {depth}, "
    assert found.verdict.holds and not found.verdict.counterexample
    assert found.verdict.words == f"{said}{len(worlds.HELD)} rules, {len(found.reached)} situations"


def test_the_rules_that_are_looked_at_are_those_that_can_fail() -> None:
    """Of one state: what TAB-2 says of a row, but not which match was the longest, or what a refusal may change."""
    assert {"ROW-1", "REC-2", "PAGE-2", "LOCK-1", "TAB-2", "TAG-1", "EVICT-1", "SES-3"} < worlds.HELD
    assert not worlds.HELD & {"CACHE-1", "ATOM-1", "SES-4", "GUARD-1", "CACHE-6"} and len(worlds.HELD) == 15


def test_the_named_worlds_hold_and_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On every core: the verdicts come in the worlds' own order whoever ends first. Three of them, which do not reach
    everything; `kvledger prove` asks for all."""
    names = ("TINY_A", "TINY_B", "NAMESPACES")
    monkeypatch.setattr(worlds, "WORLDS", {name: WORLDS[name] for name in names})
    monkeypatch.setattr(worlds, "LONG", ("NAMESPACES",))
    progress: list[str] = []
    *verdicts, situations = worlds.settle(progress.append)
    assert [verdict.name for verdict in verdicts] == [f"worlds: {name}" for name in names] == progress
    assert all(verdict.holds for verdict in verdicts)
    assert situations.name == "worlds: situations" and not situations.holds
    asked = {f"worlds: {name}" for name in names}
    assert [line for line in differences(verdicts, ["worlds"]) if line.partition(": '")[0] in asked] == []
    less = verdicts[0]._replace(words=verdicts[0].words.replace("675", "674"))
    wrong = [line for line in differences([less], ["worlds"]) if line.startswith("worlds: TINY_A: ")]
    assert len(wrong) == 1 and "675" in wrong[0] and "674" in wrong[0]


def test_who_is_interrupted_does_not_wait_for_the_other_worlds() -> None:
    """Whoever searched was ended; otherwise it would have come to the end of its worlds, and to exit code 0."""
    searching: list[BaseProcess] = []

    def interrupted(_: str) -> None:
        searching.extend(active_children())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(worlds.settle(interrupted))
    assert searching and {child.exitcode for child in searching} == {-SIGTERM}


def test_the_large_worlds_are_listed() -> None:
    """They take a minute, so their verdict is made only where it is asked for. Here: that each has a line, of its
    name, and that a minute's work stays out of the quick parts."""
    assert PARTS["three"].deep and not PARTS["worlds"].deep
    assert {name for name in listed() if name.startswith("three: ")} == {f"three: {name}" for name in LARGE}
    assert all(f"states of world {name}, all; " in listed()[f"three: {name}"] for name in LARGE)


def test_a_law_that_fails_is_told_with_the_path_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leaves keeps its row. The shortest way there: a request arrives, takes a row, and then leaves."""
    monkeypatch.setattr(Edit, "release", lambda edit, holder: None)
    verdict, reached = worlds.search("worlds: TINY_B", "TINY_B")
    assert not verdict.holds and verdict.words == "a law fails in world TINY_B" and not reached
    told = r"in (finish|abort) 'r0'.* after submit 'r0' .*, extend .*: SpecError: holder r0: REC-1, holds a row .*"
    assert re.fullmatch(told, verdict.counterexample), verdict.counterexample


def test_a_law_that_fails_on_the_way_to_a_state_that_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evicted leaf leaves its parent's count of children as it was. By what is cached, the state is one that was
    there before, with the right count: to be told, the law has to be held after every move."""
    counts = Edit._count_child
    monkeypatch.setattr(Edit, "_count_child", lambda edit, parent, more: counts(edit, parent, max(more, 0)))
    verdict, _ = worlds.search("worlds: TINY_A", "TINY_A")
    assert not verdict.holds
    assert re.fullmatch(r"in evict 1 after submit .*: SpecError: key \d+ counts 1 children", verdict.counterexample)


def test_a_law_that_stumbles_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its own code raises counts: here at the first step, a submit."""

    def broken(edit: Edit, *_: object) -> None:
        raise KeyError("no such page")

    monkeypatch.setattr(Edit, "submit", broken)
    verdict, _ = worlds.search("worlds: TINY_B", "TINY_B")
    told = "in a step that stumbles, after nothing: KeyError: 'no such page'"
    assert not verdict.holds and verdict.counterexample == told


def test_a_situation_that_no_world_reaches_is_named() -> None:
    name = next(iter(SITUATIONS))
    verdict = worlds.settle_situations(set(SITUATIONS) - {name})
    assert (verdict.holds, verdict.counterexample) == (False, f"not reached: {name}")
    assert worlds.settle_situations(set(SITUATIONS)).holds
