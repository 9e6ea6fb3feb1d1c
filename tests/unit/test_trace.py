"""Stored runs: what is written is read again, judged again, open to other readers; and no file can crash the reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kvledger.reference.backend import make
from kvledger.spec.action import FILES, file_of
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
from kvledger.spec.answer import Freed, Granted, Refused, Reply
from kvledger.spec.backend import CachedView, View
from kvledger.spec.edit import Edit
from kvledger.spec.explore import explore
from kvledger.spec.keyframe import Cached, Conversation, Key, Private
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.saying import said
from kvledger.spec.stored import ACTIONS
from kvledger.spec.trace import Step, Trace, judge, read, text, write
from kvledger.spec.world import World, WrongInput
from kvledger.spec.worlds import WORLDS

ACTS: tuple[Action, ...] = (
    Submit("a", (1, "1", True, ("x", (None, 2)), ""), ("n", True)),
    Extend((("a", 3, None),)),
    Abort("nobody"),
    Extend((("a", 5, "\N{SNOWMAN}\ud800"),)),
    Checkpoint("a", 4),
    Submit("b", (1, "1", True, ("x", (None, 2)), 0), ("n", True), match_limit=2, publish=False),
    Extend((("b", 5, 10**40),)),
    Decode((("a", 1), ("b", 2))),
    Retract("b"),
    Flush(),
    Finish("a", 6, True),
    Evict(1),
    Submit("c", (1,), None),
    MatchPrefix("b"),
    Admit("b"),
    Defer("b"),
    Admit("b"),
    Extend((("c", 1, 2),)),
    Reserve("c", 2),
    Commit("c", (3, 4)),
    Submit("d", (7, 8, 9), 0, session="s"),
    Extend((("d", 3, 0),)),
    Finish("d", 3, False),
    Submit("e", (7, 8, 9, 0), 0, session="s"),
    Close("s"),
)


def performed(acts: tuple[Action, ...] = ACTS, rounds: int = 1) -> Trace:
    """The reference's answers and views; a call that is not allowed is a probe."""
    world = World(rows=3, context_len=8, pages=6, page_size=2)
    backend = make(world)
    world = replace(world, declared=backend.declare())
    monitor, steps = Monitor(world), []
    for act in acts * rounds:
        probe = file_of(act).requires(monitor.ledger, act) is not None
        reply = backend.do(act)
        if not probe:
            monitor.step(act, reply)
        steps.append(Step(act, reply, probe, backend.view()))
    return Trace(world, tuple(steps), backend="reference", note="one of each")


def stored(trace: Trace, folder: Path, **options: bool) -> Trace:
    """Written and read."""
    write(trace, folder / "t.itf.json", **options)
    return read(folder / "t.itf.json")


# ---- what is written is read


def test_every_action_can_be_stored() -> None:
    assert set(ACTIONS) == set(FILES) == {type(act) for act in ACTS}


@pytest.mark.parametrize("states", [False, True])
def test_round_trip(tmp_path: Path, states: bool) -> None:
    trace = performed()
    again = stored(trace, tmp_path, states=states)
    assert (again.world, again.backend, again.note, again.rule, again.at) == (
        trace.world, "reference", "one of each", None, None,
    )  # fmt: skip
    assert repr([step.act for step in again.steps]) == repr([step.act for step in trace.steps])
    assert [step.probe for step in again.steps] == [step.probe for step in trace.steps]
    assert sum(step.probe for step in again.steps) == 1
    assert judge(trace) is None and judge(again) is None
    assert text(again, states=states) == text(trace, states=states)
    assert stored(again, tmp_path) == stored(trace, tmp_path)


def test_how_it_was_judged_is_stored(tmp_path: Path) -> None:
    """Where it is not the default; a trace that says nothing of it is written as ever."""
    steps = (Step(Flush(), Reply()), Step(Flush(), Reply()))
    plain = Trace(World(1, 1, 1, 1), steps, "CONS-1", 2)
    judged = replace(plain, draining_since=0, view=False, content=False, limit_s=0.4)
    assert stored(judged, tmp_path) == judged and stored(plain, tmp_path) == plain
    meta = json.loads(text(judged))["#meta"].keys() - json.loads(text(plain))["#meta"].keys()
    assert meta == {"draining_since", "view", "content", "limit_s"}


