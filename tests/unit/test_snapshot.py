"""Snapshots: from every state of the small worlds a run goes on as if it had been seen from its start."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kvledger.spec.actions import Submit
from kvledger.spec.backend import RecordView
from kvledger.spec.canon import canon
from kvledger.spec.explore import explore
from kvledger.spec.itf import plain
from kvledger.spec.keyframe import keyframe
from kvledger.spec.ledger import Ledger
from kvledger.spec.snapshot import Node, Snapshot, Talk, opened
from kvledger.spec.stored import SNAPSHOT
from kvledger.spec.world import Declaration, World, WrongInput
from kvledger.spec.worlds import WORLDS
from kvledger.tests.unit.told import told


@pytest.mark.parametrize("name", WORLDS)
def test_every_state_can_be_opened_again(name: str) -> None:
    """Nothing is lost and nothing added: content, locks and counts are worked out as the run had left them."""
    states = 0

    def again(ledger: Ledger, _: object) -> None:
        nonlocal states
        states += 1
        stored = json.dumps(plain(SNAPSHOT.put(told(ledger), "snapshot")))
        there = opened(ledger.world, SNAPSHOT.take(json.loads(stored), "snapshot"))
        assert keyframe(there) == keyframe(ledger) and canon(there) == canon(ledger)

    assert explore(*WORLDS[name], laws=False, on_state=again).states == states


WORLD = World(4, 8, 6, 2)
A = Submit("a", (1, 2, 3, 4), 0)
SOUND = Snapshot([A], {}, {"a": RecordView(1, 2, 3, 3)}, {"a": (2, 3, 4)}, {}, [Node((1, 2), (1,))])


def test_a_snapshot_says_what_it_needs_to() -> None:
    """Page 1 is read by a, page 2 is its own; its pending token has no KV."""
    ledger = opened(WORLD, SNAPSHOT.take(SNAPSHOT.put(SOUND, "snapshot"), "snapshot"))
    assert (ledger.pages[1].locks, ledger.prefix("a"), ledger.free_page_count()) == (1, 3, 4)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"requests": [A, A]}, "a request stands there twice"),
        ({"requests": [A._replace(tokens=())]}, "request a has no token"),
        ({"requests": [A._replace(session="s")]}, "request a is of session s, expected to be its turn there"),
        ({"requests": []}, "records of 'a', expected one of nobody"),
        ({"records": {}}, "table of 'a', expected one of nobody"),
        ({"table": {}}, "no table of 'a', expected the slots of its row"),
        ({"admitted": {"b": ()}}, "admitted of 'b', expected one of a"),
        ({"admitted": {"a": ()}}, "holder a: LOCK-1, admitted, and holds more or less than its match"),
        ({"records": {"a": RecordView(5, 2, 3, 3)}}, "a holds row 5, expected one from 1 to 4"),
        ({"records": {"a": RecordView(None, 2, 3, 3)}}, "a holds row None, expected one from 1 to 4"),
        ({"records": {"a": RecordView(1, 2, 4, 3)}}, "holder a: REC-2, lengths (2, 4, 3)"),
        ({"records": {"a": RecordView(1, 0, 3, 3)}}, "page 1 of a has another owner, expected one"),
        ({"records": {"a": RecordView(1, 2, 3, 4)}}, "table of a, expected whole pages in order, up to its allocated"),
        ({"table": {"a": (2, 3, 5)}}, "table of a, expected whole pages in order, up to its allocated_len"),
        ({"table": {"a": (2, 3, 14)}}, "page 7: no lawful page"),
        ({"cached": []}, "page 1: LOCK-1, 0 locks and 1 readers"),
        ({"cached": [Node((1, 3), (1,))]}, "row of a lists the wrong page 1"),
        ({"cached": [Node((1,), (1,))]}, "cached[0] has 1 pages at the end of 1 tokens, expected whole pages of these"),
        ({"cached": [Node((1, 2), ())]}, "cached[0] has 0 pages at the end of 2 tokens, expected whole pages of"),
        ({"cached": [Node((1, 2), (1,), 0)]}, "cached[0].parent = 0, expected a node before it"),
        ({"cached": [Node((1, 2), (1,)), Node((1, 2), (3,))]}, "key 3: CACHE-5, 2 pages under one key"),
        ({"cached": [Node((1, 2), (1,)), Node((9, 9, 3, 4), (3,))]}, "key 9: CACHE-4, its parent is not cached"),
        ({"sessions": {"a": Talk()}}, "holder a: SES-1, has a request's id"),
        ({"sessions": {"s": Talk(turn="b")}}, "holder s: SES-1, has a request's id, or a turn that is not its own"),
        ({"sessions": {"s": Talk((1,))}}, "holder s: SES-2, knows 1 tokens"),
    ],
)  # fmt: skip
def test_what_no_run_leads_to_costs_one_line(change: dict[str, Any], complaint: str) -> None:
    snapshot = replace(SOUND, **change)
    with pytest.raises(WrongInput) as error:
        opened(WORLD, snapshot)
    assert str(error.value).startswith(f"snapshot: {complaint}") and "\n" not in str(error.value)


def test_where_there_are_no_rows_none_is_asked_for() -> None:
    without = replace(WORLD, declared=Declaration(capabilities=frozenset({"PAGED", "PREFIX_CACHE", "LEAF_FIRST"})))
    snapshot = replace(SOUND, records={"a": RecordView(None, 2, 3, 3)})
    assert opened(without, snapshot).records["a"].row == 1
