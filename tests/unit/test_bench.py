"""kvledger bench: what it asks for, what it makes of figures, that it sees a difference, what it counts. No seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.bench import command, counts, growth, pools, trees
from kvledger.fast.bench.cases import CASES, COUNT, GROWTH, SHARE, WARM, Case, Measured, code, verdict
from kvledger.fast.bench.equal import Difference, follow, prove, prove_trees, steps
from kvledger.fast.bench.growth import ready, unchecked
from kvledger.fast.bench.measure import race, ratio, run, share
from kvledger.fast.bench.ours import Ours
from kvledger.fast.bench.printed import Found, as_json, table
from kvledger.fast.bench.work import Decode, Evict, Extend, Match, Op, Release, do
from kvledger.spec.world import World
from kvledger.tests.engines.venvs import SGLANG, VLLM
from kvledger.tests.unit.written import Bench

# The targets that were set before anything was built: must, reach. Ratios; of V1 by how much it may be slower.
RATIOS = {
    "E1": (8, 15), "E2": (7, 11), "E3": (9, 14), "E4": (11, 18), "E5": (3.5, 5), "E6": (1.5, 2), "E7": (11, 17),
    "D1": (5, 8), "D2": (10, 15), "D3": (6, 9), "D4": (2.5, 3.3),
    "F1": (4, 6), "F2": (6, 10), "W1": (3.5, 6), "W2": (4.5, 7),
    "R1": (8, 12), "R2": (12, 20), "R3": (4, 6), "V1": (1 / 3, 1 / 2),
}  # fmt: skip
MOSTS = {"G1": [1.25], "G2": [1.25], "G3": [1.3], "G4": [12], "G5": [1.5], "G6": [8, 6, 14], "G7": [0], "G8": [0.3]}
RUST = {"T1", "T2", "T3"}  # to beat it would be good
FASTER, SLOWER = Case("X", "x", "sglang", 3, 5), Case("Y", "y", "", 1.25, 1.05, GROWTH)


def seen(value: float, low: float | None = None, high: float | None = None) -> Measured:
    return Measured(1.0, 1.0, value, value if low is None else low, value if high is None else high)


# ---- what is asked


def test_the_targets() -> None:
    """As they were set, a must first; every id stands in the table and no other."""
    assert {case.id for case in CASES} == {*RATIOS, *MOSTS, *RUST}
    assert {case.id: (case.must, case.reach) for case in CASES if case.id in RATIOS} == RATIOS
    assert {id: [case.must for case in CASES if case.id == id] for id in MOSTS} == MOSTS
    assert {case.id for case in CASES if case.must is None} == RUST
    assert len({case.key for case in CASES}) == len(CASES)


def test_what_would_be_good_is_no_less_than_the_must() -> None:
    assert all(case.must is None or case.meets(case.reach, case.must) for case in CASES)


def test_every_case_has_its_work() -> None:
    """And the other way round: no work stands there that nobody asks for."""
    assert {case.id for case in CASES if case.against} == {*pools.LOADS, *trees.LOADS}
    assert {case.id for case in CASES if not case.against} == {*growth.SIZES, "G6", "G7", "G8"}


# ---- what is made of a figure


@pytest.mark.parametrize(
    ("case", "measured", "word"),
    [
        (FASTER, seen(3), "ok"),
        (FASTER, seen(2.99), "MISS"),
        (FASTER, seen(4, 3.5, 4.5), "ok"),
        (FASTER, seen(4, 3, 4), "noisy"),  # 4 / 3 is more than 1.3, however good it is
        (FASTER, seen(2, 1, 2), "noisy"),
        (FASTER, None, "not compared"),
        (SLOWER, seen(1.25), "ok"),
        (SLOWER, seen(1.26), "MISS"),
        (SLOWER, seen(1.1, 1, 1.31), "noisy"),
        (Case("T", "t", "sglang", None, 1), seen(1), "ok"),
        (Case("T", "t", "sglang", None, 1), seen(0.9), "short"),
        (Case("C", "c", "", 8, 6, COUNT), seen(8), "ok"),
        (Case("C", "c", "", 8, 6, COUNT), seen(9), "MISS"),
        (Case("C", "c", "", 8, 6, COUNT), seen(8, 6, 8), "MISS"),  # it depends on the batch
        (Case("C", "c", "", 0, 0, COUNT), seen(0), "ok"),
        (Case("S", "s", "", 0.3, 0.2, SHARE), seen(0.3), "ok"),
        (Case("S", "s", "", 0.3, 0.2, SHARE), seen(0.31), "MISS"),
        (Case("S", "s", "", 0.3, 0.2, SHARE), seen(0.2, 0.1, 0.25), "ok"),  # 10 % to 25 %: the times are 1.2 apart
        (Case("S", "s", "", 0.3, 0.2, SHARE), seen(0.2, 0.0, 0.25), "noisy"),
    ],
)
def test_the_verdict(case: Case, measured: Measured | None, word: str) -> None:
    assert verdict(case, measured) == word


def test_the_exit_code() -> None:
    """A miss comes before noise; what is not compared, or short of what nobody must reach, is no fault."""
    assert code(["ok", "not compared", "short"]) == code([]) == 0
    assert code(["ok", "noisy", "not compared"]) == 2
    assert code(["noisy", "MISS", "ok"]) == 1


# ---- the clock


class Told:
    """A contender that writes down what it is asked."""

    world = World(1, 1, 1, 1)

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def prepare(self, op: Any) -> Any:
        self.log.append(f"{self.name} prepares {type(op).__name__}")
        return lambda: self.log.append(f"{self.name} calls {type(op).__name__}")

    def note(self, op: Any, result: Any) -> None:
        self.log.append(f"{self.name} notes {type(op).__name__}")


def test_only_what_counts_is_timed_and_only_its_call() -> None:
    """A clock that counts its readings: two of them a run of neighbours of one kind, and nothing else happens between
    the two but their calls."""
    log: list[str] = []
    readings = count()

    def clock() -> float:
        log.append("clock")
        return float(next(readings))

    spent = run(Told("a", log), [Match(np.empty(0, np.int32))] * 2 + [Evict(1)], (Match,), clock)
    assert spent == 1.0
    assert log[:7] == ["a prepares Match"] * 2 + ["clock", "a calls Match", "a calls Match", "clock", "a notes Match"]


def test_who_goes_first_rotates_and_the_first_rounds_do_not_count() -> None:
    log: list[str] = []
    sides = [Told("a", log), Told("b", log)]
    works: Iterator[tuple[Sequence[Op], ...]] = (([Evict(1)], [Evict(1)]) for _ in range(WARM + 3))
    times = race(sides, works, (Evict,), iter(range(1000)).__next__)
    assert times.shape == (3, 2)
    firsts = [said[0] for said in log if "calls" in said][::2]
    assert firsts == ["a", "b"] * ((WARM + 3) // 2) + ["a"] * ((WARM + 3) % 2)


def test_a_ratio_is_of_medians_and_its_quartiles_of_rounds() -> None:
    """Ours 1, 2, 3 and theirs 4, 6, 30 seconds, ten calls a round: the medians are 2 and 6, the rounds 4, 3 and 10."""
    found = ratio(np.array([[1.0, 4], [2, 6], [3, 30]]), 10)
    assert (found.ours, found.theirs, found.value) == (200_000, 600_000, 3)
    assert (found.q25, found.q75) == (3.5, 7)


def test_a_share_is_of_the_slower() -> None:
    """75 without and 100 with: a quarter."""
    assert share(np.array([[75.0, 100]] * 3), 1).value == pytest.approx(0.25)


# ---- the proof sees a difference


class Swapped(Ours):
    """Gives two pages back the other way round."""

    def note(self, op: Any, result: Any) -> None:
        super().note(op, result)
        if isinstance(op, Release) and len(result) > 1:
            pages = self.ledger.pages
            pages.stack[[pages.head, pages.head + 1]] = pages.stack[[pages.head + 1, pages.head]]


class Shifted(Ours):
    """Writes one column of a row off by one."""

    def note(self, op: Any, result: Any) -> None:
        super().note(op, result)
        if isinstance(op, Extend):
            self.ledger.tensors.req_to_token[int(result.rows[0]), 1] += 1


class Answers(Ours):
    """Answers a decode with its slots in another order."""

    def slots(self, op: Any, result: Any) -> Any:
        shown = super().slots(op, result)
        return shown[::-1] if isinstance(op, Decode) and shown is not None else shown


class Leaks(Ours):
    """Keeps a page now and then."""

    def note(self, op: Any, result: Any) -> None:
        super().note(op, result)
        if isinstance(op, Release):
            self.ledger.pages.take(1)


class Shares(Ours):
    """Lets two requests list the same slot."""

    def note(self, op: Any, result: Any) -> None:
        super().note(op, result)
        if isinstance(op, Extend) and len(op.names) > 1:
            one, other = result.rows[:2].tolist()
            self.ledger.tensors.req_to_token[one, 0] = self.ledger.tensors.req_to_token[other, 0]


class Backwards(Ours):
    """Hands pages out from behind: the same, but for their names."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        pages = self.ledger.pages
        pages.give(pages.take(world.pages)[::-1])


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
def test_a_contender_does_as_itself(page_size: int, renamed: bool) -> None:
    assert prove(Ours, Ours, {page_size: renamed}, published=True) == 320


