"""The judge, by itself: one wrong answer for each of its guards, said by nobody, and the rule that it must name.

Pages of two slots, six of them, two rows. `a` has started with (1, 2, 3, 4) in pages 1 and 2; where a case says so it
has published both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import pytest

from kvledger.spec import monitor as module
from kvledger.spec.action import apply
from kvledger.spec.actions import (
    Abort,
    Action,
    Admit,
    Checkpoint,
    Close,
    Commit,
    Defer,
    Evict,
    Extend,
    Finish,
    Flush,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Freed, Granted, Refused, Reply
from kvledger.spec.backend import View
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import WHOLE_EVERY, Monitor
from kvledger.spec.page import SpecError
from kvledger.spec.rules import Broken
from kvledger.spec.world import Declaration, World, WrongInput
from kvledger.spec.worlds import JOINT

Call: TypeAlias = tuple[Action, Reply | Refused]
SGLANG = World(rows=2, context_len=8, pages=6, page_size=2)
GROWS = Declaration("merges while it grows", publishes_on=frozenset({"extend", "decode", "checkpoint"}))
VLLM = replace(SGLANG, declared=GROWS)
ALL = replace(SGLANG, declared=JOINT)
KEEPS = replace(SGLANG, declared=replace(GROWS, capabilities=GROWS.capabilities | {"DUPLICATES"}))
A, B = Submit("a", (1, 2, 3, 4), "n"), Submit("b", (1, 2, 3, 4, 5, 6), "n")
ROW: tuple[int, ...] = (2, 3, 4, 5)  # the slots of pages 1 and 2


def extend(*reqs: str, token: int | None = 9) -> Extend:
    """To the end of each prompt."""
    return Extend(tuple((req, {"a": 4, "b": 6, "c": 2}[req], token) for req in reqs))


STARTED: list[Call] = [(A, Reply()), (extend("a"), Reply(rows=[1], matched=[[]], slots=[ROW]))]
PUBLISHED: list[Call] = [*STARTED, (Checkpoint("a", 4), Reply(slots=[ROW], published={"a": 4}))]
BESIDE: list[Call] = [*PUBLISHED, (B, Reply())]
CACHED: list[Call] = [*STARTED, (Finish("a", 4, True), Reply(published={"a": 4}))]


def judged(world: World, calls: Sequence[Call]) -> Monitor:
    """A run, all of it accepted."""
    monitor = Monitor(world)
    for act, reply in calls:
        monitor.step(act, reply)
    return monitor

# `a` has all of the pool's two pages, and `c` was refused for want of one
SMALL, C, NEXT = replace(SGLANG, pages=2), Submit("c", (7, 8), "n"), extend("c")
FULL: list[Call] = [*STARTED, (C, Reply()), (NEXT, Refused("pages"))]
ROOM: list[Call] = [*FULL, (Abort("a"), Reply())]

# `t`, the first turn of session `s`, has what `a` has, and has published the first of its pages
T = Submit("t", (1, 2, 3, 4), "n", session="s")
TURN: list[Call] = [
    (T, Reply()), (Extend((("t", 4, 9),)), Reply(rows=[1], matched=[[]], slots=[ROW])),
    (Checkpoint("t", 2), Reply(slots=[ROW[:2]], published={"t": 2})),
]  # fmt: skip
IDLE: list[Call] = [*TURN, (Finish("t", 4, False), Reply())]
NEXT_TURN, GOES_ON = Submit("u", (1, 2, 3, 4, 9, 8), "n", session="s"), Extend((("u", 6, 7),))
SHORTER = Submit("u", (1, 2, 3), "n", session="s")  # goes on at its second token, which is page 1's last
WAITS_ON: list[Call] = [*IDLE, (NEXT_TURN, Reply())]
RESERVED: list[Call] = [*STARTED, (Reserve("a", 2), Reply(slots=[[6, 7]]))]
ADMITTED: list[Call] = [*CACHED, (B, Reply()), (Admit("b"), Reply(matched=[ROW]))]
READ: list[Call] = [*BESIDE, (extend("b"), Reply(rows=[2], matched=[ROW], slots=[[6, 7]]))]  # what a has published


class Wrong(NamedTuple):
    """The last of these answers is wrong: it breaks the rule, with these facts among others."""

    rule: str
    before: list[Call]
    act: Action
    reply: Reply | Refused
    facts: dict[str, object]
    world: World = SGLANG


def grant(**parts: Any) -> Reply:
    """The right answer where b starts beside a, who has published; then with these parts."""
    right = Reply(rows=[2], matched=[ROW], slots=[[6, 7]])
    return replace(right, **parts)


WRONG: dict[str, Wrong] = {
    "no row for a start": Wrong("REC-1", BESIDE, extend("b"), grant(rows=[]), {"starting": 1, "rows": 0}),
    "a row too many": Wrong("REC-1", BESIDE, extend("b"), grant(rows=[2, 1]), {"starting": 1, "rows": 2}),
    "no match named for a start": Wrong("REC-1", BESIDE, extend("b"), grant(matched=[]), {"matched": 0}),
    "a page evicted twice": Wrong("EVICT-4", CACHED, Evict(1), Reply(evicted=[2, 2]), {"page": 2, "twice": True}),
    "a page evicted twice, and then refused": Wrong(
        "EVICT-4", [*CACHED, (B, Reply())], extend("b"), Refused("pages", [2, 2]), {"page": 2, "twice": True}),
    "a match that ends inside a page": Wrong("CACHE-4", BESIDE, extend("b"), grant(matched=[ROW[:3]]), {"ordinal": 1}),
    "a match out of order": Wrong("TAB-1", BESIDE, extend("b"), grant(matched=[(3, 2, 4, 5)]), {"position": 0}),
    "a slot too few": Wrong("PAGE-4", BESIDE, extend("b"), grant(slots=[[6]]), {"positions": 2, "slots": 1}),
    "a slot too few, for it matched too much": Wrong(
        "CACHE-2", BESIDE, extend("b"), grant(matched=[(*ROW, 6, 7)], slots=[[]]), {"matched": 6, "most": 5}),
    "a page in the wrong order": Wrong("TAB-1", BESIDE, extend("b"), grant(slots=[[7, 6]]), {"position": 4, "law": 6}),
    "two slots of a page the wrong way round": Wrong(
        "TAB-1", [(C, Reply()), (A, Reply())], Extend((("c", 2, 9), ("a", 4, 9))),
        Reply(rows=[1, 2], matched=[[], []], slots=[[8, 9], [2, 3, 4, 4]]), {"position": 3, "law": 5, "slot": 4}),
    "a page left half empty": Wrong(
        "TAB-1", [(A, Reply()), (Extend((("a", 3, None),)), Reply(rows=[1], matched=[[]], slots=[[2, 3, 4]]))],
        extend("a"), Reply(slots=[[6]]), {"position": 3, "law": 5, "slot": 6}),
    "less published than there was": Wrong(
        "CACHE-3", PUBLISHED, Checkpoint("a", 4), Reply(slots=[[]], published={"a": 2}), {"upto": 2}),
    "half a page published": Wrong(
        "CACHE-3", STARTED, Checkpoint("a", 4), Reply(slots=[ROW[:3]], published={"a": 3}), {"upto": 3}),
    "fewer slots than are published": Wrong(
        "REC-2", STARTED, Checkpoint("a", 4), Reply(slots=[ROW[:2]], published={"a": 4}), {"slots": 2, "upto": 4}),
    "slots, and nothing published": Wrong("REC-2", STARTED, Checkpoint("a", 4), Reply(slots=[ROW]), {"upto": 0}),
    "a checkpoint publishes another's": Wrong(
        "CACHE-3", BESIDE, Checkpoint("a", 4), Reply(slots=[[]], published={"b": 2}), {"req": "b", "barred": True}),
    "an unknown request publishes": Wrong(
        "CACHE-3", BESIDE, extend("b"), grant(published={"x": 2}), {"req": "x"}),
    "half a page published at the end": Wrong(
        "CACHE-3", STARTED, Finish("a", 4, True), Reply(published={"a": 3}), {"upto": 3, "most": 4}),
    "published below what was": Wrong(
        "CACHE-3", PUBLISHED, Finish("a", 4, True), Reply(published={"a": 2}), {"upto": 2}),
    "published beyond the table": Wrong(
        "CACHE-3", STARTED, Finish("a", 4, True), Reply(published={"a": 6}), {"upto": 6}),
    "published beyond keep": Wrong("CACHE-3", STARTED, Finish("a", 2, True), Reply(published={"a": 4}), {"upto": 4}),
    "fewer slots listed than are published": Wrong(
        "REC-2", [(A, Reply())], extend("a"),
        Reply(rows=[1], matched=[[]], slots=[ROW], published={"a": 4}, listed={"a": ROW[:2]}), {"slots": 2}, KEEPS),
    "a listed page out of order": Wrong(
        "TAB-1", [(A, Reply())], extend("a"),
        Reply(rows=[1], matched=[[]], slots=[ROW], published={"a": 4}, listed={"a": (2, 3, 5, 4)}), {"position": 2},
        KEEPS),
    "a page listed that is under no key": Wrong(
        "CACHE-5", [(A, Reply())], extend("a"),
        Reply(rows=[1], matched=[[]], slots=[ROW], published={"a": 2}, listed={"a": (8, 9)}), {"row_lists": 4}, KEEPS),
    "the same is short again, with room": Wrong("LIVE-1", ROOM, NEXT, Refused("pages"), {}, SMALL),
    "something else is short, with room": Wrong("ROW-4", ROOM, NEXT, Refused("rows"), {}, SMALL),
    "another call is short": Wrong("PAGE-5", ROOM, Extend((("c", 1, None),)), Refused("pages"), {}, SMALL),
    "the id has come again, and is another request": Wrong(
        "PAGE-5", [*FULL, (Abort("c"), Reply()), (C, Reply()), (Abort("a"), Reply())], NEXT, Refused("pages"),
        {}, SMALL),
    # ---- drafts
    "fewer slots than are to be reserved": Wrong(
        "DRAFT-1", STARTED, Reserve("a", 2), Reply(slots=[[6]]), {"upto": 5, "least": 6, "most": 6}, ALL),
    "more slots than to the page's end": Wrong(
        "DRAFT-1", STARTED, Reserve("a", 1), Reply(slots=[[6, 7, 8]]), {"upto": 7, "least": 5, "most": 6}, ALL),
    "slots past the row": Wrong(
        "DRAFT-1", STARTED, Reserve("a", 5), Reply(slots=[[6, 7, 8, 9, 10]]), {"upto": 9, "most": 8, "width": 8}, ALL),
    "slots that are there once more": Wrong(
        "DRAFT-1", RESERVED, Reserve("a", 1), Reply(slots=[[8, 9]]), {"upto": 8, "least": 6, "most": 6}, ALL),
    "reserved slots out of order": Wrong(
        "TAB-1", STARTED, Reserve("a", 2), Reply(slots=[[7, 6]]), {"position": 4, "law": 6}, ALL),
    "a reserve refused without cause": Wrong("PAGE-5", STARTED, Reserve("a", 4), Refused(), {"short": None}, ALL),
    "a reserve past the row refused for pages": Wrong(
        "PAGE-5", STARTED, Reserve("a", 5), Refused("pages"), {"demand": 2, "obtainable": 4}, ALL),
    "a commit refused": Wrong("PAGE-5", RESERVED, Commit("a", (5,)), Refused("pages"), {"members": 0}, ALL),
    "a checkpoint of drafts": Wrong(
        "DRAFT-2", RESERVED, Checkpoint("a", 4), Reply(slots=[(*ROW, 6, 7)], published={"a": 6}),
        {"upto": 6, "most": 4}, ALL),
    "drafts published at the end": Wrong(
        "DRAFT-2", RESERVED, Finish("a", 4, True), Reply(published={"a": 6}), {"upto": 6, "most": 4}, ALL),
    "published beyond the drafts": Wrong(
        "CACHE-3", RESERVED, Checkpoint("a", 4), Reply(slots=[(*ROW, 6, 7, 8, 9)], published={"a": 8}),
        {"upto": 8, "most": 4}, ALL),
    "less published than is committed, and more than was asked": Wrong(
        "CACHE-3", RESERVED, Checkpoint("a", 2), Reply(slots=[ROW], published={"a": 4}), {"upto": 4, "most": 2}, ALL),
    "drafts stay with nobody": Wrong("PAGE-6", RESERVED, Retract("a"), Reply(freed=Freed((1, 2), (1,))), {}, ALL),
    # ---- sessions
    "a turn that goes on takes a row": Wrong(
        "SES-2", WAITS_ON, GOES_ON, Reply(rows=[2], slots=[[6, 7]]), {"req": "u", "rows": (2,)}, ALL),
    "a turn that goes on is admitted with a row": Wrong(
        "SES-2", WAITS_ON, Admit("u"), Reply(rows=[2]), {"req": "u", "rows": (2,)}, ALL),
    "a turn that goes on is given a match": Wrong(
        "SES-2", WAITS_ON, GOES_ON, Reply(matched=[ROW], slots=[[6, 7]]), {"req": "u", "matched": 1}, ALL),
    "a turn that goes on starts below": Wrong(
        "SES-2", WAITS_ON, GOES_ON, Reply(slots=[[4, 5, 6, 7]]), {"positions": 2, "slots": 4, "prefix": 4}, ALL),
    "what a session has is freed by the turn that goes on": Wrong(
        "SES-2", WAITS_ON, GOES_ON, Reply(slots=[[6, 7]], freed=Freed((2,))), {"holder": "s"}, ALL),
    "what a session has is freed when its turn is admitted": Wrong(
        "SES-2", WAITS_ON, Admit("u"), Reply(freed=Freed((), (1,))), {"holder": "s"}, ALL),
    "what a session has is freed by a refusal": Wrong(
        "SES-2", WAITS_ON, GOES_ON, Refused("pages", freed=Freed((2,))), {"holder": "s"}, replace(ALL, pages=2)),
    "a tail that is not freed": Wrong(
        "PAGE-6", [*IDLE, (SHORTER, Reply())], Extend((("u", 3, 9),)), Reply(slots=[[6]], freed=Freed()), {}, ALL),
    "a session's page is freed when the turn ends": Wrong(
        "SES-1", TURN, Finish("t", 4, False), Reply(freed=Freed((2,))), {"holder": "t"}, ALL),
    "a session's row is freed when the turn ends": Wrong(
        "SES-1", TURN, Finish("t", 4, False), Reply(freed=Freed((), (1,))), {"holder": "t"}, ALL),
    "a turn is retracted like any request": Wrong(
        "SES-1", TURN, Retract("t"), Reply(freed=Freed((2,), (1,))), {"holder": "t"}, ALL),
    "another page is freed when the turn ends": Wrong(
        "PAGE-6", TURN, Finish("t", 4, False), Reply(freed=Freed((6,))), {}, ALL),
    "a session is closed while its turn runs": Wrong(
        "SES-3", TURN, Close("s"), Reply(freed=Freed((2,), (1,))), {"holder": "t"}, ALL),
    "a session is closed while its turn waits": Wrong(
        "SES-3", WAITS_ON, Close("s"), Reply(freed=Freed((2,), (1,))), {"holder": "s"}, ALL),
    "a closed session outlives its turn's end": Wrong(
        "SES-3", [*TURN, (Close("s"), Reply())], Finish("t", 4, False), Reply(freed=Freed()), {"holder": "t"}, ALL),
    "a closed session outlives its turn's abort": Wrong(
        "SES-4", [*TURN, (Close("s"), Reply())], Abort("t"), Reply(freed=Freed((2,))), {"holder": "t"}, ALL),
    "a closed session outlives the turn that waited": Wrong(
        "SES-3", [*WAITS_ON, (Close("s"), Reply())], Abort("u"), Reply(freed=Freed((), (1,))), {"holder": "s"}, ALL),
    "an idle session outlives its close": Wrong(
        "SES-3", IDLE, Close("s"), Reply(freed=Freed()), {"holder": "s"}, ALL),
    "an aborted turn leaves its record": Wrong(
        "SES-4", TURN, Abort("t"), Reply(freed=Freed()), {"holder": "t"}, ALL),
    "an aborted turn that waited empties its session": Wrong(
        "SES-4", WAITS_ON, Abort("u"), Reply(freed=Freed((2,), (1,))), {"holder": "s"}, ALL),
    "a page too many is freed with an aborted turn": Wrong(
        "PAGE-6", TURN, Abort("t"), Reply(freed=Freed((2, 2), (1,))), {}, ALL),
    "a flush that leaves an idle session": Wrong(
        "PAGE-6", IDLE, Flush(), Reply(evicted=[1], freed=Freed()), {}, ALL),
    "a settled turn publishes": Wrong(
        "CACHE-3", [*WAITS_ON, (GOES_ON, Reply(slots=[[6, 7]]))], Checkpoint("u", 6),
        Reply(slots=[[4, 5]], published={"u": 4}), {"req": "u", "barred": True}, ALL),
    # ---- admission apart
    "an admission matches too little": Wrong(
        "CACHE-1", ADMITTED[:-1], Admit("b"), Reply(matched=[ROW[:2]]), {"matched": 2, "longest": 4}, ALL),
    "an admission takes a row": Wrong(
        "REC-1", ADMITTED[:-1], Admit("b"), Reply(rows=[1], matched=[ROW]), {"starting": 0, "rows": 1}, ALL),
    "an admission is refused": Wrong("PAGE-5", ADMITTED[:-1], Admit("b"), Refused(), {"members": 0}, ALL),
    "an admission evicts what it has matched": Wrong(
        "LOCK-2", ADMITTED[:-1], Admit("b"), Reply(matched=[ROW], evicted=[2]), {"page": 2}, ALL),
    "an admitted request starts from something else": Wrong(
        "LOCK-2", ADMITTED, extend("b"), Reply(rows=[1], matched=[ROW[:2]], slots=[[6, 7, 8, 9]]),
        {"admitted": (1, 2), "matched": (1,)}, ALL),
    "what an admitted request reads is evicted": Wrong(
        "LOCK-2", ADMITTED, C, Reply(evicted=[2]), {"page": 2}, ALL),
    "the cache is flushed below an admission": Wrong(
        "LOCK-2", [(A, Reply()), (Admit("a"), Reply(matched=[[]]))], Flush(), Reply(), {"holders": ("a",)}, ALL),
    # ---- what another reads as well
    "a page goes with a finish that another reads": Wrong(
        "LOCK-2", READ, Finish("a", 4, True), Reply(evicted=[2]), {"page": 2}),
    "a page goes with a retract that another reads": Wrong(
        "LOCK-2", READ, Retract("a"), Reply(evicted=[2]), {"page": 2}),
    "a page goes with an abort that another reads": Wrong("LOCK-2", READ, Abort("a"), Reply(evicted=[2]), {"page": 2}),
    "a page goes with a defer that another reads": Wrong(
        "LOCK-2", [*READ, (B._replace(req="c"), Reply()), (Admit("c"), Reply(matched=[ROW]))], Defer("c"),
        Reply(evicted=[2]), {"page": 2}, ALL),
    "a page goes with a close that another reads": Wrong(
        "LOCK-2", [*IDLE, (B, Reply()), (extend("b"), Reply(rows=[2], matched=[ROW[:2]], slots=[[6, 7, 8, 9]]))],
        Close("s"), Reply(evicted=[1]), {"page": 1}, ALL),
    "a page goes with a finish that publishes behind it": Wrong(
        "LOCK-2", [*STARTED, (Checkpoint("a", 2), Reply(slots=[ROW[:2]], published={"a": 2}))], Finish("a", 4, True),
        Reply(published={"a": 4}, evicted=[1]), {"page": 1}),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_names_its_rule(case: Wrong) -> None:
    """And has written nothing: the ledger is what it was, and the right answer would still do."""
    monitor = judged(case.world, case.before)
    before = snapshot(monitor.ledger)
    with pytest.raises(Broken) as broken:
        monitor.step(case.act, case.reply)
    facts = broken.value.facts
    assert (broken.value.rule, {name: facts.get(name) for name in case.facts}) == (case.rule, case.facts)
    assert snapshot(monitor.ledger) == before


def snapshot(ledger: Ledger) -> object:
    """All that is written in place, copied."""
    who = (ledger.requests, ledger.sessions, ledger.admitted, ledger.records)
    parts = (*who, ledger.tables, ledger.locks, ledger.pages, ledger.index, ledger.tags)
    return [dict(part) for part in parts]


@pytest.mark.parametrize(
    ("act", "reply", "says"),
    [
        (extend("b"), grant(matched=[ROW, ROW]), "2 matched prefixes, one for each request that starts: expected 1"),
        (Reserve("a", 1), Reply(slots=[[6], [8]]), "2 lists of slots, one for each member: expected 1"),
        (extend("b"), grant(slots=[[6, 7], [8, 9]]), "2 lists of slots, one for each member: expected 1"),
        (Checkpoint("a", 4), Reply(slots=[[], []]), "2 lists of slots, the row's from protected to k: expected 1"),
        (Finish("a", 4, True), Reply(listed={"b": [6]}), "whose slots say it"),
        (Checkpoint("a", 4), Reply(slots=[[]], listed={"a": []}), "whose slots say it"),
    ],
)
def test_a_wrong_count_is_the_adapters(act: Action, reply: Reply, says: str) -> None:
    monitor = judged(ALL, BESIDE)
    before = snapshot(monitor.ledger)
    with pytest.raises(WrongInput) as error:
        monitor.step(act, reply)
    assert str(error.value).endswith(says) and snapshot(monitor.ledger) == before


# ---- right answers that a hasty judge would blame


MERGED = Reply(rows=[1, 2], matched=[[], []], slots=[ROW, (6, 7, 8, 9)], published={"a": 4, "b": 4})
TWIN = Submit("b", (1, 2, 3, 4), "n")
BOTH = Extend((("a", 4, 9), ("b", 4, 9)))


@pytest.mark.parametrize("freed", [None, Freed((3, 4))])
def test_a_key_published_twice_in_one_batch_merges_with_the_first(freed: Freed | None) -> None:
    monitor = judged(VLLM, [(A, Reply()), (TWIN, Reply()), (BOTH, replace(MERGED, freed=freed))])
    assert monitor.ledger.tables == {"a": (1, 2), "b": (1, 2)}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize(
    ("said", "pages"),
    [
        ({"freed": Freed((3, 4))}, (1, 2)),
        ({"freed": Freed((1, 2))}, (3, 4)),
        ({"listed": {"a": ROW, "b": ROW}}, (1, 2)),
        ({"listed": {"a": (6, 7, 8, 9), "b": (6, 7, 8, 9)}}, (3, 4)),
        ({"listed": {"b": (6, 7, 8, 9)}}, (3, 4)),
    ],
)
def test_who_comes_first_is_the_backends_affair(said: dict[str, Any], pages: tuple[int, ...], order: list[str]) -> None:
    """And not that of the mapping in which it says who published."""
    reply = replace(MERGED, published=dict.fromkeys(order, 4), **said)
    assert judged(VLLM, [(A, Reply()), (TWIN, Reply()), (BOTH, reply)]).ledger.tables == {"a": pages, "b": pages}


@pytest.mark.parametrize(
    "said",
    [
        {"listed": {"a": ROW, "b": (6, 7, 8, 9)}},  # both kept
        {"listed": {"a": (6, 7, 8, 9), "b": ROW}},  # each merged with the other
    ],
)
def test_one_of_the_two_is_kept(said: dict[str, Any]) -> None:
    with pytest.raises(Broken) as broken:
        judged(VLLM, [(A, Reply()), (TWIN, Reply()), (BOTH, replace(MERGED, **said))])
    assert broken.value.rule == "CACHE-5"


def test_where_duplicates_are_kept_both_stay() -> None:
    monitor = judged(KEEPS, [(A, Reply()), (TWIN, Reply()), (BOTH, MERGED)])
    assert monitor.ledger.tables == {"a": (1, 2), "b": (3, 4)}


@pytest.mark.parametrize(
    ("said", "table"),
    [
        ({}, (5, 6)),  # kept
        ({"freed": Freed((5, 6))}, (1, 2)),  # merged, with the lowest
        ({"freed": Freed((5, 6)), "listed": {"c": (6, 7, 8, 9)}}, (3, 4)),  # merged, with what is listed
        ({"listed": {"c": (2, 3, 8, 9)}}, (1, 4)),
        ({"freed": Freed((5,)), "listed": {"c": (6, 7, 12, 13)}}, (3, 6)),  # one merged, one kept
    ],
)
def test_a_merge_is_with_the_page_that_is_listed(said: dict[str, Any], table: tuple[int, ...]) -> None:
    """Two copies are cached, of (1, 2, 3, 4) each, and a third request has computed a third."""
    waiting: list[Call] = [(A, Reply()), (TWIN, Reply()), (Submit("c", (1, 2, 3, 4), "n"), Reply())]
    reply = Reply(
        rows=[1, 2, 3], matched=[[], [], []], slots=[ROW, (6, 7, 8, 9), (10, 11, 12, 13)],
        published={"a": 4, "b": 4, "c": 4}, **said)  # fmt: skip
    monitor = judged(replace(KEEPS, rows=3), [*waiting, (Extend((*BOTH.batch, ("c", 4, 9))), reply)])
    assert monitor.ledger.tables["c"] == table


def test_what_goes_in_the_same_call_is_merged_with_no_more() -> None:
    """Page 1 is cached under (1, 2); b, whose limit forbids to match it, evicts it, computes the same, publishes."""
    limited = Submit("b", (1, 2, 5), "n", match_limit=0)
    monitor = judged(replace(VLLM, pages=3), [
        (Submit("a", (1, 2), "n"), Reply()),
        (Extend((("a", 2, 9),)), Reply(rows=[1], matched=[[]], slots=[[2, 3]], published={"a": 2})),
        (Abort("a"), Reply()), (limited, Reply()),
        (Extend((("b", 3, 9),)), Reply(rows=[1], matched=[[]], slots=[[4, 5, 6]], published={"b": 2}, evicted=[1])),
    ])  # fmt: skip
    assert monitor.ledger.tables == {"b": (2, 3)} and monitor.ledger.is_free(1)


@pytest.mark.parametrize("name", ["", "a"])
def test_a_name_is_a_name_however_empty(name: str) -> None:
    """A twin of what is cached ends, and publishes it again: its own pages 3 and 4 merge with 1 and 2."""
    declared = Declaration("publishes on abort", publishes_on=frozenset({"checkpoint", "finish", "abort"}))
    aborting = replace(SGLANG, declared=declared)
    twin = Submit(name, (1, 2, 3, 4), "n", match_limit=0)
    monitor = judged(aborting, [
        *CACHED, (twin, Reply()),
        (Extend(((name, 4, 9),)), Reply(rows=[1], matched=[[]], slots=[(6, 7, 8, 9)])),
        (Abort(name), Reply(published={name: 4}, freed=Freed((3, 4), (1,)))),
    ])  # fmt: skip
    assert sorted(monitor.ledger.pages) == [1, 2] and "CACHE-5" in monitor.arms


@pytest.mark.parametrize(("session", "turn"), [("", "u"), ("s", ""), ("s", "u")])
def test_a_session_may_have_an_empty_name_and_so_may_its_turn(session: str, turn: str) -> None:
    """It goes on with the session's record; and what a close in mid-turn takes is the session's."""
    first, later = T._replace(session=session), NEXT_TURN._replace(req=turn, session=session)
    runs: list[Call] = [
        (first, Reply()), *IDLE[1:], (later, Reply()),
        (Extend(((turn, 6, 7),)), Reply(slots=[[6, 7]], freed=Freed())),
    ]  # fmt: skip
    monitor = judged(ALL, runs)
    assert monitor.ledger.records == {turn: (1, 2, 6, 6)}
    monitor.step(Close(session), Reply())
    with pytest.raises(Broken) as broken:
        monitor.compare(View(records={}), Close(session), Granted())
    assert (broken.value.rule, broken.value.facts["subject"]) == ("SES-3", turn)


@pytest.mark.parametrize("reply", [Reply(evicted=[1]), Refused("pages", [1]), Reply(published={"a": 2})])
def test_who_declares_no_cache_speaks_of_none(reply: Reply | Refused) -> None:
    plain = replace(SGLANG, declared=Declaration("no cache", capabilities=frozenset({"PAGED", "ROWS"})))
    monitor = judged(plain, STARTED)
    with pytest.raises(WrongInput, match=r"no cache answered finish with evicted or published: it declares no PREFIX_"):
        monitor.step(Finish("a", 4, False), reply)


def test_to_ask_whether_a_call_may_be_made_writes_nothing() -> None:
    """A namespace that is refused has not been seen: tags are numbered by who came first."""
    one = replace(SGLANG, declared=Declaration("one namespace", declines=frozenset({"NAMESPACES"})))
    monitor = judged(one, STARTED)
    roots, before = list(monitor.ledger.names.roots), snapshot(monitor.ledger)
    with pytest.raises(WrongInput, match="another namespace is there"):
        monitor.step(replace_namespace(TWIN), Reply())
    assert monitor.ledger.names.roots == roots and snapshot(monitor.ledger) == before
    monitor.step(Abort("a"), Reply())
    monitor.step(replace_namespace(TWIN), Reply())  # now nothing of another one is there


def replace_namespace(act: Submit) -> Submit:
    return act._replace(namespace="another")


@pytest.mark.parametrize("act", [Checkpoint("a", -1), Checkpoint("a", -3), Finish("a", -1, True)])
def test_no_length_is_negative(act: Action) -> None:
    with pytest.raises(WrongInput, match="is negative"):
        judged(SGLANG, STARTED).step(act, Refused())


def test_a_backend_without_rows_needs_to_name_none() -> None:
    """The row numbers are the monitor's own, from 1."""
    plain = replace(SGLANG, declared=Declaration("no rows", capabilities=frozenset({"PAGED", "CHUNKED"})))
    starts: list[Call] = [(A, Reply()), (TWIN, Reply()), (BOTH, replace(MERGED, rows=[], published={}))]
    ends = Reply(freed=Freed((1, 2), (1,)))  # nor do they count, if it does
    monitor = judged(plain, [*starts, (Abort("a"), ends), (A, Reply()),
                             (extend("a"), Reply(matched=[[]], slots=[ROW]))])  # fmt: skip
    assert {req: record.row for req, record in monitor.ledger.records.items()} == {"a": 1, "b": 2}