def test_look_alikes_survive(tmp_path: Path) -> None:
    tokens = (1, "1", True, 0, "", False, "True", (1,), ("1",), (True, None), (), -1, 10**300)
    submits = tuple(Step(Submit(f"r{n}", tokens, each), Reply()) for n, each in enumerate((*tokens, None)))
    again = stored(Trace(World(1, 1, 1, 1), submits), tmp_path)
    assert repr(again.steps) == repr(submits)


def test_answers_are_stored_as_they_were_said(tmp_path: Path) -> None:
    class Element:
        """Counts as a whole number, as a tensor's element does."""

        def __index__(self) -> int:
            return 2

    element: Any = Element()
    replies: list[tuple[Reply | Refused, Reply | Refused]] = [
        (Reply(rows=[1], slots=[[element, 3], []]), Reply(rows=(1,), slots=((2, 3), ()))),
        (Reply(published={"r": 4}, freed=Freed((3, 3), (1,))), Reply(published={"r": 4}, freed=Freed((3, 3), (1,)))),
        (Reply(evicted=frozenset({2, 1})), Reply(evicted=frozenset({1, 2}))),
        (Reply(evicted=[2, 1, 2]), Reply(evicted=(1, 2, 2))),
        (Reply(freed=Freed()), Reply(freed=Freed())),
        (Refused("rows", frozenset({1})), Refused("rows", frozenset({1}))),
        (Refused("pages", freed=Freed((element,))), Refused("pages", freed=Freed((2,)))),
        (Refused(), Refused()),
    ]
    again = stored(Trace(World(1, 1, 1, 1), tuple(Step(Flush(), given) for given, _ in replies)), tmp_path)
    assert [step.answer for step in again.steps] == [expected for _, expected in replies]


def test_a_view_keeps_which_keys_are_equal(tmp_path: Path) -> None:
    hashes = View(cached={7: CachedView(b"\x01", 0), 3: CachedView(("k", 2.5), 1), 5: CachedView(("k", 2.5), 0)})
    for view, expected in [
        (hashes, View(cached={3: CachedView(3, 1), 5: CachedView(3, 0), 7: CachedView(7, 0)})),
        (View(), View()),
        (View(free_rows=[], free_pages=[2, 2]), View(free_rows=(), free_pages=(2, 2))),
    ]:
        trace = Trace(World(1, 1, 1, 1), (Step(Flush(), Reply(), view=view),))
        again = stored(trace, tmp_path)
        assert again.steps[0].view == expected and text(again) == text(trace)


def test_a_later_field_spoils_no_older_reader(tmp_path: Path) -> None:
    path = tmp_path / "t.itf.json"
    trace = performed()
    content = json.loads(text(trace))
    for each in (content, content["#meta"], *content["states"]):
        each["later"] = 1.5
    for state in content["states"][1:]:
        state["mbt::nondetPicks"]["later"] = state["answer"]["value"]["later"] = state["view"]["later"] = None
    path.write_text(json.dumps(content))
    assert text(read(path)) == text(trace)


def test_an_absent_field_means_its_default(tmp_path: Path) -> None:
    path = tmp_path / "t.itf.json"
    sizes = {"rows": 1, "context_len": 2, "pages": 3, "page_size": 1}
    init = {"mbt::actionTaken": "init", "world": sizes}
    step = {"mbt::actionTaken": "flush", "mbt::nondetPicks": {}, "answer": {"tag": "Reply", "value": {}}}
    path.write_text(json.dumps({"#meta": {"format": "ITF", "kvledger": "1"}, "states": [init, step]}))
    assert read(path) == Trace(World(1, 2, 3, 1), (Step(Flush(), Reply()),))