@pytest.mark.parametrize(
    ("fault", "says"),
    [(Swapped, "free pages"), (Shifted, "'s row"), (Answers, "slots of decode"), (Leaks, "free pages")],
)
def test_a_planted_difference_is_found(fault: type[Ours], says: str) -> None:
    with pytest.raises(Difference, match=says):
        prove(Ours, fault, {16: False}, published=False)


@pytest.mark.parametrize(("fault", "says"), [(Shares, "no renaming"), (Leaks, "free pages")])
def test_a_planted_difference_is_found_under_other_names(fault: type[Ours], says: str) -> None:
    with pytest.raises(Difference, match=says):
        prove(Ours, fault, {16: True}, published=False)


def test_a_page_that_is_listed_and_free_is_found() -> None:
    """Both of them give back what a request still lists."""
    world, names = World(4, 64, 32, 16), np.arange(2)
    ours, theirs = Ours(world), Ours(world)
    for side in (ours, theirs):
        do(side, Extend(names, np.array([40, 40])))
        side.ledger.pages.give(side.ledger.mirror[side.rows[0] * 4 : side.rows[0] * 4 + 1])
    with pytest.raises(Difference, match="is free"):
        follow(ours, theirs, [[Decode(names)]], renamed=True)


def test_other_names_are_a_difference_only_where_they_must_be_the_same() -> None:
    assert prove(Ours, Backwards, {16: True}, published=False) == 320
    with pytest.raises(Difference):
        prove(Ours, Backwards, {16: False}, published=False)


