"""Recordings: what is written is read, in plain JSON that anybody could have written; what is not costs one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvledger.spec import recording
from kvledger.spec.actions import Extend, Submit
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.backend import View
from kvledger.spec.trace import Step
from kvledger.spec.world import Declaration, World, WrongInput
from kvledger.tests.record.recorder import Recorder
from kvledger.tests.unit.test_snapshot import SOUND
from kvledger.tests.unit.test_trace import performed

WORLD = World(2, 8, 4, 4, Declaration("mine", "1", frozenset({"PAGED", "ROWS"})))
HEAD = '{"kvledger": "1", "world": {"rows": 2, "context_len": 8, "pages": 4, "page_size": 4, "declared": {}}}'
SUBMIT = '{"action": "submit", "req": "a", "tokens": [1, 2, 3, 4, 5], "namespace": 0, "answer": {}}'
EXTEND = '{"action": "extend", "batch": [["a", 5, null]], "answer": {"rows": [1], "matched": [[]], "slots": [[4, 5]]}}'
REFUSED = '{"action": "extend", "batch": [["a", 5, 9]], "refused": {"short": "pages"}}'
BY_HAND = "\n".join([HEAD, SUBMIT, "", EXTEND, REFUSED]) + "\n"


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "run.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_everything_that_is_recorded_is_read(tmp_path: Path) -> None:
    """A step of each kind, with views, probes and tokens of every kind; what was read back stands with a step, too."""
    steps = [step._replace(read={"a": (1, 2)}) if at == 3 else step for at, step in enumerate(performed().steps)]
    lines = [recording.header(performed().world, "reference", SOUND), *map(recording.line, steps)]
    found = recording.read(written(tmp_path, "\n".join(lines)))
    assert (found.world, found.backend, found.opening is not None) == (performed().world, "reference", True)
    assert repr([step.act for step in found.steps()]) == repr([step.act for step in steps])
    again = [recording.header(found.world, found.backend, found.opening), *map(recording.line, found.steps())]
    assert again == lines


def test_what_somebody_else_would_write(tmp_path: Path) -> None:
    """Plain lists and nulls; a declaration that says nothing is the default one."""
    found = recording.read(written(tmp_path, BY_HAND))
    read = list[int]()
    steps = list(found.steps(read.append))
    assert found.world.declared == Declaration() and sum(read) == len(BY_HAND) - 1  # but for the empty line
    assert steps[0].act == Submit("a", (1, 2, 3, 4, 5), 0)
    assert steps[1] == Step(Extend((("a", 5, None),)), Reply(rows=(1,), matched=((),), slots=((4, 5),)))
    assert steps[2] == Step(Extend((("a", 5, 9),)), Refused("pages"))


def test_a_view_in_plain_json(tmp_path: Path) -> None:
    """Numbers that are keys stand there as text."""
    view = {"free_pages": [1], "cached": {"2": {"key": 2, "locks": 1}}, "records": {"a": {
        "row": None, "protected_len": 0, "committed_len": 1, "allocated_len": 1}}}  # fmt: skip
    line = json.dumps(json.loads(SUBMIT) | {"view": view})
    [step] = recording.read(written(tmp_path, f"{HEAD}\n{line}\n")).steps()
    assert step.view is not None and step.view.cached == {2: (2, 1)} and step.view.records == {"a": (None, 0, 1, 1)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "an empty file, expected a recording"),
        ("\n\n", "an empty file, expected a recording"),
        (b"\xff", "1: 'utf-8' codec can't decode byte 0xff in position 0"),
        ("{", "1: line 1, column 2: Expecting property name enclosed in double quotes"),
        ("[" * 100_000, "1: nested too deeply, expected something flatter"),
        ("[]", "1: the line = [], expected an object"),
        ('{"timestamp": 0}', "1: kvledger = None, expected '1', the format of the recording"),
        ('{"kvledger": "2"}', "1: kvledger = '2', expected '1', the format of the recording"),
        ('{"kvledger": "1"}', "1: no world, expected one"),
        ('{"kvledger": "1", "world": {"rows": 0}}', "1: world: no declared, expected one"),
        ('{"kvledger": "1", "world": {"rows": 0, "declared": {}}}', "1: world has no field context_len, expected"),
        ('{"kvledger": "1", "world": {"declared": {"max_bach": 1}}}', "1: world.declared has a field 'max_bach', exp"),
        ('{"kvledger": "1", "world": {"roows": 1}}', "1: world has a field 'roows', expected some of rows"),
        (f'{HEAD}\n{{"action": "flush", "answer": {{"freed": {{"page": []}}}}}}', "2: freed has a field 'page', expe"),
        (f'{HEAD}\n{{"action": "flush", "answer": {{}}, "view": {{"free": []}}}}', "2: view has a field 'free', expe"),
        (HEAD[:-1] + ', "backend": 7}', "1: backend = 7, expected text"),
        (HEAD[:-1] + ', "snapshot": {"cached": [{}]}}', "1: snapshot.cached has no field tokens, expected one"),
        (f"{HEAD}\n7", "2: the line = 7, expected an object"),
        (f"{HEAD}\n{{}}", "2: no action, expected one"),
        (f'{HEAD}\n{{"action": "abolish"}}', "2: action = 'abolish', expected one of submit, admit,"),
        (f'{HEAD}\n\n{{"action": "abort", "answer": {{}}}}', "3: abort has no field req, expected one"),
        (f'{HEAD}\n{{"action": "abort", "req": "a"}}', "2: expected an answer, or else a refused"),
        (f'{HEAD}\n{{"action": "flush", "answer": {{}}, "refused": {{}}}}', "2: expected an answer, or else a refused"),
        (f'{HEAD}\n{{"action": "flush", "answer": []}}', "2: answer = [], expected an object"),
        (f'{HEAD}\n{{"action": "flush", "refused": {{"short": "time"}}}}', "2: refused.short = 'time', expected one"),
        (f'{HEAD}\n{{"action": "flush", "answer": {{}}, "view": 3}}', "2: view = 3, expected an object"),
        (f'{HEAD}\n{SUBMIT}\n{{"action": "flu', "3: line 1, column 12: Unterminated string"),
        (f'{HEAD}\n{{"action": "flush", "answer": {{"fred": 1}}}}', "2: answer has a field 'fred', expected some of"),
        (f'{HEAD}\n{{"action": "flush", "awnser": {{}}}}', "2: flush has a field 'awnser', expected some of action,"),
        (f'{HEAD}\n{{"action": "flush", "answer": {{}}, "answer": {{}}}}', "2: 'answer' stands twice in one object"),
        (HEAD[:-1] + ', "wrold": 1}', "1: the line has a field 'wrold', expected some of kvledger, backend, world,"),
        (HEAD[:-1] + ', "snapshot": {"requets": []}}', "1: snapshot has a field 'requets', expected some of requests"),
    ],
)  # fmt: skip
def test_what_is_no_recording_costs_one_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(WrongInput) as error:
        list(recording.read(path).steps())
    assert str(error.value).startswith(f"{path}:{says}".replace(":an empty", ": an empty"))
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="cannot be read, No such file or directory"):
        recording.read(tmp_path / "run.jsonl")
    with pytest.raises(WrongInput, match="cannot be read, Is a directory"):
        recording.read(tmp_path)


# ---- the recorder


def test_a_recorder_writes_each_line_at_once(tmp_path: Path) -> None:
    """Whoever reads the file while the engine runs, or after it has died, finds what was noted."""
    recorder = Recorder(tmp_path / "run.jsonl", WORLD, backend="mine")
    recorder.note(Submit("a", (1,), 0), Reply())
    assert [step.act for step in recording.read(tmp_path / "run.jsonl").steps()] == [Submit("a", (1,), 0)]
    recorder.close()


def test_a_recorder_overwrites_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "precious")
    with pytest.raises(WrongInput, match="this file exists, expected a new name to record to"):
        Recorder(path, WORLD)
    with pytest.raises(WrongInput, match="Not a directory, expected a name to record to"):
        Recorder(path / "run.jsonl", WORLD)
    assert path.read_text() == "precious"


BAD: list[tuple[Callable[[Recorder], Any], str]] = [
    (lambda it: it.note(Submit("a", (0.5,), 0), Reply()), "submit.tokens = 0.5, expected text"),
    (lambda it: it.note(Submit("a", (1,), 0), Reply(rows=["one"])), "submit.rows = 'one', expected a whole number"),  # type: ignore[list-item]
    (lambda it: it.note(Submit("a", (1,), 0), Reply(freed=Freed((0.5,)))), "submit.freed.pages = 0.5, expected a"),  # type: ignore[arg-type]
    (lambda it: it.note(Submit("a", (1,), 0), Reply(), view=View(free_rows=["x"])), "submit.free_rows = 'x', expected"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("note", "says"), BAD)
def test_what_cannot_be_recorded_leaves_no_trace(tmp_path: Path, note: Callable[[Recorder], Any], says: str) -> None:
    with Recorder(tmp_path / "run.jsonl", WORLD) as recorder:
        before = (tmp_path / "run.jsonl").read_text()
        with pytest.raises(WrongInput) as error:
            note(recorder)
        assert str(error.value).startswith(says) and (tmp_path / "run.jsonl").read_text() == before


def test_an_opening_that_cannot_be_written_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"requests\.tokens = 0\.5"):
        Recorder(tmp_path / "run.jsonl", WORLD, opening=type(SOUND)([Submit("a", (0.5,), 0)]))
    assert not (tmp_path / "run.jsonl").exists()
