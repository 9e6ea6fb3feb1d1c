"""Which of six places a finding accuses: one for every rule and action, and the right one for every known fault."""

from __future__ import annotations

import re

import pytest

from kvledger.spec.action import NAMES, name_of
from kvledger.spec.rules import RULES
from kvledger.spec.trace import HANGS, RAISES, read
from kvledger.tests.report.explain import found_in
from kvledger.tests.report.places import OF_ACTION, OF_RULE, PLACES, place_of
from kvledger.tests.unit.written import Bench
from kvledger.tests.vectors.make import BROKEN, HERE
from kvledger.tests.zoo import FAULTS

# Where the reports that the zoo's files cite were repaired, in the seed chapter's words.
OF_FAULT = {
    "freed_twice": "release",
    "duplicate_kept": "cache reader",
    "locked_evicted": "cache reader",
    "full_match": "cache reader",
    "refused_keeps_row": "extend",
    "stale_reuse": "pool",  # sglang#37167: ReqToTokenPool.alloc takes a released record's row for a held one
    "pending_published": "cache reader",
    "shared_across_namespaces": "cache reader",
    "freed_after_handover": "release",
    "tail_kept_on_retract": "release",
    "tail_start_floored": "release",
    "aborted_turn_keeps_record": "release",
    "close_twice": "release",
    "borrowed_slot_counted_twice": "pool",
    "turn_restarts_below_protected": "extend",
    "drafts_published": "cache reader",
    "past_row_end": "decode",
}
# Of the shortest broken runs, those that are not a matter of the cache: CACHE-*, LOCK-*, EVICT-*, NS-1, DRAFT-2.
OF_VECTOR = {
    "ATOM-1": "extend",  # a refused extend has put row 0 on the free list
    "CONS-1": "pool",
    "DRAFT-1": "decode",
    "GUARD-1": "pool",  # a submit that had to be refused
    "LIVE-1": "pool",
    "PAGE-1": "pool",  # on the free list twice, before anybody has run
    "PAGE-2": "pool",  # not on it, before anybody has run
    "PAGE-3": "pool",
    "PAGE-4": "extend",
    "PAGE-5": "pool",
    "PAGE-6": "release",
    "REC-1": "pool",  # a submit is answered with a row
    "REC-2": "extend",
    "ROW-1": "pool",
    "ROW-2": "pool",
    "ROW-3": "pool",  # an extend has given it another row
    "ROW-4": "pool",
    "SES-1": "release",
    "SES-2": "extend",
    "SES-3": "release",
    "SES-4": "release",
    "TAB-1": "extend",
    "TAB-2": "extend",
    "TAG-1": "attention reader",
}
PLACE = re.compile(r"^place   (\d) of 6, (.*?): .*$", re.MULTILINE)


def named(screen: str) -> str:
    """The place that the second line of a screen names."""
    line = screen.splitlines()[1]
    found = PLACE.fullmatch(line)
    assert found is not None and len(line) <= 80, line
    assert PLACES[int(found[1]) - 1].name == found[2]
    return found[2]


def test_there_is_one_for_every_rule_and_action() -> None:
    assert [place.number for place in PLACES] == [1, 2, 3, 4, 5, 6]
    assert set(OF_ACTION) == set(NAMES.values()) and set(OF_RULE) < set(RULES)
    reached = {place_of(rule, act) for rule in (*RULES, RAISES, HANGS) for act in NAMES.values()}
    assert reached == set(PLACES)


@pytest.mark.parametrize(
    ("rule", "action", "place"),
    [
        # who takes was handed what was not free: the free list was wrong; who gives back made it so
        ("PAGE-1", "decode", "pool"), ("PAGE-1", "finish", "release"), ("PAGE-1", "evict", "cache reader"),
        ("ROW-1", "extend", "pool"), ("ROW-1", "retract", "release"), ("REC-1", "admit", "pool"),
        # "decode's page table is off": last_loc. "memory does not fall": release
        ("TAB-1", "decode", "decode"), ("TAB-2", "decode", "decode"), ("PAGE-2", "finish", "release"),
        ("TAB-2", "checkpoint", "cache reader"), ("PAGE-2", "evict", "cache reader"),
        ("TAG-1", "decode", "attention reader"), (RAISES, "commit", "decode"), (HANGS, "abort", "release"),
    ],
)  # fmt: skip
def test_a_rule_and_an_action_name_it(rule: str, action: str, place: str) -> None:
    assert place_of(rule, action).name == place


def test_what_the_drain_probe_misses_was_not_given_back() -> None:
    for rule in ("ROW-1", "PAGE-1", "PAGE-2"):
        assert place_of(rule, "extend", drained=True).name == "release" != place_of(rule, "extend").name
    assert place_of("PAGE-2", "evict", drained=True).name == "cache reader"
    assert place_of("TAB-1", "extend", drained=True).name == "extend"


@pytest.mark.parametrize("fault", FAULTS)
def test_the_place_of_a_fault(bench: Bench, fault: str) -> None:
    """Said first, by the check and by an explanation of the run that it stored."""
    code, screen = bench.check(f"kvledger.tests.zoo.{fault}:make")
    [path] = (bench.folder / ".kvledger").iterdir()
    assert code == 1 and named(screen) == OF_FAULT[fault] == named(bench.call("explain", str(path))[1])


@pytest.mark.parametrize("path", sorted((HERE / BROKEN).glob("*.itf.json")), ids=lambda path: path.name)
def test_the_place_of_a_broken_vector(bench: Bench, path: object) -> None:
    code, screen, _ = bench.call("explain", str(path))
    trace = read(str(path))
    finding = found_in(trace, str(path))
    assert code == 1 and finding is not None
    assert named(screen) == OF_VECTOR.get(finding.rule, "cache reader")
    assert named(screen) == place_of(finding.rule, name_of(trace.steps[-1].act)).name