class OneShort(Ours):
    """Finds a page less of whatever it finds."""

    def slots(self, op: Any, result: Any) -> Any:
        shown = super().slots(op, result)
        return shown[:-16] if isinstance(op, Match) and shown is not None else shown


def test_trees() -> None:
    assert prove_trees(Ours, Ours) == 8 * (2 * 160 + 3 * 80)
    with pytest.raises(Difference, match="slots of match"):
        prove_trees(Ours, OneShort)


def test_the_steps_are_of_all_kinds() -> None:
    """Else equality would say little: prefixes are found, rows go on from inside a page, and everything ends."""
    ops = [op for seed in range(8) for step in steps(np.random.default_rng(seed), True) for op in step]
    assert min(sum(isinstance(op, kind) for op in ops) for kind in Op.__args__[:5]) > 50
    ours, found = Ours(World(16, 256, 2_500, 16)), 0
    for step in steps(np.random.default_rng(0), True):
        for op in step:
            do(ours, op)
            found += isinstance(op, Extend) and bool(ours.ledger.protected_len[ours.rows[op.names]].any())
    assert found > 5


# ---- the loads


@pytest.mark.parametrize("id", [*pools.LOADS, *trees.LOADS])
def test_a_round_has_as_many_calls_as_it_is_divided_by(id: str) -> None:
    """Of a whole step, the decodes count."""
    load = {**pools.LOADS, **trees.LOADS}[id]()
    ops = next(iter(load.rounds))
    assert sum(isinstance(op, load.timed[-1]) for op in ops) == load.calls


