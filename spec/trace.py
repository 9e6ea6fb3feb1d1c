"""A stored run: a world, and action by action what the backend answered. Written, read, and judged again.

A file is one ITF trace (spec/itf.py), one state a line. State 0 is "init" and carries the world with its
declaration; each further state is one step:

    "mbt::actionTaken"    the action's name; "mbt::nondetPicks": its fields. The names that quint-connect reads
    "answer"              Reply or Refused as the backend gave it, in slots, so that geometry is judged again (TAB-1)
    "probe"    optional   true: a call that the action does not allow, made to see it refused (GUARD-1)
    "view"     optional   the backend's own books after the step
    "read"     optional   what some requests read through the backend's table, as tags: the law's numbers for prefixes
    "ledger"   optional   a keyframe: what the law holds true after the step, for people who read the file

A run that was not seen from its start has a "snapshot" in state 0 (spec/snapshot.py).

"#meta" says "format" ITF, "kvledger" 1 (the version of this format), "backend", "note", and, iff the trace is
broken, which "rule" breaks "at" which step; "draining_since", if that is a step of the drain probe, how many steps come
before the probe; and how it was judged, where that is not the default: "view", "content", "limit_s". Inside one
version an absent field means its default and an unknown one is passed over: a field may be added that older readers can
do without. Any other change raises the version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kvledger.spec.action import NAMES, file_of, name_of
from kvledger.spec.actions import Action
from kvledger.spec.answer import Granted, Refused, Reply
from kvledger.spec.backend import View
from kvledger.spec.itf import NOTHING, NUMBER, TEXT, TRUTH, Json, Kind, as_object, parsed, short, wrong
from kvledger.spec.keyframe import KEYFRAME, Keyframe, keyframe
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import RULES, Broken
from kvledger.spec.snapshot import Snapshot
from kvledger.spec.stored import ACTIONS, ANSWER, READ, SNAPSHOT, VIEW, WORLD
from kvledger.spec.whole_file import write_whole
from kvledger.spec.world import ReqId, World, WrongInput

VERSION = "1"
RAISES, HANGS = "RAISES", "HANGS"  # a backend that does is a finding, though no rule names it
# Seconds that one call may be given: a shorter time is over before Python has looked at a clock twice.
LEAST_S, MOST_S = 0.001, 1e6
A_LIMIT = f"seconds, at least {LEAST_S:g} and less than a million"
VARS = ("mbt::actionTaken", "mbt::nondetPicks", "answer")
FRAME_EVERY = 64  # steps between two keyframes
NAMED = {NAMES[kind]: stored for kind, stored in ACTIONS.items()}

Finding: TypeAlias = tuple[int, str, Mapping[str, object]]


class Step(NamedTuple):
    """One call. probe: the action does not allow it. view: the books after it, if they were stored. read: what some
    requests read after it through the backend's own table, as tags."""

    act: Action
    answer: Reply | Refused
    probe: bool = False
    view: View | None = None
    read: Mapping[ReqId, Sequence[int]] | None = None


@dataclass(frozen=True)
class Trace:
    """One run. rule: what breaks, and at: the guilty step, from 1; None: a valid trace. backend: who answered.
    keyframes: step -> what the law held true after it, as stored. draining_since: the steps before the drain probe,
    if the guilty step is one of it. view, content: whether the backend's were looked at. limit_s: seconds that one call
    might take; None: as many as the reader gives it. opening: where it begins, if not with everything free."""

    world: World
    steps: tuple[Step, ...]
    rule: str | None = None
    at: int | None = None
    backend: str = ""
    note: str = ""
    keyframes: Mapping[int, Keyframe] = field(default_factory=dict)
    draining_since: int | None = None
    view: bool = True
    content: bool = True
    limit_s: float | None = None
    opening: Snapshot | None = None

    def __post_init__(self) -> None:
        if (self.at is None) != (self.rule is None):
            raise WrongInput(f"a trace with rule {self.rule!r:.40} and at {self.at}, expected both or neither")
        if self.at is not None and not 1 <= self.at <= len(self.steps):
            raise wrong("at", self.at, f"a step from 1 to {len(self.steps)}")
        if self.draining_since is not None and not 0 <= self.draining_since < (self.at or 0):
            raise wrong("draining_since", self.draining_since, "a number of steps before the guilty one")


# ---- writing


def write(trace: Trace, path: str | Path, *, states: bool = False) -> None:
    """Store a trace, whole or not at all. states: with keyframes, every 64 steps, before the guilty step and after the
    last.

    Raises WrongInput naming the file and the state that cannot be stored: a token that is not text, a whole number,
    a truth value or a tuple of them; an answer or a view of a wrong type.
    """
    content = text(trace, str(path), states=states)
    try:
        write_whole(path, [content])
    except (OSError, ValueError) as error:
        raise WrongInput(f"{path}: cannot be written, {getattr(error, 'strerror', error)}") from None


