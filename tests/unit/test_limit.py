"""The time limit: so many seconds for each call of the backend, none for what is ours, and nothing left behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from kvledger.reference.backend import Backend as Reference
from kvledger.spec.actions import Action, Extend, Submit
from kvledger.spec.monitor import Monitor
from kvledger.spec.trace import HANGS, LEAST_S
from kvledger.spec.world import World
from kvledger.tests.kit.limit import Overtime, TimeLimit
from kvledger.tests.kit.lockstep import Finding, Grade, Lockstep

WORLD = World(rows=3, context_len=7, pages=8, page_size=2)
METHODS = ("do", "view", "write", "read", "scramble")
START: tuple[Action, ...] = (Submit("a", (1, 2, 3), 0), Extend((("a", 3, 9),)))  # the extend makes a call of each


def slowly(theirs: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """The same, after so many seconds."""

    def taking(*args: object, **named: object) -> Any:
        time.sleep(seconds)
        return theirs(*args, **named)

    return taking


@pytest.fixture(autouse=True)
def handler() -> Iterator[Callable[..., None]]:
    """Somebody else's, for an alarm that never comes: none is set when a test ends."""

    def theirs(*_: object) -> None:
        raise AssertionError("an alarm that nobody set")

    before = signal.signal(signal.SIGALRM, theirs)
    yield theirs
    left = signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert left == (0.0, 0.0)


def test_each_call_has_the_limit_for_itself() -> None:
    """An extend makes five calls; together they may take longer than one of them."""
    slow = type("Slow", (Reference,), {name: slowly(getattr(Reference, name), 0.12) for name in METHODS})
    lockstep = Lockstep(slow, WORLD, grade=Grade(limit_s=0.4))
    for act in START:
        lockstep.do(act)


@pytest.mark.parametrize("method", METHODS)
def test_each_call_has_a_limit(method: str) -> None:
    slow = type("Slow", (Reference,), {method: slowly(getattr(Reference, method), 5)})
    lockstep = Lockstep(slow, WORLD, grade=Grade(limit_s=0.05))
    with pytest.raises(Finding) as found:
        for act in START:
            lockstep.do(act)
    assert found.value.rule == HANGS


def test_the_time_of_the_law_is_not_the_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judging an answer, comparing a view and what was read take as long as they take."""
    for name in ("step", "compare", "read"):
        monkeypatch.setattr(Monitor, name, slowly(getattr(Monitor, name), 0.15))
    lockstep = Lockstep(Reference, WORLD, grade=Grade(limit_s=0.1))
    for act in START:
        lockstep.do(act)


def test_a_time_limit_leaves_nothing_behind(handler: Callable[..., None]) -> None:
    """As tight as a limit may be: the alarm goes off inside the call or not at all, is off afterwards, and whoever
    listened before listens again. Until some calls were in time and some were not, and often."""
    late, times = 0, 0
    while times < 2_000 or not 0 < late < times:
        assert times < 100_000, f"{late} of {times} were late: this says nothing here"
        try:
            with TimeLimit(LEAST_S) as limit:
                limit.call(sum, range(times % 200 * 1_000))  # some microseconds to some milliseconds
        except Overtime:
            late += 1
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0) and signal.getsignal(signal.SIGALRM) is handler
        times += 1


def test_where_no_signal_reaches_there_is_no_limit(handler: Callable[..., None]) -> None:
    """In another thread a call takes as long as it takes."""
    said: list[str] = []

    def call() -> None:
        with TimeLimit(0.01) as limit:
            said.append(limit.call(slowly(lambda: "done", 0.05)))

    thread = Thread(target=call)
    thread.start()
    thread.join()
    assert said == ["done"] and signal.getsignal(signal.SIGALRM) is handler