@pytest.mark.parametrize("reply", [Refused(), Reply(evicted=[1, 2])])
def test_a_flush_may_wait_for_the_waiting(reply: Reply | Refused) -> None:
    """SGLang wants the waiting queue empty, vLLM only free blocks."""
    judged(SGLANG, [*CACHED, (B, Reply()), (Flush(), reply)])


def test_a_flush_is_refused_with_cause() -> None:
    with pytest.raises(Broken) as broken:
        judged(SGLANG, [*CACHED, (Flush(), Refused())])
    assert (broken.value.rule, broken.value.facts) == ("EVICT-2", {"refused": True})


ENDS = (Finish("a", 4, True), Finish("a", 4, False), Retract("a"), Abort("a"))


@pytest.mark.parametrize("act", ENDS, ids=repr)
def test_who_ends_may_take_along_what_it_alone_has_read(act: Action) -> None:
    """Released first, evicted then: in one step."""
    assert not judged(SGLANG, [*PUBLISHED, (act, Reply(evicted=[2, 1]))]).ledger.pages
    assert [*judged(SGLANG, [*PUBLISHED, (act, Reply(evicted=[2]))]).ledger.pages] == [1]


def test_so_may_an_idle_session_and_an_admitted_request() -> None:
    session: tuple[Action, ...] = (Close("s"), Flush())
    for act in session:
        ledger = judged(ALL, [*IDLE, (act, Reply(evicted=[1], freed=Freed((2,), (1,))))]).ledger
        assert not ledger.pages and not ledger.records
    request: tuple[Action, ...] = (Defer("b"), Abort("b"))
    for act in request:
        ledger = judged(ALL, [*ADMITTED, (act, Reply(evicted=[1, 2]))]).ledger
        assert not ledger.pages and not ledger.admitted


