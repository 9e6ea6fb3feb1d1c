"""The failure screen of every fault in the zoo and of every broken vector: it fits, it is in words, its figures are
right, and every command on it does what it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from kvledger.spec.actions import Extend, Retract, Submit
from kvledger.spec.answer import Reply
from kvledger.spec.rules import RULES
from kvledger.spec.trace import Step, Trace, read, write
from kvledger.spec.world import World
from kvledger.tests.kit.again import calls_stored
from kvledger.tests.kit.lockstep import Grade
from kvledger.tests.kit.shrink import run_again
from kvledger.tests.report.explain import as_pytest
from kvledger.tests.unit.written import Bench, odd, python
from kvledger.tests.vectors.make import BROKEN, HERE
from kvledger.tests.zoo import FAULTS
from kvledger.tests.zoo.refused_keeps_row import make as make_refused

COMMAND = re.compile(r"^(again|yours|pytest|rule) {2,}(kvledger .*)$", re.MULTILINE)
REPR = re.compile(r"NamedTuple|frozenset|namespace=|[A-Z]\w+\(|<\w| object |None|True|False|\{|\[[^0]")


def commands(screen: str) -> dict[str, list[str]]:
    """The commands of the last block, in words."""
    return {name: shlex.split(line)[1:] for name, line in COMMAND.findall(screen)}


def judge_form(screen: str) -> None:
    """Width, height, words, one guilty line."""
    header, *lines = screen.splitlines()
    assert header.startswith("$ kvledger ") and len(lines) < 40
    for line in lines:
        assert len(line) <= 80 or COMMAND.match(line), line
        assert not REPR.search(line), line
        assert line == line.rstrip()
    [guilty] = [line for line in lines if line.startswith("  >")]
    assert " / " in guilty or "law says / backend says" not in screen
    assert lines[-1].endswith("exit 1")


SHOWN_BY_ANSWERS = [fault for fault in FAULTS if import_module(f"kvledger.tests.zoo.{fault}").BLIND is not None]


@pytest.mark.parametrize(
    ("fault", "words"),
    [*((fault, []) for fault in FAULTS), *((fault, ["--no-view"]) for fault in SHOWN_BY_ANSWERS)],
    ids=lambda value: value if isinstance(value, str) else "no view" if value else "view",
)
def test_a_screen_fits_and_is_in_words(bench: Bench, fault: str, words: list[str]) -> None:
    code, screen = bench.check(f"kvledger.tests.zoo.{fault}:make", words)
    assert code == 1
    judge_form(screen)
    [rule] = [rule for rule in RULES.values() if f"BROKEN  {rule.title} " in screen]
    assert " ".join(rule.sentence.split()) in " ".join(screen.split())
    assert list(commands(screen)) == ["again", "pytest", "rule"]


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in SHOWN_BY_ANSWERS])
def test_what_no_answer_shows_is_unseen_without_a_view(bench: Bench, fault: str) -> None:
    rule = import_module(f"kvledger.tests.zoo.{fault}").RULE
    code, screen = bench.check(f"kvledger.tests.zoo.{fault}:make", ["--no-view"])
    assert code == 0 and f"UNSEEN  {RULES[rule].title}" in screen


ALL_WORDS = "--profile quick --actions 400 --seed 3 --page-size 2 --page-size 4 --limit=9 --no-view"


@pytest.mark.parametrize("words", ["", ALL_WORDS, "--seed 3", "--page-size 4", "--no-view"])
def test_the_command_above_it_shows_it_again(bench: Bench, words: str) -> None:
    """It is what was typed, and no word more; typed once more it gives the same screen."""
    typed = ["check", "kvledger.tests.zoo.freed_twice:make", *words.split()]
    code, screen, _ = bench.call(*typed)
    header = screen.partition("  freed_twice 1, page ")[0]
    assert code == 1 and header == shlex.join(["$", "kvledger", *typed]).replace("'$'", "$")
    assert bench.call(*shlex.split(header)[2:])[1] == screen


def test_how_much_later_answers_alone_show_it(bench: Bench) -> None:
    """A row that a refused start keeps is missed when all rows are taken: in the drain probe."""
    code, screen = bench.check("kvledger.tests.zoo.refused_keeps_row:make")
    stored = read(commands(screen)["again"][1])
    blind = Grade(view=False)
    found, _ = run_again(make_refused, stored.world, calls_stored(stored), grade=blind, name="blind", drain=True)
    assert code == 1 and found is not None and found.rule == "ROW-1"
    later = found.step - len(stored.steps)
    assert f"\nWithout a view these calls show it {later} steps later, as ROW-1.\n" in screen


@pytest.mark.parametrize("fault", FAULTS)
def test_its_last_line_counts(bench: Bench, fault: str) -> None:
    """The steps of the stored run, and a word for every rule but the one that is broken."""
    _, screen = bench.check(f"kvledger.tests.zoo.{fault}:make")
    last = " ".join(screen.rpartition("kvledger rules ")[2].split())
    found = re.search(r" (\d+) actions(?: shrunk to (\d+))?\. (\d+) other rules: (.*)\. exit 1$", last)
    assert found is not None
    actions, shrunk, others, words = found.groups()
    assert int(shrunk or actions) == len(read(commands(screen)["again"][1]).steps) <= int(actions)
    assert sum(map(int, re.findall(r"\d+", words))) == int(others) == len(RULES) - 1


def came(req: str) -> Step:
    """A request of one token comes."""
    return Step(Submit(req, (0,), 0), Reply())


def started(upto: int, row: int = 1) -> Step:
    """Request a is given a row, and slots 1..upto."""
    return Step(Extend((("a", upto, 0),)), Reply(rows=[row], matched=[[]], slots=[range(1, upto + 1)]))


LEFT = Step(Retract("a"), Reply())


def of_sixty(bench: Bench, steps: Sequence[Step]) -> tuple[list[int], list[str]]:
    """A run of sixty steps, the last of which hands row 0 out: the steps that are shown, and what for the others."""
    assert len(steps) == 60
    write(Trace(World(1, 99, 99, 1), tuple(steps), "ROW-2", 60), "long.itf.json")
    code, screen, _ = bench.call("explain", "long.itf.json")
    assert code == 1 and "BROKEN  ROW-2 " in screen and "row 0 " in screen and "row 1 " in screen
    judge_form(screen)
    numbers = re.findall(r"^  [> ] +(\d+)  ", screen, re.MULTILINE)
    return list(map(int, numbers)), re.findall(r"^ +\.\.\. (.*)$", screen, re.MULTILINE)


def test_a_long_run_in_which_every_step_tells_something(bench: Bench) -> None:
    """Row 1 is a's or free, in turn; the last twenty steps are shown."""
    turns = [step for upto in range(1, 30) for step in (started(upto), LEFT)]
    shown = of_sixty(bench, [came("a"), *turns, started(30, row=0)])
    assert shown == (list(range(41, 61)), ["40 steps before"])


