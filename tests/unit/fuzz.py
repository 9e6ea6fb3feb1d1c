"""Malformed input of every kind, drawn by Hypothesis: whatever a file holds, a command ends with 0, 1 or 2, and where
it ends with 2 it says so in one line. In a clone, `python -m kvledger.tests.unit.fuzz` runs all of it, in 1 GiB
of memory.

A file is a sound one in which something was changed: bytes of it, or a value somewhere in its JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvledger.__main__ import main
from kvledger.spec import recording
from kvledger.spec.monitor import Monitor
from kvledger.spec.trace import Step
from kvledger.tests.record import live_blocks
from kvledger.tests.replay import synthetic
from kvledger.tests.unit.told import told
from kvledger.tests.unit.written import ROOT

LIMIT = 2**30  # bytes of memory
CASES = 10_000
CHECKS = tuple(HealthCheck)  # of how fast and how well Hypothesis draws; not of what is tested
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**63, -(2**63), 10**30, 10**700, 0.5, 1e308, float("nan"), float("inf"), "",
    "a", "7", "\ud800", "\0", "two\nlines", "x" * 5_000, [], [[]], {}, {"#bigint": "7"}, {"#bigint": "x"},
    {"#tup": [1]}, {"#map": [[1, 1], [1, 1]]}, {"tag": "Nothing", "value": {}}, [0] * 300,
)  # fmt: skip
WEKA = "".join(json.dumps({"block_size": 64, "requests": requests}) + "\n" for requests in (
    [{"type": "n", "in": 200, "out": 30, "hash_ids": [1, 2, 3]}, {"type": "subagent", "requests": [
        {"type": "s", "in": 70, "out": 9, "hash_ids": [7]}]}, {"type": "s", "in": 270, "out": 8,
                                                              "hash_ids": [1, 2, 3, 4]}],
    [{"type": "n", "in": 64, "out": 1, "hash_ids": [1]}],
))  # fmt: skip
TOML = """
[[deviation]]
rule = "PAGE-6"
by = "finish"
when = ["keep lies below what is published"]
kind = "fault"
reason = "pages that the tree goes on listing are freed"
witness = "witness.itf.json"
backends = ["chunk_cache"]
"""
LEAK = (
    "[2026-10-01 12:00:00 TP0] pool memory leak detected! [full] total=65536, available=65520, evictable=32, "
    "protected=0, session_held=0, uncached=0, page_size=16\n"
    "req_to_token_pool memory leak detected! available_size=4094, session_req_count=1, total_size=4096\n"
)


class Kind(NamedTuple):
    """One kind of input. file: the name of one. sound: texts that hold it. calls: the commands that read it."""

    file: str
    sound: list[str]
    calls: list[list[str]]


def kinds() -> dict[str, Kind]:
    """Every kind of input there is, but for adapters, which are code."""
    vectors = [path.read_text() for path in sorted((ROOT / "tests/vectors").glob("*/*.itf.json"))[::9]]
    requests = "".join(json.dumps(line._asdict()) + "\n" for line in islice(synthetic.lines(1), 4))
    small = ["--block-tokens", "4", "--page-size", "4", "--pages", "700", "--running", "2", "--quiet"]
    return {
        "stored run": Kind("t.itf.json", vectors, [["explain"], ["explain", "--pytest"], ["audit"], ["replay"]]),
        "recording": Kind("t.jsonl", recordings(), [["audit"]]),
        "Mooncake trace": Kind("m.jsonl", [requests], [["replay", *small], ["replay", "--sessions", *small]]),
        "WEKA trace": Kind("w.jsonl", [WEKA], [["replay", *small], ["replay", "--drafts", "2", *small]]),
        "deviations": Kind("d.toml", [TOML], [["check", "chunk_cache", "--actions", "1", "--quiet", "--deviations"]]),
        "leak line": Kind("", [LEAK], [["explain"], ["explain", "--page-size", "16"]]),
    }


def recordings() -> list[str]:
    """A run of live pools, from its start and from its middle on."""
    steps = list[Step]()
    live_blocks.Server(0, lambda act, reply: steps.append(Step(act, reply))).serve(24)
    monitor = Monitor(live_blocks.WORLD)
    lines = [recording.header(live_blocks.WORLD), *map(recording.line, steps)]
    for step in steps[:12]:
        monitor.step(step.act, step.answer)
    return ["\n".join(lines), "\n".join([recording.header(live_blocks.WORLD, "", told(monitor.ledger)), *lines[13:]])]


@st.composite
def damaged(draw: st.DrawFn, kind: Kind) -> str:
    """A sound text of this kind in which one to three things were changed."""
    text = draw(st.sampled_from(kind.sound))
    for _ in range(draw(st.integers(1, 3))):
        text = draw(st.sampled_from([in_its_text, in_its_lines, in_its_json]))(draw, text)
    return text


def in_its_text(draw: st.DrawFn, text: str) -> str:
    """A piece of it is another."""
    at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 12))
    piece = draw(st.text(max_size=6) | st.sampled_from(["[" * 3_000, "9" * 5_000, "-"]))
    return text[:at] + piece + text[at + length :]


def in_its_lines(draw: st.DrawFn, text: str) -> str:
    """One is missing, or stands somewhere else, too."""
    lines = text.splitlines(keepends=True)
    line = draw(st.integers(0, max(0, len(lines) - 1)))
    moved = lines[line : line + 1]
    kept = lines if draw(st.booleans()) else lines[:line] + lines[line + 1 :]
    at = draw(st.integers(0, len(kept)))
    return "".join(kept[:at] + (moved if draw(st.booleans()) else []) + kept[at:])


def in_its_json(draw: st.DrawFn, text: str) -> str:
    """A value somewhere in it is an odd one, or is missing; of JSON lines, in one of them."""
    lines = [text] if text.startswith('{"#meta"') else text.splitlines()
    at = draw(st.integers(0, max(0, len(lines) - 1)))
    try:
        whole = [json.loads(lines[at])]
    except (ValueError, IndexError, RecursionError):
        return text
    holder, name = draw(st.sampled_from(list(places(whole))))
    if draw(st.integers(0, 4)):
        holder[name] = draw(st.sampled_from(ODD))
    elif holder is not whole:
        del holder[name]
    return "\n".join([*lines[:at], json.dumps(whole[0]), *lines[at + 1 :]])


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where something stands in JSON: a list or an object, and the place or name."""
    found = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for name, each in found:
        yield value, name
        if isinstance(each, dict | list):
            yield from places(each)


