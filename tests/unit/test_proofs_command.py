"""kvledger prove, and the status table: what is printed, what it exits with, and that the table is what was found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvledger.proofs import counting, parts, rows, status
from kvledger.proofs.verdict import Verdict
from kvledger.spec.edit import Edit
from kvledger.tests.unit.written import ROOT, Bench, python

QUICK = ("kernels", "counting", "cells", "records")
WORDS = "consistent (8 axioms, 1 model, 1 control)"
CLAIM = "the axioms that count a page's readers have a model; without their guard they contradict each other"
HOLDS = Verdict("counting: axioms", CLAIM, WORDS, True, 0.5, "", ("a goal", 0.25))
FAILS = HOLDS._replace(words="not consistent", holds=False, counterexample="one line\nand another")


def test_the_table_is_what_is_found() -> None:
    """Word for word, of the parts that take no time; `status --check` looks at all."""
    found = list(parts.settle(QUICK, print))
    assert all(verdict.holds for verdict in found) and not status.differences(found, QUICK)
    whole = status.STATUS.read_text(encoding="utf-8")
    for line in status.table(found).splitlines()[4:]:
        assert line in whole


def test_the_readme_says_how_many() -> None:
    """Of those that need not be asked for by name."""
    usual = [name for name in status.listed() if not parts.PARTS[status.part_of(name)].deep]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| `kvledger prove` | {len(usual)} of {len(usual)} hold: " in readme


def test_it_says_each_verdict_in_its_words(bench: Bench) -> None:
    code, out, err = bench.call("prove", "counting", "records")
    *lines, last = out.splitlines()
    assert (code, err) == (0, "")
    assert [line.split(" s  ")[1] for line in lines] == [
        words for name, words in status.listed().items() if name.startswith(("counting", "records"))
    ]
    assert re.fullmatch(r"10 of 10 hold; \d+\.\d CPU s; slowest goal: records: .*, \d\.\d{3} s", last)


def test_json(bench: Bench) -> None:
    """The same verdicts, and nothing else on standard output."""
    code, out, _ = bench.call("prove", "counting", "--json", "-")
    [said] = json.loads(out)
    assert code == 0 and said["name"] == "counting: axioms" and said["holds"] is True
    code, out, _ = bench.call("prove", "counting", "--json", "report.json")
    [also] = json.loads((bench.folder / "report.json").read_text())
    assert code == 0 and out.startswith("counting: axioms") and also["words"] == said["words"]


@pytest.mark.parametrize(
    ("verdicts", "code", "says"),
    [
        ([HOLDS], 0, "1 of 1 hold; 0.5 CPU s; slowest goal: counting: axioms, a goal, 0.250 s"),
        ([FAILS], 1, "not consistent  NOT SETTLED\n    one line\n    and another\n0 of 1 hold"),
        ([HOLDS._replace(words="consistent (7 axioms)")], 1, "'consistent (7 axioms)' now"),
        ([HOLDS, HOLDS._replace(name="counting: more")], 1, "NOT AS LISTED  counting: more: 'not there' in STATUS.md"),
        ([HOLDS._replace(claim="more than that")], 1, f"{CLAIM!r} in STATUS.md, 'more than that' now"),
        ([], 1, f"NOT AS LISTED  counting: axioms: {WORDS!r} in STATUS.md, 'not asked'"),
    ],
)
def test_less_than_what_is_listed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verdicts: list[Verdict], code: int, says: str
) -> None:
    """Whatever does not hold, and whatever is not as STATUS.md has it, costs exit 1."""
    monkeypatch.setattr(counting, "settle", lambda progress: iter(verdicts))
    found, out, err = bench.call("prove", "counting")
    assert (found, err) == (code, "") and says in out, out


def test_a_part_that_stumbles_is_a_verdict(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who releases keeps its receipts: the tie stumbles over the law that fails, says where, and the next part is
    asked."""
    monkeypatch.setattr(Edit, "_unlock", lambda edit, holder: None)
    monkeypatch.setattr(rows, "settle", lambda progress: rows.settle_ties(progress, "rows: tie", ["TINY_B"], 20))
    code, out, err = bench.call("prove", "rows", "counting", "--quiet")
    told, settled, summary, *_ = out.splitlines()
    assert (code, err) == (1, "") and summary.startswith("1 of 2 hold")
    assert re.fullmatch(r"rows: tie TINY_B .* stopped: SpecError: holder r0: .*  NOT SETTLED", told), told
    assert settled.endswith(WORDS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "kvledger prove: part 'nothing': expected some of kernels, counting, cells, records, posts"),
        (["counting", "--json", "no/such/file"], "kvledger prove: --json no/such/file: expected a file in a folder"),
        (["counting", "--json", "."], "kvledger prove: --json .: expected a file in a folder"),
        (["counting", "--json", ""], "kvledger prove: --json '': expected a file in a folder"),
    ],
)
def test_wrong_use(bench: Bench, words: list[str], says: str) -> None:
    assert bench.complaint("prove", *words).startswith(says)


