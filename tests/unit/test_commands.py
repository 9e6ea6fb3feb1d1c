"""Each command once, as a person types it: its exit code and what it says; and how the command line ends in a storm."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kvledger import __version__
from kvledger.__main__ import COMMANDS
from kvledger.spec.rules import RULES
from kvledger.tests.kit.search import BUDGETS
from kvledger.tests.law import needs
from kvledger.tests.unit.written import GOOD, Bench, odd, python
from kvledger.tests.vectors.make import HERE, VALID
from kvledger.tests.zoo import hunt

FULL = Path("/dev/full")


def test_the_version(bench: Bench) -> None:
    assert bench.call("--version") == (0, f"kvledger {__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help(bench: Bench, command: str) -> None:
    """The sentence that stands in the list of commands, and examples of this one."""
    code, out, err = bench.call(command, "--help")
    assert (code, err) == (0, "") and out.startswith(f"usage: kvledger {command} ")
    assert f"\n{COMMANDS[command][1]}.\n" in out and f"  kvledger {command}" in out


def test_rules(bench: Bench) -> None:
    """One entry for each, in order, which says whether it is a SHOULD."""
    code, out, err = bench.call("rules")
    *entries, last = re.findall(r"^\S.*$", out, re.MULTILINE)
    assert (code, err) == (0, "") and last.startswith("A MUST, unless it says SHOULD")
    said = [entry[:36].rstrip() for entry in entries]
    assert said == [rule.title + ("" if rule.must else " (SHOULD)") for rule in RULES.values()]
    assert all(" ".join(rule.sentence.split()) in " ".join(out.split()) for rule in RULES.values())


def test_two_rules(bench: Bench) -> None:
    code, out, _ = bench.call("rules", "one-holder", "page-2")
    titles = re.findall(r"^\S.*$", out, re.MULTILINE)
    assert code == 0 and [title.split()[0] for title in titles] == ["ROW-1", "PAGE-2"]


def test_explore(bench: Bench) -> None:
    """166 states, as README.md says."""
    code, out, err = bench.call("explore", "TINY_B")
    head, row, last = out.splitlines()
    assert (code, err) == (0, "") and head.split()[:2] == ["world", "states"]
    assert row.split()[:2] == ["TINY_B", "166"] and last.startswith("every law holds in every state; ")


def test_a_good_run_is_explained(bench: Bench) -> None:
    vector = HERE / VALID / "a-start-finds-a-prefix.itf.json"
    for path in (str(vector), bench.file("t.itf.json", GOOD)):
        code, out, err = bench.call("explain", path)
        assert (code, err) == (0, "")
        assert re.fullmatch(r"\d+ actions?: every rule that answers and views can show holds\n", out)


# ---- zoo, needs


def test_a_fault_is_caught(bench: Bench) -> None:
    code, out, err = bench.call("zoo", "freed_twice", "--seeds", "1", "--no-shortest", "--quiet")
    [_, row] = out.splitlines()
    assert (code, err) == (0, "") and row.split()[:4] == ["freed_twice", "PAGE-6", "1/1", "1/1"]


def test_a_fault_that_is_not_caught(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here: because another rule is expected."""
    monkeypatch.setattr(hunt, "expected", lambda _: ("ROW-1", "ROW-1"))
    code, out, _ = bench.call("zoo", "freed_twice", "--seeds", "1", "--no-shortest", "--quiet")
    assert code == 1 and "ROW-1" in out.splitlines()[1] and " 0/1 " in out and "\nNOT AS EXPECTED  Catch(" in out


