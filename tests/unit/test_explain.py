"""The words for facts, where a careless sentence would say what is not so."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvledger.spec.actions import Action, Checkpoint, Extend, Finish, Flush, Submit
from kvledger.spec.answer import Refused, Reply
from kvledger.spec.explain import answer_in_words, because
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import Broken
from kvledger.spec.world import World
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