def text(trace: Trace, file: str = "trace", *, states: bool = False) -> str:
    """What `write` stores: the same text for the same trace. file: its name, for complaints."""
    about = {name: getattr(trace, name) for name in ABOUT if getattr(trace, name) != getattr(Trace, name)}
    head = {
        "#meta": {"format": "ITF", "kvledger": VERSION} | about,
        "params": ["world"],
        "vars": list(VARS),
    }
    frames = _keyframes(trace, file) if states else {}
    try:
        lines = ",\n".join(map(json.dumps, _states(trace, file, frames)))
    except RecursionError:
        raise WrongInput(f"{file}: a token is nested too deeply, expected a flatter one") from None
    parts = [f'"{name}": {json.dumps(part)}' for name, part in head.items()]
    return "{" + ",\n".join([*parts, f'"states": [\n{lines}\n]']) + "}\n"


def _states(trace: Trace, file: str, frames: Mapping[int, Keyframe]) -> Iterator[Json]:
    init = _state(0, "init", {}, NOTHING) | {"world": WORLD.put(trace.world, f"{file}: state 0: world")}
    if trace.opening is not None:
        init["snapshot"] = SNAPSHOT.put(trace.opening, f"{file}: state 0: snapshot")
    yield init
    for number, step in enumerate(trace.steps, 1):
        where, name = f"{file}: state {number}", name_of(step.act)
        picks = ACTIONS[type(step.act)].put(step.act, f"{where}: {name}")
        state = _state(number, name, picks, ANSWER.put(step.answer, f"{where}: answer"))
        if step.probe:
            state["probe"] = True
        if step.view is not None:
            state["view"] = VIEW.put(step.view, f"{where}: view")
        if step.read is not None:
            state["read"] = READ.put(step.read, f"{where}: read")
        if number in frames:
            state["ledger"] = KEYFRAME.put(frames[number], f"{where}: ledger")
        yield state


def _state(number: int, *values: Json) -> dict[str, Json]:
    return {"#meta": {"index": number}, **dict(zip(VARS, values, strict=True))}


# ---- reading


def read(path: str | Path) -> Trace:
    """The trace that a file holds. Raises WrongInput, `FILE: state 3: what, expected what`, and nothing else."""
    try:
        raw = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise WrongInput(f"{path}: cannot be read, {getattr(error, 'strerror', error)}") from None
    return parsed(raw, str(path), _trace)


def _trace(content: Json, file: str) -> Trace:
    whole = as_object(content, f"{file}: the file")
    meta = as_object(part(whole, "#meta", file), f"{file}: #meta")
    for name, law in (("format", "ITF"), ("kvledger", VERSION)):
        if meta.get(name) != law:
            raise wrong(f"{file}: #meta.{name}", meta.get(name), repr(law))
    about: dict[str, Any] = {
        name: kind.take(meta[name], f"{file}: #meta.{name}")
        for name, kind in ABOUT.items()
        if name in meta
    }
    states = part(whole, "states", file)
    if not isinstance(states, list) or not states:
        raise wrong(f"{file}: states", states, "a list that begins with init")
    where = f"{file}: state 0"
    init = as_object(states[0], where)
    if part(init, VARS[0], where) != "init":
        raise wrong(f"{where}: {VARS[0]}", init[VARS[0]], "'init'")
    world = WORLD.take(part(init, "world", where), f"{where}: world")
    opening = SNAPSHOT.take(init["snapshot"], f"{where}: snapshot") if "snapshot" in init else None
    steps, frames = [], {}
    for number, each in enumerate(states[1:], 1):
        where = f"{file}: state {number}"
        state = as_object(each, where)
        steps.append(_step(state, where))
        if "ledger" in state:
            frames[number] = KEYFRAME.take(state["ledger"], f"{where}: ledger")
    try:
        return Trace(world, tuple(steps), keyframes=frames, opening=opening, **about)
    except WrongInput as error:
        raise WrongInput(f"{file}: {error}") from None


def _seconds(json: Json, where: str) -> float:
    if isinstance(json, bool) or not isinstance(json, int | float) or not LEAST_S <= json < MOST_S:
        raise wrong(where, json, A_LIMIT)
    return float(json)


def _rule(json: Json, where: str) -> str:
    """Of these words alone: `explain --pytest` makes the name of a test of it."""
    if not isinstance(json, str) or json not in (*RULES, RAISES, HANGS):
        raise wrong(where, json, "the id of a rule, RAISES or HANGS")
    return json


