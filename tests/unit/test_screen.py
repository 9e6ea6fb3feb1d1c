"""The failure screen of every fault in the zoo: it fits, it is in words, and every command on it does what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kvledger.spec.actions import Submit
from kvledger.spec.answer import Reply
from kvledger.spec.rules import RULES
from kvledger.spec.trace import Step, Trace, read
from kvledger.spec.world import World
from kvledger.tests.kit.again import calls_of
from kvledger.tests.report.explain import as_pytest
from kvledger.tests.unit.written import Bench, odd
from kvledger.tests.zoo import FAULTS

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^(again|pytest|rule) {2,}(kvledger .*)$", re.MULTILINE)
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


@pytest.mark.parametrize("words", [[], ["--no-view"]], ids=["view", "no view"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_screen_fits_and_is_in_words(bench: Bench, fault: str, words: list[str]) -> None:
    code, screen = bench.check(f"kvledger.tests.zoo.{fault}:make", words)
    assert code == 1
    judge_form(screen)
    [rule] = [rule for rule in RULES.values() if f"BROKEN  {rule.title} " in screen]
    assert " ".join(rule.sentence.split()) in " ".join(screen.split())
    assert list(commands(screen)) == ["again", "pytest", "rule"]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_commands_on_it_work(bench: Bench, fault: str) -> None:
    """replay and explain show the same; the rule is printed; the pytest fails, and passes once the fault is gone."""
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
    """explain --pytest of every fault: eight files, run as the screen says, then with an honest backend."""
    tests = []
    for fault in FAULTS:
        _, screen = bench.check(f"kvledger.tests.zoo.{fault}:make")
        words = commands(screen)["pytest"]
        assert words[-2] == ">"
        code, source, _ = bench.call(*words[:-2])
        assert code == 0
        tests.append(Path(words[-1]))
        tests[-1].write_text(source)
    assert len(set(tests)) == len(FAULTS)
    assert passed_and_failed(bench) == (0, len(FAULTS))
    for test in tests:
        test.write_text(re.sub(r"kvledger\.tests\.zoo\.\w+:make", "reference", test.read_text()))
    assert passed_and_failed(bench) == (len(FAULTS), 0)


def passed_and_failed(bench: Bench) -> tuple[int, int]:
    """What a pytest run of the folder counts."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(bench.folder)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / ".src")})
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
    assert calls_of(trace) == [(mine.act, False)]
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