@pytest.mark.parametrize("reply", [Refused(), Reply(slots=[[6, 7, 8, 9]])])
def test_a_reserve_past_the_row_stops_there_or_is_refused(reply: Reply | Refused) -> None:
    ledger = judged(ALL, [*STARTED, (Reserve("a", 5), reply)]).ledger
    assert ledger.records["a"][1:] == (0, 4, 4 if reply == Refused() else 8)


@pytest.mark.parametrize(
    ("act", "reply"),
    [
        (Admit("u"), Reply(freed=Freed((2,)))),
        (Admit("u"), Reply()),  # it need not be told
        (Extend((("u", 3, 9), ("c", 2, 9))), Refused("pages", freed=Freed((2,)))),  # room is sought afterwards
        (Extend((("u", 3, 9), ("c", 2, 9))), Refused("pages")),
    ],
)
def test_what_lies_beyond_a_turns_start_goes_before_it_starts(act: Action, reply: Reply | Refused) -> None:
    """Of two pages the first is read; the other comes back, and is one too few for two that want one each."""
    full = replace(ALL, pages=2)
    ledger = judged(full, [*IDLE, (SHORTER, Reply()), (C, Reply()), (act, reply)]).ledger
    assert ledger.records == {"s": (1, 2, 2, 2)} and ledger.sessions["s"].tokens == (1, 2)
    assert ledger.free_page_count() == 1