def test_a_long_run_in_which_few_steps_tell_something(bench: Bench) -> None:
    """Those two, and the last five."""
    others = [came(f"b{number}") for number in range(56)]
    shown = of_sixty(bench, [came("a"), *others[:19], started(1), others[19], LEFT, *others[20:], started(2, row=0)])
    same = "steps that change none of these"
    assert shown == ([21, 23, *range(56, 61)], [f"20 {same}", "1 step that changes none of these", f"32 {same}"])


@pytest.mark.parametrize("fault", FAULTS)
def test_the_commands_on_it_work(bench: Bench, fault: str) -> None:
    """replay and explain show the same; the rule is printed."""
    target = f"kvledger.tests.zoo.{fault}:make"
    _, screen = bench.check(target)
    found, said = commands(screen), body_of(screen)
    code, again, _ = bench.call(*found["again"])
    assert code == 1 and body_of(again) == said
    code, told, _ = bench.call("explain", found["again"][1])
    assert code == 1 and body_of(told) == said
    judge_form(again)
    judge_form(told)
    code, rule, _ = bench.call(*found["rule"])
    assert code == 0 and rule.startswith(str(read(found["again"][1]).rule))


def test_a_path_on_a_screen_can_be_typed(bench: Bench) -> None:
    """In quotes where it needs them: in the header and in the commands."""
    _, screen = bench.check("kvledger.tests.zoo.freed_twice:make")
    Path(commands(screen)["again"][1]).rename("my run.itf.json")
    for words in (["explain", "my run.itf.json"], ["replay", "my run.itf.json"]):
        code, again, _ = bench.call(*words)
        assert code == 1 and again.startswith(f"$ kvledger {words[0]} 'my run.itf.json'")
        assert commands(again)["again"][:2] == ["replay", "my run.itf.json"]


def body_of(screen: str) -> str:
    """What was broken and how: all but the header, the commands and what only a search knows."""
    text = screen.partition("BROKEN")[2].partition("\nagain")[0]
    return text.partition("Without a view")[0].partition("No view was looked at")[0].rstrip()


