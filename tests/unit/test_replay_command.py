"""`kvledger replay` from the outside: exit codes, what it prints, and how a failing run becomes a short one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvledger.__main__ import main
from kvledger.spec.actions import Action, Extend, Finish, Retract, Submit
from kvledger.spec.answer import Refused, Reply
from kvledger.spec.backend import Backend, Declaration, View
from kvledger.spec.trace import Step, Trace
from kvledger.spec.trace import read as read_stored
from kvledger.spec.trace import write as write_stored
from kvledger.spec.world import World
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Finding, Lockstep
from kvledger.tests.replay.driver import drive
from kvledger.tests.replay.knobs import Knobs
from kvledger.tests.replay.mooncake import read
from kvledger.tests.replay.narrow import narrow

FAULTY = "kvledger.tests.zoo.freed_twice:make"
# A run of some backend; the retract comes too late to be made.
CALLS = (Submit("a", (1, 2), 0), Extend((("a", 2, 3),)), Finish("a", 2, False), Retract("a"))
STORED = Trace(World(rows=2, context_len=4, pages=4, page_size=1), tuple(Step(act, Reply()) for act in CALLS))


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A made-up trace in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    assert main(["replay", "t.jsonl", "--synthetic", "--requests", "30", "--seed", "5"]) == 0
    return "t.jsonl"


@pytest.mark.parametrize("backend", ["reference", "chunk_cache", "blocks"])
@pytest.mark.parametrize("sizes", ["--pages 700", "--pages 320", "--page-size 4 --block-tokens 6 --pages 500"])
def test_good_backends_hold(trace: str, backend: str, sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", trace, "--backend", backend, *sizes.split()]) == 0
    out = capsys.readouterr().out
    assert " rules: " in out and "BROKEN" not in out
    assert re.search(r"\d request actions per CPU second, [\d,]+ in the monitor alone; calibration loop \d+ ms", out)


def test_a_tight_pool_of_single_slots_ends(trace: str) -> None:
    words = "--page-size 1 --block-tokens 4 --pages 1000 --json out.json"
    assert main(["replay", trace, *words.split()]) == 0
    figures = json.loads(Path("out.json").read_text())["figures"]
    assert figures["retractions"] and figures["refusals, short of pages"] and figures["pages evicted"]
    assert figures["peak pages"] == 1000


def test_a_view_leaves_nothing_unseen(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, unseen in (([], True), (["--view"], False)):
        assert main(["replay", trace, "--requests", "10", *words]) == 0
        assert ("UNSEEN" in capsys.readouterr().out) == unseen


def test_json_for_machines(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["replay", trace, "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["exit"] == 0 and report["name"] == "reference"
    assert report["figures"]["requests"] == 30
    assert report["rules"]["PAGE-1"]["verdict"] == "HOLDS" and report["rules"]["PAGE-1"]["armed"] > 0
    assert main(["replay", trace, "--backend", FAULTY, "--json", "out.json"]) == 1
    assert json.loads(Path("out.json").read_text())["finding"]["rule"] == "PAGE-6"


def test_a_broken_rule_is_shown_stored_and_replayed(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", trace, "--backend", FAULTY, "--chunk", "100"]) == 1
    out = capsys.readouterr().out
    assert f"$ kvledger replay t.jsonl --backend {FAULTY} --chunk 100" in out
    assert "BROKEN  PAGE-6 freed-exactly" in out
    [stored] = Path(".kvledger").iterdir()
    assert len(read_stored(stored).steps) < 10
    assert main(["replay", str(stored), "--backend", FAULTY]) == 1
    assert main(["replay", str(stored), "--backend", "reference"]) == 0


def test_a_stored_run_for_machines(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--json is kept; what another backend could not be asked is counted, and no rule is said to hold for it."""
    write_stored(STORED, "run.itf.json")
    capsys.readouterr()
    assert main(["replay", "run.itf.json", "--json", "out.json"]) == 0
    assert capsys.readouterr().out == "3 of 4 calls of run.itf.json could be made on reference: no rule breaks\n"
    report = json.loads(Path("out.json").read_text())
    assert report == {"backend": "reference", "name": "reference", "calls": 4, "made": 3, "exit": 0}
    assert main(["replay", "run.itf.json", "--backend", FAULTY, "--json", "-"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["exit"], report["finding"]["rule"]) == (1, "PAGE-6")


@pytest.mark.parametrize("size", ["--requests 5", "--page-size 1", "--pages 4096", "--rows 3", "--chunk 1"])
def test_a_stored_run_has_its_own_sizes(trace: str, size: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Even one that is the default is not passed over."""
    write_stored(STORED, "run.itf.json")
    assert main(["replay", "run.itf.json", *size.split()]) == 2
    assert f"{size.split()[0]} with run.itf.json: a stored run has its sizes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("none.jsonl", "none.jsonl: No such file or directory, expected a file in the Mooncake format"),
        ("t.jsonl --synthetic", "t.jsonl: this file exists, expected a new name to write to"),
        ("t.jsonl --pages 2", "cannot fit"),
        ("t.jsonl --pages 0", "pages = 0"),
        ("t.jsonl --page-size 0", "page_size = 0"),
        ("t.jsonl --context-len 5", "columns, a row has 5"),
        ("t.jsonl --rows 3", "32 running requests with 3 rows: expected a row for each"),
        ("t.jsonl --running 0", "running = 0"),
        ("t.jsonl --chunk 0", "chunk = 0"),
        ("t.jsonl --requests 0", "0 requests: expected a whole number >= 1"),
        ("t.jsonl --block-tokens 0", "0 tokens a block: expected a whole number >= 1"),
        ("t.jsonl --backend nobody", "nobody"),
        ("t.jsonl --json nowhere/out.json", "--json nowhere/out.json: the folder does not exist"),
        ("none.json", "none.json"),
    ],
)
def test_wrong_input_is_one_line(trace: str, words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["replay", *words.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err and printed.err.count("\n") == 1


# ---- narrow: from thousands of calls to a few

WORLD = World(rows=40, context_len=4096, pages=300, page_size=16)


def broken(trace: str, lockstep: Lockstep) -> Finding:
    with pytest.raises(Finding) as found:
        drive(read(trace, 30, 16), lockstep.do, lockstep.ledger.prefix, Knobs(lockstep.world), lambda _: None)
    return found.value


@pytest.mark.parametrize("fault", ["freed_twice", "duplicate_kept", "locked_evicted", "stale_reuse"])
def test_narrow_keeps_the_rule_and_drops_the_rest(trace: str, fault: str) -> None:
    made = 0

    def make(world: World) -> Backend:
        nonlocal made
        made += 1
        return faulty(world)

    faulty = load_backend(f"kvledger.tests.zoo.{fault}:make")
    lockstep = Lockstep(make, WORLD)
    finding = broken(trace, lockstep)
    grade, steps = lockstep.grade, lockstep.steps
    small = narrow(make, lockstep.world, steps, finding, grade=grade, name=fault, drain=False, seconds=2)
    assert small is not None and small.finding.rule == finding.rule
    assert len(small.steps) < len(lockstep.steps)
    assert made > 2  # more than the run itself and one trial


class Moody:
    """Breaks a rule in the first world that it lives in, and never again."""

    lives = 0

    def __init__(self, world: World) -> None:
        Moody.lives += 1
        self.bad = Moody.lives == 1
        self.inner = load_backend("reference")(world)

    def declare(self) -> Declaration:
        return self.inner.declare()

    def view(self) -> View | None:
        return self.inner.view()

    def do(self, action: Action) -> Reply | Refused:
        if self.bad and type(action).__name__ == "Decode":
            raise RuntimeError("moody")
        return self.inner.do(action)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_narrow_says_when_a_backend_does_not_repeat_itself(trace: str) -> None:
    lockstep = Lockstep(Moody, WORLD)
    finding = broken(trace, lockstep)
    assert finding.rule == "RAISES"
    assert not narrow(Moody, lockstep.world, lockstep.steps, finding, grade=lockstep.grade, name="moody", drain=False)