# ---- probes and content


@pytest.mark.parametrize("reply", [Reply(), Refused(evicted=frozenset({1})), Refused(freed=Freed((1,)))])
def test_a_forbidden_call_is_refused_and_nothing_goes_for_it(reply: Reply | Refused) -> None:
    monitor = judged(SGLANG, CACHED)
    with pytest.raises(Broken) as broken:
        monitor.probe(Retract("a"), reply)
    assert (broken.value.rule, broken.value.facts) == ("GUARD-1", {"by": "retract"})
    judged(SGLANG, CACHED).probe(Retract("a"), Refused())


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda tags: tags[:3], {"position": 3, "read": 3, "law": 4}),
        (lambda tags: (*tags, 1), {"position": 4, "read": 5, "law": 4}),
        (lambda tags: (*tags[:2], 0, tags[3]), {"position": 2, "page": 2}),
    ],
)
def test_other_content_is_seen_where_it_begins(change: object, facts: dict[str, object]) -> None:
    monitor = judged(SGLANG, STARTED)
    right = monitor.ledger.requests["a"].trail[:4]  # the fifth token is pending
    monitor.read("a", right)
    with pytest.raises(Broken) as broken:
        monitor.read("a", change(right))  # type: ignore[operator]
    assert broken.value.rule == "TAG-1" and facts.items() <= broken.value.facts.items()


