"""The driver with sessions, forks, sub-agents, faults and drafts: on the reference, every step judged, its books
compared and its content read back. Every run ends, every request with it, and nothing is left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.spec.actions import (
    Abort,
    Action,
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
from kvledger.spec.page import pages_for
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import FULL, Grade, Lockstep
from kvledger.tests.replay.driver import Driver, drive
from kvledger.tests.replay.faults import NO_FAULTS, Fate, Faults, fate_of
from kvledger.tests.replay.knobs import Knobs
from kvledger.tests.replay.live import Live
from kvledger.tests.replay.request import TraceRequest, answer
from kvledger.tests.replay.resends import forward
from kvledger.tests.replay.summary import Summary
from kvledger.tests.replay.weave import Call, weave

REFERENCE = load_backend("reference")


@dataclass
class Played:
    """A whole run: what was asked and granted, in order."""

    log: list[Action]
    summary: Summary

    def kinds(self, *kinds: type) -> list[Action]:
        return [act for act in self.log if isinstance(act, kinds)]


def play(
    requests: Sequence[TraceRequest], world: World, *, running: int = 4, chunk: int = 8, batch: int | None = None,
    drafts: int = 0, faults: Faults = NO_FAULTS, backend: str = "reference", grade: Grade = FULL,
) -> Played:  # fmt: skip
    """To the end, through the drain probe. What must be true then whatever happened on the way."""
    lockstep = Lockstep(load_backend(backend), world, grade=grade)
    log, ended = list[Action](), list[int]()

    def step(act: Action) -> Granted | Refused:
        answer = lockstep.do(act)
        if isinstance(answer, Granted):
            log.append(act)
        return answer

    knobs = Knobs(lockstep.world, running, chunk, batch, drafts)
    summary = drive(requests, step, lockstep.ledger.prefix, knobs, ended.append, faults)
    ledger = lockstep.ledger
    assert not ledger.requests and not ledger.sessions and not ledger.records
    assert sum(ended) == len(requests) == summary.calls["finish"] + summary.told["requests aborted"]
    lockstep.drain()
    return Played(log, summary)


def call(length: int, output: int, parent: int | None = None, *, of: list[Call], after: tuple[int, ...] = ()) -> None:
    """One more call, of blocks of one token: all of its parent's, and new ones."""
    base = () if parent is None else of[parent].blocks
    fresh = ((len(of), place) for place in range(length - len(base)))
    of.append(Call([*base, *fresh], length, output, parent, after))


def two_turns_and_a_fork() -> list[TraceRequest]:
    calls: list[Call] = []
    call(6, 4, of=calls)
    call(12, 3, 0, of=calls)
    call(13, 2, 0, of=calls)
    return weave(calls, 1, 1)


def test_a_session_keeps_its_record_between_turns() -> None:
    """The second turn begins where the first one ended: 9 of its 12 tokens have KV. The fork is nobody's turn."""
    requests = two_turns_and_a_fork()
    assert [request.session for request in requests] == ["s0", "s0", None]
    run = play(requests, World(8, 32, 64, 1))
    submits = [act for act in run.log if isinstance(act, Submit)]
    assert [(act.req, act.session) for act in submits] == [("r0", "s0"), ("r1", "s0"), ("r2", None)]
    assert submits[1].tokens[:10] == submits[2].tokens[:10] == requests[0].prompt + answer(0, 0, 4)
    assert run.kinds(Finish) == [Finish("r0", 9, False), Finish("r2", 14, True), Finish("r1", 14, False)]
    assert run.log[-1] == Close("s0") and run.summary.kept_tokens == 9
    assert run.summary.told == {"turns": 2}


def test_a_backend_without_sessions_gets_plain_requests() -> None:
    run = play(two_turns_and_a_fork(), World(8, 32, 64, 1), backend="blocks")
    assert all(act.session is None for act in run.log if isinstance(act, Submit))
    assert not run.kinds(Close) and run.summary.matched_tokens > 9


def test_a_turn_keeps_what_the_next_one_begins_with() -> None:
    """Thinking was dropped: of an answer of 6 tokens the next prompt has room for 2."""
    calls: list[Call] = []
    call(5, 6, of=calls)
    call(8, 1, 0, of=calls)
    requests = weave(calls, 1, 1)
    assert requests[0].keep == 7
    run = play(requests, World(8, 32, 64, 1))
    assert run.kinds(Finish)[0] == Finish("r0", 7, False) and run.summary.kept_tokens == 7


