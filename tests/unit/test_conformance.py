"""The conformance table: what the reports say stands there, a word that differs is told, a column without one stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvledger.spec.rules import RULES
from kvledger.tests.engines import conformance
from kvledger.tests.engines.conformance import BACKENDS, main, standing
from kvledger.tests.law import tables

PAGE = "before\n<!-- table conformance (generated) -->\n<!-- end conformance -->\nafter\n"


def report(folder: Path, backend: str, word: str) -> str:
    """A file as `kvledger check --json` writes it, as far as the table reads it."""
    path = folder / f"{backend}.json"
    rules = {rule: {"verdict": word} for rule in RULES}
    path.write_text(json.dumps([{"backend": backend, "rules": rules}]))
    return str(path)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A README with an empty place, and all backends written into it as HOLDS."""
    for module in (tables, conformance):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text(PAGE)
    assert main([report(tmp_path, backend, "HOLDS") for backend in BACKENDS]) == 0
    return tmp_path / "README.md"


def column(page: Path, backend: str) -> set[str]:
    return set(standing(page.read_text())[backend].values())


def test_what_the_reports_say_stands_there(page: Path) -> None:
    assert page.read_text().startswith("before\n") and page.read_text().endswith("after\n")
    assert standing(page.read_text()).keys() == {"rule", *BACKENDS}
    assert all(column(page, backend) == {"HOLDS"} for backend in BACKENDS)
    assert all(f"| {rule.title} |" in page.read_text() for rule in RULES.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_word_that_differs_is_told_and_nothing_is_written(page: Path, backend: str) -> None:
    before = page.read_text()
    assert main([report(page.parent, backend, "HOLDS"), "--check"]) == 0
    assert main([report(page.parent, backend, "DEVIATES"), "--check"]) == 1
    assert page.read_text() == before


def test_only_what_is_reported_changes(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dash stands for what a backend does not declare; who is in no report is named."""
    assert main([report(page.parent, "vllm", "NOT DECLARED")]) == 0
    assert column(page, "vllm") == {"-"}
    assert all(column(page, backend) == {"HOLDS"} for backend in BACKENDS if backend != "vllm")
    told = capsys.readouterr().out
    assert "sglang: no report, its column stays as it stands" in told and "vllm: no report" not in told


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", '[{"backend": "vllm"}]', '[{"backend": "vllm", "rules": 3}]'])
def test_a_report_that_is_none_is_said(page: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    bad = page.parent / "bad.json"
    bad.write_text(text)
    capsys.readouterr()
    code, said = main([str(bad)]), capsys.readouterr()
    assert code == 2 and said.err.startswith("conformance: report") and said.err.count("\n") == 1