def test_each_pytest_fails_until_the_fault_is_gone(bench: Bench) -> None:
    """explain --pytest of every fault, into a file that the screen names: run with the fault, then with an honest
    backend."""
    tests = []
    for fault in FAULTS:
        _, screen = bench.check(f"kvledger.tests.zoo.{fault}:make")
        words = commands(screen)["pytest"]
        assert words[-2] == ">"
        code, source, _ = bench.call(*words[:-2])
        assert code == 0
        rule = import_module(f"kvledger.tests.zoo.{fault}").RULE
        assert words[-1] == f"test_{rule.lower().replace('-', '_')}.py"
        tests.append(Path(f"test_{fault}.py"))  # several faults break one rule
        tests[-1].write_text(source)
    assert passed_and_failed(bench) == (0, len(FAULTS))
    for test in tests:
        test.write_text(re.sub(r"kvledger\.tests\.zoo\.\w+:make", "reference", test.read_text()))
    assert passed_and_failed(bench) == (len(FAULTS), 0)


def passed_and_failed(bench: Bench) -> tuple[int, int]:
    """What a pytest run of the folder counts."""
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(bench.folder))
    counts = [re.search(rf"(\d+) {word}", done.stdout.splitlines()[-1]) for word in ("passed", "failed")]
    passed, failed = (int(count[1]) if count else 0 for count in counts)
    return passed, failed


@pytest.mark.parametrize(
    ("lost", "rule"),
    [("allocator.free_pages", "PAGE-2 no-page-lost"), ("req_to_token_pool.free_slots", "ROW-1 one-holder")],
)
def test_what_only_the_drain_probe_shows(bench: Bench, lost: str, rule: str) -> None:
    """Lost by the drain's own eviction, seen through answers alone: a search, a file and a replay show the same."""
    body = f"if args[0] == Evict(self.world.pages):\n    self.{lost}.pop()"
    target = bench.backend(odd("do", f"reply = theirs()\n{body}\nreturn reply"))
    code, screen = bench.check(target, ["--no-view"])
    assert code == 1 and f"BROKEN  {rule}" in screen and "in the drain probe, by extend" in screen
    judge_form(screen)
    code, told, _ = bench.call("explain", commands(screen)["again"][1])
    assert code == 1 and body_of(told) == body_of(screen)
    code, again, _ = bench.call(*commands(screen)["again"])
    assert code == 1 and "at step" in again


def test_what_the_drain_probe_does_not_take_is_not_lost(bench: Bench) -> None:
    """An eviction refused in it is refused without cause; what an ordinary run shows as well is shown by that."""
    target = bench.backend(odd("do", "few = isinstance(args[0], Evict) and args[0].n > 3\n"
                                     "return Refused() if few else theirs()"))  # fmt: skip
    code, screen = bench.check(target, ["--no-view"])
    assert code == 1 and "BROKEN  PAGE-5 " in screen and "        by evict, at step" in screen
    judge_form(screen)
    for words in (["explain", commands(screen)["again"][1]], commands(screen)["again"]):
        code, again, _ = bench.call(*words)
        assert code == 1 and body_of(again) == body_of(screen)


def test_a_request_may_be_called_as_the_drain_probe_calls_its_own() -> None:
    """How many steps come before the probe is stored: names say nothing."""
    mine, drains = (Step(Submit(req, (0,), 0), Reply()) for req in ("drainage", "drain0"))
    trace = Trace(World(1, 1, 1, 1), (mine, drains), "PAGE-2", 2, draining_since=1)
    assert calls_stored(trace) == [(mine.act, False)]
    assert repr(mine.act) in as_pytest(trace) and repr(drains.act) not in as_pytest(trace)


def test_a_pytest_of_a_run_that_is_all_drain_probe_is_python() -> None:
    """Nothing is done before the probe, so there is no action to import."""
    step = Step(Submit("drain0", (0,), "drain0"), Reply())
    text = as_pytest(Trace(World(1, 1, 1, 1), (step,), "PAGE-2", 1, "reference", draining_since=0))
    compile(text, "test_run.py", "exec")
    assert "drain=True" in text and "drain0" not in text


ONE_KEY = "replace(view, cached={page: CachedView(0, each.locks) for page, each in view.cached.items()})"
OUTSIDE = "no page of the pool / "
GRANTED = """
reply = theirs()
return {answer} if isinstance(args[0], {act}) and isinstance(reply, Reply) else reply
""".strip()