def test_where_nothing_may_be_written_nothing_is_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said at once, not after the minutes that the rest takes."""
    monkeypatch.setattr("kvledger.proofs.command.settle", lambda *_: pytest.fail("it was asked"))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    says = "kvledger prove: --json here.json: expected a file that may be written"
    assert bench.complaint("prove", "counting", "--json", "here.json").startswith(says)


@pytest.mark.parametrize("missing", ["z3", "crosshair"])
def test_what_is_not_installed_costs_a_line(missing: str) -> None:
    """Exit 2, and which extra has it."""
    part = {"z3": "cells", "crosshair": "posts"}[missing]
    hidden = f"import sys; sys.modules['{missing}'] = None; from kvledger.__main__ import main; "
    done = python("-c", f"{hidden}sys.exit(main(['prove', '{part}']))")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"kvledger prove: needs {missing}: pip install 'kvledger[prove]'\n"


# ---- status


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A status table of its own, of one part."""
    monkeypatch.setattr(status, "STATUS", tmp_path / "STATUS.md")
    monkeypatch.setattr(status, "chosen", lambda names, deep: ["counting"])
    return tmp_path / "STATUS.md"


def test_the_table_is_written_and_compared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["--check"]) == 1 and "'not there' in STATUS.md" in capsys.readouterr().out
    assert status.main([]) == 0 and status.main(["--check"]) == 0
    first = here.read_text()
    assert status.listed() == {HOLDS.name: HOLDS.words} and not re.search(r"\d s\b", first)
    here.write_text(first.replace("have a model", "have none"))
    assert status.main(["--check"]) == 1 and "have none" in capsys.readouterr().out
    here.write_text(first.replace("# Status", "# Proof"))
    assert status.main(["--check"]) == 1 and "other, words beside its lines" in capsys.readouterr().out


def test_a_table_that_cannot_be_read_is_named(
    here: Path, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """By either command, in one line, exit 2."""
    here.write_bytes(b"| a | b | \xff |")
    says = f"{here}: byte 10: expected UTF-8\n"
    assert bench.complaint("prove", "counting") == f"kvledger prove: {says}"
    assert status.main([]) == 2 and capsys.readouterr().err == f"status: {says}"
    here.unlink()
    here.mkdir()
    says = f"{here}: Is a directory, expected the list of what is settled\n"
    assert bench.complaint("prove", "counting") == f"kvledger prove: {says}"
    assert status.main(["--check"]) == 2 and capsys.readouterr().err == f"status: {says}"


@pytest.mark.parametrize("line", ["| a | b|c | d |", "| a |", "| | b | c |", "| a | b | c | d |"])
def test_a_line_that_is_none_of_the_table_is_a_difference_at_most(here: Path, line: str) -> None:
    here.write_text(line + "\n", encoding="utf-8")
    listed = {"a": "d"} if "b|c" in line else {}
    assert status.listed() == listed and status.main(["--check"]) == 1


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (KeyboardInterrupt(), "status: interrupted\n"),
        (PermissionError(13, "Permission denied", "there"), "status: there: Permission denied\n"),
    ],
)
def test_what_stops_the_table_costs_a_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: BaseException, says: str
) -> None:
    def stops(*_: object) -> None:
        raise raised

    monkeypatch.setattr(status, "write_whole", stops)
    assert status.main([]) == 2 and capsys.readouterr().err == says


def test_what_is_not_settled_is_never_written(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counting, "settle", lambda progress: iter([FAILS]))
    assert status.main([]) == 1 and not here.exists()
    assert capsys.readouterr().out == "counting: axioms: not consistent\n"


def test_the_page_says_what_is_in_the_table() -> None:
    """README.md names every part."""
    page = (ROOT / "proofs/README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in parts.PARTS)