def test_a_parent_waits_for_its_sub_agent_and_keeps_its_slot() -> None:
    calls: list[Call] = []
    call(6, 2, of=calls)  # the parent calls
    call(4, 2, of=calls, after=(0,))  # its sub-agent's two turns
    call(8, 2, 1, of=calls)
    call(12, 2, 0, of=calls, after=(2,))  # the parent goes on
    run = play(weave(calls, 1, 1), World(8, 32, 64, 1))
    order = [(type(act).__name__, act.req) for act in run.log if isinstance(act, Submit | Finish)]
    assert order == [(kind, f"r{number}") for number in range(4) for kind in ("Submit", "Finish")]
    assert run.kinds(Close) == [Close("s1"), Close("s0")] and run.summary.kept_tokens == 7 + 5


def test_for_want_of_rows_the_session_that_is_idle_longest_goes() -> None:
    """Three conversations begin, and there is one row: each closes the one before it, and begins it anew later."""
    calls: list[Call] = []
    for _ in range(3):
        call(4, 2, of=calls)
    for number in range(3):
        call(8, 2, number, of=calls)
    run = play(weave(calls, 1, 1), World(1, 32, 64, 1), running=1)
    assert [act.session for act in run.log if isinstance(act, Close)][:2] == ["s0", "s1"]
    assert run.summary.told["sessions closed for room"] == 3 and run.summary.refusals == {"rows": 3}
    assert [act.session for act in run.log if isinstance(act, Submit)] == ["s0", "s1", "s2"] * 2


def test_a_turn_gives_way_by_an_abort_and_comes_again_with_its_tokens() -> None:
    """Two conversations of 12 positions each in a pool of 20: what a retraction gives back would stay in a session."""
    calls: list[Call] = []
    for _ in range(2):
        call(4, 4, of=calls)
    for number in range(2):
        call(9, 4, number, of=calls)
    run = play(weave(calls, 1, 1), World(8, 32, 20, 1), running=2)
    assert run.summary.told["turns that gave way"] >= 1 and not run.kinds(Retract)
    again = [act for act in run.log if isinstance(act, Submit) and act.req == "r3"]
    assert len(again) == 2 and again[1].tokens[: len(again[0].tokens)] == again[0].tokens
    assert len(again[1].tokens) > len(again[0].tokens)


def test_a_session_whose_turn_was_retracted_is_idle_too() -> None:
    """r3 is retracted, and in the same round r2 finds no page: r3 is aborted, its session closed; it comes again."""
    calls: list[Call] = []
    for _ in range(2):
        call(4, 8, of=calls)
    for number in range(2):
        call(14, 8, number, of=calls)
    log = play(weave(calls, 1, 1), World(8, 32, 30, 1), running=2, chunk=4, faults=Faults(retract=100)).log
    at = log.index(Retract("r3"))
    assert log[at + 1 : at + 3] == [Abort("r3"), Close("s1")]
    again = next(act for act in log[at:] if isinstance(act, Submit))
    assert (again.req, again.session) == ("r3", "s1") and len(again.tokens) > 14


# ---- faults


def conversations(count: int) -> list[TraceRequest]:
    """So many of three turns each, and beside each one plain request."""
    calls: list[Call] = []
    for _ in range(count):
        call(12, 4, of=calls)
        call(30, 4, len(calls) - 1, of=calls)
        call(48, 4, len(calls) - 1, of=calls)
        call(10, 4, of=calls)
    return weave(calls, 1, 1)


def test_aborts_strike_everywhere() -> None:
    """As they wait, in the middle of a prompt, as they decode; plain requests, first turns, and turns that have their
    session's record. Counted are the tokens that had KV."""
    requests = conversations(20)
    lockstep = Lockstep(REFERENCE, World(40, 64, 512, 1))
    where = Counter[tuple[bool, str]]()

    def step(act: Action) -> Granted | Refused:
        if isinstance(act, Abort):
            ledger = lockstep.ledger
            request, record = ledger.requests[act.req], ledger.record(act.req)
            prompt = len(requests[int(act.req[1:])].prompt)
            state = "waits" if not record.holds_kv else "prompt" if record.committed_len < prompt else "decodes"
            where[request.session is not None and ledger.sessions[request.session].settled, state] += 1
        return lockstep.do(act)

    faults = Faults(abort=50, seed=3)
    summary = drive(requests, step, lockstep.ledger.prefix, Knobs(lockstep.world, 8, 4), lambda _: None, faults)
    assert set(where) == {(lent, state) for lent in (True, False) for state in ("waits", "prompt", "decodes")}
    assert summary.told["requests aborted"] == where.total() and 25 < where.total() < 55
    assert not lockstep.ledger.sessions
    lockstep.drain()


def test_a_retraction_strikes_once_whatever_the_room() -> None:
    requests = conversations(5)
    run = play(requests, World(40, 64, 512, 1), chunk=4, faults=Faults(retract=100))
    times = Counter(act.req for act in run.log if isinstance(act, Retract))
    assert max(times.values()) == 1 and len(times) > 10 and not run.summary.refusals


