"""One backend and one monitor, in step: perform, judge, write content, compare the books. The first finding ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import NamedTuple, TypeVar, cast

from kvledger.spec.action import file_of, members_of
from kvledger.spec.actions import Abort, Action, Evict, Extend, Finish, Flush, Retract, Submit
from kvledger.spec.actions.taking import Member
from kvledger.spec.answer import Granted, Refused, Reply
from kvledger.spec.backend import KeepsContent, Make, Scrambles
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.page import pages_for
from kvledger.spec.reply import tidy, tidy_view
from kvledger.spec.rules import VIEW_PARTS, Broken
from kvledger.spec.trace import Step
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.load import brief, build, place_of
from kvledger.tests.kit.strike import struck

T = TypeVar("T")
RAISES, HANGS = "RAISES", "HANGS"  # a backend that does is a finding, though no rule names it
# The drain probe asks for what must be free by then, so a refusal there says that something was lost.
LOST = {"PAGE-5": "PAGE-2", "ROW-4": "ROW-1"}


class Finding(Exception):
    """A rule, broken at a step (1-based). first_strike: where a faulty backend of ours says it deviated."""

    def __init__(self, rule: str, step: int, facts: Mapping[str, object], first_strike: int | None = None) -> None:
        super().__init__(rule)
        self.rule, self.step, self.facts, self.first_strike = rule, step, facts, first_strike


class Grade(NamedTuple):
    """What is looked at beside the answers. limit_s: seconds that one call may take before it counts as hung."""

    view: bool = True
    content: bool = True
    scramble: bool = True
    limit_s: float = 10.0


class _Overtime(BaseException):
    """The time is up. Not an Exception, so that a backend which catches those does not catch it."""


class Lockstep:
    """steps: what was done and answered so far, with the view that was compared last."""

    def __init__(
        self, make: Make, world: World, *, view: bool = True, content: bool = True, grade: Grade | None = None,
        name: str = "the backend", record: bool = True, count_armed: bool = True,
    ) -> None:  # fmt: skip
        self.grade = grade or Grade(view=view, content=content)
        try:
            with _TimeLimit(self.grade.limit_s):
                self.backend, self.world = build(make, world, name)
        except _Overtime:
            raise WrongInput(f"{name}: make or declare did not return within {self.grade.limit_s} s") from None
        self.monitor = Monitor(self.world, count_armed=count_armed)
        self.steps: list[Step] = []
        self.evidence = {"ANSWER", "DRAIN"} | ({"PROBE"} if self.world.has("GUARDED") else set())
        self.draining_since: int | None = None
        self._record = record
        self._number = 0
        self._first_strike: int | None = None
        struck()

    @property
    def ledger(self) -> Ledger:
        """What is true so far."""
        return self.monitor.ledger

    def do(self, act: Action) -> Granted | Refused:
        """Perform an action that the law allows now. Raises Finding."""
        return self._judged(self._perform, act)

    def probe(self, act: Action) -> None:
        """Perform an action that the law forbids now; a guarded backend refuses it. Raises Finding."""
        self._judged(self._try_forbidden, act)

    def drain(self) -> None:
        """End everything, empty the cache, then take every row and every page once. Raises Finding."""
        self.draining_since = self._number
        try:
            self._drain()
        except Finding as finding:
            finding.rule = LOST.get(finding.rule, finding.rule)
            raise
        self.monitor.finish()

    def _drain(self) -> None:
        for req in list(self.ledger.requests):
            self.do(Abort(req))
        evict_all, flush = Evict(self.world.pages), Flush()
        if file_of(evict_all).requires(self.ledger, evict_all) is None:
            self.do(evict_all)
        elif file_of(flush).requires(self.ledger, flush) is None and self.ledger.index:
            self.do(flush)
        namespaces = self.world.has("NAMESPACES")
        room = self.world.pages - self.world.declared.headroom
        widest = pages_for(self.world.context_len, self.world.page_size)
        requests = min(self.world.rows, room) if self.world.has("ROWS") else -(-room // widest)
        for number in range(requests):
            pages = min(widest, room - (requests - number - 1))  # the others get one at least
            room -= pages
            upto = min(pages * self.world.page_size, self.world.context_len)
            req = f"drain{number}"
            tokens = (req, *range(1, upto))  # a first token and, where there are several, a namespace of its own
            self.do(Submit(req, tokens, req if namespaces else 0))
            self.do(Extend(((req, upto, 0),)))
        for req in list(self.ledger.requests):
            self.do(Abort(req))

    def _judged(self, step: Callable[[Action], T], act: Action) -> T:
        """Whatever breaks in one step is a finding of that step."""
        try:
            with _TimeLimit(self.grade.limit_s):
                return step(act)
        except Broken as broken:
            raise self._finding(broken.rule, broken.facts) from None
        except WrongInput as wrong:
            raise WrongInput(f"{wrong} (step {self._number})") from None
        except _Overtime:
            raise self._finding(HANGS, {"limit_s": self.grade.limit_s}) from None

    def _perform(self, act: Action) -> Granted | Refused:
        members = members_of(self.ledger, act)
        reply = self._call(act, probe=False)
        leaves = isinstance(act, Finish | Retract | Abort) and self.ledger.holds_row(act.req)
        answer = self.monitor.step(act, reply)
        if isinstance(answer, Granted):
            self.evidence |= {"FREED"} if leaves and answer.freed is not None else set()
            if self.grade.content and self.world.has("CONTENT"):
                self._write(members, cast(Reply, reply))
        self._look(act, answer)
        return answer

    def _try_forbidden(self, act: Action) -> None:
        self.monitor.probe(act, self._call(act, probe=True))
        self._look(act, None)

    def _call(self, act: Action, *, probe: bool) -> Reply | Refused:
        self._number += 1
        if self._record:
            self.steps.append(Step(act, Refused(), probe))  # until it answers, if it does
        reply = tidy(self._theirs(self.backend.do, act), self.monitor.where(act))
        if self._first_strike is None and struck():
            self._first_strike = self._number
        if self._record:
            self.steps[-1] = Step(act, reply, probe)
        return reply

    def _write(self, members: list[Member], reply: Reply) -> None:
        """What a forward pass would do: every new position gets its content."""
        content = cast(KeepsContent, self.backend)
        for member, slots in zip(members, reply.slots if members else (), strict=True):
            tags = self.ledger.requests[member.req].trail[member.prefix : member.upto]
            self._theirs(content.write, slots, tags)

    def _look(self, act: Action, answer: Granted | Refused | None) -> None:
        """Compare the books, read the content back, and spoil what nobody may read."""
        if self.grade.view and self.world.has("VIEW"):
            view = self._theirs(self.backend.view)
            if view is None:
                raise WrongInput(f"{self.world.declared.name} declares VIEW, but view() returned None")
            view = tidy_view(view, self.world.declared.name)
            self.evidence |= {part for part in VIEW_PARTS if getattr(view, part.lower()) is not None}
            if self._record:
                self.steps[-1] = self.steps[-1]._replace(view=view)
            self.monitor.compare(view, act, answer)
        if self.grade.content and self.world.has("CONTENT"):
            self.evidence.add("CONTENT")
            for req in self.ledger.records:
                self.monitor.read(req, self._theirs(cast(KeepsContent, self.backend).read, req))
        if self.grade.scramble and self.world.has("SCRAMBLE"):
            self.evidence.add("SCRAMBLE")
            self._theirs(cast(Scrambles, self.backend).scramble)

    def _theirs(self, call: Callable[..., T], *args: object) -> T:
        """Somebody else's code: what it raises is a finding."""
        try:
            return call(*args)
        except (_Overtime, WrongInput, KeyboardInterrupt):
            raise
        except BaseException as error:  # an engine may well raise asyncio's CancelledError, or leave
            facts = {"call": getattr(call, "__name__", "code"), "error": brief(error), "place": place_of(error)}
            raise self._finding(RAISES, facts) from error

    def _finding(self, rule: str, facts: Mapping[str, object]) -> Finding:
        if self._first_strike is None and struck():
            self._first_strike = self._number
        return Finding(rule, self._number, facts, self._first_strike)


class _TimeLimit:
    """Raise _Overtime in the block after so many seconds, where signals reach (the main thread).

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
            raise _Overtime


_NOT_THEIRS = {method.__code__ for method in (_TimeLimit.__enter__, _TimeLimit.__exit__, _TimeLimit._expired)}
