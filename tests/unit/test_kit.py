"""The kit itself: one seed, one search; budgets; shrinking; a word for every rule."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest

from kvledger.reference.backend import make as reference
from kvledger.spec.actions import Action, Checkpoint, Evict, Extend, Finish, Retract, Submit
from kvledger.spec.backend import Backend, World
from kvledger.spec.rules import RULES, VIEW_PARTS, declared
from kvledger.spec.trace import read
from kvledger.tests.kit import search as searching
from kvledger.tests.kit.generate import KINDS, POOLS, PROFILES, REQUESTS, STRIDE, WIDTH, Pool, Traffic
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Finding, Grade, Lockstep
from kvledger.tests.kit.search import BUDGETS, MOVES, Outcome, search
from kvledger.tests.kit.shrink import Shrunk, calls_of, run_again, shrink
from kvledger.tests.kit.verdict import ENOUGH
from kvledger.tests.unit.written import Bench, odd
from kvledger.tests.zoo import FAULTS

SEEING, BLIND = Grade(), Grade(view=False, content=False, scramble=False)
# The longest drain: an abort of every live request, an eviction, then submit, extend and abort for each row.
DRAIN = len(REQUESTS) + 1 + 3 * max(rows for _, rows, _, _ in POOLS)


def watched(
    seed: int, budget: int, grade: Grade = SEEING, progress: Callable[[int], None] = lambda actions: None
) -> tuple[list[tuple[World, Action]], Outcome]:
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

    return seen, search(make, name="watched", budget=budget, seed_number=seed, grade=grade, progress=progress)


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


def test_a_budget_is_kept() -> None:
    """It ends with the example in which the budget is spent, to the call; probes and the drain count."""
    ends: list[int] = []
    seen, outcome = watched(0, 700, progress=ends.append)
    assert outcome.finding is None
    assert 700 <= outcome.actions == len(seen) == ends[-1] < 700 + MOVES + DRAIN
    for budget, examples in ((1, 1), (ends[1], 2), (ends[1] + 1, 3)):
        _, outcome = watched(0, budget)
        assert (outcome.examples, outcome.actions) == (examples, ends[examples - 1])


def test_every_pool_meets_every_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a budget that is enough for one example of each pair even if every move of it is a call."""
    drawn: list[tuple[Pool, tuple[int, ...], bool]] = []
    example = searching._example

    def spied(make: object, world: World, traffic: Traffic, *rest: object) -> None:
        pool = (world.page_size, world.rows, world.pages, world.context_len)
        drawn.append((pool, tuple(map(traffic.ring.count, KINDS)), traffic.alike))
        example(make, world, traffic, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(searching, "_example", spied)
    pairs = set(product(POOLS, PROFILES.values(), (True, False)))
    seen, outcome = watched(0, len(pairs) * (MOVES + DRAIN))
    assert outcome.examples == len(drawn) >= len(pairs) == len(POOLS) * len(PROFILES) * 2
    assert set(drawn) == pairs
    assert {type(act) for _, act in seen} == set(Action.__args__)


def test_only_the_pools_asked_for_are_built(bench: Bench) -> None:
    """An engine may know one page size, and then only that one is asked of it."""
    only = "def __init__(self, world):\n        assert world.page_size == 2, world\n        super().__init__(world)"
    target = bench.backend(f"class Odd(Backend):\n    {only}")
    code, screen = bench.check(target, ["--page-size", "2"])
    assert code == 0 and screen.startswith("CONFORMS")
    assert "AssertionError" in bench.complaint("check", target)


# ---- shrinking


SHORTEST = {  # calls of the shortest program that trips a fault, written by hand
    "freed_twice": 3,  # submit, extend, finish
    "duplicate_kept": 5,  # two are submitted, extended together, and each checkpoints
    "locked_evicted": 6,  # two are submitted, extended together; one checkpoints, one finishes; evict
    "full_match": 5,  # submit, extend, finish; the same is submitted again and extended
    "refused_keeps_row": 6,  # five are submitted, and extended together: prompts do not grow, and fewer would fit
    "stale_reuse": 4,  # submit, extend, retract, extend
    "pending_published": 3,  # submit, extend, finish
    "shared_across_namespaces": 5,  # as full_match, in another namespace
    "freed_after_handover": 3,  # submit, extend, finish
    "tail_kept_on_retract": 4,  # submit, extend, reserve, retract
    "tail_start_floored": 4,  # submit, extend, reserve, finish
    "aborted_turn_keeps_record": 3,  # submit, extend, abort
    "close_twice": 3,  # submit, extend, close
    "borrowed_slot_counted_twice": 2,  # submit, extend
    "turn_restarts_below_protected": 6,  # submit, extend, checkpoint, decode, retract, extend: prompts do not grow
    "drafts_published": 4,  # submit, extend, reserve, checkpoint
    "past_row_end": 3,  # submit, extend, reserve
}


@pytest.mark.parametrize("fault", FAULTS)
def test_shrinking_keeps_the_rule_and_shortens(fault: str) -> None:
    """To the shortest program, or to one that has a call more; an honest backend goes through it."""
    make, grade = load_backend(f"kvledger.tests.zoo.{fault}:make"), Grade()
    found = search(make, name=fault, budget=BUDGETS["ci"], seed_number=1, grade=grade)
    assert found.finding is not None
    small = shrink(make, found.world, found.steps, found.finding, grade=grade, name=fault,
                   draining_since=found.draining_since)  # fmt: skip
    assert small.finding.rule == found.finding.rule
    assert len(small.steps) <= SHORTEST[fault] + 1 < len(found.steps)
    calls = calls_of(small.steps)
    again, lockstep = run_again(make, found.world, calls, grade=grade, name=fault, drain=found.drained)
    assert small.steps[-1] == lockstep.steps[-1]
    assert again is not None and (again.rule, again.step) == (small.finding.rule, small.finding.step)
    honest, _ = run_again(reference, found.world, calls, grade=grade, name="reference", drain=found.drained)
    assert honest is None


def shrunk(
    fault: str, acts: Sequence[Action], progress: Callable[[int], None] = lambda length: None
) -> list[Action]:
    """What is left of a program, the last call of which trips a fault."""
    make = load_backend(f"kvledger.tests.zoo.{fault}:make")
    lockstep = Lockstep(make, World(rows=3, context_len=7, pages=8, page_size=1))
    with pytest.raises(Finding) as found:
        for act in acts:
            lockstep.do(act)
    assert len(lockstep.steps) == len(acts)
    small = shrink(make, lockstep.world, lockstep.steps, found.value, grade=SEEING, name=fault, draining_since=None,
                   progress=progress)  # fmt: skip
    return [step.act for step in small.steps]


def test_two_calls_become_one() -> None:
    """Without any one of the seven it is no fault; only where two extends are traded for one there are six."""
    comes: list[Action] = [Submit("a", (0,), 0), Submit("b", (0,), 1)]
    first, second, both = (Extend(tuple((req, 1, 0) for req in reqs)) for reqs in ("a", "b", "ab"))
    rest: list[Action] = [Checkpoint("a", 1), Finish("b", 1, True), Evict(1)]
    assert shrunk("locked_evicted", [comes[0], first, comes[1], second, *rest]) == [*comes, both, *rest]


def test_a_simpler_call_that_is_fitted_back_is_no_progress() -> None:
    """A turn that keeps less than one token is made to keep one. So shrinking ends, long before its budget does."""
    acts: list[Action] = [Submit("a", (0,), 0, session="s"), Extend((("a", 1, 0),)), Finish("a", 1, False)]
    trials: list[int] = []
    assert shrunk("freed_after_handover", acts, trials.append) == acts
    assert trials == [3] * len(trials) and len(trials) < 50


def test_a_probe_stays_the_call_that_it_is() -> None:
    """No simpler one may be found by making an abort that is forbidden a finish: any keep is forbidden then."""

    def make(world: World) -> Backend:
        backend = reference(world)
        perform = backend.do

        def do(act: Action) -> object:
            if act not in waiting:
                raise KeyError("it")
            return perform(act)

        backend.do = do  # type: ignore[method-assign, assignment]
        return backend

    waiting: list[Action] = [Submit("a", (0,), 0), Submit("b", (0, 0), 0)]
    trials: list[int] = []
    lockstep = Lockstep(make, World(rows=3, context_len=7, pages=8, page_size=1))
    for act in waiting:
        lockstep.do(act)
    with pytest.raises(Finding) as found:
        lockstep.probe(Retract("a"))
    small = shrink(make, lockstep.world, lockstep.steps, found.value, grade=SEEING, name="raises", draining_since=None,
                   progress=trials.append)  # fmt: skip
    assert calls_of(small.steps) == [(Retract("a"), True)] and small.finding.rule == "RAISES"
    assert len(trials) < 20


def test_shrinking_has_a_budget() -> None:
    """In calls, the same on every machine, and in seconds; what was found by then stands. A long program
    needs more than 5,000 calls."""
    make = load_backend("kvledger.tests.zoo.locked_evicted:make")
    found = search(make, name="locked", budget=2_000, seed_number=3, grade=SEEING)
    assert found.finding is not None and found.draining_since is None and len(found.steps) > 40
    finding, told = found.finding, list[int]()

    def small(**budget: float) -> Shrunk:
        return shrink(make, found.world, found.steps, finding, grade=SEEING, name="locked", draining_since=None,
                      progress=told.append, **budget)  # type: ignore[arg-type]  # fmt: skip

    at_once, soon = small(calls=0), small(calls=5_000)
    told.clear()
    whole = small()
    assert len(at_once.steps) == found.finding.step > len(soon.steps) > len(whole.steps)
    assert told == sorted(told, reverse=True) and told[-1] == len(whole.steps)
    assert len(small(seconds=0).steps) == len(at_once.steps)
    for each in (at_once, soon, whole):
        calls = calls_of(each.steps)
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


def test_the_rule_that_was_reached_least_is_named(bench: Bench) -> None:
    """Of those that hold and must."""
    code, text, _ = bench.call("check", "reference", "--profile", "quick", "--json", "out.json")
    [report] = json.loads(Path("out.json").read_text())
    held = {rule: each["armed"] for rule, each in report["rules"].items() if each["verdict"] == "HOLDS"}
    least = min(armed for rule, armed in held.items() if RULES[rule].must)
    assert code == 0 and least < max(held.values())
    assert f"each MUST rule that holds could have been broken at least {least} times (" in text
    assert held[re.search(r" times \((\S+) \S+\)\n", text)[1]] == least  # type: ignore[index]


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
    source = odd("do", "reply = theirs()\nslots = isinstance(reply, Reply) and reply.slots\n"
                 "return replace(reply, freed=Freed((1, 1))) if slots else reply")  # fmt: skip
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