# ---- what is counted


AGAIN: list[Call] = [
    (Retract("a"), Reply()), (Extend((("a", 5, 9),)), Reply(rows=[1], matched=[[]], slots=[(*ROW, 6)])),
]  # fmt: skip


def remembered(world: World, calls: Sequence[Call]) -> Counter[str]:
    """What the calls before arm, without what the situations do."""
    monitor = Monitor(world, count_armed=False)
    for act, reply in calls:
        monitor.step(act, reply)
    return monitor.armed


@pytest.mark.parametrize(
    ("calls", "times"),
    [
        (STARTED, 0),
        ([*STARTED, *AGAIN], 1),
        ([*STARTED, *AGAIN, (Retract("a"), Reply()), (Extend((("a", 6, 9),)), Reply(rows=[1], matched=[[]],
                                                                                  slots=[(*ROW, 6, 7)]))], 2),
        # the id came again, and is another request
        ([*STARTED, AGAIN[0], (Abort("a"), Reply()), *STARTED], 0),
        ([*STARTED, *AGAIN, (Abort("a"), Reply()), *STARTED], 1),
        ([*STARTED, *AGAIN, (Finish("a", 4, False), Reply()), *STARTED], 1),
    ],
)  # fmt: skip
def test_a_released_request_that_starts_again_arms_what_stale_state_would_break(calls: list[Call], times: int) -> None:
    assert remembered(SGLANG, calls) == Counter({"REC-1": times, "REC-3": times})
    assert judged(SGLANG, calls).armed["REC-3"] == times


