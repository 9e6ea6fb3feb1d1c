"""The driver, against a tiny honest pool written here: every run ends, no call is out of turn, nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.spec.actions import Action, Checkpoint, Decode, Extend, Finish, Retract, Submit
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.page import pages_for
from kvledger.spec.world import CAPABILITIES, Declaration, PageId, ReqId, Token, World, WrongInput
from kvledger.tests.replay.driver import drive
from kvledger.tests.replay.formats import read
from kvledger.tests.replay.knobs import Knobs
from kvledger.tests.replay.request import TraceRequest
from kvledger.tests.replay.summary import Summary
from kvledger.tests.unit.shared_traces import shared_trace

SGLANG = Declaration("sglang's shape")
VLLM = Declaration(
    "vllm's shape",
    capabilities=frozenset(CAPABILITIES) - {"CHECKPOINT", "LEAF_FIRST", "ROWS"},
    publishes_on=frozenset({"extend", "decode"}),
    max_batch=1,
    headroom=1,
)
PLAIN = Declaration("no cache", capabilities=frozenset({"ROWS", "PAGED"}))


class Pool:
    """Pages, and a cache from prefix to page. Asserts what a caller owes; refuses only when all is evicted."""

    def __init__(self, world: World) -> None:
        self.world, self.log = world, list[Action]()
        self.free = list(range(world.pages, 0, -1))
        self.cache: dict[tuple[Token, ...], PageId] = {}  # oldest first
        self.locks: Counter[PageId] = Counter()
        self.tokens: dict[ReqId, tuple[Token, ...]] = {}
        self.table: dict[ReqId, list[PageId]] = {}
        self.committed: dict[ReqId, int] = {}
        self.protected: dict[ReqId, int] = {}
        self.ended: dict[ReqId, tuple[Token, ...]] = {}

    def prefix(self, req: ReqId, ordinal: int) -> tuple[Token, ...]:
        return self.tokens[req][: (ordinal + 1) * self.world.page_size]

    def match(self, req: ReqId) -> tuple[PageId, ...]:
        most = (len(self.tokens[req]) - 1) // self.world.page_size
        pages = list[PageId]()
        while len(pages) < most and (page := self.cache.get(self.prefix(req, len(pages)))):
            pages.append(page)
        return tuple(pages)

    def coming_match(self, req: ReqId) -> int:
        assert req not in self.committed
        return len(self.match(req)) * self.world.page_size

    def step(self, action: Action) -> Granted | Refused:
        self.log.append(action)
        if isinstance(action, Submit):
            assert action.req not in self.tokens and action.tokens
            self.tokens[action.req] = action.tokens
            return Granted()
        if isinstance(action, Extend):
            assert len({req for req, _, _ in action.batch}) == len(action.batch)
            return self.take([(req, upto, token) for req, upto, token in action.batch])
        if isinstance(action, Decode):
            for req, _ in action.batch:
                assert self.committed[req] == len(self.tokens[req]) - 1
            return self.take([(req, len(self.tokens[req]), token) for req, token in action.batch])
        if isinstance(action, Checkpoint):
            assert self.world.has("CHECKPOINT") and action.upto <= self.committed[action.req]
            return Granted(published=self.publish(action.req, action.upto))
        assert isinstance(action, Finish | Retract) and action.req in self.committed
        if isinstance(action, Finish):
            assert action.keep == self.committed[action.req] == len(self.tokens[action.req]) - 1
            self.publish(action.req, action.keep)
        self.release(action.req)
        if isinstance(action, Finish):
            self.ended[action.req] = self.tokens.pop(action.req)
        return Granted()

    def take(self, members: list[tuple[ReqId, int, Token | None]]) -> Granted | Refused:
        size, starts = self.world.page_size, [req for req, _, _ in members if req not in self.committed]
        assert len(members) <= (self.world.declared.max_batch or len(members))
        assert len(self.committed) + len(starts) <= self.world.rows
        matched = {req: self.match(req) for req in starts}
        for req in starts:
            self.locks.update(matched[req])
        demand = {}
        for req, upto, token in members:
            length, prefix = len(self.tokens[req]), self.committed.get(req, len(matched.get(req, ())) * size)
            assert prefix < upto <= length and upto <= self.world.context_len
            assert (token is not None) == (upto == length)
            assert upto == length or self.world.has("CHUNKED")
            demand[req] = pages_for(upto, size) - pages_for(prefix, size)
        room = len(self.free) + sum(not self.locks[page] for page in self.cache.values())
        if sum(demand.values()) + (self.world.declared.headroom if starts else 0) > room:
            for req in starts:
                self.locks.subtract(matched[req])
            return Refused("pages")
        gone = frozenset(self.evict() for _ in range(sum(demand.values()) - len(self.free)))
        kind = "decode" if all(upto == self.committed.get(req, -1) + 1 for req, upto, _ in members) else "extend"
        published = list[tuple[ReqId, tuple[PageId, ...]]]()
        for req, upto, token in members:
            if req in matched:
                self.table[req], self.protected[req] = list(matched[req]), len(matched[req]) * size
            self.table[req] += [self.free.pop() for _ in range(demand[req])]
            self.committed[req] = upto
            if token is not None:
                self.tokens[req] += (token,)
            if kind in self.world.declared.publishes_on:
                published += self.publish(req, upto)
        return Granted(matched=tuple(matched.values()), evicted=gone, published=tuple(published))

    def publish(self, req: ReqId, upto: int) -> tuple[tuple[ReqId, tuple[PageId, ...]], ...]:
        if not self.world.has("PREFIX_CACHE"):
            return ()
        size, pages, first = self.world.page_size, list[PageId](), self.protected[req] // self.world.page_size
        for ordinal in range(first, upto // size):
            own = self.table[req][ordinal]
            page = self.cache.setdefault(self.prefix(req, ordinal), own)
            if page != own:
                self.free.append(own)
                self.table[req][ordinal] = page
            pages.append(page)
        self.locks.update(pages)
        self.protected[req] += len(pages) * size
        return ((req, tuple(pages)),) if pages else ()

    def evict(self) -> PageId:
        leaf = max((key for key, page in self.cache.items() if not self.locks[page]), key=len)
        page = self.cache.pop(leaf)
        self.free.append(page)
        return page

    def release(self, req: ReqId) -> None:
        table, first = self.table.pop(req), self.protected.pop(req) // self.world.page_size
        self.locks.subtract(table[:first])
        self.free += table[first:]
        del self.committed[req]


def traces(*shapes: tuple[Sequence[int], int]) -> list[TraceRequest]:
    return [TraceRequest(f"r{n}", tuple(prompt), output, n) for n, (prompt, output) in enumerate(shapes)]


def play(requests: list[TraceRequest], world: World, running: int = 4, chunk: int = 8) -> tuple[Pool, Summary]:
    """A whole run, and what must be true at its end whatever happened on the way."""
    pool, finished = Pool(world), list[int]()
    summary = drive(requests, pool.step, pool.coming_match, Knobs(world, running, chunk), finished.append)
    assert {req: len(tokens) for req, tokens in pool.ended.items()} == {
        trace.req: len(trace.prompt) + max(1, trace.output_len) for trace in requests
    }
    assert sum(finished) == summary.calls["finish"] == len(requests)
    assert sorted([*pool.free, *pool.cache.values()]) == list(range(1, world.pages + 1))
    assert not pool.committed and not any(pool.locks.values())
    assert summary.peak_running <= running
    return pool, summary


STEM = tuple(range(100, 120))
FOUR = traces((STEM, 6), ((*STEM, 1, 2, 3), 9), ((*STEM[:11], 7), 3), (STEM, 6))


@pytest.mark.parametrize("declared", [SGLANG, VLLM, PLAIN], ids=lambda declared: declared.name)
@pytest.mark.parametrize(("pages", "page_size"), [(400, 1), (40, 4), (100, 16)])
def test_a_roomy_pool_refuses_nothing(declared: Declaration, pages: int, page_size: int) -> None:
    pool, summary = play(FOUR, World(8, 64, pages, page_size, declared))
    assert not summary.refusals and not summary.calls["retract"] and not summary.evicted
    assert summary.prompt_tokens == sum(len(trace.prompt) for trace in FOUR)
    assert summary.calls["submit"] == 4 and summary.peak_running == 4
    assert summary.request_actions == sum(
        len(action.batch) if isinstance(action, Extend | Decode) else 1 for action in pool.log
    )


def test_batches_are_as_large_as_the_backend_takes() -> None:
    sizes = {}
    for most in (None, 3, 1):
        pool, _ = play(FOUR, World(8, 64, 400, 1, replace(PLAIN, max_batch=most)))
        sizes[most] = {len(action.batch) for action in pool.log if isinstance(action, Extend | Decode)}
    assert max(sizes[None]) == 4 and max(sizes[3]) == 3 and sizes[1] == {1}


def test_prompts_go_in_chunks_and_publish_as_they_go() -> None:
    pool, _ = play(traces((STEM, 2)), World(1, 64, 100, 4, SGLANG), running=1)
    assert pool.log == [
        Submit("r0", STEM, "trace"),
        Extend((("r0", 8, None),)),
        Checkpoint("r0", 8),
        Extend((("r0", 16, None),)),
        Checkpoint("r0", 16),
        Extend((("r0", 20, -1),)),
        Checkpoint("r0", 20),
        Decode((("r0", -2),)),
        Finish("r0", keep=21, publish=True),
    ]


def test_without_checkpoint_or_chunks_it_asks_for_neither() -> None:
    pool, _ = play(FOUR, World(8, 64, 400, 4, PLAIN))
    assert not any(isinstance(action, Checkpoint) for action in pool.log)
    extends = [action for action in pool.log if isinstance(action, Extend)]
    assert [upto for action in extends for _, upto, _ in action.batch] == [20, 23, 12, 20]


def test_a_matched_prefix_is_not_computed_again() -> None:
    pool, summary = play(traces((STEM, 1), (STEM, 1)), World(1, 64, 100, 4, SGLANG), running=1, chunk=100)
    assert summary.matched_tokens == 16  # four whole pages; of the fifth one token is left to compute
    assert [action.batch for action in pool.log if isinstance(action, Extend)] == [
        (("r0", 20, -1),),
        (("r1", 20, -1_000_001),),
    ]


def test_a_chunk_is_counted_from_the_match() -> None:
    pool, _ = play(traces((STEM, 1), (STEM, 1)), World(1, 64, 100, 4, SGLANG), running=1, chunk=3)
    second = [upto for action in pool.log if isinstance(action, Extend) for req, upto, _ in action.batch if req == "r1"]
    assert second == [19] and isinstance(pool.log[-2], Decode)  # 16 matched + 3; the last token is then the pending one


def test_no_answer_at_all_is_a_prefill() -> None:
    pool, summary = play(traces((STEM, 0)), World(1, 20, 5, 4, SGLANG), running=1)
    assert not summary.calls["decode"] and len(pool.ended["r0"]) == 21


def test_retraction_changes_no_token() -> None:
    requests = traces(*(((*STEM[: 5 + n], n), 9) for n in range(8)))
    roomy, _ = play(requests, World(8, 64, 400, 1, SGLANG), running=8)
    tight, summary = play(requests, World(8, 64, 30, 1, SGLANG), running=8)
    assert summary.calls["retract"] and summary.refusals["pages"] and summary.evicted
    assert tight.ended == roomy.ended


def test_half_of_the_requests_share_an_answer() -> None:
    pool, _ = play(traces(*[(STEM, 4)] * 4), World(8, 64, 400, 1, SGLANG))
    assert pool.ended["r0"] == pool.ended["r2"] and len(set(pool.ended.values())) == 3


def test_a_request_may_need_the_whole_pool_and_no_more() -> None:
    one = traces((STEM, 11))
    assert one[0].positions == 30
    play(one * 1, World(1, 30, 30, 1, SGLANG), running=1)
    for world, says in (
        (World(1, 30, 29, 1, SGLANG), r"request r0 cannot fit: 20 \+ 11 tokens need 30 pages of 1, the pool has 29"),
        (World(1, 29, 30, 1, SGLANG), r"request r0 cannot fit: 20 \+ 11 tokens need 30 columns, a row has 29"),
    ):
        pool = Pool(world)
        with pytest.raises(WrongInput, match=says):
            drive(one, pool.step, pool.coming_match, Knobs(world, 1), lambda _: None)
        assert not pool.log


def test_the_first_request_that_cannot_fit_is_named() -> None:
    with pytest.raises(WrongInput, match="request r1 cannot fit"):
        play(traces((STEM[:2], 1), (STEM, 1), (STEM, 9)), World(4, 64, 3, 4, SGLANG))


def test_pages_kept_back_can_make_a_request_impossible() -> None:
    world = World(1, 64, 5, 4, replace(SGLANG, headroom=1))
    says = r"^request r0 cannot fit: refused with 0 of 20 tokens while it runs alone; .* 5 pages and keeps 1 back"
    with pytest.raises(WrongInput, match=says):
        play(traces((STEM, 1)), world, running=1, chunk=20)


@pytest.mark.parametrize(
    ("running", "chunk", "says"),
    [(0, 8, "running = 0"), (4, 0, "chunk = 0"), (5, 8, "5 running requests with 4 rows: expected a row for each")],
)
def test_knobs_are_checked(running: int, chunk: int, says: str) -> None:
    with pytest.raises(WrongInput, match=says):
        play(FOUR, World(4, 64, 400, 1, SGLANG), running, chunk)


def test_rows_do_not_matter_to_a_backend_without() -> None:
    world = World(1, 64, 400, 1, VLLM)
    pool = Pool(replace(world, rows=99))
    assert drive(FOUR, pool.step, pool.coming_match, Knobs(world, 4), lambda _: None).peak_running == 4


@settings(deadline=None, derandomize=True, database=None, max_examples=300)
@given(
    shapes=st.lists(
        st.tuples(st.lists(st.sampled_from("ab"), min_size=1, max_size=12), st.integers(0, 8)), min_size=1, max_size=10
    ),
    page_size=st.sampled_from([1, 2, 4]),
    spare=st.integers(0, 12),
    running=st.integers(1, 10),
    chunk=st.integers(1, 6),
    declared=st.sampled_from([SGLANG, replace(VLLM, headroom=0), PLAIN, replace(SGLANG, max_batch=2)]),
)
def test_every_run_ends(
    shapes: list[tuple[list[int], int]], page_size: int, spare: int, running: int, chunk: int, declared: Declaration
) -> None:
    """Also in a pool that holds the largest request and nothing beside it."""
    requests = traces(*shapes)
    pages = max(pages_for(trace.positions, page_size) for trace in requests) + spare
    _, summary = play(requests, World(running, 24, pages, page_size, declared), running, chunk)
    assert summary.refusals.total() < (len(requests) + 1) * running


def test_pages_of_one_token_and_a_small_pool() -> None:
    """Where everybody retracting everybody would never end: the pool holds the longest request and little more."""
    requests = read(shared_trace("mooncake_conversation_2000.jsonl"), 40, 16)
    pages = max(trace.positions for trace in requests) + 100
    _, summary = play(requests, World(32, 4_096, pages, 1, SGLANG), running=32, chunk=256)
    assert 0 < summary.refusals.total() < 41 * 32
