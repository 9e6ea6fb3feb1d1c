"""Shrinking of concrete actions: drop blocks of them, then batch members, then lower numbers, while the rule breaks.

An action that is no longer enabled after something was dropped is fitted to what is there (an extend ends where the
tokens end, a batch loses the members that are gone) or skipped, so every trial is a lawful program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kvledger.spec.action import file_of
from kvledger.spec.actions import (
    Abort,
    Action,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Evict,
    Extend,
    Finish,
    Flush,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.backend import Make
from kvledger.spec.ledger import Ledger
from kvledger.spec.trace import HANGS, Step
from kvledger.spec.world import ReqId, World, WrongInput
from kvledger.tests.kit.deviations import Deviation
from kvledger.tests.kit.lockstep import Finding, Grade, Lockstep

# What shrinking may cost; then the shortest program so far stands. Calls, for these are the same on every machine; and
# seconds, for an engine whose calls take long. The zoo's longest needs 20,000 calls, and 3 seconds.
CALLS, SECONDS = 200_000, 120.0
HANGING_TRIALS = 25  # trials that hang: each of them costs the whole time limit
WHOLE = 1 << 30  # a length that fitting cuts to what is there
Call = tuple[Action, bool]  # an action, and whether it is a probe


@dataclass(frozen=True)
class Shrunk:
    """A finding and the steps that lead to it. draining_since: the steps before the drain probe, if it came up in
    it."""

    finding: Finding
    steps: list[Step]
    draining_since: int | None = None


def run_again(
    make: Make, world: World, calls: list[Call], *, grade: Grade, name: str, drain: bool
) -> tuple[Finding | None, Lockstep]:
    """Perform those calls that are enabled, on a fresh backend, then the drain probe if asked for."""
    lockstep = Lockstep(make, world, grade=grade, name=name, count_armed=False)
    try:
        for act, probe in calls:
            allowed = file_of(act).requires(lockstep.ledger, act) is None
            if probe and not allowed:
                lockstep.probe(act)
            elif not probe:
                fitting = act if allowed else fitted(lockstep.ledger, act)
                if fitting is not None:
                    lockstep.do(fitting)
        lockstep.audit()
        if drain:
            lockstep.drain()
    except Finding as finding:
        spoilt = grade.scramble and lockstep.world.has("SCRAMBLE") and finding.facts.get("call") != "scramble"
        if spoilt and finding.rule != HANGS:
            unspoilt, _ = run_again(make, world, calls, grade=grade._replace(scramble=False), name=name, drain=drain)
            if unspoilt is None:  # nothing but the overwriting of stale lengths made the difference
                finding.facts = {**finding.facts, "breaks": finding.rule}
                finding.rule = "REC-3"
        return finding, lockstep
    return None, lockstep


def confirmed(make: Make, lockstep: Lockstep, finding: Finding, *, name: str) -> Finding:
    """What a lockstep found, or REC-3 in its place: only a second run tells whether stale lengths are behind it."""
    if finding.rule == HANGS or not (lockstep.grade.scramble and lockstep.world.has("SCRAMBLE")):
        return finding
    calls = calls_of(lockstep.steps[: lockstep.draining_since])
    drain = lockstep.draining_since is not None
    with suppress(WrongInput):  # it does not repeat itself: what was found stands
        again, _ = run_again(make, lockstep.world, calls, grade=lockstep.grade, name=name, drain=drain)
        if again is not None and (again.rule, again.step) == ("REC-3", finding.step):
            return again
    return finding


def fitted(ledger: Ledger, act: Action) -> Action | None:
    """The nearest action that is enabled here, or None."""
    nearest: Action = act
    match act:
        case Extend(members):
            batch = []
            for req, upto, token in members:
                if req in ledger.requests and not ledger.caught_up(req) and not ledger.over_allocated(req):
                    end = len(ledger.requests[req].tokens)
                    to_the_end = token is not None
                    upto = min(end if to_the_end else upto, end, ledger.world.context_len)
                    batch.append((req, upto, (0 if token is None else token) if upto == end else None))
            nearest = Extend(tuple(batch))
        case Decode(pairs):
            ready = [req for req in ledger.requests if ledger.caught_up(req) and not ledger.over_allocated(req)]
            nearest = Decode(tuple((req, token) for req, token in pairs if req in ready))
        case Commit(req, tokens) if ledger.holds_row(req):
            record = ledger.records[req]
            nearest = Commit(req, tokens[: record.allocated_len - record.committed_len])
        case Submit(session=str(session), tokens=tokens) if session in ledger.records:
            known, least = ledger.sessions[session].tokens, ledger.least_kept(session)
            goes_on = max(min(len(known), len(tokens) - 1), least)
            nearest = act._replace(tokens=known[:goes_on] + (tokens[goes_on:] or (0,)))
        case Finish(req, keep, publish) if ledger.holds_row(req):
            keep, turn = min(keep, ledger.records[req].committed_len), ledger.requests[req].session is not None
            nearest = Finish(req, max(keep, ledger.least_kept(req)) if turn else keep, publish and not turn)
        case Checkpoint(req, upto) if ledger.holds_row(req):
            nearest = Checkpoint(req, min(upto, ledger.records[req].committed_len))
    return nearest if file_of(nearest).requires(ledger, nearest) is None else None


def breaks_again(
    make: Make, world: World, calls: list[Call], rule: str, *, grade: Grade, name: str, drain: bool,
    known: Sequence[Deviation] = (),
) -> tuple[Finding, Lockstep] | None:  # fmt: skip
    """The same rule broken by these calls, and in the drain probe iff drain; None if it is not, or as is known."""
    try:
        found, lockstep = run_again(make, world, calls, grade=grade, name=name, drain=drain)
    except WrongInput:  # an answer of no lawful shape is another fault
        return None
    if found is None or found.rule != rule or (lockstep.draining_since is not None) != drain:
        return None
    if any(each.explains(found, lockstep.world, lockstep.steps) for each in known):
        return None
    return found, lockstep


def shrink(
    make: Make, world: World, steps: list[Step], finding: Finding, *, grade: Grade, name: str,
    draining_since: int | None, calls: int = CALLS, seconds: float = SECONDS, known: Sequence[Deviation] = (),
    progress: Callable[[int], None] = lambda length: None,
) -> Shrunk:  # fmt: skip
    """The shortest program found that breaks the same rule, with about so many calls and in about so many seconds.

    draining_since: the steps before the drain probe, if the finding came up in it. progress: called after each trial
    with the length of the shortest program so far. known: deviations that are no findings.
    """
    unshrunk, drain, everything = Shrunk(finding, steps, draining_since), draining_since is not None, calls_of(steps)
    attempt = partial(breaks_again, make, world, rule=finding.rule, name=name, known=known)
    quick, most = grade, math.inf
    if finding.rule == HANGS:
        quick, most = grade._replace(limit_s=max(grade.limit_s / 10, min(grade.limit_s, 0.3))), HANGING_TRIALS
    trials = _Trials(partial(attempt, grade=quick), most, calls, seconds, progress)
    # From the drain probe to an ordinary program, if it can be: aborting says more than a probe does.
    if not (drain and trials.breaks(everything, drain=False)):
        trials.breaks(everything[:draining_since], drain=drain)
    while trials.simplify():
        pass
    best = trials.best
    if best and quick != grade:  # a call that is slow, and no more, may have been taken for one that hangs
        best = attempt(_performed(*best), grade=grade, drain=best[1].draining_since is not None)
    if best is None:  # the backend does not repeat itself: leave what was seen
        return unshrunk
    found, lockstep = best
    return Shrunk(found, lockstep.steps, lockstep.draining_since)


class _Trials:
    """Programs tried on fresh backends while the budget lasts. best: what the shortest that broke the rule came to."""

    def __init__(
        self, attempt: Callable[..., tuple[Finding, Lockstep] | None], hits: float, calls: int, seconds: float,
        progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.best: tuple[Finding, Lockstep] | None = None
        self._attempt, self._progress = attempt, progress
        self._hits, self._calls, self._deadline = hits, calls, time.monotonic() + seconds

    def breaks(self, calls: list[Call], *, drain: bool) -> bool:
        """Whether the program still breaks the rule; then it is the best one."""
        found = self._attempt(calls, drain=drain)
        self._hits -= found is not None
        self._calls -= len(calls)
        self.best = found or self.best
        self._progress(len(self.best[1].steps) if self.best else len(calls))
        return found is not None

    def simplify(self) -> bool:
        """Go to the first simpler program that still breaks the rule. False: there is none, or the budget is spent.

        What fitting makes of a simpler call may be the call that it was made from: that is none.
        """
        if self.best is None:
            return False
        drain, calls = self.best[1].draining_since is not None, _performed(*self.best)
        for fewer in _simpler(calls):
            if min(self._hits, self._calls) <= 0 or time.monotonic() >= self._deadline:
                return False
            if self.breaks(fewer, drain=drain) and repr(_performed(*self.best)) != repr(calls):
                return True
        return False


def calls_of(steps: Sequence[Step]) -> list[Call]:
    """What was asked in these steps, without what was answered."""
    return [(step.act, step.probe) for step in steps]


def _performed(finding: Finding, lockstep: Lockstep) -> list[Call]:
    """The calls up to the finding; those of the drain probe come by themselves."""
    return calls_of(lockstep.steps[: finding.step if lockstep.draining_since is None else lockstep.draining_since])


def _simpler(calls: list[Call]) -> Iterator[list[Call]]:
    """Every program that is one step simpler, the boldest first."""
    for size in (16, 8, 4, 2, 1):
        if size <= len(calls):
            for at in range(len(calls) - size, -1, -1):
                yield calls[:at] + calls[at + size :]
    for at, (act, probe) in enumerate(calls):
        for simpler in _lower(act):
            yield [*calls[:at], (simpler, probe), *calls[at + 1 :]]
    for at, (act, probe) in enumerate(calls):
        if isinstance(act, Retract | Abort) and not probe:  # one action may do what a checkpoint and this one do
            yield [*calls[:at], (Finish(act.req, WHOLE, True), probe), *calls[at + 1 :]]
    if calls and not isinstance(calls[-1][0], Evict | Flush):  # or say at once what was led up to
        yield [*calls[:-1], (Evict(1), False)]
    yield from _traded(calls)
    yield from _by_itself(calls)


def _traded(calls: list[Call]) -> Iterator[list[Call]]:
    """One action becomes another one, and a second one is not needed any more."""
    submits = [act for act, _ in calls if isinstance(act, Submit)]
    instead: list[Action] = [Evict(1)]
    for submit in submits:
        instead += [Checkpoint(submit.req, WHOLE), Finish(submit.req, WHOLE, True)]
    for at, (act, probe) in enumerate(calls):
        if probe:
            continue
        others: list[Action] = instead
        if isinstance(act, Submit):
            others = [act._replace(tokens=tokens) for tokens in {submit.tokens: None for submit in submits}]
        for gone, (merged, _) in enumerate(calls):
            if gone == at:
                continue
            joined: list[Action] = []
            if isinstance(act, Extend) and isinstance(merged, Extend):
                joined.append(Extend(merged.batch + act.batch))
            for other in joined + others:
                if other != act:
                    traded = [*calls[:at], (other, probe), *calls[at + 1 :]]
                    yield traded[:gone] + traded[gone + 1 :]


def _by_itself(calls: list[Call]) -> Iterator[list[Call]]:
    """A whole request goes, and another one publishes what it had found in the cache."""
    submits = [(at, act.req) for at, (act, _) in enumerate(calls) if isinstance(act, Submit)]
    for first, gone in submits:  # an id may come again, and is another request then
        after = next((at for at, req in submits if at > first and req == gone), len(calls))
        life = [(other, probe) for act, probe in calls[first:after] if (other := _without(act, gone)) is not None]
        left = calls[:first] + life + calls[after:]
        for at, (act, probe) in enumerate(left, 1):
            if isinstance(act, Extend) and not probe:
                req, upto, _ = act.batch[0]
                for most in (WHOLE, upto - 1):  # less than all may be what it takes
                    yield [*left[:at], (Checkpoint(req, most), False), *left[at:]]


def _without(act: Action, req: ReqId) -> Action | None:
    """An action that does not name this request; None, if it is about no other."""
    match act:
        case Extend(members):
            return Extend(kept) if (kept := tuple(member for member in members if member[0] != req)) else None
        case Decode(pairs):
            return Decode(some) if (some := tuple(pair for pair in pairs if pair[0] != req)) else None
        case Evict() | Flush() | Close():
            return act
    return act if act.req != req else None


def _lower(act: Action) -> Iterator[Action]:
    """Simpler forms of one action: fewer members, smaller numbers, fewer options."""
    match act:
        case Extend(members) if len(members) > 1:
            yield from (Extend(members[:at] + members[at + 1 :]) for at in range(len(members)))
        case Decode(pairs) if len(pairs) > 1:
            yield from (Decode(pairs[:at] + pairs[at + 1 :]) for at in range(len(pairs)))
        case Submit():
            if act.namespace != 0:
                yield act._replace(namespace=0)
            if act.match_limit is not None:
                yield act._replace(match_limit=None)
            if not act.publish:
                yield act._replace(publish=True)
            if act.session is not None:
                yield act._replace(session=None)
            for at, token in enumerate(act.tokens):
                if token != 0 or type(token) is not int:
                    yield act._replace(tokens=(*act.tokens[:at], 0, *act.tokens[at + 1 :]))
            if len(act.tokens) > 1:
                yield act._replace(tokens=act.tokens[:-1])
        case Reserve(req, n) if n > 1:
            yield Reserve(req, n - 1)
        case Commit(req, tokens) if len(tokens) > 1:
            yield Commit(req, tokens[:-1])
        case Checkpoint(req, upto) if upto > 0:
            yield Checkpoint(req, upto - 1)
        case Finish(req, keep, publish):
            if publish:
                yield Finish(req, keep, False)
            if keep > 0:
                yield Finish(req, keep - 1, publish)
        case Evict(n) if n > 1:
            yield Evict(n - 1)
