"""The words for facts, where a careless sentence would say what is not so."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvledger.spec.actions import (
    Abort,
    Action,
    Admit,
    Checkpoint,
    Close,
    Commit,
    Defer,
    Extend,
    Finish,
    Flush,
    MatchPrefix,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.explain import action_in_words, answer_in_words, because
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import Broken
from kvledger.spec.world import World
from kvledger.spec.worlds import JOINT
from kvledger.tests.unit.written import Bench
from kvledger.tests.vectors.make import BROKEN, HERE


def said_of(act: Action, reply: Reply | Refused) -> str:
    """The sentence for a wrong answer, where `a` holds KV for its five tokens in pages of two, and samples a sixth;
    `w` waits."""
    monitor = Monitor(World(rows=2, context_len=8, pages=5, page_size=2))
    monitor.step(Submit("a", (1, 2, 3, 4, 5), "n"), Reply())
    monitor.step(Extend((("a", 5, 6),)), Reply(rows=[1], matched=[[]], slots=[[2, 3, 4, 5, 6]]))
    monitor.step(Submit("w", (7, 8), "n"), Reply())
    with pytest.raises(Broken) as broken:
        monitor.step(act, reply)
    return because(broken.value.rule, broken.value.facts, monitor.ledger)


@pytest.mark.parametrize(
    ("act", "reply", "says"),
    [
        (Finish("a", 5, True), Reply(published={"a": 6}),
         "a is published up to 6, but only its first 5 tokens may be, for they have KV; in whole pages that is 4. "
         "Token 6 is pending: it was sampled last, and no KV is computed for it."),
        (Finish("a", 1, True), Reply(published={"a": 4}),
         "a is published up to 4, but only its first 1 token may be, for this finish says so; in whole pages that "
         "is 0."),
        (Finish("a", 5, False), Reply(published={"a": 4}),
         "a is published up to 4, but only its first 0 tokens may be, for this finish says so; in whole pages that "
         "is 0."),
        (Checkpoint("a", 3), Reply(slots=[[2, 3, 4, 5]], published={"a": 4}),
         "a is published up to 4, but only its first 3 tokens may be, for this checkpoint says so; in whole pages that "
         "is 2."),
        (Finish("a", 5, True), Reply(published={"a": 3}),
         "a is published up to 3: it was up to 0, and goes on by pages of 2."),
    ],
)  # fmt: skip
def test_why_so_much_may_not_be_published(act: Action, reply: Reply, says: str) -> None:
    assert said_of(act, reply) == says


@pytest.mark.parametrize(
    ("act", "reply", "says"),
    [
        (Submit("b", (1,), "n"), Reply(rows=[2]),
         "The answer hands out 1 row, but no requests start: nobody else takes one."),
        (Extend((("w", 2, 3),)), Reply(rows=[2, 1], matched=[[]], slots=[[8, 9]]),
         "The answer hands out 2 rows, but 1 request starts: nobody else takes one."),
        (Extend((("w", 2, 3),)), Reply(rows=[], matched=[[]], slots=[[8, 9]]),
         "w starts without KV and needs a row of its own; the answer has 0 of 1. A record that was released must not "
         "pass for one that holds a row."),
        (Extend((("w", 2, 3),)), Reply(rows=[2], matched=[], slots=[[8, 9]]),
         "w starts without KV and needs a match, if only of nothing; the answer has 0 of 1. A record that was released "
         "must not pass for one that holds a row."),
    ],
)  # fmt: skip
def test_a_row_for_each_start_and_for_nobody_else(act: Action, reply: Reply, says: str) -> None:
    assert said_of(act, reply) == says


TALK = Submit("t", (1, 2, 3), "n", session="s")
BEGINS: list[tuple[Action, Reply]] = [
    (TALK, Reply()), (Extend((("t", 3, 4),)), Reply(rows=[1], matched=[[]], slots=[[2, 3, 4]])),
]  # fmt: skip
IDLE: list[tuple[Action, Reply]] = [*BEGINS, (Finish("t", 3, False), Reply())]
WAITS = [*IDLE, (TALK._replace(req="u", tokens=(1, 2, 3, 4)), Reply())]
CLOSING = [*BEGINS, (Close("s"), Reply())]
CACHED: list[tuple[Action, Reply]] = [
    (Submit("a", (1, 2, 3), "n"), Reply()),
    (Extend((("a", 3, 4),)), Reply(rows=[1], matched=[[]], slots=[[2, 3, 4]])),
    (Finish("a", 3, True), Reply(published={"a": 2})),
    (Submit("w", (1, 2, 3), "n"), Reply()),
]
DRAFTED: list[tuple[Action, Reply]] = [*CACHED[:2], (Reserve("a", 2), Reply(slots=[[5, 6]]))]
KEEPS = "The law frees pages none and rows none. The rest stays with its session."


@pytest.mark.parametrize(
    ("before", "act", "reply", "says"),
    [
        (CACHED[:2], Reserve("a", 1), Reply(slots=[[5, 6]]),
         "Slots of a reach to 5 after reserve; they should reach exactly to 4."),
        (CACHED[:2], Reserve("a", 2), Reply(slots=[[5]]),
         "Slots of a reach to 4 after reserve; they should reach to 5 at least and 6 at most."),
        (CACHED[:2], Reserve("a", 6), Reply(slots=[[5, 6, 7, 8, 9, 10]]),
         "Slots of a reach to 9 after reserve; they should reach exactly to 8. The row ends at 8."),
        (DRAFTED, Checkpoint("a", 3), Reply(slots=[[2, 3, 4, 5]], published={"a": 4}),
         "a is published up to 4, but only its first 3 tokens may be, for they have KV; in whole pages that is 2. "
         "Token 4 is pending: it was sampled last, and no KV is computed for it."),
        (BEGINS, Finish("t", 3, False), Reply(freed=Freed((1, 2), (1,))),
         f"The answer says that pages 1 2 and row 1 went back. {KEEPS}"),
        (BEGINS, Retract("t"), Reply(freed=Freed((2,))), f"The answer says that pages 2 went back. {KEEPS}"),
        (WAITS, Extend((("u", 4, 5),)), Reply(rows=[2], slots=[[5]]),
         "u goes on in its session's row; the answer hands out row 2."),
        (WAITS, Extend((("u", 4, 5),)), Reply(slots=[[4, 5]]),
         "u goes on with its session's KV at 3, so 1 position is new; the answer gives 2 slots."),
        (WAITS, Admit("u"), Reply(freed=Freed((2,))), f"The answer says that pages 2 went back. {KEEPS}"),
        (BEGINS, Close("s"), Reply(freed=Freed((1, 2), (1,))),
         f"The answer says that pages 1 2 and row 1 went back. {KEEPS}"),
        (CLOSING, Finish("t", 3, False), Reply(freed=Freed((2,), (1,))),
         "The session is closed and no turn of it goes on, so all it has comes back. The answer says it freed pages 2 "
         "and rows 1; the law frees pages 1 2 and rows 1. Page 1 was not given back."),
        (IDLE, Close("s"), Reply(freed=Freed()),
         "The session is closed and no turn of it goes on, so all it has comes back. The answer says it freed pages "
         "none and rows none; the law frees pages 1 2 and rows 1. Page 1 2 was not given back."),
        (BEGINS, Abort("t"), Reply(freed=Freed((1,), (1,))),
         "The aborted turn ran, so its session is left with nothing. The answer says it freed pages 1 and rows 1; the "
         "law frees pages 1 2 and rows 1. Page 2 was not given back."),
        (WAITS, Abort("u"), Reply(freed=Freed((1, 2), (1,))),
         "The turn only waited, so session s keeps what it has. The answer says that pages 1 2 and row 1 went back. "
         f"{KEEPS}"),
        ([*CACHED, (Admit("w"), Reply(matched=[[2, 3]]))], Extend((("w", 3, 5),)),
         Reply(rows=[1], matched=[[]], slots=[[4, 5, 6]]),
         "w was admitted with pages 1 and holds their lock; it starts with pages none."),
        (CACHED, Admit("w"), Reply(matched=[[]]), "w matched 0 tokens; 2 could be had."),
        (CACHED, Admit("w"), Reply(matched=[[2, 3]], rows=[1]),
         "The answer hands out 1 row, but no requests start: nobody else takes one."),
        ([(Submit("w", (1, 2), "n"), Reply()), (Admit("w"), Reply(matched=[[]]))], Flush(), Reply(),
         "The cache was flushed while w held KV or the lock of an admission."),
        (BEGINS, Flush(), Reply(), "The cache was flushed while t held KV."),
    ],
)  # fmt: skip
def test_what_is_owed_to_drafts_sessions_and_admissions(
    before: list[tuple[Action, Reply]], act: Action, reply: Reply, says: str
) -> None:
    monitor = Monitor(World(rows=2, context_len=8, pages=5, page_size=2, declared=JOINT))
    for called, answered in before:
        monitor.step(called, answered)
    with pytest.raises(Broken) as broken:
        monitor.step(act, reply)
    assert because(broken.value.rule, broken.value.facts, monitor.ledger) == says


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (Admit("a"), "admit a"), (Defer("a"), "defer a"), (MatchPrefix("a"), "match a"), (Close("s"), "close s"),
        (Reserve("a", 3), "reserve a 3"), (Commit("a", (1, 2)), "commit a 2 tokens"),
        (TALK, "submit t 3 tokens, session s, namespace 'n'"),
    ],
)  # fmt: skip
def test_an_action_is_as_short_as_a_column(act: Action, says: str) -> None:
    assert action_in_words(act) == says


@pytest.mark.parametrize("file", sorted((HERE / BROKEN).glob("*.itf.json")), ids=lambda file: file.name)
def test_no_stored_finding_is_about_none(file: Path, bench: Bench) -> None:
    """A finding about nobody is told without a name."""
    code, told, _ = bench.call("explain", str(file))
    assert code == 1 and "BROKEN" in told
    assert "None " not in told


def test_a_flush_refused_without_cause() -> None:
    monitor = Monitor(World(rows=1, context_len=8, pages=4, page_size=2))
    with pytest.raises(Broken) as broken:
        monitor.step(Flush(), Refused())
    sentence = because(broken.value.rule, broken.value.facts, monitor.ledger)
    assert sentence == "The flush was refused, but no request is there that could be in its way."


def test_several_counts_are_no_range() -> None:
    """Three hits of 1, 2 and 3 tokens are not "1..3"; and whose length is which is said."""
    reply = Reply(rows=[1, 2, 3], matched=[[4], [4, 5], [4, 5, 6]], published={"a": 1, "b": 2, "c": 3})
    assert answer_in_words(reply) == "rows 1..3, hit 1 2 3, published a to 1, b to 2, c to 3"
