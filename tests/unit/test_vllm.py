"""The real vLLM under the law, where it is set up: it conforms, a fault in it is seen, and so is its own one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvledger.spec.trace import judge, read
from kvledger.tests.engines.venvs import VLLM
from kvledger.tests.unit.written import ROOT

FOUND = ROOT / "tests/engines/deviations/vllm-scheduler-cache-3.itf.json"
real = pytest.mark.skipif(not VLLM.is_set_up, reason=f"{VLLM.title} is not set up: kvledger engines setup vllm")
# Each fault of vllm_spoilt.py, and the rules that may name it: it breaks several, and the draw says which comes first.
FAULTS = {
    "free_skipped": "LOCK-1",
    "freed_twice": "PAGE-1",
    "freed_though_shared": "LOCK-1",
    "touched_without_count": "LOCK-1",
    "evicted_in_name_only": "EVICT-2 CACHE-3",
    "reset_while_held": "LOCK-2",
    "matched_to_the_end": "CACHE-2",
    "matched_one_less": "CACHE-1 PAGE-5",
    "refused_leaves_a_row": "ATOM-1",
    "published_ahead": "CACHE-3",
    "one_too_many": "REC-2",
    "refused_too_early": "PAGE-5",
    "salt_ignored": "NS-1",
    "hash_not_chained": "CACHE-4",
    "rejected_dropped": "DRAFT-1",
    "pending_published": "CACHE-3 DRAFT-2",
}
SPOILT = {
    "lose_a_free_block": "PAGE-2",
    "queue_a_held_block": "LOCK-2",
    "miscount_the_queue": "CONS-1",
    "lose_an_evictable_block": "CONS-1",
    "count_a_reader_more": "LOCK-1",
    "forget_a_hash": "CACHE-4",
    "move_a_hash": "CACHE-4",
    "hash_a_private_block": "CACHE-3",
    "swap_a_row": "TAB-2",
    "lose_a_row": "REC-1",
    "count_more_as_computed": "REC-2",
    "count_more_as_cached": "REC-2",
}


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A module of ours, run with the engine's Python."""
    return subprocess.run(
        [VLLM.python, "-s", "-m", *words], cwd=folder, env={"PYTHONPATH": str(ROOT / ".src")}, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What vllm_spoilt.py prints."""
    done = ran(tmp_path_factory.mktemp("spoilt"), "kvledger.tests.unit.vllm_spoilt")
    assert done.returncode == 0, done.stderr
    words: dict[str, Any] = json.loads(done.stdout)
    return words


@real
@pytest.mark.parametrize("grade", [(), ("--no-view",)])
def test_it_conforms(tmp_path: Path, grade: tuple[str, ...]) -> None:
    done = ran(tmp_path, "kvledger", "check", "vllm", "--actions", "3000", *grade)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith("CONFORMS  vllm 0.33.0")


@real
def test_every_fault_is_found_and_shrunk(said: dict[str, Any]) -> None:
    assert said["faults"].keys() == FAULTS.keys()
    for name, found in said["faults"].items():
        assert found is not None, name
        rule, calls = found
        assert rule in FAULTS[name].split() and calls <= 6, (name, found)


@real
def test_a_view_shows_every_structure_that_is_spoilt(said: dict[str, Any]) -> None:
    assert said["spoilt"] == SPOILT


@real
def test_what_the_scheduler_takes_back_is_read_later(said: dict[str, Any]) -> None:
    assert said["served"] == ["TAG-1", "extend", 11]


@real
def test_the_hunt_finds_by_itself_what_is_published_without_being_computed(tmp_path: Path) -> None:
    done = ran(tmp_path, "kvledger", "engines", "hunt", "vllm", "--seed", "100", "--programs", "60")
    assert done.returncode == 1, done.stderr
    assert "BROKEN  CACHE-3 publish-committed" in done.stdout
    assert "10 actions shrunk to 6." in done.stdout
    (stored,) = (tmp_path / ".kvledger").iterdir()
    assert stored.read_text() == FOUND.read_text()


@real
def test_first_come_first_served_is_clean(tmp_path: Path) -> None:
    done = ran(tmp_path, "kvledger", "engines", "hunt", "vllm", "--policy", "fcfs", "--programs", "60")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("60 programs from seed 0: 0 programs break a rule\n")


def test_what_the_hunt_found_breaks_the_law_without_the_engine() -> None:
    trace = read(FOUND)
    found = judge(trace, str(FOUND))
    assert found is not None
    assert found[:2] == (6, "CACHE-3") == (trace.at, trace.rule)
