"""Which rule, broken by which action, makes SGLang's sums too large or too small: worked out, and held against the
table that `kvledger explain LINE` goes by.

Four sources, each with SGLang's own sums over the books (tests/zoo/sglang_checks.py): planted faults, driven until
nothing runs; the stored broken vectors; and, at every step of the stored valid ones, all books that are one change away
from right, and all that a backend may give back that is one page or row away from what it should. The law names each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import cast

import pytest

from kvledger.spec.action import name_of
from kvledger.spec.actions import Abort, Action, Close, Finish, Submit
from kvledger.spec.answer import Freed, Granted, Refused
from kvledger.spec.backend import Totals, View
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import RULES, Broken
from kvledger.spec.saying import said
from kvledger.spec.trace import judge, read
from kvledger.spec.world import World
from kvledger.tests.kit.load import build
from kvledger.tests.law.near import near_freed
from kvledger.tests.law.spoilt import spoilt
from kvledger.tests.report.leak_causes import CAUSES, SESSIONS, causes
from kvledger.tests.report.leak_line import ROWS, SLOTS
from kvledger.tests.unit.test_zoo_faults import CASES, drive, load
from kvledger.tests.vectors.make import BROKEN, HERE, VALID
from kvledger.tests.zoo.sglang_checks import Off, sums_off

Sign = tuple[str, int]  # slots or rows; +1 or -1
Shown = tuple[str, str]  # a rule, and the action that broke it
BROKEN_PATHS, VALID_PATHS = (sorted((HERE / folder).glob("*.itf.json")) for folder in (BROKEN, VALID))


def signs(off: Off) -> set[Sign]:
    """The signs of the sums that miss their totals."""
    return {(name, 1 if value > 0 else -1) for name, value in off._asdict().items() if value}


def listed(view: View, world: World) -> Off:
    """Counted page by page, as SGLang's pool and its tree do, for books that are wrong in one place alone."""
    pages = len(view.free_pages or ()), len(view.cached or {})
    rows = range(world.rows - len(view.records or {})) if view.free_rows is None else view.free_rows
    return sums_off(replace(view, totals=Totals(*pages, 0, 0), free_rows=rows), world)


def off_by(view: View, world: World) -> set[Sign]:
    """Counted page by page; and by the backend's own totals, those of private pages included."""
    assert view.totals is not None
    return signs(listed(view, world)) | signs(Off((sum(view.totals) - world.pages) * world.page_size, 0))


def given_back(facts: Mapping[str, object]) -> set[Sign]:
    """Of an engine that gives back what it says it does: more than the law, or less."""
    freed, law = (cast(Freed, facts[name]) for name in ("freed", "law"))
    return signs(Off(len(freed.pages) - len(law.pages), len(freed.rows) - len(law.rows)))


def of_faults() -> Iterator[tuple[Sign, Shown]]:
    """Each planted fault: its rule and the action that struck, with the sums when everything has ended."""
    for fault, pages, actions in CASES:
        rule, step, _ = drive(load(fault).make, pages, actions, view=True)
        for sign in at_idle(fault, pages, actions):
            yield sign, (str(rule), name_of(actions[step - 1]))


def at_idle(fault: str, pages: int, actions: Sequence[Action]) -> set[Sign]:
    """The sums after these actions, and as every request and session ends, as far as the engine does not stumble."""
    backend, world = build(load(fault).make, World(rows=2, context_len=6, pages=pages, page_size=2))
    sessions = {act.session for act in actions if isinstance(act, Submit) and act.session is not None}
    last = {act.req: act for act in actions if isinstance(act, Submit | Finish | Abort)}
    ends: list[Action] = [*(Abort(req) for req, act in last.items() if isinstance(act, Submit)), *map(Close, sessions)]
    found: set[Sign] = set()
    for number, act in enumerate([*actions, *ends], 1):
        try:
            backend.do(act)
        except AssertionError:  # the pool's own: a page that is free already
            break
        if number >= len(actions):
            found |= off_by(cast(View, backend.view()), world)
    return found


def of_vectors() -> Iterator[tuple[Sign, Shown]]:
    """Each broken vector with wrong books, or with an answer that gives back wrong."""
    for path in BROKEN_PATHS:
        trace = read(path)
        _, rule, facts = judge(trace) or (0, "", {})
        last = trace.steps[-1]
        found = off_by(last.view, trace.world) if last.view else given_back(facts) if "freed" in facts else set()
        yield from ((sign, (rule, name_of(last.act))) for sign in found)