def test_another_reader_of_itf_opens_it() -> None:
    itf = pytest.importorskip("itf_py")
    trace = performed()
    found = itf.trace_from_json(json.loads(text(trace, states=True)))
    assert found.params == ["world"] and found.meta["kvledger"] == "1"
    assert all(set(found.vars) <= set(state.values) for state in found.states)
    first, last = found.states[0].values, found.states[-1].values
    assert (first["mbt::actionTaken"], first["world"].page_size) == ("init", 2)
    assert first["world"].declared.capabilities == trace.world.declared.capabilities
    assert found.states[1].values["mbt::nondetPicks"].tokens == (1, "1", True, ("x", (_nothing(itf), 2)), "")
    assert [each.req for each in last["ledger"].requests] == ["b", "c", "e"]
    assert last["ledger"].requests[-1].session == "s" and last["ledger"].sessions["s"].turn == "e"


def _nothing(itf: Any) -> Any:
    return itf.value_from_json({"tag": "Nothing", "value": {}})


# ---- judging


def tampered(trace: Trace, number: int, **fields: Any) -> Trace:
    """With another answer at one step."""
    step = trace.steps[number - 1]
    changed = step._replace(answer=replace(step.answer, **fields))
    return replace(trace, steps=(*trace.steps[: number - 1], changed, *trace.steps[number:]))


def test_geometry_is_judged_again(tmp_path: Path) -> None:
    trace = performed()
    slots = list(trace.steps[1].answer.slots[0])  # type: ignore[union-attr]
    broken = tampered(trace, 2, slots=[[slots[1], slots[0], *slots[2:]]])
    found = judge(stored(replace(broken, rule="TAB-1", at=2), tmp_path))
    assert found is not None and found[:2] == (2, "TAB-1") and found[2]["req"] == "a"


def test_a_probe_that_is_granted_is_found() -> None:
    trace = performed()
    steps = [step._replace(answer=Reply()) if step.probe else step for step in trace.steps]
    found = judge(replace(trace, steps=tuple(steps)))
    assert found is not None and found[:2] == (3, "GUARD-1")


def test_views_are_compared() -> None:
    trace = performed()
    at = len(trace.steps)
    view = trace.steps[-1].view
    assert view is not None and view.free_rows is not None
    lost = trace.steps[-1]._replace(view=replace(view, free_rows=view.free_rows[1:]))
    found = judge(replace(trace, steps=(*trace.steps[:-1], lost)))
    assert found is not None and found[:2] == (at, "ROW-1")
    assert found[2]["kind"] == "a free row is not on the free list"


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        (Step(Retract("x"), Reply()), "run.json: step 1: retract x may not be called here: the request holds no row"),
        (Step(Flush(), Reply(), probe=True), "run.json: step 1: flush is marked as a probe, expected a call that"),
        (Step(Submit("x", (1,), 0), Reply(), read={"x": ()}), "run.json: step 1: read names 'x', expected a request"),
        (Step(Flush(), Reply(), read={"x": ()}), "run.json: step 1: read names 'x', expected a request that holds KV"),
        (Step(Flush(), Reply(slots=[1])), "run.json: step 1: unnamed answered flush with slots = 1: expected a list"),  # type: ignore[list-item]
    ],
)
def test_what_the_caller_got_wrong_is_wrong_input(step: Step, complaint: str) -> None:
    with pytest.raises(WrongInput) as error:
        judge(Trace(World(1, 1, 1, 1), (step,)), "run.json")
    assert str(error.value).startswith(complaint)


# ---- keyframes


def test_a_keyframe_reads_like_a_ledger(tmp_path: Path) -> None:
    frames = stored(performed(ACTS[:9]), tmp_path, states=True).keyframes
    assert list(frames) == [9]
    frame = frames[9]
    assert {each.req: each.match_limit for each in frame.requests} == {"a": None, "b": 2}
    (record,) = frame.records.values()
    assert (record.protected_len, record.committed_len, record.allocated_len) == (4, 6, 6)
    first, second, own = frame.tables["a"]
    assert frame.pages == {first: Cached(1), second: Cached(1), own: Private("a", 2)}
    assert frame.index == {first: Key(frozenset({first}), None), second: Key(frozenset({second}), first)}


