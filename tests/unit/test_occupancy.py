"""`kvledger replay --plot`: each sample is what the ledger says; there are not too many; and a file is drawn."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvledger.spec.actions import Action, Retract
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.page import CACHED, PRIVATE
from kvledger.spec.trace import read as read_stored
from kvledger.spec.world import World
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Lockstep
from kvledger.tests.replay import occupancy
from kvledger.tests.replay.driver import drive
from kvledger.tests.replay.knobs import Knobs
from kvledger.tests.replay.occupancy import Occupancy, Sample, sample
from kvledger.tests.replay.request import TraceRequest
from kvledger.tests.unit.written import Bench
from kvledger.tests.vectors.make import HERE, VALID

VECTORS = sorted((HERE / VALID).glob("*.itf.json"))
SVG = "{http://www.w3.org/2000/svg}"


def counted(ledger: Ledger, step: int) -> Sample:
    """The same, page by page."""
    owners = Counter[str]()
    for page in range(1, ledger.world.pages + 1):
        state = ledger.page(page)
        if state.kind == PRIVATE:
            owners["idle" if ledger.holder_of(state.owner) in ledger.sessions else "private"] += 1
        elif state.kind == CACHED:
            owners["locked" if state.locks else "evictable"] += 1
        else:
            owners["free"] += 1
    return Sample(step, *(owners[name] for name in Sample._fields[1:]))


def test_a_sample_is_what_the_ledger_says() -> None:
    """At every step of every stored vector: sessions, drafts, duplicates, admissions, all of them shown somewhere."""
    seen = Counter[str]()
    for path in VECTORS:
        trace = read_stored(path)
        monitor = Monitor(trace.world, count_armed=False)
        for step, (act, reply, *_) in enumerate(trace.steps, 1):
            monitor.step(act, reply)
            found = sample(monitor.ledger, step)
            assert found == counted(monitor.ledger, step) and sum(found[1:]) == trace.world.pages
            seen.update(name for name, pages in found._asdict().items() if pages)
    assert set(seen) == set(Sample._fields)


@pytest.mark.parametrize("backend", ["reference", "blocks"])
def test_a_long_run_has_few_samples(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More calls than samples are kept: those that are kept lie evenly, from the first to nearly the last, and each is
    what the ledger said then. A refusal and a retraction are marked by their calls."""
    monkeypatch.setattr(occupancy, "MOST", most := 100)
    requests = [TraceRequest(f"r{n}", tuple(range(n % 5, n % 5 + 40)), 90) for n in range(12)]
    lockstep = Lockstep(load_backend(backend), World(rows=12, context_len=132, pages=60, page_size=4))
    plot, law = Occupancy(lockstep.ledger), [counted(lockstep.ledger, 0)]
    marks: dict[str, list[int]] = {"refused": [], "retracted": []}

    def step(act: Action) -> Granted | Refused:
        answer = lockstep.do(act)
        plot.note(lockstep.ledger, act, answer)
        law.append(counted(lockstep.ledger, len(law)))
        if isinstance(answer, Refused):
            marks["refused"].append(len(law) - 1)
        elif isinstance(act, Retract):
            marks["retracted"].append(len(law) - 1)
        return answer

    drive(requests, step, lockstep.ledger.prefix, Knobs(lockstep.world, running=4, chunk=16), lambda _: None)
    calls = len(law) - 1
    assert calls > 2 * most and plot.steps == calls and most / 2 <= len(plot.samples) <= most
    assert plot.samples == law[:: plot.every]
    assert plot.marks == marks and all(marks.values())


def test_the_calls_of_a_plot_are_those_of_the_run(bench: Bench) -> None:
    """The figures of the replay and the words of the plot agree; its areas are named."""
    bench.call("replay", "t.jsonl", "--synthetic", "--requests", "30", "--seed", "5")
    code, out, err = bench.call("replay", "t.jsonl", "--pages", "270", "--running", "20", "--plot", "pages.svg")
    assert (code, err) == (0, "")
    figures = dict(re.findall(r"^  (\S.*?) {2,}([\d,]+)$", out, re.MULTILINE))
    words = [text.text for text in ElementTree.parse("pages.svg").iter(f"{SVG}text")]
    title = "reference 1: 28 rows, 270 pages of 16"
    assert {title, "calls of the backend", "pages", "private to requests", "cached, locked (protected)",
            "cached, evictable", "held by idle sessions", "free"} <= set(words)  # fmt: skip
    assert f"retracted, {figures['retractions']} times" in words and figures["retractions"] != "0"
    assert f"refused, {figures['refusals, short of pages']} times" in words


def test_a_plot_is_the_same_for_the_same_run(bench: Bench) -> None:
    bench.call("replay", "t.jsonl", "--synthetic", "--requests", "8", "--seed", "5")
    for name in ("one.svg", "two.svg"):
        assert bench.call("replay", "t.jsonl", "--plot", name)[0] == 0
    assert Path("one.svg").read_bytes() == Path("two.svg").read_bytes()


def test_a_failed_run_is_drawn_up_to_its_guilty_step(bench: Bench) -> None:
    bench.call("replay", "t.jsonl", "--synthetic", "--requests", "30", "--seed", "5")
    words = ["--backend", "kvledger.tests.zoo.freed_twice:make", "--plot"]
    code, out, _ = bench.call("replay", "t.jsonl", *words, "pages.svg")
    assert code == 1 and "BROKEN  PAGE-6 " in out
    assert "PAGE-6 breaks" in [text.text for text in ElementTree.parse("pages.svg").iter(f"{SVG}text")]
    assert bench.call("replay", "t.jsonl", *words, "pages.PNG")[0] == 1
    assert Path("pages.PNG").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pages.pdf", "--plot pages.pdf: expected a name that ends in .svg or .png"),
        ("nowhere/pages.svg", "--plot nowhere/pages.svg: the folder does not exist"),
        ("folder.svg", "--plot folder.svg: this is a folder, expected a file"),
    ],
)
def test_a_plot_that_cannot_be_written(bench: Bench, name: str, says: str) -> None:
    """Said before the trace is looked at: there is none."""
    Path("folder.svg").mkdir()
    assert says in bench.complaint("replay", "none.jsonl", "--plot", name)


def test_a_stored_run_has_no_plot(bench: Bench) -> None:
    assert "expected a trace of requests" in bench.complaint("replay", str(VECTORS[0]), "--plot", "pages.svg")


def test_matplotlib_is_asked_for_before_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    says = "--plot pages.svg: needs matplotlib: pip install 'kvledger[plot]'"
    assert says in bench.complaint("replay", "none.jsonl", "--plot", "pages.svg")
    bench.call("replay", "t.jsonl", "--synthetic", "--requests", "3")
    assert bench.call("replay", "t.jsonl")[0] == 0
