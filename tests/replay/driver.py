"""The one driver: a small scheduler with continuous batching, from a list of requests to actions.

A round lets waiting requests in, extends every unfinished prompt by one chunk, and decodes one token for every
request that is caught up. What a grant leaves to do, a checkpoint or a finish, is done at once. Requests come in the
order of the file. The driver holds no page and no row: of each request it knows how much has KV.

Progress. When a batch is refused, the running request that was let in last gives way (it is retracted, or only put
back if it had not started) and the batch is tried again; one request always stays. `limit` says how many may run: it
falls to those who are left whenever one gives way, and rises by one only when a request finishes. So between two
finishes fewer than `running` requests give way and none of them comes back; every other step is a grant, and a grant
brings somebody nearer to an end. The last one left is refused only if it can never fit, and then the run ends with
one line that says so. Hence every run ends, whatever the pool.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kvledger.spec.actions import Action, Checkpoint, Decode, Extend, Finish, Retract, Submit
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.page import whole_pages
from kvledger.spec.world import ReqId, Token, WrongInput
from kvledger.tests.replay.knobs import Knobs, check
from kvledger.tests.replay.mooncake import TraceRequest

NAMESPACE = "trace"
Step: TypeAlias = Callable[[Action], Granted | Refused]


@dataclass
class Summary:
    """What a run came to. calls: those granted, by kind; members: the same, but one for each member of a batch;
    refusals: by what was short. evicted in pages. matched_tokens: of every start, restarts included."""

    calls: Counter[str] = field(default_factory=Counter)
    members: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    evicted: int = 0
    prompt_tokens: int = 0
    matched_tokens: int = 0
    peak_running: int = 0

    @property
    def request_actions(self) -> int:
        """Granted actions, one for each member of a batch."""
        return self.members.total()

    def count(self, action: Action, answer: Granted | Refused) -> None:
        """Takes one call and its answer in."""
        self.evicted += len(answer.evicted)
        if isinstance(answer, Refused):
            self.refusals[str(answer.short)] += 1
        else:
            kind = type(action).__name__.lower()
            self.calls[kind] += 1
            self.members[kind] += len(action.batch) if isinstance(action, Extend | Decode) else 1


@dataclass(eq=False, slots=True)
class Live:
    """A request as the driver sees it. Lengths in tokens; allocated is committed, because nothing is drafted."""

    trace: TraceRequest
    number: int
    submitted: bool = False
    sampled: int = 0
    committed: int = 0
    protected: int = 0

    @property
    def length(self) -> int:
        """Tokens, the pending one included."""
        return len(self.trace.prompt) + self.sampled

    @property
    def caught_up(self) -> bool:
        """Whether it runs and only its last token is without KV."""
        return 0 < self.committed == self.length - 1

    @property
    def done(self) -> bool:
        """Whether the whole answer is sampled; a prefill alone samples one token."""
        return self.sampled >= max(1, self.trace.output_len)

    @property
    def next_token(self) -> int:
        """Token k of the answer: a fixed function of request and k, never a prompt token. Every second request
        samples one common answer; else no two of them would ever decode a page of the same key."""
        return -1 - self.sampled - (self.number * 1_000_000 if self.number % 2 else 0)


def drive(
    requests: Sequence[TraceRequest],
    step: Step,
    coming_match: Callable[[ReqId], int],
    knobs: Knobs,
    progress: Callable[[int], object],
) -> Summary:
    """Runs every request to its end.

    step: performs an action on the backend under judgement; raises on a finding. coming_match: how many tokens the
    next start of a waiting request will find in the cache. progress: called with 1 when a request has finished.
    Raises WrongInput for knobs that make no sense and, before anything is submitted, for a request that cannot fit.
    """
    check(requests, knobs)
    waiting = deque(Live(trace, number) for number, trace in enumerate(requests))
    driver = Driver(step, coming_match, knobs, progress, waiting, knobs.running)
    driver.run()
    return driver.summary


@dataclass
class Driver:
    """The state of one run: who waits, who runs, and how many may."""

    step: Step
    coming_match: Callable[[ReqId], int]
    knobs: Knobs
    progress: Callable[[int], object]
    waiting: deque[Live]
    limit: int
    running: dict[ReqId, Live] = field(default_factory=dict)  # in the order in which they were let in
    summary: Summary = field(default_factory=Summary)

    def run(self) -> None:
        """Round after round, until nobody waits or runs."""
        while self.waiting or self.running:
            self.let_in()
            for batch in self.batches(live for live in self.running.values() if not live.caught_up):
                self.until_granted(batch, self.extend)
            for batch in self.batches(live for live in self.running.values() if live.caught_up):
                self.until_granted(batch, self.decode)

    def let_in(self) -> None:
        """As many as may run; who gave way before stands in front and is not submitted again."""
        while self.waiting and len(self.running) < self.limit:
            live = self.waiting.popleft()
            if not live.submitted:
                self.do(Submit(live.trace.req, live.trace.prompt, NAMESPACE))
                live.submitted = True
                self.summary.prompt_tokens += live.length
            self.running[live.trace.req] = live
        self.summary.peak_running = max(self.summary.peak_running, len(self.running))

    def batches(self, lives: Iterable[Live]) -> Iterator[list[Live]]:
        """As many in one call as the backend takes; drawn up before any of them is performed."""
        rest = list(lives)
        size = self.knobs.world.declared.max_batch or max(1, len(rest))
        return (rest[first : first + size] for first in range(0, len(rest), size))

    def until_granted(self, batch: list[Live], attempt: Callable[[list[Live]], bool]) -> None:
        """Tries a batch, less those who have given way, until it is granted or nobody of it is left."""
        while batch := [live for live in batch if live.trace.req in self.running]:
            if attempt(batch):
                return
            self.give_way()

    def extend(self, batch: list[Live]) -> bool:
        """One chunk for each; who reaches the end of its tokens samples one. Whether it was granted."""
        members = [(live.trace.req, *self.chunk(live)) for live in batch]
        answer = self.do(Extend(tuple(members)))
        if isinstance(answer, Refused):
            return False
        matched = iter(answer.matched)
        for live, (_, upto, token) in zip(batch, members, strict=True):
            if not live.committed:
                live.protected = len(next(matched)) * self.knobs.world.page_size
                self.summary.matched_tokens += live.protected
            live.committed = upto
            live.sampled += token is not None
        self.protect(answer)
        self.end(batch)
        self.checkpoint(batch)
        return True

    def chunk(self, live: Live) -> tuple[int, Token | None]:
        """Where the next extend ends, and the token it samples if that is the end of the tokens."""
        prefix = live.committed or self.coming_match(live.trace.req)
        most = self.knobs.chunk if self.knobs.world.has("CHUNKED") else live.length
        upto = min(live.length, prefix + most)
        return upto, live.next_token if upto == live.length else None

    def decode(self, batch: list[Live]) -> bool:
        """One token for each. Whether it was granted."""
        answer = self.do(Decode(tuple((live.trace.req, live.next_token) for live in batch)))
        if isinstance(answer, Refused):
            return False
        for live in batch:
            live.committed += 1
            live.sampled += 1
        self.protect(answer)
        self.end(batch)
        return True

    def end(self, batch: list[Live]) -> None:
        """Who is done finishes at once, before it could be asked to give way."""
        for live in batch:
            if live.done:
                self.do(Finish(live.trace.req, keep=live.committed, publish=True))
                del self.running[live.trace.req]
                self.limit = min(self.limit + 1, self.knobs.running)
                self.progress(1)

    def checkpoint(self, batch: list[Live]) -> None:
        """Who has new whole pages of its prompt, and runs on, publishes them."""
        size = self.knobs.world.page_size
        for live in batch if self.knobs.world.has("CHECKPOINT") else ():
            if not live.done and whole_pages(live.committed, size) * size > live.protected:
                self.protect(self.do(Checkpoint(live.trace.req, live.committed)))

    def protect(self, answer: Granted | Refused) -> None:
        """Who published reads that much more from the cache."""
        for req, pages in answer.published if isinstance(answer, Granted) else ():
            self.running[req].protected += len(pages) * self.knobs.world.page_size

    def give_way(self) -> None:
        """Who was let in last goes to the front of those who wait; who is alone cannot be helped."""
        req, live = self.running.popitem()
        if not self.running:
            world = self.knobs.world
            raise WrongInput(
                f"request {req} cannot fit: refused with {live.committed:,} of {live.length:,} tokens while it runs "
                f"alone; the pool has {world.pages:,} pages and keeps {world.declared.headroom:,} back when one starts"
            )
        if live.committed:
            self.do(Retract(req))
            live.committed = live.protected = 0
        self.waiting.appendleft(live)
        self.limit = len(self.running)

    def do(self, action: Action) -> Granted | Refused:
        """One call, counted."""
        answer = self.step(action)
        self.summary.count(action, answer)
        return answer