def of_neighbours() -> Iterator[tuple[Sign, Shown]]:
    """Every wrong book, and every wrong answer of what went back, one change away from a valid vector's."""
    for monitor, before, act, answer in steps():
        for view in spoilt(monitor.ledger):
            if broken := breaks(partial(monitor.compare, view, act, answer)):
                yield from ((sign, (broken.rule, name_of(act))) for sign in off_by(view, monitor.world))
        reply = said(before, act, answer)
        if isinstance(reply, Refused) or reply.freed is None:
            continue
        earlier = Monitor(monitor.world, count_armed=False)
        earlier.ledger = before
        for freed in near_freed(reply.freed, monitor.world):
            broken = breaks(partial(earlier.judge, act, replace(reply, freed=freed)))
            if broken and "freed" in broken.facts:
                yield from ((sign, (broken.rule, name_of(act))) for sign in given_back(broken.facts))


def steps() -> Iterator[tuple[Monitor, Ledger, Action, Granted | Refused]]:
    """Each step of the valid vectors: a monitor after it, the ledger before it, the action and its answer."""
    for path in VALID_PATHS:
        trace = read(path)
        monitor = Monitor(trace.world, count_armed=False)
        for act, reply, *_ in trace.steps:
            before = Edit(monitor.ledger).commit()
            yield monitor, before, act, monitor.step(act, reply)


def breaks(judged: Callable[[], object]) -> Broken | None:
    """What this breaks."""
    try:
        judged()
    except Broken as broken:
        return broken
    return None


@cache
def evidence(source: Callable[[], Iterator[tuple[Sign, Shown]]]) -> Mapping[Sign, frozenset[Shown]]:
    """All that one source shows, by sign."""
    found = defaultdict[Sign, set[Shown]](set)
    for sign, shown in source():
        found[sign].add(shown)
    return {sign: frozenset(shown) for sign, shown in found.items()}


SOURCES = (of_faults, of_vectors, of_neighbours)


@pytest.mark.parametrize("sign", CAUSES)
def test_the_table_lists_every_rule_that_does_it_and_no_other(sign: Sign) -> None:
    shown = frozenset[Shown]().union(*(evidence(source).get(sign, frozenset()) for source in SOURCES))
    assert {cause.rule for cause in CAUSES[sign]} == {rule for rule, _ in shown}
    assert len({cause.rule for cause in CAUSES[sign]}) == len(CAUSES[sign])
    assert {(cause.rule, act) for cause in CAUSES[sign] for act in cause.suspects.split()} <= shown


def test_every_planted_fault_that_a_sum_shows_is_a_suspect() -> None:
    """By its rule, and by the action in which it strikes. These are all: the other faults change no sum, or stop the
    reference before one could be taken."""
    shown = {sign: set(found) for sign, found in evidence(of_faults).items()}
    assert shown == {
        (SLOTS, +1): {
            ("PAGE-6", "finish"), ("PAGE-6", "retract"), ("PAGE-6", "abort"),  # freed_twice, tail_start_floored
            ("SES-1", "finish"), ("SES-3", "close"), ("CONS-1", "extend"),  # the last: borrowed_slot_counted_twice
        },
        (SLOTS, -1): {("PAGE-6", "retract"), ("CACHE-5", "checkpoint")},  # tail_kept_on_retract, duplicate_kept
        (ROWS, +1): {("SES-1", "finish"), ("SES-3", "close"), ("REC-1", "extend")},  # the last: stale_reuse
        (ROWS, -1): {("ATOM-1", "extend")},  # refused_keeps_row
    }  # fmt: skip
    for sign, found in shown.items():
        assert found <= {(cause.rule, act) for cause in CAUSES[sign] for act in cause.suspects.split()}


def test_what_is_no_whole_page_is_a_length() -> None:
    """A pool and a tree count pages: a rest is in a record whose protected_len is inside a page."""
    rests = 0
    for monitor, *_ in steps():
        for view in spoilt(monitor.ledger):
            size = monitor.world.page_size
            if listed(view, monitor.world).slots % size:
                rests += 1
                assert any(record.protected_len % size for record in (view.records or {}).values())
    assert rests > 100


def test_a_lock_that_is_left_behind_changes_no_sum() -> None:
    """It is told from what is protected while nothing runs."""
    assert not any(rule == "LOCK-1" for source in SOURCES for shown in evidence(source).values() for rule, _ in shown)


def test_what_the_parts_speak_for_comes_first() -> None:
    """Then what is likely; what sessions do last, where none holds KV."""
    first, *others = causes(SLOTS, 256, {"CONS-1"})
    assert first.rule == "CONS-1" and [cause.rule for cause in others[:3]] == ["PAGE-6", "PAGE-1", "SES-3"]
    last = causes(SLOTS, -1, sessions=False)[-4:]
    assert {cause.rule for cause in last} == SESSIONS
    assert {cause.rule for found in CAUSES.values() for cause in found} <= RULES.keys()
