"""The adapters to older generations of SGLang: what sglang#37167 repaired is found in 0.5.10 and not in 0.5.20, faults
put into their classes are found, and their views show what their books say. Skipped where one is not set up."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from typing import Any

import pytest

from kvledger.tests.engines.venvs import SGLANG_0_5_10, SGLANG_0_5_20, Engine
from kvledger.tests.unit.written import ROOT

GUESTS = [
    pytest.param(guest, id=guest.name, marks=pytest.mark.skipif(
        not guest.is_set_up, reason=f"{guest.title} is not set up: kvledger engines setup {guest.name}"))
    for guest in (SGLANG_0_5_10, SGLANG_0_5_20)
]  # fmt: skip
FOUND = {SGLANG_0_5_10: {"rule": "SES-3", "by": "close", "actions": 6}, SGLANG_0_5_20: None}
# 0.5.10 gives the turn's row, which is 1, to another request; in 0.5.20 the turn has 2, and for two more there is none.
ROWS = {SGLANG_0_5_10: {"turn": 1, "others": [2, 1]}, SGLANG_0_5_20: {"turn": 2, "others": "rows"}}
# The rules that may name a fault first, in a check of any seed.
NAMED = {
    "a page is handed out twice": {"PAGE-1"},
    "a row is not freed": {"PAGE-6", "ROW-1"},
    "an unlock unlocks nothing": {"LOCK-1"},
}
SHOWN = {
    "a_row": {"free_rows"},
    "a_page": {"free_pages", "totals"},
    "a_length": {"records"},
    "a_session": {"records", "table"},
    "a_column": {"table"},
    "a_lock": {"cached"},
    "a_node": {"cached"},
}


@cache
def said(guest: Engine) -> dict[str, Any]:
    """What an interpreter that can import it answers, once."""
    words = [str(guest.python), "-P", "-m", "kvledger.tests.unit.sglang_guest_inside", guest.name]
    env = os.environ | {"PYTHONPATH": f"{guest.place}{os.pathsep}{ROOT / '.src'}"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("guest", GUESTS)
def test_one_row_with_two_holders_is_found(guest: Engine) -> None:
    """By the ci profile, in 0.5.10: a close in mid-turn frees the row that the turn has, and goes on to use."""
    assert said(guest)["found"] == FOUND[guest]


@pytest.mark.parametrize("guest", GUESTS)
def test_who_has_the_row_after_a_close_in_mid_turn(guest: Engine) -> None:
    assert said(guest)["rows"] == ROWS[guest]


@pytest.mark.parametrize("guest", GUESTS)
def test_what_is_known_still_shows(guest: Engine) -> None:
    known = said(guest)["known"]
    assert known and all(known.values()), known


@pytest.mark.parametrize("fault", NAMED)
@pytest.mark.parametrize("guest", GUESTS)
def test_a_fault_of_the_engine_is_found(guest: Engine, fault: str) -> None:
    faults = said(guest)["faults"]
    assert faults.keys() == NAMED.keys() and faults[fault] in NAMED[fault]


@pytest.mark.parametrize("spoilt", SHOWN)
@pytest.mark.parametrize("guest", GUESTS)
def test_a_view_is_read_off_the_books(guest: Engine, spoilt: str) -> None:
    """One number changed by hand changes the parts that it stands in, and no other."""
    views = said(guest)["views"]
    assert views.keys() == SHOWN.keys() and set(views[spoilt]) == SHOWN[spoilt]