def test_a_session_that_is_closed_early_goes_with_its_turn_and_begins_anew() -> None:
    calls: list[Call] = []
    call(6, 4, of=calls)
    call(14, 4, 0, of=calls)
    run = play(weave(calls, 1, 1), World(8, 32, 64, 1), chunk=4, faults=Faults(close_early=100))
    kinds = [type(act).__name__ for act in run.log if isinstance(act, Submit | Close | Finish)]
    assert kinds == ["Submit", "Close", "Finish"] * 2 and run.summary.told["sessions closed early"] == 2
    assert not run.summary.kept_tokens


def test_one_seed_one_fate() -> None:
    requests = conversations(10)
    faults = Faults(abort=50, retract=50, close_early=50, seed=1)
    fates = [fate_of(request, faults) for request in requests]
    assert fates == [fate_of(request, faults) for request in reversed(requests)][::-1]
    assert fates != [fate_of(request, faults._replace(seed=2)) for request in requests]
    assert all(fate_of(request, NO_FAULTS) == (None, None, None) for request in requests)


@pytest.mark.parametrize(
    ("backend", "knobs", "faults", "says"),
    [
        ("reference", {}, Faults(abort=101), "abort = 101: expected a whole number from 0 to 100"),
        ("reference", {}, Faults(retract=-1), "retract = -1: expected a whole number from 0 to 100"),
        ("blocks", {}, Faults(close_early=1), "close_early = 1: blocks does not declare SESSIONS"),
        ("blocks", {"drafts": 2}, NO_FAULTS, "drafts = 2: blocks does not declare DRAFTS"),
        ("reference", {"drafts": -1}, NO_FAULTS, "drafts = -1: expected a whole number >= 0"),
        ("reference", {"batch": 0}, NO_FAULTS, "batch = 0: expected a whole number >= 1"),
        ("reference", {"drafts": 20}, NO_FAULTS, r"r1 cannot fit: 12 \+ 3 tokens and 20 drafts need 34 columns"),
    ],
)
def test_what_cannot_be_is_said(backend: str, knobs: dict[str, int], faults: Faults, says: str) -> None:
    lockstep = Lockstep(load_backend(backend), World(8, 32, 64, 1))
    with pytest.raises(WrongInput, match=says):
        drive(two_turns_and_a_fork(), lockstep.do, lockstep.ledger.prefix, Knobs(lockstep.world, 4, **knobs),
              lambda _: None, faults)  # fmt: skip
    assert not lockstep.steps


def test_an_early_close_wants_a_session() -> None:
    lockstep = Lockstep(REFERENCE, World(32, 32, 64, 1))
    plain = [request._replace(session=None) for request in two_turns_and_a_fork()]
    with pytest.raises(WrongInput, match="close_early = 5: no request is a turn of a session, expected some"):
        drive(plain, lockstep.do, lockstep.ledger.prefix, Knobs(lockstep.world), lambda _: None, Faults(close_early=5))


# ---- drafts, batches, resends


def test_drafts_are_reserved_and_some_of_them_accepted() -> None:
    """Each round reserves 3 + 1 slots; the answers are what they are without."""
    run = play(two_turns_and_a_fork(), World(8, 64, 64, 4), drafts=3)
    assert {act.n for act in run.log if isinstance(act, Reserve)} == {4} and run.summary.calls["decode"] == 0
    commits = [act for act in run.log if isinstance(act, Commit)]
    for number, samples in enumerate((4, 3, 2)):
        said = sum((act.tokens for act in commits if act.req == f"r{number}"), ())
        assert len(said) >= samples - 1 and said == answer(number, samples - len(said), samples)
    told = run.summary.told
    assert told["tokens drafted"] == 3 * len(commits)
    assert told["tokens drafted, accepted"] == sum(len(act.tokens) for act in commits) - len(commits)


def test_drafts_are_accepted_by_the_seed() -> None:
    runs = [play(conversations(2), World(20, 96, 256, 1), drafts=3, faults=Faults(seed=seed)) for seed in (1, 1, 2)]
    assert runs[0].log == runs[1].log != runs[2].log


def test_a_batch_is_no_larger_than_asked_for() -> None:
    run = play(conversations(3), World(20, 64, 512, 1), running=8, batch=2)
    sizes = [len(act.batch) for act in run.log if isinstance(act, Decode | Extend)]
    assert max(sizes) == 2