@pytest.mark.parametrize(
    ("act", "answer", "rule", "shows"),
    [
        ("Extend", "replace(reply, rows=[0])", "ROW-2", "padding / A"),
        ("Extend", "replace(reply, rows=[99])", "ROW-1", "no row of the pool / A"),
        ("Extend", "replace(reply, slots=[range(len(each)) for each in reply.slots])", "PAGE-3", "padding / A"),
        ("Extend", "replace(reply, slots=[range(9, 9 + len(each)) for each in reply.slots])", "PAGE-1", f"{OUTSIDE}A"),
        ("Extend", "replace(reply, matched=[[99] for _ in reply.matched])", "CACHE-4", f"{OUTSIDE}read by A"),
        ("Extend", "replace(reply, evicted={99})", "EVICT-4", f"{OUTSIDE}evicted"),
        ("Finish", "replace(reply, published={args[0].req: -1})", "CACHE-3", "published up to -1"),
        ("Finish", "replace(reply, freed=Freed((-1, 99), (0,)))", "PAGE-6", "The answer says it freed pages -1 99"),
        ("Finish", "Refused('pages')", "PAGE-5", "It was refused, but it asks for no row and no page"),
    ],
)
def test_odd_numbers_in_an_answer(bench: Bench, act: str, answer: str, rule: str, shows: str) -> None:
    """Padding, numbers out of the pool and below zero are shown as what they are."""
    target = bench.backend(odd("do", GRANTED.format(act=act, answer=answer)))
    code, screen = bench.check(target, ["--page-size", "1"])
    assert code == 1 and f"BROKEN  {rule} " in screen and shows in screen
    judge_form(screen)


@pytest.mark.parametrize(
    ("view", "rule", "shows", "beside"),
    [
        ("replace(view, free_rows=[0, *view.free_rows])", "ROW-2", "never free / free", True),
        ("replace(view, free_pages=[0, *view.free_pages])", "PAGE-3", "never free / free", True),
        ("replace(view, cached={99: CachedView(1, 0)})", "PAGE-2", "page 99: a free page is in the cache", True),
        (ONE_KEY, "CACHE-4", "The backend says: under the key of another prefix.", False),
        ("replace(view, totals=Totals(-1, 0, 10**12, 0))", "CONS-1", "protected 1000000000000", False),
        ("replace(view, table={req: [-1] for req in view.table})", "TAB-2", "slot -1, page -1 at 0", False),
        ("replace(view, records={req: NO_ROW for req in view.records})", "ROW-3", "The backend says: no row.", False),
    ],
)
def test_odd_numbers_in_a_view(bench: Bench, view: str, rule: str, shows: str, beside: bool) -> None:
    """beside: both sides fit into the column of the one row or page that it is about."""
    source = "NO_ROW = RecordView(None, 9, 8, 7)" + odd("view", f"view = theirs()\nreturn {view}")
    code, screen = bench.check(bench.backend(source), ["--page-size", "1"])
    assert code == 1 and f"BROKEN  {rule} " in screen and shows in " ".join(screen.split())
    assert ("law says / backend says" in screen) == beside
    assert "\nWithout a view these calls do not show it.\n" in screen
    judge_form(screen)


def test_what_was_read_is_stored_where_it_was_wrong(bench: Bench) -> None:
    """A stored run holds it, so that explain says the same as the check."""
    target = bench.backend(odd("read", "return [tag + 1 for tag in theirs()]"))
    code, screen = bench.check(target)
    assert code == 1 and "BROKEN  TAG-1 own-content" in screen and "KV of something else." in screen
    code, told, _ = bench.call("explain", commands(screen)["again"][1])
    assert code == 1 and "BROKEN  TAG-1 own-content" in told and "KV of something else." in told
    judge_form(told)
    code, again, _ = bench.call(*commands(screen)["again"])
    assert code == 1 and body_of(again) == body_of(screen)


# ---- stored runs that no backend made, or none that is here

VECTORS = sorted((HERE / BROKEN).glob("*.itf.json"))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.name)
def test_a_broken_vector_has_a_screen(bench: Bench, path: Path) -> None:
    """The law itself answered: nobody can be asked again, and yours can be."""
    code, screen, err = bench.call("explain", str(path))
    assert (code, err) == (1, "")
    judge_form(screen.replace("\nNone starts without KV", "\nIt starts without KV"))  # in one vector it has no name
    assert f"BROKEN  {read(path).rule} " in screen
    assert commands(screen)["yours"] == ["replay", str(path), "--backend", "my_adapter:make"]
    assert list(commands(screen)) == ["yours", "pytest", "rule"]


@pytest.mark.parametrize("gone", ["nobody:make", "kvledger:nothing", "nobody"])
def test_a_backend_that_is_not_here_is_not_asked_again(bench: Bench, gone: str) -> None:
    """A run from another machine, or of an engine that has moved."""
    [path] = [path for path in VECTORS if path.name.startswith("page-1-")]
    write(replace(read(path), backend=gone), "theirs.itf.json")
    code, screen, _ = bench.call("explain", "theirs.itf.json")
    assert code == 1 and gone not in screen
    assert commands(screen)["yours"] == ["replay", "theirs.itf.json", "--backend", "my_adapter:make"]
