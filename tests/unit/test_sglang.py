"""The adapter to the real SGLang: it conforms where the known faults are repaired, faults put into the engine's own
classes are found, and its view shows what the engine's books say. Skipped where the engine is not set up."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from kvledger.tests.engines.venvs import SGLANG
from kvledger.tests.kit.deviations import SHIPPED
from kvledger.tests.unit.written import ROOT

pytestmark = pytest.mark.skipif(
    not SGLANG.is_set_up, reason=f"{SGLANG.title} is not set up: kvledger engines setup sglang"
)
# The rules that may name a fault first, in a check of any seed.
NAMED = {
    "a free frees nothing": {"PAGE-2", "PAGE-6"},
    "a page is handed out twice": {"PAGE-1"},
    "an unlock unlocks nothing": {"LOCK-1"},
    "an insertion frees what is published": {"PAGE-6"},
    "a row is not freed": {"PAGE-6", "ROW-1"},
    "a match takes the whole prompt": {"CACHE-2", "RAISES"},  # nothing is left to compute: the engine stumbles, too
    "a locked leaf is evicted": {"LOCK-2"},
    "a close keeps the row": {"PAGE-6", "SES-3"},
    "a turn's tail takes its page along": {"PAGE-6", "SES-1", "SES-2"},
}
SHOWN = {
    "a_row": {"free_rows"},
    "a_page": {"free_pages", "totals"},
    "a_length": {"records"},
    "a_session": {"records", "table"},
    "a_column": {"table"},
    "a_lock": {"cached"},
    "a_key": {"cached"},
    "a_node": {"cached"},
    "a_sum": {"totals"},
}


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    """What the engine's interpreter answers, once."""
    words = [str(SGLANG.python), "-m", "kvledger.tests.unit.sglang_inside"]
    env = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("tree", ["sglang", "sglang-rust", "sglang-radix", "sglang-no-cache"])
def test_the_engine_conforms_where_it_is_repaired(said: dict[str, Any], tree: str) -> None:
    assert said["conform"][tree] is None


@pytest.mark.parametrize("fault", NAMED)
def test_a_fault_of_the_engine_is_found(said: dict[str, Any], fault: str) -> None:
    assert said["faults"].keys() == NAMED.keys() and said["faults"][fault] in NAMED[fault]


def test_what_is_known_shows_and_its_repair_helps(said: dict[str, Any]) -> None:
    """Each run that lies beside the list; and not behind the caller that makes up for it."""
    listed = {path.name for path in SHIPPED.glob("sglang-*.json") if not path.name.startswith("sglang-0.5.")}
    assert said["known"] == {name: [True, False] for name in listed}


def test_a_close_in_mid_turn_waits(said: dict[str, Any]) -> None:
    """The run that shows sglang#37167 in 0.5.10 (test_sglang_generations.py)."""
    assert said["closed"] == {"in mid-turn": None}


def test_a_thinking_request_that_is_retracted_twice(said: dict[str, Any]) -> None:
    """tests/engines/README.md: pages are freed that the tree lists."""
    assert said["thinking"] == {"retracted twice": "PAGE-6"}


@pytest.mark.parametrize("spoilt", SHOWN)
def test_a_view_is_read_off_the_books(said: dict[str, Any], spoilt: str) -> None:
    """One number changed by hand changes the parts that it stands in, and no other."""
    assert said["views"].keys() == SHOWN.keys() and set(said["views"][spoilt]) == SHOWN[spoilt]
