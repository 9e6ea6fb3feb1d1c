"""Each way in which a backend's books can disagree with the law, one corruption of an honest view for each.

The honest run: a reads a cached page and has one of its own; b has left two cached pages, one prefix and its
beginning; c has left one in another namespace; d waits; some pages and rows are free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kvledger.reference import backend as reference
from kvledger.spec.actions import (
    Abort,
    Action,
    Admit,
    Checkpoint,
    Close,
    Decode,
    Extend,
    Finish,
    Flush,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Granted, Refused, Reply
from kvledger.spec.backend import CachedView, Make, RecordView, View
from kvledger.spec.compare import OF_SESSIONS, RULE_OF, Difference, Owed, differences
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.page import CACHED, PRIVATE, Page
from kvledger.spec.rules import RULES, Broken
from kvledger.spec.world import Declaration, World
from kvledger.tests.engines import blocks

WORLD = World(rows=3, context_len=8, pages=9, page_size=2)
RUN: tuple[Action, ...] = (
    Submit("a", (1, 2, 3), "n"), Extend((("a", 3, 0),)), Checkpoint("a", 3),
    Submit("b", (5, 6, 7, 8), "n"), Extend((("b", 4, 0),)), Finish("b", 4, True),
    Submit("c", (1, 2, 3), "m"), Extend((("c", 3, 0),)), Finish("c", 3, True),
    Submit("d", (1,), "n"),
)  # fmt: skip
TWINS: tuple[Action, ...] = (  # both compute their one page for themselves, and both publish it
    Submit("a", (1, 2), "n"), Extend((("a", 2, 0),)), Submit("b", (1, 2), "n"), Extend((("b", 2, 0),)),
)  # fmt: skip
# t is the first turn of s, and has published the first of its two pages; u will be the next; x runs beside them
TURN: tuple[Action, ...] = (
    Submit("x", (7, 7, 7), "n"), Extend((("x", 3, 0),)),
    Submit("t", (1, 2, 3), "n", session="s"), Extend((("t", 3, 4),)), Checkpoint("t", 3),
)  # fmt: skip
IDLE = (*TURN, Finish("t", 3, False))
WAITS_ON = (*IDLE, Submit("u", (1, 2, 3, 4, 5), "n", session="s"))
GOES_ON = Extend((("u", 5, 6),))
Corrupt = Callable[[View, Ledger], View]


def performed(make: Make, acts: Sequence[Action]) -> tuple[Monitor, View]:
    """A run that is judged, and the books after it."""
    backend = make(WORLD)
    monitor = Monitor(replace(WORLD, declared=backend.declare()))
    for act in acts:
        monitor.step(act, backend.do(act))
    view = backend.view()
    assert view is not None
    return monitor, view


def page(ledger: Ledger, fits: Callable[[Page], bool]) -> int:
    """The first page that fits."""
    return next(number for number in range(1, WORLD.pages + 1) if fits(ledger.page(number)))


def private(ledger: Ledger) -> int:
    return page(ledger, lambda state: state.kind == PRIVATE)


def locked(ledger: Ledger) -> int:
    return page(ledger, lambda state: state.locks > 0)


def cached(ledger: Ledger) -> int:
    return page(ledger, lambda state: state.kind == CACHED and not state.locks)


def record(view: View, **changes: int) -> View:
    assert view.records is not None
    return replace(view, records={"a": view.records["a"]._replace(**changes)})


def without_cause(view: View) -> View:
    return replace(view, records={**(view.records or {}), "d": RecordView(2, 0, 1, 1)})


def column(view: View, move: int) -> View:
    assert view.table is not None
    first, *others = view.table["a"]
    return replace(view, table={"a": [first + move, *others]})


def rows(view: View, *more: int) -> View:
    assert view.free_rows is not None
    return replace(view, free_rows=[*view.free_rows, *more])


def pages(view: View, *more: int) -> View:
    assert view.free_pages is not None
    return replace(view, free_pages=[*view.free_pages, *more])


def shown(view: View, number: int, key: object = "of its own") -> View:
    return replace(view, cached={**(view.cached or {}), number: CachedView(key, 0)})


def one_key(view: View, ledger: Ledger, near: bool) -> View:
    """Two pages under one key: of one namespace, or of two."""
    assert view.cached is not None
    roots = {number: ledger.index[ledger.page(number).owner].root for number in view.cached}
    for one in view.cached:
        for other in view.cached:
            if one != other and (roots[one] == roots[other]) == near and not ledger.page(other).locks:
                return shown(view, other, view.cached[one].key)
    raise AssertionError


def totals(view: View) -> View:
    assert view.totals is not None
    return replace(view, totals=view.totals._replace(available=view.totals.available + 1))


def more_locks(view: View, number: int) -> View:
    assert view.cached is not None
    key, locks = view.cached[number]
    return replace(view, cached={**view.cached, number: CachedView(key, locks + 1)})


CASES: dict[str, Corrupt] = {
    "holds KV without cause": lambda view, _: without_cause(view),
    "holds no KV though it should": lambda view, _: replace(view, records={}),
    "is on another row": lambda view, ledger: record(view, row=WORLD.rows + 1 - (ledger.records["a"].row or 0)),
    "has lengths out of order": lambda view, _: record(view, committed_len=4),
    "has other lengths": lambda view, _: record(view, protected_len=0),
    "row 0 is on the free list": lambda view, _: rows(view, 0),
    "a row that does not exist is on the free list": lambda view, _: rows(view, WORLD.rows + 1),
    "the row is on the free list more than once": lambda view, _: rows(view, *(view.free_rows or ())),
    "a held row is on the free list": lambda view, ledger: rows(view, ledger.records["a"].row or 0),
    "a free row is not on the free list": lambda view, _: replace(view, free_rows=list(view.free_rows or ())[1:]),
    "a column lies at the wrong offset": lambda view, _: column(view, 1),
    "a column lists another page": lambda view, _: column(view, WORLD.page_size),
    "page 0 is on the free list": lambda view, _: pages(view, 0),
    "a page that does not exist is on the free list": lambda view, _: pages(view, WORLD.pages + 1),
    "the page is on the free list more than once": lambda view, _: pages(view, *(view.free_pages or ())[:1]),
    "a private page is on the free list": lambda view, ledger: pages(view, private(ledger)),
    "a cached page is on the free list": lambda view, ledger: pages(view, cached(ledger)),
    "a locked page is on the free list": lambda view, ledger: pages(view, locked(ledger)),
    "a free page is not on the free list": lambda view, _: replace(view, free_pages=list(view.free_pages or ())[1:]),
    "a private page is in the cache": lambda view, ledger: shown(view, private(ledger)),
    "a free page is in the cache": lambda view, ledger: shown(view, page(ledger, lambda state: not state.kind)),
    "a cached page is not in the cache": lambda view, _: replace(view, cached={}),
    "two namespaces have one key": lambda view, ledger: one_key(view, ledger, near=False),
    "two prefixes have one key": lambda view, ledger: one_key(view, ledger, near=True),
    "one prefix has two keys": lambda view, ledger: shown(view, max(view.cached or ())),
    "the page has other locks": lambda view, ledger: more_locks(view, cached(ledger)),
    "the totals differ": lambda view, _: totals(view),
}


def honest(kind: str) -> tuple[Monitor, View]:
    """The run in which this disagreement can be."""
    twins = kind == "one prefix has two keys"
    return performed(blocks.make, TWINS) if twins else performed(reference.make, RUN)


def test_there_is_a_case_for_every_kind_and_a_rule_behind_it() -> None:
    assert CASES.keys() == RULE_OF.keys()
    assert set(RULE_OF.values()) <= set(RULES)


@pytest.mark.parametrize("kind", CASES)
def test_each_disagreement_breaks_its_rule(kind: str) -> None:
    """Granted: the mapped rule. Refused: ATOM-1. A probe: GUARD-1. The facts say which, about what, and both sides."""
    monitor, view = honest(kind)
    assert list(differences(monitor.ledger, view)) == []
    monitor.compare(view, Flush(), Granted())
    wrong = CASES[kind](view, monitor.ledger)
    for answer, rule in ((Granted(), RULE_OF[kind]), (Refused("pages"), "ATOM-1"), (None, "GUARD-1")):
        with pytest.raises(Broken) as broken:
            monitor.compare(wrong, Flush(), answer)
        assert (broken.value.rule, broken.value.facts["kind"]) == (rule, kind)
        assert broken.value.facts["law"] != broken.value.facts["backend"] and broken.value.facts["by"] == "flush"


def test_what_went_wrong_first_is_named_first() -> None:
    """Records before rows before pages, then the table, the cache and the sums: the rest may follow from these."""
    monitor, right = performed(reference.make, RUN)
    broken = ["has other lengths", "a free row is not on the free list", "a free page is not on the free list",
              "a column lists another page", "the page has other locks", "the totals differ"]  # fmt: skip
    wrong = right
    for kind in reversed(broken):
        wrong = CASES[kind](wrong, monitor.ledger)
    assert [found.kind for found in differences(monitor.ledger, wrong)] == broken


@pytest.mark.parametrize(("rows", "kinds"), [(True, ["a free row is not on the free list"] * 3), (False, [])])
def test_who_has_no_rows_shows_none(rows: bool, kinds: list[str]) -> None:
    declared = Declaration("mine", capabilities=frozenset({"PAGED", *(["ROWS"] * rows)}))
    empty = Monitor(replace(WORLD, declared=declared)).ledger
    assert [found.kind for found in differences(empty, View(free_rows=[]))] == kinds


def test_what_is_not_shown_is_not_compared() -> None:
    monitor, _ = honest("the totals differ")
    assert list(differences(monitor.ledger, View())) == []


@pytest.mark.parametrize(
    ("corrupt", "kinds"),
    [
        # a table of a request that holds nothing
        (lambda view: replace(view, table={**view.table, "d": [2, 3]}), ["holds KV without cause"]),
        # each part of the totals
        (lambda view: replace(view, totals=view.totals._replace(evictable=9)), ["the totals differ"]),
        (lambda view: replace(view, totals=view.totals._replace(protected=9)), ["the totals differ"]),
        (lambda view: replace(view, totals=view.totals._replace(private=9)), ["the totals differ"]),
        # each length
        (lambda view: record(view, protected_len=-2), ["has lengths out of order", "has other lengths"]),
        (lambda view: record(view, committed_len=2), ["has other lengths"]),
        (lambda view: record(view, allocated_len=4), ["has other lengths"]),
        (lambda view: record(view, allocated_len=9), ["has lengths out of order", "has other lengths"]),
        # every row and page that is lost, once
        (lambda view: replace(view, free_rows=[]), ["a free row is not on the free list"] * 2),
        (lambda view: replace(view, free_pages=view.free_pages[2:]), ["a free page is not on the free list"] * 2),
        # a list that is too short, and one that says nothing of a request
        (lambda view: replace(view, table={"a": view.table["a"][:-1]}), ["a column lists another page"]),
        (lambda view: replace(view, table={}), ["a column lists another page"]),
        # what lies behind the allocated length is nobody's
        (lambda view: replace(view, table={"a": [*view.table["a"], 0, 1]}), []),
    ],
)
def test_how_many_disagreements_there_are(corrupt: Callable[[View], View], kinds: list[str]) -> None:
    monitor, view = performed(reference.make, RUN)
    assert [found.kind for found in differences(monitor.ledger, corrupt(view))] == kinds


def test_lengths_by_the_page_are_held_to_the_page() -> None:
    """Declared exact_lengths False: allocated 3 is shown as 4, and 3 or 6 would be wrong; committed stays exact."""
    backend = reference.make(WORLD)
    loose = Monitor(replace(WORLD, declared=replace(backend.declare(), exact_lengths=False)))
    for act in RUN:
        loose.step(act, backend.do(act))
    view = backend.view()
    assert view is not None
    right = record(view, allocated_len=4)
    assert list(differences(loose.ledger, right)) == []
    for wrong in (view, record(view, allocated_len=6), record(right, committed_len=4)):
        assert [found.kind for found in differences(loose.ledger, wrong)] == ["has other lengths"]


# ---- what a step owes to sessions, and to drafts


def with_record(view: View, holder: str, **changes: int) -> View:
    assert view.records is not None
    return replace(view, records={**view.records, holder: view.records[holder]._replace(**changes)})


def without_record(view: View, holder: str) -> View:
    return replace(view, records={who: shown for who, shown in (view.records or {}).items() if who != holder})


def one_more(view: View, holder: str) -> View:
    return replace(view, records={**(view.records or {}), holder: RecordView(3, 0, 1, 1)})


def row_of(ledger: Ledger, holder: str) -> int:
    return ledger.records[holder].row or 0


# Of a holder that reads one page in the cache and has another of its own
OF_A_HOLDER: dict[str, Callable[[View, Ledger, str], View]] = {
    "holds no KV though it should": lambda view, _, who: without_record(view, who),
    "is on another row": lambda view, ledger, who: with_record(view, who, row=6 - row_of(ledger, who)),
    "has other lengths": lambda view, ledger, who: with_record(
        view, who, committed_len=ledger.records[who].committed_len - 1
    ),
    "a held row is on the free list": lambda view, ledger, who: rows(view, row_of(ledger, who)),
    "a private page is on the free list": lambda view, ledger, who: pages(view, ledger.tables[who][-1]),
    "a locked page is on the free list": lambda view, ledger, who: pages(view, ledger.tables[who][0]),
    "the page has other locks": lambda view, ledger, who: more_locks(view, ledger.tables[who][0]),
}


@pytest.mark.parametrize("kind", OF_A_HOLDER)
@pytest.mark.parametrize(
    ("acts", "holder", "rule"),
    [
        (IDLE, "s", "SES-1"),
        ((*TURN, Retract("t")), "s", "SES-1"),
        ((*TURN, Close("s")), "t", "SES-3"),
        ((*WAITS_ON, Close("s")), "s", "SES-3"),
        ((*WAITS_ON, Abort("u")), "s", "SES-4"),
        ((*WAITS_ON, GOES_ON), "u", "SES-2"),
        ((*WAITS_ON, Admit("u")), "s", "SES-2"),
    ],
    ids=lambda value: type(value[-1]).__name__ if isinstance(value, tuple) else value,
)
def test_what_a_session_keeps_is_named_by_its_own_rule(
    acts: tuple[Action, ...], holder: str, rule: str, kind: str
) -> None:
    """In this step and no other; what has no session is named as ever, and so is a refusal."""
    monitor, view = performed(reference.make, acts)
    wrong = OF_A_HOLDER[kind](view, monitor.ledger, holder)
    assert [found.kind for found in differences(monitor.ledger, wrong)] == [kind]
    for answer, named in ((Granted(), rule), (Refused("pages"), "ATOM-1"), (None, "GUARD-1")):
        with pytest.raises(Broken) as broken:
            monitor.compare(wrong, acts[-1], answer)
        assert (broken.value.rule, broken.value.facts["kind"]) == (named, kind)
    monitor.step(Submit("y", (1,), "n"), Reply())
    with pytest.raises(Broken) as broken:
        monitor.compare(wrong, Submit("y", (1,), "n"), Granted())
    assert broken.value.rule == RULE_OF[kind]


@pytest.mark.parametrize(
    ("acts", "holders", "rule"),
    [
        (IDLE, "t", "SES-1"),
        ((*TURN, Abort("t")), "ts", "SES-4"),
        ((*TURN, Close("s"), Finish("t", 3, False)), "ts", "SES-3"),
        ((*TURN, Close("s"), Abort("t")), "ts", "SES-4"),
        ((*WAITS_ON, Close("s"), Abort("u")), "su", "SES-3"),
        ((*IDLE, Close("s")), "s", "SES-3"),
    ],
    ids=lambda value: type(value[-1]).__name__ if isinstance(value, tuple) else value,
)
def test_and_so_is_what_it_should_have_left(acts: tuple[Action, ...], holders: str, rule: str) -> None:
    """A record that is still there: the turn's, or the session's."""
    monitor, view = performed(reference.make, acts)
    for holder in holders:
        with pytest.raises(Broken) as broken:
            monitor.compare(one_more(view, holder), acts[-1], Granted())
        assert (broken.value.rule, broken.value.facts["subject"]) == (rule, holder)


@pytest.mark.parametrize("act", [Finish("t", 3, False), Retract("t"), Abort("t"), Close("s")])
def test_what_another_holds_is_not_the_sessions_affair(act: Action) -> None:
    monitor, view = performed(reference.make, (*TURN, act))
    for wrong, rule in (
        (with_record(view, "x", committed_len=2), "REC-2"),
        (without_record(view, "x"), "REC-1"),
        (replace(view, free_pages=list(view.free_pages or ())[1:]), "PAGE-2"),
        (replace(view, free_rows=list(view.free_rows or ())[1:]), "ROW-1"),
    ):
        with pytest.raises(Broken) as broken:
            monitor.compare(wrong, act, Granted())
        assert broken.value.rule == rule


def test_only_who_goes_on_with_a_session_owes_it_anything() -> None:
    """Of two that are extended in one call."""
    monitor, view = performed(reference.make, (*WAITS_ON, Submit("y", (8, 9), "n"), Extend((("u", 5, 6), ("y", 2, 3)))))
    for holder, rule in (("u", "SES-2"), ("y", "REC-2"), ("x", "REC-2")):
        with pytest.raises(Broken) as broken:
            monitor.compare(with_record(view, holder, committed_len=1, protected_len=0), Flush(), Granted())
        assert broken.value.rule == rule


@pytest.mark.parametrize(
    ("corrupt", "rule"),
    [
        (lambda view: with_record(view, "a", committed_len=4), "DRAFT-1"),  # the drafts are no KV
        (lambda view: with_record(view, "a", allocated_len=3), "DRAFT-1"),
        (lambda view: with_record(view, "a", committed_len=7), "DRAFT-1"),
        (lambda view: with_record(view, "x", committed_len=2), "REC-2"),
        (lambda view: without_record(view, "a"), "REC-1"),
        (lambda view: replace(view, table={**(view.table or {}), "a": []}), "TAB-2"),
    ],
)
def test_a_reserve_moves_one_length_and_no_other(corrupt: Callable[[View], View], rule: str) -> None:
    acts = (*TURN[:2], Submit("a", (1, 2, 3), "n"), Extend((("a", 3, 4),)), Reserve("a", 2))
    monitor, view = performed(reference.make, acts)
    assert monitor.ledger.records["a"][1:] == (0, 3, 6)
    with pytest.raises(Broken) as broken:
        monitor.compare(corrupt(view), acts[-1], Granted())
    assert broken.value.rule == rule


# ---- a record that is lent


def renamed(view: View, **names: str) -> View:
    """Shown under another name."""
    records, table = view.records or {}, view.table or {}
    return replace(view, records={names.get(who, who): shown for who, shown in records.items()},
                   table={names.get(who, who): shown for who, shown in table.items()})  # fmt: skip


@pytest.mark.parametrize(
    ("acts", "law", "other"),
    [
        (TURN, "t", "s"),  # it runs
        (WAITS_ON, "s", "u"),  # it waits
        ((*WAITS_ON, Admit("u")), "s", "u"),
        ((*WAITS_ON, GOES_ON), "u", "s"),
        ((*WAITS_ON, GOES_ON, Retract("u")), "s", "u"),
        ((*TURN, Close("s")), "t", "s"),
    ],
    ids=lambda value: type(value[-1]).__name__ if isinstance(value, tuple) else value,
)
def test_a_lent_record_is_shown_under_the_turn_or_the_session(
    acts: tuple[Action, ...], law: str, other: str
) -> None:
    """Once, and by nobody else; what is wrong of it is said of whom the law has it under."""
    monitor, view = performed(reference.make, acts)
    ledger = monitor.ledger
    assert law in ledger.records and other not in ledger.records
    mine = renamed(view, **{other: law})
    for right in (mine, renamed(mine, **{law: other})):
        assert list(differences(ledger, right)) == []
        wrong = right
        for holder in {law, other} & (right.records or {}).keys():
            wrong = with_record(right, holder, committed_len=1, protected_len=0)
        assert [(found.kind, found.subject) for found in differences(ledger, wrong)] == [("has other lengths", law)]
    twice = replace(mine, records={**(mine.records or {}), other: (mine.records or {})[law]})
    assert [(found.kind, found.subject) for found in differences(ledger, twice)] == [("holds KV without cause", other)]
    stranger = renamed(mine, **{law: "z"})
    kinds = [found.kind for found in differences(ledger, stranger)]
    assert kinds[:2] == ["holds no KV though it should", "holds KV without cause"]


def test_what_an_idle_session_has_is_nobody_elses() -> None:
    """Its last turn is over: the record may not be shown under that any more."""
    monitor, view = performed(reference.make, (*IDLE, Submit("t", (9,), "n")))
    wrong = renamed(view, s="t")
    assert {found.subject for found in differences(monitor.ledger, wrong)} == {"s", "t"}


def test_the_turns_of_two_sessions_do_not_change_places() -> None:
    """A view with the two records the wrong way round."""
    acts = (
        Submit("a", (1, 2), "n", session="s"), Submit("b", (3, 4), "n", session="z"),
        Extend((("a", 2, 0), ("b", 2, 0))), Decode((("b", 1),)),
    )  # fmt: skip
    monitor, view = performed(reference.make, acts)
    assert list(differences(monitor.ledger, renamed(view, a="s", b="z"))) == []
    found = list(differences(monitor.ledger, renamed(view, a="z", b="s")))
    assert {each.kind for each in found[:2]} == {"is on another row", "has other lengths"}


@pytest.mark.parametrize(("held_by", "rule"), [("t", "SES-1"), ("s", "SES-1"), ("somebody else", None)])
def test_what_is_owed_to_a_session_is_owed_to_nobody_else(held_by: str, rule: str | None) -> None:
    """Another request's page on the free list breaks the rule of pages, whatever the step was about."""
    owed = Owed("SES-1", OF_SESSIONS, frozenset({"t", "s"}))
    found = Difference("a private page is on the free list", "page 3", f"held by {held_by}", "free", held_by)
    assert owed.named(found) == rule
