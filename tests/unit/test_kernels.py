"""The two kernels, value by value: what `lawful` rejects, and that each transition refuses a wrong start.

CrossHair settles what they do on the inputs that they allow; here stands what they do not allow.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvledger.spec import page, record
from kvledger.spec.page import CACHED, FREE_PAGE, PRIVATE, Page, SpecError
from kvledger.spec.record import NO_RECORD, Record

OWN = Page(PRIVATE, owner=1, ordinal=0, locks=0)
SHARED = Page(CACHED, owner=9, ordinal=0, locks=0)
READ = Page(CACHED, owner=9, ordinal=0, locks=1)
SIZE = 4
RUNS = Record(row=1, protected_len=4, committed_len=6, allocated_len=6)
AHEAD = RUNS._replace(allocated_len=8)  # over-allocated
FRESH = Record(row=1, protected_len=0, committed_len=2, allocated_len=2)  # nothing published


# ---- what is lawful


@pytest.mark.parametrize("value", [FREE_PAGE, OWN, OWN._replace(owner=3, ordinal=7), SHARED, READ])
def test_a_lawful_page(value: Page) -> None:
    assert page.lawful(value)


@pytest.mark.parametrize(
    "value",
    [
        # free: without owner, place and lock
        FREE_PAGE._replace(owner=1), FREE_PAGE._replace(ordinal=1), FREE_PAGE._replace(locks=1),
        # private: of a row, from 1; at a place, from 0; read by nobody else
        OWN._replace(owner=0), OWN._replace(ordinal=-1), OWN._replace(locks=1),
        # cached: at no place; with a number of readers
        SHARED._replace(ordinal=1), SHARED._replace(locks=-1),
        # no kind
        SHARED._replace(kind=3), SHARED._replace(kind=-1),
    ],
)  # fmt: skip
def test_an_unlawful_page(value: Page) -> None:
    assert not page.lawful(value)


@pytest.mark.parametrize(
    "value",
    [
        NO_RECORD, Record(None, 7, 9, 0), Record(None, 9, 7, 0),  # released: the other lengths are stale
        RUNS, AHEAD, Record(1, 0, 0, 1), Record(1, 0, 1, 1), Record(2, 4, 4, 4), RUNS._replace(row=3),
    ],
)  # fmt: skip
def test_a_lawful_record(value: Record) -> None:
    assert record.lawful(value, SIZE)


@pytest.mark.parametrize(
    "value",
    [
        Record(None, 0, 0, 1),  # allocated without a row
        RUNS._replace(row=0),  # the padding row
        Record(1, -4, 2, 2),  # negative
        Record(1, 8, 6, 9),  # protected beyond committed
        Record(1, 4, 7, 6),  # committed beyond allocated
        Record(1, 0, 0, 0),  # a row without KV
        Record(1, 3, 6, 6),  # protected up to the middle of a page
    ],
)
def test_an_unlawful_record(value: Record) -> None:
    assert not record.lawful(value, SIZE)


# ---- what a transition refuses


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: page.grant(OWN, 2, 0), "grant of a page that is not free"),
        (lambda: page.grant(SHARED, 2, 0), "grant of a page that is not free"),
        (lambda: page.publish(FREE_PAGE, 9), "publish of a page that is not private"),
        (lambda: page.publish(SHARED, 9), "publish of a page that is not private"),
        (lambda: page.lock(FREE_PAGE), "lock of a page that is not cached"),
        (lambda: page.lock(OWN), "lock of a page that is not cached"),
        (lambda: page.unlock(SHARED), "unlock of a page that is not locked"),
        (lambda: page.unlock(SHARED._replace(locks=-1)), "unlock of a page that is not locked"),
        (lambda: page.unlock(OWN._replace(locks=1)), "unlock of a page that is not locked"),
        (lambda: page.give_back(OWN, 2), "give_back of a page by a row that does not own it"),
        (lambda: page.give_back(SHARED, 9), "give_back of a page by a row that does not own it"),
        (lambda: page.give_back(FREE_PAGE, 0), "give_back of a page by a row that does not own it"),
        (lambda: page.evict(READ), "evict of a page that is locked or not cached"),
        (lambda: page.evict(OWN), "evict of a page that is locked or not cached"),
        (lambda: page.evict(FREE_PAGE), "evict of a page that is locked or not cached"),
        (lambda: record.start(1, 4, 4, SIZE), "start of a record that would hold a row without KV"),
        (lambda: record.start(1, 8, 4, SIZE), "start of a record that would hold a row without KV"),
        (lambda: record.grow(NO_RECORD, 1, SIZE), "growth of a record that holds nothing, is over-allocated, or would"),
        (lambda: record.grow(AHEAD, 9, SIZE), "growth of a record that holds nothing, is over-allocated, or would"),
        (lambda: record.grow(RUNS, 6, SIZE), "growth of a record that holds nothing, is over-allocated, or would"),
        (lambda: record.grow(RUNS, 5, SIZE), "growth of a record that holds nothing, is over-allocated, or would"),
        (lambda: record.reserve(NO_RECORD, 1, SIZE), "reservation for a record that holds nothing, or of less than it"),
        (lambda: record.reserve(RUNS, 5, SIZE), "reservation for a record that holds nothing, or of less than it has"),
        (lambda: record.reserve(AHEAD, 7, SIZE), "reservation for a record that holds nothing, or of less than it has"),
        (lambda: record.commit(NO_RECORD, 1, SIZE), "commitment of nothing, or of positions without slots"),
        (lambda: record.commit(AHEAD, 6, SIZE), "commitment of nothing, or of positions without slots"),
        (lambda: record.commit(AHEAD, 9, SIZE), "commitment of nothing, or of positions without slots"),
        (lambda: record.commit(RUNS, 7, SIZE), "commitment of nothing, or of positions without slots"),
        (lambda: record.cut(NO_RECORD, 1, SIZE), "a cut of a record that holds nothing, below what is published, or"),
        (lambda: record.cut(RUNS, 3, SIZE), "a cut of a record that holds nothing, below what is published, or above"),
        (lambda: record.cut(FRESH, 0, SIZE), "a cut of a record that holds nothing, below what is published, or above"),
        (lambda: record.cut(RUNS, 7, SIZE), "a cut of a record that holds nothing, below what is published, or above"),
        (lambda: record.cut(AHEAD, 7, SIZE), "a cut of a record that holds nothing, below what is published, or above"),
        (lambda: record.protect(RUNS, 0, SIZE), "protection of positions that are not committed, or of a part of a"),
        (lambda: record.protect(AHEAD, 8, SIZE), "protection of positions that are not committed, or of a part of a"),
        (lambda: record.protect(RUNS, 6, SIZE), "protection of positions that are not committed, or of a part of a"),
        (lambda: record.protect(Record(None, 4, 8, 0), 8, SIZE), "protection of positions that are not committed, or"),
        (lambda: record.release(NO_RECORD, SIZE), "release of a record that holds nothing"),
    ],
)
def test_a_guard_accuses_the_law(call: Callable[[], object], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        call()


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda: page.grant(FREE_PAGE, 2, 3), Page(PRIVATE, 2, 3, 0)),
        (lambda: page.publish(OWN, 9), SHARED),
        (lambda: page.lock(READ), READ._replace(locks=2)),
        (lambda: page.unlock(READ), SHARED),
        (lambda: page.give_back(OWN, 1), FREE_PAGE),
        (lambda: page.evict(SHARED), FREE_PAGE),
        (lambda: record.start(1, 4, 5, SIZE), Record(1, 4, 5, 5)),
        (lambda: record.grow(RUNS, 7, SIZE), Record(1, 4, 7, 7)),
        (lambda: record.reserve(RUNS, 8, SIZE), AHEAD),
        (lambda: record.reserve(RUNS, 6, SIZE), RUNS),
        (lambda: record.reserve(AHEAD, 8, SIZE), AHEAD),
        (lambda: record.commit(AHEAD, 7, SIZE), Record(1, 4, 7, 8)),
        (lambda: record.commit(AHEAD, 8, SIZE), Record(1, 4, 8, 8)),
        (lambda: record.cut(RUNS, 4, SIZE), Record(1, 4, 4, 4)),
        (lambda: record.cut(AHEAD, 6, SIZE), RUNS),
        (lambda: record.cut(FRESH, 1, SIZE), Record(1, 0, 1, 1)),
        (lambda: record.protect(RUNS, 4, SIZE), RUNS),
        (lambda: record.protect(Record(1, 0, 8, 8), 8, SIZE), Record(1, 8, 8, 8)),
        (lambda: record.release(RUNS, SIZE), Record(None, 4, 6, 0)),
    ],
)
def test_and_lets_the_nearest_right_call_pass(call: Callable[[], object], value: object) -> None:
    assert call() == value