def test_an_accused_control(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever accuses a clean backend is wrong."""
    monkeypatch.setattr(hunt, "FAULTS", ("freed_twice",))
    monkeypatch.setattr(hunt, "CLEAN", ("kvledger.tests.zoo.full_match:make",))
    code, out, _ = bench.call("zoo", "--seeds", "1", "--no-shortest", "--quiet")
    assert code == 1 and ", 1 accused\n  kvledger.tests.zoo.full_match:make, seed 0: CACHE-2 at step " in out


def test_guards_are_listed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with what its deletion changes, and how many change nothing: exit 1, if any."""
    guards = dict(list(needs.needs().items())[:2])
    first, second = guards.values()
    witness = needs.Witness("TINY_A", "extend", first.rule, "accepted")
    monkeypatch.setattr(needs, "needs", lambda: guards)
    for idle, code in (([second], 1), ([], 0)):

        def search(pending: dict[tuple[str, int], needs.Need], *_: object, idle: list[needs.Need] = idle) -> object:
            return {pending.pop(place): witness for place, guard in guards.items() if guard not in idle}

        monkeypatch.setattr(needs, "search", search)
        found, out, _ = bench.call("needs", "--quiet")
        one, other, last = out.splitlines()
        assert (found, last) == (code, f"2 guards, {code} idle")
        assert one.split() == [f"{first.file}:{first.line}", first.rule, "extend", "in", "TINY_A:", "accepted"]
        assert other.endswith("IDLE") == bool(idle)


# ---- check


def test_what_ships_is_checked(bench: Bench) -> None:
    """Two verdicts, for the two backends that ship."""
    code, out, err = bench.call("check", "--profile", "quick")
    assert (code, err) == (0, "") and re.findall(r"^CONFORMS  (\w+)", out, re.MULTILINE) == ["reference", "blocks"]


def test_what_is_broken_is_worse_than_what_nobody_could_tell(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code 1 before code 2, whichever comes first."""
    monkeypatch.setitem(BUDGETS, "quick", 30)
    broken = bench.backend(odd("do", "raise RuntimeError"))
    assert bench.check("reference")[0] == 2 and bench.check(broken)[0] == 1
    for targets in (["reference", broken], [broken, "reference"]):
        code, out, _ = bench.call("check", *targets, "--profile", "quick")
        assert code == 1 and "COULD NOT TELL" in out and "BROKEN  the backend raises" in out


# ---- what comes from outside

STUB = """
import sys, types
from kvledger import __main__ as line
from kvledger.spec.world import WrongInput

def run(args):
    print("what was said before")
    raise {error}

sys.modules["stub"] = types.SimpleNamespace(HELP="", add_arguments=lambda parser: None, run=run)
line.COMMANDS["storm"] = ("stub", "raises")
sys.exit(line.main(["storm"]))
"""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("WrongInput('not so')", "kvledger storm: not so\n"),
        ("OSError(28, 'No space left on device')", "kvledger storm: No space left on device\n"),
        ("OSError('gone')", "kvledger storm: gone\n"),
        ("KeyboardInterrupt", "kvledger storm: interrupted\n"),
        ("BrokenPipeError", ""),  # nobody listens
    ],
)
def test_whatever_ends_a_command_costs_a_line(error: str, says: str) -> None:
    done = python("-c", STUB.format(error=error))
    assert (done.returncode, done.stderr) == (2, says)


def test_what_is_our_own_fault_is_not_hidden() -> None:
    done = python("-c", STUB.format(error="ZeroDivisionError"))
    assert done.returncode == 1 and done.stderr.startswith("Traceback")


SHORT_AND_LONG = pytest.mark.parametrize("words", ["explain t.itf.json", "rules"])  # what fits into a buffer, and more


@SHORT_AND_LONG
def test_nobody_reads_on(bench: Bench, words: str) -> None:
    """As in `kvledger rules | head -1`: not a word."""
    bench.file("t.itf.json", GOOD)
    reader, writer = os.pipe()
    os.close(reader)
    done = python("-m", "kvledger", *words.split(), cwd=bench.folder, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@SHORT_AND_LONG
def test_there_is_no_room_for_what_is_said(bench: Bench, words: str) -> None:
    bench.file("t.itf.json", GOOD)
    with FULL.open("w") as full:
        done = python("-m", "kvledger", *words.split(), cwd=bench.folder, stdout=full.fileno())
    assert (done.returncode, done.stderr) == (2, f"kvledger {words.split()[0]}: No space left on device\n")
