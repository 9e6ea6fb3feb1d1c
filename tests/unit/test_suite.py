"""The verdict for machines: --json, and the suite for pytest."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from kvledger.spec.rules import RULES
from kvledger.tests.law import needs
from kvledger.tests.unit.written import Bench, python

PLUGIN = "kvledger.tests.kit.plugin"
WORDS = {"BROKEN", "HOLDS", "DEVIATES", "UNREACHED", "UNSEEN", "NOT DECLARED"}


# ---- --json


def test_json(bench: Bench) -> None:
    fault = "kvledger.tests.zoo.freed_twice:make"
    code, out, _ = bench.call("check", "reference", fault, "--profile", "quick", "--seed", "2", "--json", "-")
    honest, faulty = json.loads(out)
    assert code == 1 and (honest["exit"], faulty["exit"]) == (0, 1)
    for report in (honest, faulty):
        assert set(report) == {"backend", "name", "exit", "seed", "actions", "deviations", "rules", "finding"}
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


# ---- for pytest


def suite(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The suite, run there as the README says."""
    return python("-m", "pytest", "-q", "--pyargs", "kvledger.tests.kit.suite", "-p", PLUGIN, *words, cwd=folder)


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
    done = suite(tmp_path, "--kv-backend", backend, "--kv-profile", "quick")
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


@pytest.mark.parametrize("seed", ["0", "3"])
def test_the_suite_has_a_seed(bench: Bench, seed: str) -> None:
    """It shows what a check with the same seed shows."""
    target = "kvledger.tests.zoo.freed_twice:make"
    done = suite(bench.folder, "--kv-backend", target, "--kv-profile", "quick", "--kv-seed", seed)
    words = ["--profile", "quick", *(["--seed", seed] if seed != "0" else [])]
    _, screen = bench.check(target, words)
    assert done.returncode == 1 and f", seed {seed}\n" in screen and screen in done.stdout
