"""The kit itself: one seed, one search; budgets; a word for every rule; shrinking; the suite for pytest; --json."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kvledger.reference.backend import make as reference
from kvledger.spec.actions import Action
from kvledger.spec.backend import Backend, World
from kvledger.spec.rules import RULES, VIEW_PARTS, declared
from kvledger.spec.trace import read
from kvledger.tests.kit.generate import KINDS, PROFILES, STRIDE, WIDTH, Traffic
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Grade
from kvledger.tests.kit.search import BUDGETS, Outcome, search
from kvledger.tests.kit.shrink import Shrunk, run_again, shrink
from kvledger.tests.kit.verdict import ENOUGH
from kvledger.tests.law import needs
from kvledger.tests.unit.written import Bench, odd
from kvledger.tests.zoo import FAULTS

ROOT = Path(__file__).parents[2]
PLUGIN = "kvledger.tests.kit.plugin"
SEEING, BLIND = Grade(), Grade(view=False, content=False, scramble=False)
WORDS = {"BROKEN", "HOLDS", "DEVIATES", "UNREACHED", "UNSEEN", "NOT DECLARED"}


def watched(seed: int, budget: int, grade: Grade = SEEING) -> tuple[list[tuple[World, Action]], Outcome]:
    """Every action that a search performs on the reference, with its world; and what came of it."""
    seen: list[tuple[World, Action]] = []

    def make(world: World) -> Backend:
        backend = reference(world)
        perform = backend.do

        def do(act: Action) -> object:
            seen.append((world, act))
            return perform(act)

        backend.do = do  # type: ignore[method-assign, assignment]
        return backend

    return seen, search(make, name="watched", budget=budget, seed_number=seed, grade=grade)


# ---- the search


def test_one_seed_is_one_search() -> None:
    """Whatever ran before, and whatever is looked at."""
    first, outcome = watched(3, 300)
    again, same = watched(3, 300)
    blind, _ = watched(3, 300, BLIND)
    other, _ = watched(4, 300)
    assert first == again == blind != other
    assert (outcome.actions, outcome.examples, outcome.armed) == (same.actions, same.examples, same.armed)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_draw_falls_on_each_place_of_the_ring_once(profile: str) -> None:
    """So a kind comes first as often as its profile says; and the walk from there goes to every place."""
    ring = Traffic.of(profile, alike=True, probed=Counter()).ring
    assert len(ring) == WIDTH and tuple(map(ring.count, KINDS)) == PROFILES[profile]
    assert {STRIDE * step % WIDTH for step in range(WIDTH)} == set(range(WIDTH))


@pytest.mark.parametrize("budget", [1, 200, 700])
def test_a_budget_is_kept(budget: int) -> None:
    """It ends with the example in which the budget is spent; probes and the drain count."""
    seen, outcome = watched(0, budget)
    assert outcome.finding is None
    assert budget <= outcome.actions == len(seen) < budget + 150


def test_every_pool_and_every_traffic_is_met() -> None:
    seen, outcome = watched(0, 2_000)
    assert outcome.examples >= 18
    assert {world.page_size for world, _ in seen} == {1, 2, 4}
    assert {type(act).__name__ for _, act in seen} == {kind.__name__ for kind in Action.__args__}


def test_only_the_pools_asked_for_are_built(bench: Bench) -> None:
    """An engine may know one page size, and then only that one is asked of it."""
    only = "def __init__(self, world):\n        assert world.page_size == 2, world\n        super().__init__(world)"
    target = bench.backend(f"class Odd(Backend):\n    {only}")
    code, screen = bench.check(target, ["--page-size", "2"])
    assert code == 0 and screen.startswith("CONFORMS")
    assert "AssertionError" in bench.complaint("check", target)


# ---- shrinking


@pytest.mark.parametrize("fault", FAULTS)
def test_shrinking_keeps_the_rule_and_only_shortens(fault: str) -> None:
    make, grade = load_backend(f"kvledger.tests.zoo.{fault}:make"), Grade()
    found = search(make, name=fault, budget=2_000, seed_number=1, grade=grade)
    assert found.finding is not None
    small = shrink(make, found.world, found.steps, found.finding, grade=grade, name=fault,
                   draining_since=found.draining_since)  # fmt: skip
    assert small.finding.rule == found.finding.rule
    assert len(small.steps) <= len(found.steps)
    calls = [(step.act, step.probe) for step in small.steps]
    again, lockstep = run_again(make, found.world, calls, grade=grade, name=fault, drain=found.drained)
    assert small.steps[-1] == lockstep.steps[-1]
    assert again is not None and (again.rule, again.step) == (small.finding.rule, small.finding.step)
    honest, _ = run_again(reference, found.world, calls, grade=grade, name="reference", drain=found.drained)
    assert honest is None


def test_shrinking_has_a_budget() -> None:
    """In calls, the same on every machine, and in seconds; what was found by then stands."""
    make = load_backend("kvledger.tests.zoo.locked_evicted:make")
    found = search(make, name="locked", budget=2_000, seed_number=1, grade=SEEING)
    assert found.finding is not None and found.draining_since is None
    finding, told = found.finding, list[int]()

    def small(**budget: float) -> Shrunk:
        return shrink(make, found.world, found.steps, finding, grade=SEEING, name="locked", draining_since=None,
                      progress=told.append, **budget)  # type: ignore[arg-type]  # fmt: skip

    at_once, soon = small(calls=0), small(calls=1_000)
    told.clear()
    whole = small()
    assert len(at_once.steps) == found.finding.step > len(soon.steps) > len(whole.steps)
    assert told == sorted(told, reverse=True) and told[-1] == len(whole.steps)
    assert len(small(seconds=0).steps) == len(at_once.steps)
    for each in (at_once, soon, whole):
        calls = [(step.act, step.probe) for step in each.steps]
        again, _ = run_again(make, found.world, calls, grade=SEEING, name="locked", drain=False)
        assert again is not None and again.rule == each.finding.rule == "LOCK-2"


INTERRUPTED = """
class Odd(Backend):
    lives = 0

    def __init__(self, world):
        super().__init__(world)
        Odd.lives += 1
        if Odd.lives > {most}:
            raise KeyboardInterrupt

    def do(self, act):
        reply = super().do(act)
        return replace(reply, freed=Freed((1, 1))) if isinstance(act, Finish) and isinstance(reply, Reply) else reply
