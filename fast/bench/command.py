"""`kvledger bench`: one process an engine, their findings merged, one table."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

import kvledger
from kvledger.fast.bench.cases import CASES, Case, code, verdict
from kvledger.fast.bench.printed import Found, as_json, table
from kvledger.spec.world import WrongInput
from kvledger.tests.engines.venvs import BOOT, ENGINES
from kvledger.tests.report import json_file

HELP = """examples:
  kvledger bench                       everything; one to two minutes on an idle machine
  kvledger bench --only E3 D1 W1       these lines alone
  kvledger bench --only G --json g.json
  kvledger bench --wall                by the clock on the wall, and not by the thread's CPU time

E extend, D decode, F release, W whole steps, R and T match, insert and evict (T: SGLang's Rust core), V vLLM's pool, G
what grows or is counted, of ours alone; where SGLang is set up that runs in its environment, with its torch.
A ratio is the engine's time by ours. SGLang and vLLM are the real ones: kvledger engines setup sglang vllm. Where one
is not set up its lines say so. Quartiles that lie more than 1.3 apart after three tries are called noisy.
Exit 0: no must is missed. 1: one is, or a contender did something else. 2: wrong use, or too noisy to say.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger bench`."""
    parser.add_argument("--only", nargs="+", metavar="ID", help="lines of the table by id, or by the start of it")
    parser.add_argument("--wall", action="store_true", help="time on the wall; with neighbours it says little")
    parser.add_argument("--json", metavar="FILE", help="write all of it there as well; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("--process", help=argparse.SUPPRESS)  # of whom: what belongs there, in lines of JSON


def run(args: argparse.Namespace) -> int:
    """Exit code. Raises WrongInput."""
    clock, cases = "wall" if args.wall else "cpu", chosen(args.only)
    if args.process is not None:
        return served(args.process, cases, clock)
    found = Found(clock)
    hide = args.quiet or not sys.stderr.isatty()
    json_file.ask(args.json)
    with tqdm(total=len(cases), unit="line", leave=False, disable=hide) as bar:
        for engine, mine in shared_out(cases).items():
            bar.set_description(engine or "ours alone")
            for line in said(engine, mine, clock):
                found.take(line)
                bar.update("case" in line)
            if found.different:
                break
    if args.json != json_file.STDOUT:
        print(table(cases, found))
    if args.json is not None:
        json_file.write(args.json, as_json(cases, found))
    return 1 if found.different else code([verdict(case, found.measured.get(case.key)) for case in cases])


def chosen(only: list[str] | None) -> list[Case]:
    """The cases of these ids. Raises WrongInput."""
    for word in only or []:
        if not any(case.id.startswith(word) for case in CASES):
            raise WrongInput(f"--only {word}: expected {' '.join(dict.fromkeys(case.id for case in CASES))}")
    return [case for case in CASES if only is None or case.id.startswith(tuple(only))]


def shared_out(cases: list[Case]) -> Mapping[str, list[Case]]:
    """Engine -> what is measured in its environment; what is ours alone goes to SGLang's, which stands beside, or
    here. Nothing of an engine that is not set up."""
    home = "sglang" if ENGINES["sglang"].is_set_up else ""
    places: dict[str, list[Case]] = {}
    for case in cases:
        engine = case.against or home
        if not engine or ENGINES[engine].is_set_up:
            places.setdefault(engine, []).append(case)
    return places


def said(engine: str, cases: list[Case], clock: str) -> Iterator[dict[str, Any]]:
    """What its process says, line by line. Raises WrongInput if it fails."""
    if not engine and find_spec("torch") is None:
        raise WrongInput("needs torch: pip install 'kvledger[fast]'")
    here = [sys.executable, "-c", BOOT, str(Path(kvledger.__file__).parent), ""]
    python = ENGINES[engine].words if engine else here
    words = [*python, "bench", f"--process={engine}", *(["--wall"] if clock == "wall" else [])]
    ids = list(dict.fromkeys(case.id for case in cases))
    with tempfile.TemporaryFile("w+") as complaints:
        words += ["--only", *ids]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=complaints, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
        if process.returncode:
            complaints.seek(0)
            last = (complaints.read().strip().splitlines() or ["no word"])[-1]
            raise WrongInput(f"the process of {engine or 'ours'} ended with {process.returncode}: {last}")


def served(engine: str, cases: list[Case], clock: str) -> int:
    """This process is the one that measures. What engines print goes where complaints go."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from kvledger.fast.bench.process import serve  # torch, and the engine

    mine = {case.key for case in cases if case.against in (engine, "" if engine != "vllm" else engine)}
    serve(engine, mine, clock, lambda line: print(json.dumps(line), file=out, flush=True))
    return 0