def test_resends_are_pulled_forward_and_run_beside_the_first_copy() -> None:
    """r3 is r1 once more; r2 goes on from r1. In place r3 comes last; pulled forward it runs with r1."""
    calls: list[Call] = []
    call(6, 2, of=calls)
    call(10, 4, 0, of=calls)
    call(16, 2, 1, of=calls)
    call(10, 4, 0, of=calls, after=(2,))
    calls[3] = calls[3]._replace(blocks=calls[1].blocks)
    requests = weave(calls, 1, 1)
    assert requests[3].prompt == requests[1].prompt and requests[3].session is None
    moved = forward(requests)
    assert [request.req for request in moved] == ["r0", "r1", "r3", "r2"] and moved[2].after == ("r0",)
    for order, alone in ((requests, True), (moved, False)):
        log = play(order, World(8, 32, 64, 1)).log
        started = log.index(Submit("r3", requests[3].prompt, "trace"))
        assert (log.index(Finish("r1", 13, False)) < started) is alone


def test_a_turn_that_goes_on_is_not_pulled_forward() -> None:
    first = TraceRequest("r0", (1, 2), 1, 0, "s0", keep=2)
    other = TraceRequest("r1", (1, 2, 3), 1, 1)
    turn = TraceRequest("r2", (1, 2, 3), 1, 2, "s0", after=("r0",))
    plain = TraceRequest("r3", (1, 2), 1, 3)
    assert forward([first, other, turn, plain]) == [first, plain, other, turn]


# ---- whatever the pool


@settings(deadline=None, derandomize=True, database=None, max_examples=150)
@given(
    shapes=st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)), min_size=5, max_size=12
    ),
    page_size=st.sampled_from([1, 2, 4]),
    spare=st.integers(0, 6),
    rows=st.integers(0, 3),
    running=st.integers(1, 6),
    chunk=st.integers(1, 6),
    drafts=st.sampled_from([0, 0, 2]),
    faults=st.builds(Faults, *[st.sampled_from([0, 0, 40])] * 3, st.integers(0, 9)),
    backend=st.sampled_from(["reference", "reference", "oracle-fifo"]),
)
def test_every_run_ends(
    shapes: list[tuple[int, int, int, int]], page_size: int, spare: int, rows: int, running: int, chunk: int,
    drafts: int, faults: Faults, backend: str,
) -> None:  # fmt: skip
    """Also in a pool that holds the largest request and nothing beside it, with no row to spare for idle sessions; and
    where keys name a token beyond their page (oracle-fifo)."""
    calls: list[Call] = []
    for number, (back, more, output, wait) in enumerate(shapes):
        parent = number - back if 0 < back <= number else None
        length = more + (0 if parent is None else calls[parent].input_len)
        call(length, output, parent, of=calls, after=(number - wait,) if 0 < wait <= number else ())
    requests = forward(weave(calls, 1, 1))
    if all(request.session is None for request in requests):
        faults = faults._replace(close_early=0)
    columns = max(request.positions for request in requests) + drafts
    pages = pages_for(columns, page_size) + spare
    world = World(running + rows, columns, pages, page_size)
    run = play(requests, world, running=running, chunk=chunk, drafts=drafts, faults=faults, backend=backend)
    assert run.summary.refusals.total() <= (len(requests) + 1) * (2 * running + len(requests))


@pytest.mark.parametrize("backend", ["reference", "oracle-fifo"])
def test_a_turn_that_began_anew_may_have_published_what_its_session_would_not_keep(backend: str) -> None:
    """It gave way with 8 or 9 of its tokens, and came again with them as its prompt, whose pages it publishes: 7 at
    least where a key names the token behind its page. Its session would keep 7 tokens, so it goes instead."""
    calls: list[Call] = []
    call(4, 12, of=calls)
    call(5, 6, of=calls)
    call(8, 1, 1, of=calls)
    requests = weave(calls, 1, 1)
    assert requests[1].keep == 7
    run = play(requests, World(8, 32, 15, 1), running=2, backend=backend)
    assert run.summary.told["turns that gave way"] == 1 and run.kinds(Finish)[1] == Finish("r1", 10, False)
    assert run.log[run.log.index(Finish("r1", 10, False)) + 1] == Close("s1")


def test_what_a_retracted_turn_has_published_stays_with_its_session() -> None:
    """It began anew, published more than its session would keep, and is retracted then: it goes on with that."""
    calls: list[Call] = []
    call(4, 12, of=calls)
    call(5, 6, of=calls)
    call(8, 1, 1, of=calls)
    requests = weave(calls, 1, 1)
    lives = [Live(each, place, Fate(), each.session is not None) for place, each in enumerate(requests)]
    knobs = Knobs(World(8, 32, 64, 1))
    driver, turn = Driver(lambda act: Granted(), lambda req: 0, knobs, lambda n: None, NO_FAULTS, Summary()), lives[1]
    turn.committed = turn.protected = 9
    driver.running["r1"] = turn
    driver.retract(turn)
    assert (turn.committed, turn.protected, driver.idle) == (0, 9, {"s1": turn})
