"""Calls at random, allowed and forbidden: the books of the reference add up, and its answers say what moved."""

from __future__ import annotations

from random import Random

import pytest

from kvledger.reference.backend import Backend, make, make_chunk_cache
from kvledger.spec.actions import (
    Abort,
    Action,
    Admit,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Defer,
    Evict,
    Extend,
    Finish,
    Flush,
    MatchPrefix,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.backend import Make, Refused, Reply
from kvledger.spec.world import Token, World
from kvledger.tests.unit.by_hand import adds_up


class Caller:
    """Draws calls about four requests and two sessions; tokens are few, so that prefixes meet."""

    def __init__(self, backend: Backend, seed: int) -> None:
        self.backend, self.draw = backend, Random(seed)

    def call(self) -> Action:
        """Any action; most of them could be meant."""
        draw = self.draw
        req = draw.choice([*self.backend.reqs, "abcd"[draw.randrange(4)]])
        held = self.backend.reqs.get(req)
        end = len(held.tokens) if held else 3
        committed = held.kv.kv_committed_len if held and held.kv.holds_kv else 0
        match draw.randrange(15):
            case 0 | 1:
                return self.submit(req)
            case 2:
                return self.one_of(Admit(req), Defer(req), MatchPrefix(req))
            case 3 | 4 | 5:
                members = dict.fromkeys([req, *draw.sample(sorted(self.backend.reqs), min(1, len(self.backend.reqs)))])
                return Extend(tuple(self.member(each) for each in members))
            case 6 | 7:
                return Decode(((req, draw.randrange(2)),))
            case 8:
                return Reserve(req, draw.randrange(7))
            case 9:
                spare = held.kv.kv_allocated_len - committed if held and held.kv.over_allocated else 0
                return Commit(req, tuple(draw.randrange(2) for _ in range(draw.randint(0, spare + 1))))
            case 10:
                return Checkpoint(req, draw.randint(0, committed))
            case 11:
                turn = held is not None and held.session is not None
                return Finish(req, draw.randint(0, committed), draw.random() < (0.1 if turn else 0.7))
            case 12:
                return self.one_of(Retract(req), Abort(req))
            case 13:
                return self.one_of(Close("S"), Close("T"), Evict(draw.randrange(3)), Flush())
            case _:
                return Extend(((req, end, draw.randrange(2)),))

    def one_of(self, *actions: Action) -> Action:
        """Any of them."""
        return self.draw.choice(actions)

    def member(self, req: str) -> tuple[str, int, int | None]:
        """An extend of one request, often to the end of its tokens."""
        held = self.backend.reqs.get(req)
        end = len(held.tokens) if held else 3
        upto = self.draw.choice([end, end, self.draw.randint(1, end)])
        return req, upto, self.draw.randrange(2) if upto == end else None

    def submit(self, req: str) -> Submit:
        """A request, or a turn that goes on from what its session has, to here or there."""
        draw = self.draw
        tokens: tuple[Token, ...] = tuple(draw.randrange(2) for _ in range(draw.randint(1, 7)))
        session = draw.choice([None, "S", "T"])
        if session in self.backend.sessions:
            kept = tuple(self.backend.sessions[session].tokens)
            tokens = kept[: draw.randint(0, len(kept))] + tokens[: draw.randint(1, 3)]
        limit = draw.randrange(5) if session is None and draw.random() < 0.2 else None
        return Submit(req, tokens, "m" if draw.random() < 0.1 else "n", limit, draw.random() < 0.9, session)


def pages(answer: Reply | Refused, size: int) -> tuple[set[int], set[int]]:
    """The pages that an answer handed out, as far as they begin in it, and those that it let go."""
    handed = {slot // size for slots in answer.slots for slot in slots} if isinstance(answer, Reply) else set()
    return handed, {*answer.evicted, *(answer.freed.pages if answer.freed else ())}


@pytest.mark.parametrize("make", [make, make_chunk_cache])
@pytest.mark.parametrize("page_size", [1, 2, 3])
def test_the_books_add_up_whatever_is_called(make: Make, page_size: int) -> None:
    """After every call; who is refused has changed no book, but for what it says it evicted or trimmed."""
    performed = set()
    for seed in range(12):
        backend = make(World(rows=3, context_len=9, pages=12 // page_size, page_size=page_size))
        assert isinstance(backend, Backend)
        caller = Caller(backend, seed)
        for _ in range(400):
            before, action = backend.view(), caller.call()
            answer = backend.do(action)
            after = backend.view()
            adds_up(backend)
            handed, let_go = pages(answer, page_size)
            was, now = set(before.free_pages or ()), set(after.free_pages or ())
            assert now - was <= let_go and let_go - handed <= now and was - now <= handed, (action, answer)
            if isinstance(answer, Reply):
                performed.add(type(action))
            elif not let_go and answer.freed is None:
                assert before.records == after.records and before.table == after.table
                assert (before.free_rows, before.cached) == (after.free_rows, after.cached)
            backend.scramble()
        for req in list(backend.reqs):
            backend.do(Abort(req))
        for session in list(backend.sessions):
            backend.do(Close(session))
        backend.tree_cache.evict(backend.tree_cache.evictable_size)
        assert len(backend.allocator.free_pages) == backend.world.pages
        assert len(backend.req_to_token_pool.free_slots) == backend.world.rows
    cacheless = {Evict, Flush, Checkpoint}
    assert performed >= {*Action.__args__} - (cacheless if make is make_chunk_cache else set())
