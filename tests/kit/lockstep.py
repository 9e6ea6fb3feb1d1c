"""One backend and one monitor, in step: perform, judge, write content, compare the books. The first finding ends it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar, cast

from kvledger.spec.action import file_of, members_of
from kvledger.spec.actions import (
    Abort,
    Action,
    Close,
    Commit,
    Decode,
    Evict,
    Extend,
    Flush,
    Submit,
    commit,
)
from kvledger.spec.actions.taking import Member
from kvledger.spec.answer import Granted, Refused, Reply
from kvledger.spec.backend import KeepsContent, Make, Scrambles, View
from kvledger.spec.ledger import Ledger, slots_in
from kvledger.spec.monitor import Monitor
from kvledger.spec.page import pages_for
from kvledger.spec.rules import Broken
from kvledger.spec.tidy import numbers, tidy, tidy_view
from kvledger.spec.trace import HANGS, RAISES, Step
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.evidence import counting, gives_back, shown
from kvledger.tests.kit.limit import LIMIT_S, Overtime, TimeLimit
from kvledger.tests.kit.load import brief, build, place_of
from kvledger.tests.kit.strike import struck

T = TypeVar("T")
REJECTED = -1  # what a rejected draft leaves in its slot: nobody's content
DRAIN = "drain"  # how the requests of the drain probe are called
# The drain probe asks for what must be free by then: a refusal there says that something was lost.
LOST = {"PAGE-5": "PAGE-2", "ROW-4": "ROW-1"}


class Finding(Exception):
    """A rule, broken at a step (1-based). first_strike: where a faulty backend of ours says it deviated."""

    def __init__(self, rule: str, step: int, facts: Mapping[str, object], first_strike: int | None = None) -> None:
        super().__init__(rule)
        self.rule, self.step, self.facts, self.first_strike = rule, step, facts, first_strike


def named_in_drain(rule: str, act: Action) -> str:
    """What a rule that this call of the drain probe broke is called: only where it takes what must be free does a
    refusal say that something was lost."""
    return LOST.get(rule, rule) if isinstance(act, Extend) else rule


class Grade(NamedTuple):
    """What is looked at beside the answers. limit_s: seconds that one call may take before it counts as hung. every:
    after how many calls the books and the content are looked at again; content is written at every grant."""

    view: bool = True
    content: bool = True
    scramble: bool = True
    limit_s: float = LIMIT_S
    every: int = 1


FULL = Grade()


class Lockstep:
    """steps: what was done and answered so far, with the view that was compared last. armed: rule -> how often it
    could have been broken, and what would have shown it was looked at. evidence: what was looked at at all. looks: how
    often the books and the content were looked at."""

    def __init__(
        self, make: Make, world: World, *, grade: Grade = FULL, name: str = "the backend", count_armed: bool = True
    ) -> None:
        self.grade = grade
        self.limit = TimeLimit(grade.limit_s)
        self.backend, self.world = build(make, world, name, grade.limit_s)
        self.monitor = Monitor(self.world, count_armed=count_armed)
        self.steps: list[Step] = []
        self.judging_s = 0.0  # CPU seconds in the monitor
        self.armed: Counter[str] = Counter()
        self._always = {"ANSWER", *["PROBE"] * self.world.has("GUARDED"), *["DRAIN"] * self._drains_all()}
        self.evidence = set(self._always)
        self.draining_since: int | None = None
        self._number = self._looked = self.looks = 0
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
        self.audit()
        self.draining_since = self._number
        try:
            self._drain()
            self.audit()
        except Finding as finding:
            finding.rule = named_in_drain(finding.rule, self.steps[-1].act)
            raise
        self.monitor.finish()

    def audit(self) -> None:
        """A look at the books and the content, unless the last call was followed by one. Raises Finding."""
        if self._looked < self._number:
            self._judged(self._look_again, self.steps[-1].act)

    def _drain(self) -> None:
        for req in list(self.ledger.requests):
            self.do(Abort(req))
        for session in list(self.ledger.sessions):
            self.do(Close(session))
        evict_all, flush = Evict(self.world.pages), Flush()
        if file_of(evict_all).requires(self.ledger, evict_all) is None:
            self.do(evict_all)
        elif file_of(flush).requires(self.ledger, flush) is None and self.ledger.index:
            self.do(flush)
        namespaces = self.world.has("NAMESPACES")
        room, widest = self._drainable()
        requests = min(self.world.rows, room) if self.world.has("ROWS") else -(-room // widest)
        for number in range(requests):
            pages = min(widest, room - (requests - number - 1))  # the others get one at least
            room -= pages
            upto = min(pages * self.world.page_size, self.world.context_len)
            req = f"{DRAIN}{number}"
            tokens = (req, *range(1, upto))  # a first token and, where there are several, a namespace of its own
            self.do(Submit(req, tokens, req if namespaces else 0))
            self.do(Extend(((req, upto, 0),)))
        for req in list(self.ledger.requests):
            self.do(Abort(req))

    def _drainable(self) -> tuple[int, int]:
        """How many pages may be taken once nothing lives, and how many of them by one request."""
        room = max(0, self.world.pages - self.world.declared.headroom)
        return room, pages_for(self.world.context_len, self.world.page_size)

    def _drains_all(self) -> bool:
        """Whether the rows are many and wide enough for every page: else a drain proves little."""
        room, widest = self._drainable()
        return not self.world.has("ROWS") or self.world.rows * widest >= room

    def _judged(self, step: Callable[[Action], T], act: Action) -> T:
        """Whatever breaks in one step is a finding of that step."""
        try:
            with self.limit:
                return step(act)
        except Broken as broken:
            raise self._finding(broken.rule, broken.facts) from None
        except WrongInput as wrong:
            raise WrongInput(f"{wrong} (step {self._number})") from None
        except Overtime:
            raise self._finding(HANGS, {"limit_s": self.grade.limit_s}) from None

    def _perform(self, act: Action) -> Granted | Refused:
        members = members_of(self.ledger, act) if isinstance(act, Extend | Decode) else []
        if isinstance(act, Commit) and self.grade.content and self.world.has("CONTENT"):
            self._verify(act)
        gives = gives_back(self.ledger, act)
        reply = self._call(act, probe=False)
        began = time.process_time()
        answer = self.monitor.step(act, reply)
        self.judging_s += time.process_time() - began
        if isinstance(answer, Granted) and self.grade.content and self.world.has("CONTENT"):
            self._write(members, cast(Reply, reply))
        looked_at = self._look_if_due(act, answer)
        self._credit(looked_at | ({"FREED"} if gives and answer.freed is not None else set()))
        return answer

    def _try_forbidden(self, act: Action) -> None:
        self.monitor.probe(act, self._call(act, probe=True))
        self._credit(self._look_if_due(act, None))

    def _look_again(self, act: Action) -> None:
        self.evidence |= self._look(act, None, fresh=False)

    def _look_if_due(self, act: Action, answer: Granted | Refused | None) -> set[str]:
        due = self._number - self._looked >= self.grade.every
        return self._look(act, answer, fresh=self.grade.every == 1) if due else set()

    def _credit(self, looked_at: set[str]) -> None:
        """What this step could have broken counts if something that would have shown it was looked at."""
        looked_at |= self._always
        self.evidence |= looked_at
        self.armed.update(counting(self.monitor.arms, looked_at))

    def _call(self, act: Action, *, probe: bool) -> Reply | Refused:
        self._number += 1
        self.steps.append(Step(act, Refused(), probe))  # until it answers, if it does
        reply = self._theirs(tidy, self._theirs(self.backend.do, act), self.monitor.where(act))
        if self._first_strike is None and struck():
            self._first_strike = self._number
        self.steps[-1] = Step(act, reply, probe)
        return reply

    def _write(self, members: list[Member], reply: Reply) -> None:
        """What a forward pass would do: every new position gets its content."""
        content = cast(KeepsContent, self.backend)
        for member, slots in zip(members, reply.slots if members else (), strict=True):
            tags = self.ledger.requests[member.req].trail[member.prefix : member.upto]
            self._theirs(content.write, slots, tags)

    def _verify(self, act: Commit) -> None:
        """What a forward pass over the drafts wrote: the content of those that are accepted, something else behind."""
        record, size = self.ledger.records[act.req], self.world.page_size
        [publisher] = commit.publishers(self.ledger, act, Granted())
        slots = slots_in(publisher.table, record.committed_len, record.allocated_len, size)
        tags = publisher.request.trail[record.committed_len : publisher.upto]
        tags += (REJECTED,) * (len(slots) - len(tags))
        self._theirs(cast(KeepsContent, self.backend).write, slots, tags)

    def _look(self, act: Action, answer: Granted | Refused | None, *, fresh: bool) -> set[str]:
        """Compare the books, read the content back, and spoil what nobody may read. What was looked at. fresh: as it
        was done after the call before."""
        looked_at = set()
        before, self._looked, self.looks = self._looked, self._number, self.looks + 1
        if self.grade.view and self.world.has("VIEW"):
            view = self._theirs(self.backend.view)
            if view is None:
                raise WrongInput(f"{self.world.declared.name} declares VIEW, but view() returned None")
            view = self._theirs(tidy_view, view, self.world.declared.name)
            looked_at |= shown(view)
            self._keep(view, before)
            self.monitor.compare(view, act, answer, fresh=fresh)
        if self.grade.content and self.world.has("CONTENT"):
            looked_at.add("CONTENT")
            for req in self.ledger.records:
                self._read(req)
        if self.grade.scramble and self.world.has("SCRAMBLE"):
            looked_at.add("SCRAMBLE")
            self._theirs(cast(Scrambles, self.backend).scramble)
        return looked_at

    def _keep(self, view: View, before: int) -> None:
        """A view is as large as the pool: of those that were compared the last one is enough. before: the step of the
        one before it, 0 if there is none."""
        if before:
            self.steps[before - 1] = self.steps[before - 1]._replace(view=None)
        self.steps[-1] = self.steps[-1]._replace(view=view)

    def _read(self, req: str) -> None:
        """What a request reads through the backend's table; kept where it is not its own."""
        tags = self._theirs(cast(KeepsContent, self.backend).read, req)
        tags = self._theirs(numbers, tags, f"{self.world.declared.name} read {req}", "its tags")
        try:
            self.monitor.read(req, tags)
        except Broken:
            self.steps[-1] = self.steps[-1]._replace(read={req: tags})
            raise

    def _theirs(self, call: Callable[..., T], *args: object) -> T:
        """Somebody else's code: what it raises is a finding."""
        try:
            return self.limit.call(call, *args)
        except (Overtime, WrongInput, KeyboardInterrupt):
            raise
        except BaseException as error:  # an engine may well raise asyncio's CancelledError, or leave
            facts = {"call": getattr(call, "__name__", "code"), "error": brief(error), "place": place_of(error)}
            raise self._finding(RAISES, facts) from error

    def _finding(self, rule: str, facts: Mapping[str, object]) -> Finding:
        if self._first_strike is None and struck():
            self._first_strike = self._number
        return Finding(rule, self._number, facts, self._first_strike)