CHUNK = Extend((("c", 1, None),))
SMALLEST: list[Call] = [*STARTED, (C, Reply()), (CHUNK, Refused("pages"))]
GRANTED = Reply(rows=[1], matched=[[]], slots=[[2]])
LET_GO, BACK = (Abort("a"), Reply()), (Retract("c"), Reply())


@pytest.mark.parametrize(
    ("calls", "times"),
    [
        ([*SMALLEST, LET_GO, (CHUNK, GRANTED)], 1),
        ([*SMALLEST, LET_GO, (CHUNK, GRANTED), BACK, (CHUNK, GRANTED)], 1),  # nothing was refused in between
        ([*SMALLEST, (CHUNK, Refused("pages")), LET_GO, (CHUNK, GRANTED)], 1),
        ([*SMALLEST, (Flush(), Refused()), LET_GO, (CHUNK, GRANTED)], 1),  # a flush is short of nothing
        ([*SMALLEST, (NEXT, Refused("pages")), LET_GO, (CHUNK, GRANTED)], 0),  # another call was refused last
        ([*SMALLEST, LET_GO, (NEXT, replace(GRANTED, slots=[[2, 3]]))], 0),
        # the id came again, and is another request
        ([*SMALLEST, LET_GO, (Abort("c"), Reply()), (C, Reply()), (CHUNK, GRANTED)], 0),
    ],
)
def test_a_call_that_succeeds_at_last_arms_live_1_once(calls: list[Call], times: int) -> None:
    assert judged(SMALL, calls).armed["LIVE-1"] == times


