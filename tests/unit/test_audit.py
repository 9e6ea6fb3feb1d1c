"""`kvledger audit`: a recorded run is judged as the run itself was, from its start or from its middle, and the guilty
step is named. And `kvledger record`, whose runs it is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvledger.spec import recording, trace
from kvledger.spec.actions import Action, Finish
from kvledger.spec.answer import Freed, Reply
from kvledger.spec.monitor import Monitor
from kvledger.spec.trace import Step
from kvledger.tests.record import live_blocks
from kvledger.tests.record.live_blocks import Server
from kvledger.tests.record.recorder import Recorder
from kvledger.tests.unit.told import told
from kvledger.tests.unit.written import Bench

VECTORS = Path(__file__).parents[1] / "vectors"


def live(actions: int = 300) -> list[Step]:
    """What a block manager did, at seed 0."""
    steps = list[Step]()
    Server(0, lambda act, reply: steps.append(Step(act, reply))).serve(actions)
    return steps


def recorded(bench: Bench, steps: list[Step], name: str = "run.jsonl") -> str:
    with Recorder(bench.folder / name, live_blocks.WORLD, backend="block_manager") as recorder:
        for step in steps:
            recorder.note(step.act, step.answer)
    return name


def test_a_live_run_holds(bench: Bench) -> None:
    steps = live()
    code, out, err = bench.call("audit", recorded(bench, steps))
    assert (code, err) == (0, "") and out.startswith(f"run.jsonl: block_manager 1, {len(steps)} actions\n39 rules: ")


def test_a_page_freed_twice_is_judged_at_that_step(bench: Bench) -> None:
    """By hand, in a finish in the middle of a run."""
    steps = live()
    at = [number for number, step in enumerate(steps) if isinstance(step.act, Finish)][3]
    freed = steps[at].answer.freed
    assert freed is not None
    steps[at] = steps[at]._replace(answer=Reply(freed=Freed((*freed.pages, freed.pages[0]))))
    code, out, _ = bench.call("audit", recorded(bench, steps), "--json", "v.json")
    assert code == 1 and "BROKEN  PAGE-6 freed-exactly" in out and f"by finish, at step {at + 1}" in out
    report = json.loads((bench.folder / "v.json").read_text())
    assert (report["finding"]["rule"], report["finding"]["step"], report["actions"]) == ("PAGE-6", at + 1, at + 1)
    code, out, _ = bench.call("explain", report["finding"]["trace"])  # it was stored, and shows the same
    assert code == 1 and "BROKEN  PAGE-6 freed-exactly" in out and f"at step {at + 1}" in out


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*/*.itf.json")), ids=lambda path: path.stem)
def test_a_stored_run_is_judged_the_same_in_either_form(bench: Bench, path: Path) -> None:
    """What the vector says breaks, breaks at its step: read as it is, and recorded line by line."""
    stored = trace.read(path)
    lines = [recording.header(stored.world, stored.backend), *map(recording.line, stored.steps)]
    form = bench.file("run.jsonl", "\n".join(lines))
    finding = trace.judge(stored)
    for file in (str(path), form):
        code, _, _ = bench.call("audit", file, "--json", "v.json")
        report = json.loads((bench.folder / "v.json").read_text())
        assert code == (finding is not None)
        assert finding is None or (report["finding"]["rule"], report["finding"]["step"]) == (finding[1], finding[0])


@pytest.mark.parametrize("path", sorted(VECTORS.glob("valid/*.itf.json"))[::6], ids=lambda path: path.stem)
def test_a_run_may_begin_anywhere(bench: Bench, path: Path) -> None:
    """With a snapshot of that moment, what follows is judged as it was."""
    stored = trace.read(path)
    monitor = Monitor(stored.world)
    for at, step in enumerate(stored.steps):
        lines = [recording.header(stored.world, "", told(monitor.ledger)), *map(recording.line, stored.steps[at:])]
        code, out, err = bench.call("audit", bench.file("run.jsonl", "\n".join(lines)))
        assert (code, err) == (0, ""), (at, out, err)
        trace.judge_step(monitor, step)


def test_a_run_from_its_middle_on_that_breaks(bench: Bench) -> None:
    """It is stored with its opening: explained again it shows the same; no backend can perform it."""
    steps = live()
    middle = len(steps) // 2
    monitor = Monitor(live_blocks.WORLD)
    for step in steps[:middle]:
        monitor.step(step.act, step.answer)
    with Recorder(bench.folder / "run.jsonl", live_blocks.WORLD, opening=told(monitor.ledger)) as recorder:
        for step in steps[middle:]:
            twice = isinstance(step.act, Finish)
            freed = step.answer.freed or Freed()
            recorder.note(step.act, Reply(freed=Freed(freed.pages * 2)) if twice else step.answer)
    code, _, _ = bench.call("audit", "run.jsonl", "--json", "v.json")
    stored = json.loads((bench.folder / "v.json").read_text())["finding"]["trace"]
    assert code == 1 and bench.call("explain", stored)[0] == 1
    assert "a run from its middle on" in bench.complaint("replay", stored)


def test_what_is_recorded_only_to_a_point_says_how_far_it_holds(bench: Bench) -> None:
    """An engine died while a line was written; a call that nobody may make."""
    steps = live()[:40]
    name = recorded(bench, steps)
    whole = (bench.folder / name).read_text()
    cut = bench.file("cut.jsonl", whole[:-9])
    line = bench.complaint("audit", cut)
    assert f"cut.jsonl:{len(steps) + 1}: line 1, column" in line and line.endswith("; no step before breaks a rule\n")
    odd = bench.file("odd.jsonl", whole + '{"action": "abort", "req": "nobody", "answer": {}}\n')
    assert f"odd.jsonl: step {len(steps) + 1}: abort nobody may not be called here:" in bench.complaint("audit", odd)


@pytest.mark.parametrize("kind", ["extend", "decode", "finish", "retract", "abort", "checkpoint"])
def test_a_call_for_nobody_is_wrong_input_whatever_its_answer_says(bench: Bench, kind: str) -> None:
    """Also where it says what was freed, which is looked at before the call is judged."""
    kinds: dict[str, dict[str, object]] = {
        "extend": {"batch": [["a", 1, None]]}, "decode": {"batch": [["a", 1]]}, "checkpoint": {"req": "a", "upto": 1},
        "finish": {"req": "a", "keep": 1, "publish": True},
    }  # fmt: skip
    fields = kinds.get(kind, {"req": "a"})
    line = json.dumps({"action": kind, **fields, "answer": {"freed": {"pages": [1]}}})
    file = bench.file("run.jsonl", f"{recording.header(live_blocks.WORLD)}\n{line}\n")
    assert "may not be called here" in bench.complaint("audit", file)


def test_a_snapshot_that_no_run_leads_to(bench: Bench) -> None:
    head = json.loads(recording.header(live_blocks.WORLD)) | {"snapshot": {"requests": [
        {"req": "a", "tokens": [], "namespace": 0}]}}  # fmt: skip
    line = bench.complaint("audit", bench.file("run.jsonl", json.dumps(head)))
    assert "run.jsonl: snapshot: request a has no token" in line


def test_a_live_run_is_recorded_and_its_cost_said(bench: Bench) -> None:
    code, out, err = bench.call("record", "run.jsonl", "--actions", "60")
    assert (code, err) == (0, "") and "us an action for the recorder" in out
    assert bench.call("audit", "run.jsonl")[0] == 0
    assert "run.jsonl: this file exists" in bench.complaint("record", "run.jsonl")
    assert "--actions 0: expected at least 1" in bench.complaint("record", "other.jsonl", "--actions", "0")
    assert not (bench.folder / "other.jsonl").exists()


def test_the_same_seed_is_the_same_run() -> None:
    acts = [[step.act for step in live(80)] for _ in range(2)]
    assert acts[0] == acts[1] and all(isinstance(act, Action) for act in acts[0])
