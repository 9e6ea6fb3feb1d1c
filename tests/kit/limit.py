"""How long somebody else's code may take: a call that takes more seconds than that ends with Overtime."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LIMIT_S = 10.0  # seconds, unless somebody says otherwise


class Overtime(BaseException):
    """The time is up. Not an Exception, so that a backend which catches those does not catch it."""


class TimeLimit:
    """Raises Overtime in a call after so many seconds, where signals reach (the main thread).

        with limit:
            limit.call(engine.do, action)       # so many seconds
            ...                                 # what is done between two calls may take its time
            limit.call(engine.view)             # so many seconds again

    The clock is wound up once a block: a call only notes when it began.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.watched = seconds > 0 and threading.current_thread() is threading.main_thread()
        self.began: float | None = None  # the call that runs now

    def __enter__(self) -> TimeLimit:
        if self.watched:
            self.before = signal.signal(signal.SIGALRM, self._expired)
            self._wind(self.seconds)
        return self

    def __exit__(self, *_: object) -> None:
        self.began = None
        if self.watched:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)

    def call(self, theirs: Callable[..., T], *args: object) -> T:
        """What it returns or raises. Raises Overtime."""
        try:
            self.began = time.monotonic()
            return theirs(*args)
        finally:
            self.began = None

    def _wind(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds, self.seconds)  # and again, should an Overtime be lost somewhere

    def _expired(self, *_: object) -> None:
        """The block may be older than the call: then the rest of its time is still to come."""
        if self.began is None:
            return
        left = self.began + self.seconds - time.monotonic()
        if left <= 0:
            raise Overtime
        self._wind(left)