def test_a_decode_without_edges_takes_no_page() -> None:
    load = pools.LOADS["D2"]()
    ours, rounds = ready(Ours, load), iter(load.rounds)
    for op in [*next(rounds), *next(rounds)]:
        before = ours.ledger.pages.available
        do(ours, op)
        assert (ours.ledger.pages.available == before) == isinstance(op, Decode)


def test_a_chunk_begins_inside_a_page() -> None:
    load = pools.LOADS["E7"]()
    first, second, _ = next(iter(load.rounds))
    assert all(first.uptos % 16) and all(second.uptos > first.uptos)  # type: ignore[union-attr]


def test_half_of_the_extends_find_a_prefix() -> None:
    load = pools.LOADS["E3"]()
    ours, op = ready(Ours, load), next(iter(load.rounds))[0]
    do(ours, op)
    protected = ours.ledger.protected_len[ours.rows[op.names]]  # type: ignore[union-attr]
    assert 96 < np.count_nonzero(protected) < 160


def test_without_its_check_a_list_is_the_same_list() -> None:
    assert prove(Ours, unchecked, {16: False}, published=True) == 320


# ---- counts


@pytest.mark.parametrize(("words", "most"), [("an extend", 8), ("a decode", 6), ("a release", 14)])
def test_operators_do_not_depend_on_the_batch(words: str, most: int) -> None:
    found = {counts.operators(Ours, size, counts.KINDS[words]).all for size in (2, 32, 1024)}
    assert len(found) == 1 and counts.operators(Ours, 1, counts.KINDS[words]).all <= max(found) <= most


def test_no_call_waits_for_the_device() -> None:
    assert counts.syncs(Ours, 100) == 0


class Waits(Ours):
    """Reads a number back from the table, and dispatches an operator more for each request."""

    def prepare(self, op: Any) -> Any:
        call = super().prepare(op)

        def called() -> Any:
            for _ in op.names:
                self.ledger.tensors.req_to_token[0, 0].item()
            return call()

        return called


def test_what_waits_is_counted() -> None:
    """Of 4 requests, 4 reads; so the count depends on the batch, and that is a miss."""
    assert counts.operators(Waits, 4, Decode).syncs == 4
    found = counts.measure("operators of a decode", Waits, None)
    assert found.q25 < found.q75
    assert verdict(next(case for case in CASES if case.what.startswith("operators of a decode")), found) == "MISS"


# ---- the command


def lines(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """What a process may say of E3 and D1."""
    return [{"versions": {"torch": "2", "numpy": "2", "sglang": "0.5.23"}}, {"calibrated": 0.1}, *more]


def figures(id: str, value: float, low: float, high: float) -> dict[str, Any]:
    case = next(case for case in CASES if case.id == id)
    measured = {"theirs": 100.0, "ours": 100.0 / value, "value": value, "q25": low, "q75": high, "beside": None}
    return {"case": case.key, "measured": measured}


@pytest.mark.parametrize(
    ("said", "exit_code", "words"),
    [
        ([{"equal": {"sglang": 7}}, figures("E3", 9.5, 9, 10), figures("D1", 5, 5, 5)], 0, ["ok", "ok"]),
        ([figures("E3", 9.5, 9, 10), figures("D1", 4, 4, 4)], 1, ["ok", "MISS"]),
        ([figures("E3", 9.5, 8, 11), figures("D1", 5, 5, 5)], 2, ["noisy", "ok"]),
        ([figures("E3", 9.5, 8, 11), figures("D1", 4, 4, 4)], 1, ["noisy", "MISS"]),
        ([{"different": "sglang: the row of request 3"}], 1, ["not compared", "not compared"]),
    ],
)
def test_what_is_printed_and_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, said: list[dict[str, Any]], exit_code: int, words: list[str]
) -> None:
    """The JSON has the table's rows, with targets and words; the table their words, must and reach."""
    monkeypatch.setattr(command, "shared_out", lambda cases: {"sglang": cases})
    monkeypatch.setattr(command, "said", lambda *_: iter(lines(*said)))
    code, out, err = bench.call("bench", "--only", "E3", "D1", "--json", "b.json")
    assert (code, err) == (exit_code, "")
    report = json.loads((bench.folder / "b.json").read_text())
    assert set(report) == {"clock", "versions", "calibration", "equal", "different", "rows"}
    assert [(row["id"], row["must"], row["reach"], row["verdict"]) for row in report["rows"]] == [
        ("E3", 9, 14, words[0]), ("D1", 5, 8, words[1])
    ]  # fmt: skip
    if report["different"]:
        assert "different   sglang: the row of request 3" in out and "\nE3" not in out
        return
    [of_e3, of_d1] = [line for line in out.splitlines() if line.startswith(("E3 ", "D1 "))]
    assert of_e3.split()[-3:] == [">=9.0", "14.0", words[0]] and of_d1.split()[-3:] == [">=5.0", "8.0", words[1]]
    assert set(report["rows"][0]["measured"]) == {"theirs", "ours", "value", "q25", "q75", "beside"}