def fuzz(kind: Kind, cases: int, folder: Path, tick: Callable[[str], object]) -> None:
    """So many cases of one kind; tick is told how each ended. Raises AssertionError with the first that ends wrong, as
    small as it can be made."""

    @settings(max_examples=cases, deadline=None, database=None, derandomize=True, suppress_health_check=CHECKS)
    @given(st.data())
    def case(data: st.DataObject) -> None:
        text, call = data.draw(damaged(kind)), data.draw(st.sampled_from(kind.calls))
        what = text
        if kind.file:
            what = str(folder / kind.file)
            Path(what).write_bytes(text.encode(errors="surrogatepass"))
        tick(ended(called([*call, "--", what] if kind.file == "" else [*call, what])))

    case()


def called(words: list[str]) -> tuple[int | str | None, str, str]:
    """Exit code, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    calibrated = mock.patch("kvledger.tests.replay.command.calibrate", lambda: 0.1)  # nobody reads how fast it was
    with redirect_stdout(out), redirect_stderr(err), calibrated:
        try:
            code: int | str | None = main(words)
        except SystemExit as leaving:
            code = leaving.code
    return code, out.getvalue(), err.getvalue()


def ended(result: tuple[int | str | None, str, str]) -> str:
    """Its exit code, in a word. Raises AssertionError for any but 0, 1 and 2, and if 2 costs more than a line."""
    code, out, err = result
    assert code in (0, 1, 2), result
    assert "Traceback" not in out + err, result
    assert code != 2 or (err.startswith("kvledger") and err.count("\n") == 1 and err.endswith("\n")), result
    return f"exit {code}"


def run(cases: int) -> None:
    """Every kind, in turn, here and now, in 1 GiB of memory."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    every = kinds()
    witness = ROOT / "tests/engines/deviations/sglang-cut-below-published.itf.json"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("witness.itf.json").write_bytes(witness.read_bytes())
        for name, kind in every.items():
            tally: Counter[str] = Counter()

            def tick(word: str, tally: Counter[str] = tally) -> None:
                tally[word] += 1

            fuzz(kind, -(-cases // len(every)), Path(folder), tick)
            print(f"{name}: {tally.total():,} cases, {', '.join(f'{tally[word]:,} {word}' for word in sorted(tally))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="in all (default: %(default)s)")
    run(parser.parse_args().cases)