def test_a_keyframe_shows_sessions_and_admissions(tmp_path: Path) -> None:
    frame = stored(performed(), tmp_path, states=True).keyframes[len(ACTS)]
    assert [(each.req, each.session) for each in frame.requests] == [("b", None), ("c", None), ("e", "s")]
    assert frame.sessions == {"s": Conversation(turn="e", settled=True, closing=True)}
    assert {holder: tuple(record)[1:] for holder, record in frame.records.items()} == {"c": (0, 3, 4), "s": (0, 3, 3)}
    ((req, (page,)),) = frame.admitted.items()
    assert (req, frame.pages[page]) == ("b", Cached(1))
    assert [frame.pages[own] for own in frame.tables["s"]] == [Private("s", 0), Private("s", 1)]


@pytest.mark.parametrize(
    ("part", "said", "expected"),
    [
        ("sessions", {}, "{'s': Conversation(turn='e', settled=True, closing=True)}"),
        ("sessions", {"s": Conversation("e", True)}, "{'s': Conversation(turn='e', settled=True, closing=True)}"),
        ("admitted", {}, "{'b': ("),
    ],
)
def test_a_keyframe_that_lies_about_them_is_wrong_input(
    tmp_path: Path, part: str, said: Mapping[str, object], expected: str
) -> None:
    trace = stored(performed(), tmp_path, states=True)
    changed: dict[str, Any] = {part: said}
    frames = {len(ACTS): replace(trace.keyframes[len(ACTS)], **changed)}
    with pytest.raises(WrongInput) as error:
        judge(replace(trace, keyframes=frames), "run.json")
    assert f": ledger.{part} = " in str(error.value) and f", expected {expected}" in str(error.value)


def test_keyframes_stand_at_64_before_the_guilty_step_and_at_the_last(tmp_path: Path) -> None:
    trace = performed((Submit("a", (1, 2), 0), Abort("a")), rounds=70)
    assert list(stored(trace, tmp_path, states=True).keyframes) == [64, 128, 140]
    broken = replace(tampered(trace, 102, evicted=frozenset({1})), rule="EVICT-4", at=102)
    again = stored(broken, tmp_path, states=True)
    assert list(again.keyframes) == [64, 101] and text(again) == text(broken)
    found = judge(again)
    assert found is not None and found[:2] == (102, "EVICT-4")


def test_a_keyframe_that_is_not_the_law_is_wrong_input(tmp_path: Path) -> None:
    trace = stored(performed(), tmp_path, states=True)
    (number,) = trace.keyframes
    wrong = replace(trace.keyframes[number], pages={1: Cached(3)})
    with pytest.raises(WrongInput) as error:
        judge(replace(trace, keyframes={number: wrong}), "run.json")
    assert str(error.value).startswith(f"run.json: step {number}: ledger.pages = {{1: Cached(locks=3)}}, expected {{")


# ---- malformed files


def at(*path: str | int, put: Any) -> Callable[[Any], Any]:
    """A change of a trace's JSON: put something else in one place, or nothing (put=...)."""

    def change(content: Any) -> Any:
        inner = content
        for step in path[:-1]:
            inner = inner[step]
        if put is ...:
            del inner[path[-1]]
        else:
            inner[path[-1]] = put
        return content

    return change