# ---- what is counted, and nobody is blamed for


LARGE = Submit("b", (5, 6, 7, 8, 9, 10, 11, 12), "n")  # four pages, as many as CACHED leaves free
TO_THE_END = Extend((("b", 8, 9),))
FOUR_PAGES = Reply(rows=[1], matched=[[]], slots=[[6, 7, 8, 9, 10, 11, 12, 13]])
BARRED = Submit("a", (1, 2, 3, 4), "n", publish=False)


@pytest.mark.parametrize(
    ("calls", "undone"),
    [
        # EVICT-3: what was asked for is no needless eviction, nor is what a grant could not do without
        ([*CACHED, (Evict(1), Reply(evicted=[2]))], {}),
        ([*CACHED, (Evict(1), Reply(evicted=[1, 2]))], {}),
        ([*CACHED, (Flush(), Reply(evicted=[1, 2]))], {}),
        ([*CACHED, (LARGE, Reply()), (TO_THE_END, FOUR_PAGES)], {}),
        ([*CACHED, (LARGE, Reply()), (TO_THE_END, replace(FOUR_PAGES, evicted=[2]))], {"EVICT-3": 1}),
        ([*CACHED, (C, Reply()), (NEXT, Reply(rows=[1], matched=[[]], slots=[[6, 7]])), (LARGE, Reply()),
          (TO_THE_END, replace(FOUR_PAGES, rows=[2], slots=[[4, 5, 8, 9, 10, 11, 12, 13]], evicted=[2]))], {}),
        ([*CACHED, (LARGE, Reply(evicted=[2]))], {"EVICT-3": 1}),
        # CACHE-6: all whole pages that may be published
        (CACHED, {}),
        ([*STARTED, (Finish("a", 4, True), Reply(published={"a": 2}))], {"CACHE-6": 1}),
        ([*STARTED, (Finish("a", 4, True), Reply())], {"CACHE-6": 1}),
        ([*STARTED, (Finish("a", 3, True), Reply(published={"a": 2}))], {}),
        ([*STARTED, (Finish("a", 4, False), Reply())], {}),
        ([(BARRED, Reply()), STARTED[1], (Finish("a", 4, True), Reply())], {}),
        ([*STARTED, (Checkpoint("a", 4), Reply(slots=[[]]))], {"CACHE-6": 1}),
        ([*STARTED, (Checkpoint("a", 4), Reply(slots=[ROW[:2]], published={"a": 2}))], {"CACHE-6": 1}),
        ([*PUBLISHED, (Checkpoint("a", 4), Reply(slots=[[]]))], {}),
        ([*PUBLISHED, (Finish("a", 4, True), Reply())], {}),
        ([*STARTED, (Abort("a"), Reply())], {}),
    ],
)  # fmt: skip
def test_what_a_good_backend_does_is_counted_where_it_is_left_undone(calls: list[Call], undone: dict[str, int]) -> None:
    assert judged(SGLANG, calls).undone == Counter(undone)