def test_the_whole_table_fits() -> None:
    """Every case with a figure and without; nothing a reader must scroll for."""
    some = Found("cpu", {case.key: Measured(12_345.6, 12_345.6, 12.3, 12.3, 12.3, 12_345.0) for case in CASES})
    for found in (some, Found("wall")):
        text = table(CASES, found)
        assert all(f"\n{case.id:<4}{case.what}" in text for case in CASES)
        assert max(map(len, text.splitlines())) <= 120
        json.dumps(as_json(CASES, found))


def test_a_word_that_names_no_line(bench: Bench) -> None:
    assert "--only X9: expected E1 E2" in bench.complaint("bench", "--only", "E1", "X9")


def test_a_report_that_cannot_be_written(bench: Bench) -> None:
    assert "--json no/where.json" in bench.complaint("bench", "--only", "G6", "--json", "no/where.json")


def test_without_engines(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ours alone is measured; of the others it is said how to have them. No fault of ours: exit 0."""
    monkeypatch.setenv("KVLEDGER_ENGINES", str(bench.folder))
    code, out, err = bench.call("bench", "--only", "E1", "V1", "G6")
    assert (code, err) == (0, "")
    assert "not compared: sglang is not set up, kvledger engines setup sglang" in out
    assert "not compared: vllm is not set up, kvledger engines setup vllm" in out
    ends = {line.split()[0]: line for line in out.splitlines() if line.startswith(("E1 ", "V1 ", "G6 "))}
    assert ends["E1"].endswith("not compared") and ends["V1"].endswith("not compared") and ends["G6"].endswith("ok")


def test_a_process_that_fails_costs_one_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLEDGER_ENGINES", str(bench.folder))
    monkeypatch.setattr(command, "BOOT", "import sys; sys.exit('out of luck')")
    assert "the process of ours ended with 1: out of luck" in bench.complaint("bench", "--only", "G6")


@pytest.mark.skipif(
    not (SGLANG.is_set_up and VLLM.is_set_up), reason="not set up: kvledger engines setup sglang vllm"
)
def test_the_real_engines(bench: Bench) -> None:
    """Both do as ours do, over all random steps, and counts stand beside; how fast they are is not asked here."""
    code, _, err = bench.call("bench", "--only", "T3", "V1", "G6", "--json", "b.json")
    assert code in (0, 1, 2) and err == ""
    report = json.loads((bench.folder / "b.json").read_text())
    assert report["different"] is None and report["versions"].keys() >= {"sglang", "vllm"}
    assert {who.partition(",")[0] for who in report["equal"]} == {"sglang", "vllm"}
    assert sorted(report["equal"].values()) == [320, 960, 8960]
    extend = next(row for row in report["rows"] if row["what"].startswith("operators of an extend"))
    assert extend["measured"]["beside"] > 1024 > extend["measured"]["value"]  # theirs grows with the batch
    assert [row["id"] for row in report["rows"] if row["measured"] is None] == []