PICKS, TAKEN = "mbt::nondetPicks", "mbt::actionTaken"
WORLD = ("states", 0, "world")
MALFORMED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda content: [], "the file = [], expected an object"),
    (at("#meta", put=...), "no #meta, expected one"),
    (at("#meta", "format", put="CSV"), "#meta.format = 'CSV', expected 'ITF'"),
    (at("#meta", "kvledger", put="2"), "#meta.kvledger = '2', expected '1'"),
    (at("#meta", "rule", put="x():"), "#meta.rule = 'x():', expected the id of a rule, RAISES or HANGS"),
    (at("#meta", "limit_s", put=1e-7), "#meta.limit_s = 1e-07, expected seconds, at least 0.001 and less than"),
    (at("#meta", "rule", put=7), "#meta.rule = 7, expected the id of a rule, RAISES or HANGS"),
    (at("#meta", "at", put=1), "a trace with rule None and at 1, expected both or neither"),
    (at("#meta", "draining_since", put=0), "draining_since = 0, expected a number of steps before the guilty one"),
    (at("#meta", "view", put="no"), "#meta.view = 'no', expected true or false"),
    (at("#meta", "limit_s", put="soon"), "#meta.limit_s = 'soon', expected seconds, at least 0.001 and less than"),
    (at("#meta", "limit_s", put=True), "#meta.limit_s = True, expected seconds"),
    (at("#meta", "limit_s", put=10**400), "#meta.limit_s = "),
    (at("states", put={}), "states = {}, expected a list that begins with init"),
    (at("states", put=[]), "states = [], expected a list that begins with init"),
    (at("states", 0, TAKEN, put="extend"), "state 0: mbt::actionTaken = 'extend', expected 'init'"),
    (at("states", 0, "world", put=...), "state 0: no world, expected one"),
    (at(*WORLD, "rows", put=...), "state 0: world has no field rows, expected one"),
    (at(*WORLD, "rows", put=0), "state 0: world: world with rows = 0: expected a whole number from 1 to 2^31 - 1"),
    (at(*WORLD, "rows", put=2**31), "state 0: world: world with rows = 2147483648: expected a whole number from 1 to"),
    (at(*WORLD, "pages", put=2**30), "state 0: world: world with 1073741824 pages of 2 slots: expected less than 2^31"),
    (at(*WORLD, "declared", "capabilities", put=["WINGS"]), "state 0: world.declared: reference declares capa"),
    (at(*WORLD, "declared", "headroom", put=1.0), "state 0: world.declared.headroom = 1.0, expected a whole number"),
    (at("states", 3, put=None), "state 3 = None, expected an object"),
    (at("states", 3, TAKEN, put=...), "state 3: no mbt::actionTaken, expected one"),
    (at("states", 3, TAKEN, put="abolish"), "state 3: mbt::actionTaken = 'abolish', expected one of submit, admit,"),
    (at("states", 3, PICKS, put=...), "state 3: no mbt::nondetPicks, expected one"),
    (at("states", 3, PICKS, "req", put=...), "state 3: abort has no field req, expected one"),
    (at("states", 3, PICKS, "req", put=True), "state 3: abort.req = True, expected text"),
    (at("states", 1, PICKS, "tokens", put="abc"), "state 1: submit.tokens = 'abc', expected a tuple"),
    (at("states", 1, PICKS, "tokens", put=[0.5]), "state 1: submit.tokens = 0.5, expected text, a whole number, a"),
    (at("states", 1, PICKS, "namespace", put=0.5), "state 1: submit.namespace = 0.5, expected text, a whole number"),
    (at("states", 2, PICKS, "batch", put=[["a", 3]]), "state 2: extend.batch = ['a', 3], expected a tuple of 3"),
    (at("states", 11, PICKS, "keep", put={"#bigint": "six"}), "state 11: finish.keep = {'#bigint': 'six'}, expected a"),
    (at("states", 2, "answer", put=...), "state 2: no answer, expected one"),
    (at("states", 2, "answer", "tag", put="Maybe"), "state 2: answer = {'tag': 'Maybe', 'value': {"),
    (at("states", 2, "answer", "value", "slots", put=7), "state 2: answer.slots = 7, expected a tuple"),
    (at("states", 2, "answer", "value", "published", put=[]), "state 2: answer.published = [], expected a map, no key"),
    (at("states", 2, "answer", "value", "published", put={"#map": [["a", 1], ["a", 1]]}),
     "state 2: answer.published = {'#map': [['a', 1], ['a', 1]]}, expected a map, no key twice"),
    (at("states", 3, "answer", "value", "short", put="time"), "state 3: answer.short = 'time', expected one of rows"),
    (at("states", 3, "probe", put="yes"), "state 3: probe = 'yes', expected true or false"),
    (at("states", 3, "view", "totals", put={}), "state 3: view.totals has no field available, expected one"),
    (at("states", 3, "view", "cached", put={"#map": [[1, 2, 3]]}), "state 3: view.cached = {'#map': [[1, 2, 3]]}, "),
    (at("states", 3, "ledger", put=[]), "state 3: ledger = [], expected an object"),
]


