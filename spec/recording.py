"""A recorded run as JSON lines: the world, then a line an action. What a recorder beside a live engine writes.

    {"kvledger": "1", "world": {"rows": 8, "context_len": 64, "pages": 32, "page_size": 4,
                                "declared": {"name": "mine", "version": "1", "capabilities": ["PAGED", "CHUNKED"]}}}
    {"action": "submit", "req": "A", "tokens": [1, 2, 3, 4, 5], "namespace": 0, "answer": {}}
    {"action": "extend", "batch": [["A", 5, 17]], "answer": {"matched": [[]], "slots": [[4, 5, 6, 7, 8]]}}
    {"action": "decode", "batch": [["A", 3]], "refused": {"short": "pages"}}
    {"action": "finish", "req": "A", "keep": 5, "publish": false, "answer": {"freed": {"pages": [1, 2]}}}

One line each (the first is folded here). Plain JSON: lists, objects, null. The first line may name the "backend", and
hold a "snapshot" of where a run begins that was not seen from its start (spec/snapshot.py). A further line holds an
action with its fields (spec/actions), what was answered (spec/answer.py), and perhaps "probe", "view" and "read", as a
stored run does (spec/trace.py). What has a default there may be absent: so a submit says its namespace, a finish its
keep and publish, and the world what the engine declares. A field that nobody knows is an error, for who writes by hand
misspells.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from kvledger.spec.action import name_of
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.backend import View
from kvledger.spec.itf import TEXT, Json, as_object, only, parsed, plain, wrong
from kvledger.spec.snapshot import Snapshot
from kvledger.spec.stored import ACTIONS, READ, REFUSED, REPLY, SNAPSHOT, VIEW, WORLD
from kvledger.spec.trace import VERSION, Step, action_of, part, step_of
from kvledger.spec.world import Declaration, World, WrongInput

HEADER = ("kvledger", "backend", "world", "snapshot")
STEP = ("action", "answer", "refused", "probe", "view", "read")  # beside the fields of the action


@dataclass(frozen=True)
class Recording:
    """A file of this format, its first line read. opening: where it begins; None: with everything free."""

    file: Path
    world: World
    opening: Snapshot | None
    backend: str

    def steps(self, progress: Callable[[int], object] = lambda size: None) -> Iterator[Step]:
        """Its steps, a line at a time; progress is told the bytes of each. Raises WrongInput, `FILE:LINE: what`."""
        for number, line in _lines(self.file):
            if number > 1:
                yield parsed(line, f"{self.file}:{number}", _step)
            progress(len(line))


def read(path: str | Path) -> Recording:
    """The recording in a file. Raises WrongInput."""
    first = next(_lines(Path(path)), None)
    if first is None:
        raise WrongInput(f"{path}: an empty file, expected a recording")
    world, opening, backend = parsed(first[1], f"{path}:1", _header)
    return Recording(Path(path), world, opening, backend)


def header(world: World, backend: str = "", opening: Snapshot | None = None) -> str:
    """The first line of a recording, without its end. Raises WrongInput for what cannot be written."""
    head: dict[str, Json] = {"kvledger": VERSION, "backend": backend, "world": plain(WORLD.put(world, "world"))}
    if opening is not None:
        head["snapshot"] = plain(SNAPSHOT.put(opening, "snapshot"))
    return json.dumps(head)


def line(step: Step) -> str:
    """The line of one step, without its end. Raises WrongInput for what cannot be written."""
    where = name_of(step.act)
    refused = isinstance(step.answer, Refused)
    said = REFUSED.put(step.answer, where) if refused else REPLY.put(step.answer, where)
    found = {"action": where} | as_object(plain(ACTIONS[type(step.act)].put(step.act, where)), where)
    found["refused" if refused else "answer"] = plain(said)
    if step.probe:
        found["probe"] = True
    if step.view is not None:
        found["view"] = plain(VIEW.put(step.view, where))
    if step.read is not None:
        found["read"] = plain(READ.put(step.read, where))
    return json.dumps(found)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that hold something, with their numbers."""
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (OSError, ValueError) as error:
        raise WrongInput(f"{path}: cannot be read, {getattr(error, 'strerror', error)}") from None


def _header(content: Json, where: str) -> tuple[World, Snapshot | None, str]:
    head = as_object(content, f"{where}: the line")
    if head.get("kvledger") != VERSION:
        raise wrong(f"{where}: kvledger", head.get("kvledger"), f"{VERSION!r}, the format of the recording")
    only(head, HEADER, f"{where}: the line")
    sizes = as_object(part(head, "world", where), f"{where}: world")
    only(sizes, fields_of(World), f"{where}: world")
    declared = as_object(part(sizes, "declared", f"{where}: world"), f"{where}: world.declared")
    only(declared, fields_of(Declaration), f"{where}: world.declared")
    world = WORLD.take(part(head, "world", where), f"{where}: world")
    opening = None
    if head.get("snapshot") is not None:
        only(as_object(head["snapshot"], f"{where}: snapshot"), fields_of(Snapshot), f"{where}: snapshot")
        opening = SNAPSHOT.take(head["snapshot"], f"{where}: snapshot")
    return world, opening, TEXT.take(head.get("backend", ""), f"{where}: backend")


def _step(content: Json, where: str) -> Step:
    state = as_object(content, f"{where}: the line")
    act = action_of(part(state, "action", where), state, f"{where}: action", where)
    only(state, (*act._fields, *STEP), f"{where}: {name_of(act)}")
    if ("answer" in state) == ("refused" in state):
        raise WrongInput(f"{where}: expected an answer, or else a refused")
    said, kind, made = ("refused", REFUSED, Refused) if "refused" in state else ("answer", REPLY, Reply)
    words = as_object(state[said], f"{where}: {said}")
    only(words, fields_of(made), f"{where}: {said}")
    inside = (("freed", words.get("freed"), Freed._fields), ("view", state.get("view"), fields_of(View)))
    for name, value, names in inside:
        if isinstance(value, dict):
            only(value, names, f"{where}: {name}")
    return step_of(act, kind.take(state[said], f"{where}: {said}"), state, where)


def fields_of(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass."""
    return tuple(each.name for each in fields(kind))
