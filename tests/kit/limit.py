"""How long somebody else's code may take: a block that ends with Overtime after so many seconds."""

from __future__ import annotations

import signal
import threading
from types import FrameType

LIMIT_S = 10.0  # seconds, unless somebody says otherwise


class Overtime(BaseException):
    """The time is up. Not an Exception, so that a backend which catches those does not catch it."""


class TimeLimit:
    """Raise Overtime in the block after so many seconds, where signals reach (the main thread).

    A class, and no generator: a late alarm must not go off between the end of the block and its being turned off.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.watched = seconds > 0 and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        if self.watched:
            self.before = signal.signal(signal.SIGALRM, self._expired)
            signal.setitimer(signal.ITIMER_REAL, self.seconds, self.seconds)  # again, should one be lost somewhere

    def __exit__(self, *_: object) -> None:
        if self.watched:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)

    @staticmethod
    def _expired(_number: int, frame: FrameType | None) -> None:
        if frame is None or frame.f_code not in _NOT_THEIRS:
            raise Overtime


_NOT_THEIRS = {method.__code__ for method in (TimeLimit.__enter__, TimeLimit.__exit__, TimeLimit._expired)}