@pytest.mark.parametrize(("change", "complaint"), MALFORMED, ids=[complaint[:40] for _, complaint in MALFORMED])
def test_a_malformed_file_costs_one_line(tmp_path: Path, change: Callable[[Any], Any], complaint: str) -> None:
    path = tmp_path / "t.itf.json"
    path.write_text(json.dumps(change(json.loads(text(performed())))))
    with pytest.raises(WrongInput) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: {complaint}") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "line 1, column 1: Expecting value, expected JSON"),
        (b'{"#meta":\n {"format": "ITF"', "line 2, column 18: Expecting ',' delimiter, expected JSON"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte, expected JSON in UTF-8"),
        (b"[" * 100_000, "nested too deeply, expected something flatter"),
        (b'{"#meta": ' + b"1" * 9000 + b"}", "Exceeds the limit"),
    ],
)
def test_a_file_that_is_not_json(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "t.itf.json"
    path.write_bytes(content)
    with pytest.raises(WrongInput) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: {complaint}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="cannot be read, No such file or directory"):
        read(tmp_path / "t.itf.json")
    with pytest.raises(WrongInput, match="cannot be written, No such file or directory"):
        write(performed(), tmp_path / "nowhere" / "t.itf.json")


# ---- what cannot be stored


def nested(depth: int) -> tuple[object, ...]:
    token: tuple[object, ...] = ()
    for _ in range(depth):
        token = (token,)
    return token


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        (Step(Submit("r", (1.5,), 0), Reply()), "state 1: submit.tokens = 1.5, expected text, a whole number, a truth"),
        (Step(Submit("r", (b"x",), 0), Reply()), "state 1: submit.tokens = b'x', expected text"),
        (Step(Submit("r", (1,), frozenset()), Reply()), "state 1: submit.namespace = frozenset(), expected text"),
        (Step(Submit("r", (Freed(),), 0), Reply()), "state 1: submit.tokens = Freed(pages=(), rows=()), expected text"),
        (Step(Submit("r", (10**700,), 0), Reply()), "state 1: submit.tokens is a number of more than 600 digits, expe"),
        (Step(Submit("r", (nested(5000),), 0), Reply()), "a token is nested too deeply, expected a flatter one"),
        (Step(Abort(7), Reply()), "state 1: abort.req = 7, expected text"),  # type: ignore[arg-type]
        (Step(Flush(), None), "state 1: answer = None, expected one of Reply, Refused"),  # type: ignore[arg-type]
        (Step(Flush(), Reply(slots=[1])), "state 1: answer.slots = 1, expected a list"),  # type: ignore[list-item]
        (Step(Flush(), Reply(), view=View(records={"r": 1})), "state 1: view.records['r'] = 1, expected a RecordView"),  # type: ignore[dict-item]
        (Step(Flush(), Reply(), view=View(cached=[1])), "state 1: view.cached = [1], expected a mapping of page to"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_stored_is_named(tmp_path: Path, step: Step, complaint: str) -> None:
    path = tmp_path / "t.itf.json"
    with pytest.raises(WrongInput) as error:
        write(Trace(World(1, 1, 1, 1), (step,)), path)
    assert str(error.value).startswith(f"{path}: {complaint}") and not path.exists()


def test_a_guilty_step_lies_in_the_run() -> None:
    world, steps = World(1, 1, 1, 1), (Step(Flush(), Reply()),)
    assert Trace(world, steps, "ROW-1", 1).at == 1
    for number in (0, 2):
        with pytest.raises(WrongInput, match=f"^at = {number}, expected a step from 1 to 1"):
            Trace(world, steps, "ROW-1", number)
    for rule, at in (("ROW-1", None), (None, 1)):
        with pytest.raises(WrongInput, match="expected both or neither"):
            Trace(world, steps, rule, at)


# ---- from pages to slots

SPARSE = {"SESSIONS": 3, "SMALL": 7}  # one transition in so many


@pytest.mark.parametrize("name", WORLDS)
def test_the_monitor_hears_what_was_said(name: str) -> None:
    world, scope = WORLDS[name]
    monitor, turn = Monitor(world, count_armed=False), count()

    def check(before: Ledger, act: Action, answer: Granted | Refused, _: Ledger) -> None:
        if next(turn) % SPARSE.get(name, 1) == 0:
            monitor.ledger = Edit(before).commit()
            assert monitor.step(act, said(before, act, answer)) == answer

    explore(world, scope, laws=False, on_transition=check)
