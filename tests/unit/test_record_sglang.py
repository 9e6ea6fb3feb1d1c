"""The recorder beside the real SGLang: a run that nobody of the kit drives is recorded whole, and a page freed by hand
is judged where that was done. Skipped where the engine is not set up."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvledger.spec import recording
from kvledger.spec.action import name_of
from kvledger.spec.actions import Abort, Admit, Finish, Retract
from kvledger.spec.trace import Step
from kvledger.tests.engines.venvs import SGLANG
from kvledger.tests.record.audit import Audit, recorded
from kvledger.tests.unit.written import ROOT

pytestmark = pytest.mark.skipif(
    not SGLANG.is_set_up, reason=f"{SGLANG.title} is not set up: kvledger engines setup sglang"
)


class Seen:
    """What the engine's interpreter recorded and saw, once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        words = [str(SGLANG.python), "-m", "kvledger.tests.unit.record_inside", str(folder)]
        env = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        self.said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])

    def steps(self, name: str) -> list[Step]:
        return list(recording.read(self.folder / f"{name}.jsonl").steps())

    def finding(self, name: str) -> tuple[str, int] | None:
        """What an audit says of the recording."""
        file = str(self.folder / f"{name}.jsonl")
        found = Audit(recorded(file), file).judge(lambda size: None)
        return None if found is None else (found.rule, found.step)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(tmp_path_factory.mktemp("recorded"))


def kinds(steps: list[Step]) -> Counter[str]:
    return Counter(name_of(step.act) for step in steps)


def test_a_live_run_is_recorded_whole(seen: Seen) -> None:
    """Everything that the serving loop does, and nothing that breaks a rule."""
    found = kinds(seen.steps("clean"))
    wanted = {"submit", "admit", "defer", "extend", "checkpoint", "decode", "finish", "abort", "retract", "close"}
    assert wanted <= found.keys() and seen.finding("clean") is None
    assert seen.said["clean"] == {"watched": True, "restored": True, "drained": [True, 0]}


def test_no_token_is_unknown(seen: Seen) -> None:
    """Each was sampled after its slot was given, and is recorded all the same."""
    assert "unknown" not in (seen.folder / "clean.jsonl").read_text()


def test_a_page_freed_by_hand_is_judged_at_that_action(seen: Seen) -> None:
    rule, at = seen.finding("freed_by_hand") or ("", 0)
    act = seen.steps("freed_by_hand")[at - 1].act
    assert isinstance(act, Finish) and (rule, act.req) == ("PAGE-6", seen.said["freed_by_hand"])


RARE = (
    "freed_in_a_group", "drafts", "dropped", "flushed", "scheduler_admits", "bigram_keys", "session_that_keeps_nothing",
    "log_probabilities", "given_up", "another_server", "other_error", "kept_by_a_late_importer",
)  # fmt: skip


@pytest.mark.parametrize("name", RARE)
def test_what_is_rare_breaks_no_rule(seen: Seen, name: str) -> None:
    assert seen.finding(name) is None and len(seen.steps(name)) > 3


def test_a_request_is_admitted_once(seen: Seen) -> None:
    found = kinds(seen.steps("scheduler_admits"))
    assert (found["admit"], found["defer"], found["extend"]) == (1, 0, 1)


def test_a_request_that_ran_before_waits_again_without_its_lock(seen: Seen) -> None:
    """What it had locked as it ran was its record's; so nothing is locked, and all that is cached may go."""
    *_, admit, defer, evict = [name_of(step.act) for step in seen.steps("given_up")]
    assert (admit, defer, evict, seen.said["given_up"]) == ("admit", "defer", "evict", 0)


def test_a_slot_freed_twice_in_a_group_is_seen(seen: Seen) -> None:
    assert seen.said["slot_freed_twice_in_a_group"] == 1
    rule, at = seen.finding("slot_freed_twice_in_a_group") or ("", 0)
    assert rule == "PAGE-6" and seen.steps("slot_freed_twice_in_a_group")[at - 1].act == Retract("r")


def test_another_error_ends_the_recording_and_stays_an_error(seen: Seen) -> None:
    error, said = seen.said["other_error"]
    assert error == "no device" and said.endswith("other_error.jsonl ends here: RuntimeError('no device')\n")


def test_whoever_keeps_a_wrapper_calls_through_it(seen: Seen) -> None:
    assert seen.said["kept_by_a_late_importer"] == ["", False]


def test_drafts_are_reserved_and_committed(seen: Seen) -> None:
    """Of 40 tokens 8 more reach to 48, and 43 and 8 to 64, in whole pages of 16; 44 and 8 are there already."""
    found = kinds(seen.steps("drafts"))
    assert (found["reserve"], found["commit"], found["finish"]) == (2, 3, 1)


def test_a_turn_that_leaves_the_queue_ends(seen: Seen) -> None:
    """Admitted when it was matched, aborted without having run; its session is closed with all it had."""
    *_, admit, abort, close = seen.steps("dropped")
    assert admit.act == Admit(seen.said["dropped"]) and abort.act == Abort(seen.said["dropped"])
    assert name_of(close.act) == "close" and close.answer.freed is not None and close.answer.freed.rows


def test_a_flush_names_what_was_cached(seen: Seen) -> None:
    [flush] = [step for step in seen.steps("flushed") if name_of(step.act) == "flush"]
    assert len(flush.answer.evicted) > 9


def test_an_error_of_the_engine_is_a_refusal_and_stays_an_error(seen: Seen) -> None:
    assert "out of memory" in seen.said["short_of_memory"]
    assert name_of(seen.steps("short_of_memory")[-1].act) == "extend"
    assert getattr(seen.steps("short_of_memory")[-1].answer, "short", "") == "pages"


def test_a_recorder_that_stumbles_takes_nobody_along(seen: Seen) -> None:
    said, drained = seen.said["stumbles"]
    assert said.count("\n") == 1 and "stumbles.jsonl ends here: KeyError('lost')" in said and drained
    assert seen.finding("stumbles") is None


def test_what_cannot_be_recorded_is_said(seen: Seen) -> None:
    used, strange, written = seen.said["refuses"]
    assert used.startswith("the pools are in use") and strange.startswith("Mock: expected one of") and not written