# What "#meta" says about a trace, in plain JSON: a field that has its default is left out.
ABOUT = {
    "rule": Kind(lambda rule, _: rule, _rule),
    "at": NUMBER,
    "backend": TEXT,
    "note": TEXT,
    "draining_since": NUMBER,
    "view": TRUTH,
    "content": TRUTH,
    "limit_s": Kind(lambda seconds, _: seconds, _seconds),
}


def _step(state: dict[str, Json], where: str) -> Step:
    name, picks, answer = (part(state, each, where) for each in VARS)
    action = action_of(name, picks, f"{where}: {VARS[0]}", where)
    return step_of(action, ANSWER.take(answer, f"{where}: answer"), state, where)


def action_of(name: Json, picks: Json, named: str, where: str) -> Action:
    """The action with this name and these fields. named: where the name stood. Raises WrongInput."""
    if not isinstance(name, str) or name not in NAMED:
        raise wrong(named, name, f"one of {', '.join(NAMED)}")
    action: Action = NAMED[name].take(picks, f"{where}: {name}")
    return action


def step_of(act: Action, answer: Reply | Refused, state: dict[str, Json], where: str) -> Step:
    """A step with what else is stored of it. Raises WrongInput."""
    return Step(
        act,
        answer,
        TRUTH.take(state.get("probe", False), f"{where}: probe"),
        VIEW.take(state["view"], f"{where}: view") if "view" in state else None,
        READ.take(state["read"], f"{where}: read") if "read" in state else None,
    )


def part(content: dict[str, Json], name: str, where: str) -> Json:
    """What stands under a name that must be there. Raises WrongInput."""
    if name not in content:
        raise WrongInput(f"{where}: no {name}, expected one")
    return content[name]


# ---- judging


def judge(trace: Trace, file: str = "trace") -> Finding | None:
    """The first finding: step (from 1), rule, facts; None if no rule breaks in what is stored.

    Answers are judged, those to probes too, and views compared where there are any. Raises WrongInput, naming file
    and step: a call that its action does not allow and that is no probe, a probe of a call that is allowed, an
    answer of a wrong shape, a keyframe that is not what the law holds true.
    """
    return _follow(trace, file, partial(compare, trace, file))


def compare(trace: Trace, file: str, number: int, ledger: Ledger) -> None:
    """Hold the keyframe of step `number`, if there is one, against what the law holds true. Raises WrongInput."""
    if number not in trace.keyframes:
        return
    stored, law = trace.keyframes[number], keyframe(ledger)
    for each in fields(law):
        here, true = getattr(stored, each.name), getattr(law, each.name)
        if here != true:
            raise wrong(f"{file}: step {number}: ledger.{each.name}", here, f"{short(true)}, as the law has it")


def _keyframes(trace: Trace, file: str) -> dict[int, Keyframe]:
    frames: dict[int, Keyframe] = {}

    def note(number: int, ledger: Ledger) -> None:
        if number % FRAME_EVERY == 0 or number in (len(trace.steps), (trace.at or 0) - 1):
            frames[number] = keyframe(ledger)

    _follow(trace, file, note)
    return frames


def _follow(trace: Trace, file: str, after: Callable[[int, Ledger], None]) -> Finding | None:
    """Judge up to the first finding; `after` is called with each step that breaks nothing."""
    try:
        monitor = Monitor(trace.world, trace.opening, count_armed=False)
    except WrongInput as error:
        raise WrongInput(f"{file}: {error}") from None
    for number, step in enumerate(trace.steps, 1):
        try:
            judge_step(monitor, step)
        except Broken as broken:
            return number, broken.rule, broken.facts
        except WrongInput as error:
            raise WrongInput(f"{file}: step {number}: {error}") from None
        after(number, monitor.ledger)
    monitor.finish()
    return None


def judge_step(monitor: Monitor, step: Step) -> None:
    """Judge what is stored of one step, its answer, view and what was read. Raises Broken; WrongInput for a call that
    may not be made here, or a probe of one that may."""
    answer: Granted | Refused | None = None
    if not step.probe:
        answer = monitor.step(step.act, step.answer)
    elif file_of(step.act).requires(monitor.ledger, step.act) is None:
        raise WrongInput(f"{name_of(step.act)} is marked as a probe, expected a call that may not be made here")
    else:
        monitor.probe(step.act, step.answer)
    if step.view is not None:
        monitor.compare(step.view, step.act, answer)
    for req, tags in (step.read or {}).items():
        if req not in monitor.ledger.records:
            raise WrongInput(f"read names {req!r}, expected a request that holds KV")
        monitor.read(req, tags)
