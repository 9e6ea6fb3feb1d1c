"""`kvledger replay --against`: two backends in step own the same, or it is said where they do not, and about what."""

from __future__ import annotations

import importlib.util
import json

import pytest

from kvledger.tests.unit.written import Bench

KNOBS = ("--block-tokens", "8", "--page-size", "4", "--pages", "1200", "--running", "5", "--quiet")


@pytest.fixture
def made(bench: Bench) -> str:
    assert bench.call("replay", "made.jsonl", "--synthetic", "--requests", "30")[0] == 0
    return "made.jsonl"


def against(bench: Bench, made: str, one: str, other: str, *words: str) -> tuple[int | str | None, str]:
    code, out, err = bench.call("replay", made, "--backend", one, "--against", other, *KNOBS, *words)
    assert err == "" or code == 2
    return code, out + err


@pytest.mark.parametrize("words", [(), ("--sessions",), ("--sessions", "--drafts", "2", "--abort", "20")])
def test_a_backend_does_what_it_does(bench: Bench, made: str, words: tuple[str, ...]) -> None:
    code, out = against(bench, made, "reference", "reference", *words, "--json", "v.json")
    assert code == 0 and "reference and reference: the same ownership after each of" in out
    assert json.loads((bench.folder / "v.json").read_text())["against"] == "reference"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("size", ["1", "3", "4", "16"])
def test_fast_owns_what_the_reference_owns(bench: Bench, made: str, size: str) -> None:
    """With evictions: the pool holds a third of what comes."""
    faults = ("--sessions", "--drafts", "2", "--abort", "20", "--retract", "30", "--close-early", "20")
    pool = ("--page-size", size, "--pages", str(4800 // int(size)))
    code, out = against(bench, made, "fast", "reference", *faults, *pool)
    assert code == 0 and "fast and reference: the same ownership after each of" in out


def test_the_smaller_batch_is_what_both_take(bench: Bench, made: str) -> None:
    """blocks takes one a call, and keeps duplicates: they part where a page is published twice, or before."""
    code, out = against(bench, made, "reference", "blocks")
    assert code == 1 and "may not be called" not in out and out.startswith("DIFFERS  after step ")


def test_where_they_part_and_about_what(bench: Bench, made: str) -> None:
    """Without a cache nothing is published, and the first checkpoint says so."""
    code, out = against(bench, made, "reference", "chunk_cache", "--json", "v.json")
    head, about, ours, theirs = out.splitlines()
    assert code == 1 and head.startswith("DIFFERS  after step ") and about == "  the call"
    assert ours == "    reference: may be made" and "checkpoint" in head and theirs.startswith("    chunk_cache: ")
    report = json.loads((bench.folder / "v.json").read_text())
    assert report["exit"] == 1 and report["differs"]["text"] == out.rstrip()


def test_a_fault_of_the_other_one_is_named(bench: Bench, made: str) -> None:
    fault = "kvledger.tests.zoo.freed_twice:make"
    code, out = against(bench, made, "reference", fault)
    assert code == 1 and "breaks PAGE-6" in out and all(len(line) <= 100 for line in out.splitlines())


def test_wrong_use(bench: Bench, made: str) -> None:
    assert "expected reference, chunk_cache" in against(bench, made, "reference", "nobody")[1]