"""


def test_who_interrupts_shrinking_keeps_the_run(bench: Bench) -> None:
    """It is stored before; once it is shrunk only the short one is there."""
    code, _, err = bench.call("check", bench.backend(INTERRUPTED.format(most=8)), "--profile", "quick")
    [path] = Path(".kvledger").iterdir()
    assert (code, err) == (2, f"PAGE-6 is broken, as kvledger explain {path} shows\nkvledger check: interrupted\n")
    code, told, _ = bench.call("explain", str(path))
    assert code == 1 and "BROKEN  PAGE-6 " in told
    assert bench.check(bench.backend(INTERRUPTED.format(most=10**9)))[0] == 1
    short, long = sorted((read(each) for each in Path(".kvledger").iterdir()), key=lambda trace: len(trace.steps))
    assert (short.at, long.rule) == (3, "PAGE-6")


# ---- verdicts


def words(bench: Bench, *arguments: str) -> tuple[int | str | None, dict[str, str], str]:
    """Exit code, word of each rule, and text of a check."""
    code, text, err = bench.call("check", *arguments, "--json", "out.json")
    assert err == ""
    [report] = json.loads(Path("out.json").read_text())
    assert report["exit"] == code
    return code, {rule: each["verdict"] for rule, each in report["rules"].items()}, text


def test_what_is_not_declared_is_not_held_against_anybody(bench: Bench) -> None:
    """blocks has no rows: its ROW rules are NOT DECLARED, and it conforms."""
    code, found, text = words(bench, "blocks", "--profile", "quick")
    assert code == 0 and text.startswith("CONFORMS  blocks")
    declaration = load_backend("blocks")(World(1, 1, 1, 1)).declare()
    spared = {rule.id for rule in RULES.values() if not declared(rule, declaration)}
    assert {"ROW-1", "ROW-2", "ROW-3", "ROW-4", "REC-3", "EVICT-1"} <= spared
    assert {rule for rule, word in found.items() if word == "NOT DECLARED"} == spared


def test_what_only_a_view_shows_is_unseen_without_one(bench: Bench) -> None:
    code, found, text = words(bench, "reference", "--profile", "quick", "--no-view")
    assert code == 0
    only_views = {rule.id for rule in RULES.values() if set(rule.shown_by) <= set(VIEW_PARTS)}
    assert {rule for rule, word in found.items() if word == "UNSEEN"} == only_views
    assert all(f"UNSEEN  {RULES[rule].title}" in text for rule in only_views)


def test_too_little_was_reached_to_tell(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the ci profile a rule must have been armed fifty times, in quick once."""
    monkeypatch.setitem(BUDGETS, "ci", 300)
    monkeypatch.setitem(BUDGETS, "quick", 30)
    code, found, text = words(bench, "reference")
    assert code == 2 and text.startswith("COULD NOT TELL  reference") and text.endswith("exit 2\n")
    assert "UNREACHED" in found.values() and f" times, {ENOUGH} wanted" in text
    code, found, text = words(bench, "reference", "--profile", "quick")
    assert code == 2 and "UNREACHED" in found.values() and " times, 1 wanted" in text


def test_where_no_page_has_two_slots_there_is_no_geometry(bench: Bench) -> None:
    """TAB-1 speaks of what lies inside a page: not declared without PAGED, nor in pools of page size 1."""
    code, found, _ = words(bench, "reference", "--profile", "quick", "--page-size", "1")
    assert (code, found["TAB-1"]) == (0, "NOT DECLARED")
    code, found, _ = words(bench, "reference", "--profile", "quick", "--page-size", "1", "--page-size", "2")
    assert (code, found["TAB-1"]) == (0, "HOLDS")
    unpaged = bench.backend(odd("declare", "return replace(theirs(), capabilities=theirs().capabilities - {'PAGED'})"))
    code, found, _ = words(bench, unpaged, "--profile", "quick")
    assert (code, found["TAB-1"]) == (0, "NOT DECLARED")