# ---- it looks at its own work


def test_what_the_law_writes_wrongly_is_not_the_backends_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that vanishes while it is written is seen at that step, where it was touched."""

    def spoilt(ledger: Ledger, act: Action, answer: Granted | Refused, *, in_place: bool = False) -> Edit:
        edit = apply(ledger, act, answer, in_place=in_place)
        edit.pages.popitem()
        return edit

    monitor = judged(SGLANG, STARTED[:1])
    monkeypatch.setattr(module, "apply", spoilt)
    with pytest.raises(SpecError, match="page 2"):
        monitor.step(*STARTED[1])


def test_all_of_it_is_looked_at_every_64_steps_and_at_the_end() -> None:
    """A page far from where anything happens belongs to nobody: found at step 64, or when the run ends."""
    monitor = judged(SGLANG, STARTED)
    monitor.ledger.pages[6] = monitor.ledger.pages[1]  # type: ignore[index]
    with pytest.raises(SpecError, match="page 6"):
        monitor.finish()
    calls: list[Call] = [(Submit("b", (1,), "n"), Reply()), (Abort("b"), Reply())]
    for act, reply in calls * ((WHOLE_EVERY - len(STARTED)) // 2 - 1):
        monitor.step(act, reply)
    monitor.step(*calls[0])
    with pytest.raises(SpecError, match="page 6"):
        monitor.step(*calls[1])
    assert monitor.steps == WHOLE_EVERY


@pytest.mark.parametrize(("used", "step"), [(2, 2 * WHOLE_EVERY), (1_600, WHOLE_EVERY + 100)])
def test_the_more_is_in_use_the_more_seldom_all_of_it_is_looked_at(used: int, step: int) -> None:
    """A look costs as much as there is: after the one at step 64 the next is due 64 steps later, or one step later for
    each 16 pages in use."""
    world = World(rows=1, context_len=used, pages=used + 1, page_size=1)
    start = Extend((("a", used, 9),)), Reply(rows=[1], matched=[[]], slots=[range(1, used + 1)])
    monitor = judged(world, [(Submit("a", tuple(range(used)), "n"), Reply()), start])
    idle: list[Call] = [(Submit("b", (1,), "n"), Reply()), (Abort("b"), Reply())]
    while monitor.steps < WHOLE_EVERY:
        monitor.step(*idle[monitor.steps % 2])
    monitor.ledger.pages[used + 1] = monitor.ledger.pages[1]  # type: ignore[index]
    while monitor.steps < step - 1:
        monitor.step(*idle[monitor.steps % 2])
    with pytest.raises(SpecError, match=f"page {used + 1}"):
        monitor.step(*idle[monitor.steps % 2])
