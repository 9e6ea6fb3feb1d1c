"""The one driver: a small scheduler with continuous batching, from a list of requests to actions.

A round lets waiting requests in, extends every unfinished prompt by one chunk, and decodes for every request that is
caught up: one token, or, with drafts, as many as are accepted. What a grant leaves to do, a checkpoint or a finish, is
done at once. A request comes when those have ended that it waits for, in the order of the list. Of each request the
driver knows how much has KV (live.py).

Sessions. A turn that finishes leaves its record to its session, cut to what the next turn begins with, and the last
one is followed by a close. Between turns a session is idle and keeps row, lock and pages: also while its owner waits
for sub-agents. A backend without SESSIONS gets each turn as a plain request.

Room. When a call is refused, the session that has been idle longest is closed, and its next turn begins it anew. If
none is idle, the running request that was let in last gives way: it is put back if it has not started, else retracted;
a turn is aborted in both cases, for what it gives back by a retraction stays with its session. It waits for its place
again, and is then submitted with all of its tokens. One request always stays.

Progress. `limit` says how many may run: it falls to those who are left whenever one gives way, and rises by one only
when a request ends. So between two ends fewer than `running` requests give way, and no more sessions are closed than
were idle, or became so by that or by a fault, which strikes a request once. Every other step is a grant, and a grant
brings somebody nearer to an end. The last one left is refused with no session idle only if it can never fit, and then
the run ends with one line that says so. Nobody waits for ever: a request waits for earlier ones of the file, and those
end. Hence every run ends, whatever the pool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random
from typing import TypeAlias

from kvledger.spec.actions import (
    Abort,
    Action,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Extend,
    Finish,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.page import whole_pages
from kvledger.spec.world import MOST, ReqId, SessionId, Token, WrongInput
from kvledger.tests.replay.faults import NO_FAULTS, Faults, check_faults, fate_of
from kvledger.tests.replay.knobs import Knobs, check
from kvledger.tests.replay.live import Live
from kvledger.tests.replay.request import TraceRequest
from kvledger.tests.replay.summary import Summary

NAMESPACE = "trace"
Step: TypeAlias = Callable[[Action], Granted | Refused]


def drive(
    requests: Sequence[TraceRequest],
    step: Step,
    coming_match: Callable[[ReqId], int],
    knobs: Knobs,
    progress: Callable[[int], object],
    faults: Faults = NO_FAULTS,
    summary: Summary | None = None,
) -> Summary:
    """Runs every request to its end.

    step: performs an action on the backend under judgement; raises on a finding. coming_match: how many tokens the
    next start of a waiting request will find in the cache, or in its session. progress: called with 1 when a request
    has ended. summary: where to count, for whoever wants to know how far a run came that a finding ended. Raises
    WrongInput for knobs that make no sense and, before anything is submitted, for a request that cannot fit.
    """
    check(requests, knobs)
    check_faults(faults, requests, knobs.world)
    driver = Driver(step, coming_match, knobs, progress, faults, Summary() if summary is None else summary)
    driver.take(requests)
    driver.run()
    return driver.summary


@dataclass
class Driver:
    """The state of one run: who waits, who runs, how many may, and which sessions are idle.

    ready: those who wait for their place, the next one first. blocked: by whose end they wait for. running: in the
    order in which they were let in. idle: sessions that keep KV and whose next turn has not been let in, the longest
    idle first; with the turn that was retracted and waits, if there is one.
    """

    step: Step
    coming_match: Callable[[ReqId], int]
    knobs: Knobs
    progress: Callable[[int], object]
    faults: Faults
    summary: Summary
    ready: list[tuple[int, Live]] = field(default_factory=list)
    blocked: defaultdict[ReqId, list[Live]] = field(default_factory=lambda: defaultdict(list))
    running: dict[ReqId, Live] = field(default_factory=dict)
    idle: dict[SessionId, Live | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.limit, self.random = self.knobs.running, Random(self.faults.seed)

    def take(self, requests: Sequence[TraceRequest]) -> None:
        """Who waits for nobody is ready."""
        sessions = self.knobs.world.has("SESSIONS")
        for place, trace in enumerate(requests):
            live = Live(trace, place, fate_of(trace, self.faults), sessions and trace.session is not None)
            live.awaits = len(trace.after)
            for other in trace.after:
                self.blocked[other].append(live)
            if not live.awaits:
                self.ready.append((place, live))
        heapify(self.ready)

    def run(self) -> None:
        """Round after round, until nobody is ready or runs."""
        most = min(self.knobs.batch or MOST, self.knobs.world.declared.max_batch or MOST)
        decode, together = (self.draft, 1) if self.knobs.drafts else (self.decode, most)
        while self.ready or self.running:
            self.let_in()
            self.strike()
            for batch in self.batches((live for live in self.running.values() if not live.caught_up), most):
                self.until_granted(batch, self.extend)
            for batch in self.batches((live for live in self.running.values() if live.caught_up), together):
                self.until_granted(batch, decode)

    def let_in(self) -> None:
        """As many as may run, in their order; who was put back or retracted is known already."""
        while self.ready and len(self.running) < self.limit:
            _, live = heappop(self.ready)
            session = live.trace.session if live.turn else None
            if not live.submitted:
                self.do(Submit(live.trace.req, live.tokens, NAMESPACE, session=session))
                live.submitted = True
            if session is not None and session in self.idle:
                live.lent = True
                del self.idle[session]
            self.running[live.trace.req] = live
        self.summary.peak_running = max(self.summary.peak_running, len(self.running))

    def strike(self) -> None:
        """The faults that are due."""
        for live in list(self.running.values()):
            fate = live.fate
            if live.turn and fate.close is not None and live.committed >= fate.close and not live.closing:
                live.fate, live.closing = live.fate._replace(close=None), True
                self.do(Close(session_of(live)))
                self.summary.told["sessions closed early"] += 1
            if fate.abort is not None and live.committed >= fate.abort:
                self.drop(live)
            elif fate.retract is not None and live.committed >= fate.retract:
                live.fate = live.fate._replace(retract=None)
                self.retract(live)

    def batches(self, lives: Iterable[Live], most: int) -> Iterator[list[Live]]:
        """As many in one call as may be; drawn up before any of them is performed."""
        rest = list(lives)
        return (rest[first : first + most] for first in range(0, len(rest), most))

    def until_granted(self, batch: list[Live], attempt: Callable[[list[Live]], bool]) -> None:
        """Tries a batch, less those who have given way, until it is granted or nobody of it is left."""
        while batch := [live for live in batch if live.trace.req in self.running]:
            if attempt(batch):
                return
            if self.idle:
                self.close_idle()
            else:
                self.give_way()

    # ---- a request grows

    def extend(self, batch: list[Live]) -> bool:
        """One chunk for each; who reaches the end of its tokens samples one. Whether it was granted."""
        begin = [live.committed or self.coming_match(live.trace.req) for live in batch]
        members = [self.chunk(live, prefix) for live, prefix in zip(batch, begin, strict=True)]
        answer = self.do(Extend(tuple(members)))
        if isinstance(answer, Refused):
            return False
        matched = iter(answer.matched)
        for live, prefix, (_, upto, token) in zip(batch, begin, members, strict=True):
            if not live.committed and live.lent:
                self.summary.kept_tokens += prefix
            elif not live.committed:
                live.protected = len(next(matched)) * self.knobs.world.page_size
                self.summary.matched_tokens += live.protected
            live.committed = upto
            live.sampled += token is not None
        self.protect(answer)
        self.end(batch)
        self.checkpoint(batch)
        return True

    def chunk(self, live: Live, prefix: int) -> tuple[ReqId, int, Token | None]:
        """Where the next extend ends, and the token it samples if that is the end of the tokens."""
        most = self.knobs.chunk if self.knobs.world.has("CHUNKED") else live.length
        upto = min(live.length, prefix + most)
        return live.trace.req, upto, live.next_tokens(1)[0] if upto == live.length else None

    def decode(self, batch: list[Live]) -> bool:
        """One token for each. Whether it was granted."""
        answer = self.do(Decode(tuple((live.trace.req, live.next_tokens(1)[0]) for live in batch)))
        if isinstance(answer, Refused):
            return False
        for live in batch:
            live.committed += 1
            live.sampled += 1
        self.protect(answer)
        self.end(batch)
        return True

    def draft(self, batch: list[Live]) -> bool:
        """Slots for the pending token and the drafts; then the pending token and the accepted drafts have KV. Whether
        the slots were granted."""
        [live] = batch
        req, drafts = live.trace.req, self.knobs.drafts
        if isinstance(self.do(Reserve(req, drafts + 1)), Refused):
            return False
        tokens = live.next_tokens(1 + self.random.randint(0, drafts))
        answer = self.do(Commit(req, tokens))
        live.committed += len(tokens)
        live.sampled += len(tokens)
        self.summary.told["tokens drafted"] += drafts
        self.summary.told["tokens drafted, accepted"] += len(tokens) - 1
        self.protect(answer)
        self.end(batch)
        return True

    def checkpoint(self, batch: list[Live]) -> None:
        """Who has new whole pages of its prompt, and runs on, publishes them; what was a session's is not published."""
        size = self.knobs.world.page_size
        for live in batch if self.knobs.world.has("CHECKPOINT") else ():
            if live.left and not live.lent and whole_pages(live.committed, size) * size > live.protected:
                self.protect(self.do(Checkpoint(live.trace.req, live.committed)))

    def protect(self, answer: Granted | Refused) -> None:
        """Who published reads that much more from the cache."""
        for req, pages in answer.published if isinstance(answer, Granted) else ():
            self.running[req].protected += len(pages) * self.knobs.world.page_size

    # ---- a request ends, or goes back to those who wait

    def end(self, batch: list[Live]) -> None:
        """Who is done finishes at once, before it could be asked to give way."""
        for live in batch:
            if not live.left:
                if live.turn:
                    self.finish_turn(live)
                else:
                    self.do(Finish(live.trace.req, keep=live.committed, publish=True))
                del self.running[live.trace.req]
                self.over(live)

    def finish_turn(self, live: Live) -> None:
        """Its session keeps what the next turn begins with. It is closed where none comes, or where a turn that began
        anew has published more than that."""
        keep = min(live.trace.keep, live.committed)
        named = live.protected + self.knobs.world.declared.key_lag  # what the keys of its pages name
        goes_on = keep >= (named if live.protected else 1)
        self.do(Finish(live.trace.req, keep if goes_on else live.committed, publish=False))
        self.summary.told["turns"] += 1
        if live.closing:
            return
        if goes_on:
            self.idle[session_of(live)] = None
        else:
            self.do(Close(session_of(live)))

    def over(self, live: Live) -> None:
        """One more may run, and those may come who waited for this one alone."""
        self.summary.prompt_tokens += len(live.trace.prompt)
        self.limit = min(self.limit + 1, self.knobs.running)
        for other in self.blocked.pop(live.trace.req, ()):
            other.awaits -= 1
            if not other.awaits:
                heappush(self.ready, (other.place, other))
        self.progress(1)

    def abort(self, live: Live) -> None:
        """A request is dropped. The session of a turn that ran is empty then; of one that waited it is idle again."""
        self.running.pop(live.trace.req, None)
        self.do(Abort(live.trace.req))
        if live.lent and not live.committed and not live.closing:
            self.idle[session_of(live)] = None
        live.forget()

    def drop(self, live: Live) -> None:
        """A request is aborted for good. If it was its session's last turn, that is closed."""
        last = live.turn and not live.trace.keep and not live.closing
        self.abort(live)
        if last:
            self.idle.pop(session_of(live), None)
            self.do(Close(session_of(live)))
        self.summary.told["requests aborted"] += 1
        self.over(live)

    def retract(self, live: Live) -> None:
        """A request goes back to those who wait, with its tokens; a turn's record goes back to its session."""
        del self.running[live.trace.req]
        self.do(Retract(live.trace.req))
        protected = live.protected
        live.give_back()
        if live.turn:
            self.idle[session_of(live)] = live
            live.protected = protected  # of the session's record now, with which it goes on
        heappush(self.ready, (live.place, live))

    def close_idle(self) -> None:
        """The session that has been idle longest goes; a turn of it that waits must be submitted anew."""
        session, turn = next(iter(self.idle.items()))
        del self.idle[session]
        closing = turn is not None and turn.closing
        if turn is not None:
            self.abort(turn)
        if not closing:
            self.do(Close(session))
        self.summary.told["sessions closed for room"] += 1

    def give_way(self) -> None:
        """Who was let in last waits again; who is alone cannot be helped."""
        req, live = next(reversed(self.running.items()))
        if len(self.running) == 1:
            world = self.knobs.world
            raise WrongInput(
                f"request {req} cannot fit: refused with {live.committed:,} of {live.length:,} tokens while it runs "
                f"alone; the pool has {world.pages:,} pages and keeps {world.declared.headroom:,} back when one starts"
            )
        if live.committed and not live.turn:
            self.retract(live)
        else:
            del self.running[req]
            if live.turn:
                self.abort(live)
                self.summary.told["turns that gave way"] += 1
            heappush(self.ready, (live.place, live))
        self.limit = len(self.running)

    def do(self, action: Action) -> Granted | Refused:
        """One call, counted."""
        answer = self.step(action)
        self.summary.count(action, answer)
        return answer


def session_of(turn: Live) -> SessionId:
    """Whose turn it is."""
    assert turn.trace.session is not None
    return turn.trace.session