def test_two_backends_do_not_store_one_run(bench: Bench) -> None:
    """The same fault in the same calls, in two modules: two files."""
    source = odd("do", "reply = theirs()\nreturn replace(reply, freed=Freed((1, 1))) if reply.slots else reply")
    for target in (bench.backend(source), bench.backend(source)):
        assert bench.check(target)[0] == 1
    assert len(list(Path(".kvledger").iterdir())) == 2

def test_what_nobody_owes_is_counted_and_blamed_on_nobody(bench: Bench) -> None:
    """oracle-random evicts and declines as it likes: its SHOULD rules do not hold, and it conforms."""
    code, found, text = words(bench, "oracle-random", "--profile", "quick")
    assert code == 0 and re.search(r" rules: \d+ HOLDS, 2 DEVIATES", text)
    for rule in ("CACHE-6", "EVICT-3"):
        assert found[rule] == "DEVIATES"
        times = re.search(rf"SHOULD  {RULES[rule].title}: not kept (\d+) times, which no one is blamed for", text)
        assert times is not None and int(times[1]) > 10


# ---- for machines, and for pytest


def test_json(bench: Bench) -> None:
    fault = "kvledger.tests.zoo.freed_twice:make"
    code, out, _ = bench.call("check", "reference", fault, "--profile", "quick", "--seed", "2", "--json", "-")
    honest, faulty = json.loads(out)
    assert code == 1 and (honest["exit"], faulty["exit"]) == (0, 1)
    for report in (honest, faulty):
        assert set(report) == {"backend", "name", "exit", "seed", "actions", "rules", "finding"}
        assert list(report["rules"]) == list(RULES) and report["seed"] == 2
        for rule, each in report["rules"].items():
            assert each["name"] == RULES[rule].name and each["verdict"] in WORDS and each["armed"] >= 0
    assert (honest["backend"], honest["name"], honest["finding"]) == ("reference", "reference", None)
    assert honest["actions"] >= 1_000
    assert (faulty["backend"], faulty["name"], faulty["finding"]["rule"]) == (fault, "freed_twice", "PAGE-6")
    assert faulty["rules"]["PAGE-6"]["verdict"] == "BROKEN"
    assert Path(faulty["finding"]["trace"]).is_file() and "BROKEN  PAGE-6" in faulty["finding"]["screen"]


def test_json_of_the_zoo(bench: Bench) -> None:
    """Alone on standard output."""
    code, out, _ = bench.call("zoo", "freed_twice", "--seeds", "1", "--no-shortest", "--json", "-")
    [catch] = json.loads(out)
    assert (code, catch["fault"], catch["rule"], catch["at_strike"]) == (0, "freed_twice", "PAGE-6", True)


def test_json_of_the_guards(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a guard's deletion changes has names, as it has on the screen; an idle guard has none."""
    first, second = list(needs.needs().values())[:2]
    witness = needs.Witness("TINY_A", "extend", first.rule, "accepted")
    monkeypatch.setattr(needs, "search", lambda *_: {first: witness})
    monkeypatch.setattr(needs, "needs", lambda: {(each.file, each.line): each for each in (first, second)})
    code, out, _ = bench.call("needs", "--json", "-")
    told, idle = json.loads(out)
    assert code == 1 and idle["without"] is None
    assert told["without"] == {"world": "TINY_A", "action": "extend", "before": first.rule, "after": "accepted"}


@pytest.mark.parametrize(
    ("backend", "code", "says"),
    [
        ("blocks", 0, " passed, "),
        ("kvledger.tests.zoo.freed_twice:make", 1, "BROKEN  PAGE-6 freed-exactly"),
        ("nobody:make", 4, "ERROR: backend 'nobody:make': expected a module that can be imported"),
        ("kvledger:main", 4, "ERROR: backend 'kvledger:main': expected a function main in kvledger, found none"),
        ("builtins:len", 2, "Exit: builtins:len: make("),
    ],
)
def test_the_suite_for_pytest(tmp_path: Path, backend: str, code: int, says: str) -> None:
    command = f"-m pytest -q --pyargs kvledger.tests.kit.suite --kv-backend {backend} --kv-profile quick -p {PLUGIN}"
    done = subprocess.run([sys.executable, *command.split()], capture_output=True, text=True, cwd=tmp_path,
                          env={"PYTHONPATH": str(ROOT / ".src")})  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == code and says in said, said
    assert ".py:" not in said and "During handling" not in said
    if code == 0:
        passed, skipped = (int(count) for count in re.findall(r"(\d+) (?:passed|skipped)", said))
        assert passed + skipped == len(RULES) + 1 and passed >= 20
    if code == 2:
        assert said.count("builtins:len: make(") == 1
    if code == 4:
        assert said.strip().count("\n") == 0
