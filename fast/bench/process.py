"""What runs in each process: the cases that belong to it, one after the other, and the proof before them.

A process says what it finds in lines of JSON, as it finds it: {"versions": ...}, {"equal": steps}, {"different": text},
{"case": key, "measured": ...}.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any

import numpy
import torch

from kvledger.fast.bench import counts, growth, pools, trees
from kvledger.fast.bench.cases import CASES, NOISY, Case, Measured, spread
from kvledger.fast.bench.equal import Difference, ask_same, prove, prove_trees
from kvledger.fast.bench.growth import Make, ready
from kvledger.fast.bench.measure import CLOCKS, Clock, race, ratio
from kvledger.fast.bench.ours import Ours
from kvledger.tests.kit.calibration import calibrate

TRIES = 3  # of a case that is too noisy to say anything
# Page sizes of the proof, and whether pages may be renamed there; and whether prefixes are shared.
PROVED = {"sglang": ({16: False, 64: False, 1: True}, True), "vllm": ({16: True}, False)}


def contenders(engine: str) -> dict[str, Any]:
    """The engine's contenders by name. Only in its environment."""
    if engine == "sglang":
        module = import_module("kvledger.fast.bench.sglang")
        return {"sglang": module.SGLang, "rust": module.SGLangRust, "version": module.VERSION}
    if engine == "vllm":
        module = import_module("kvledger.fast.bench.vllm")
        return {"vllm": module.VLLM, "version": module.VERSION}
    return {}


def serve(engine: str, wanted: Collection[str], clock: str, say: Callable[[dict[str, Any]], None]) -> None:
    """All cases of `wanted`, by key. engine: whose environment this is, or ""."""
    torch.set_num_threads(1)
    theirs = contenders(engine)
    say({"versions": {"torch": torch.__version__, "numpy": numpy.__version__, engine: theirs.get("version")}})
    say({"calibrated": calibrate()})
    cases = [case for case in CASES if case.key in wanted]
    try:
        for what, steps in proved(engine, theirs):
            say({"equal": {f"{engine}, {what}": steps}})
        for case in cases:
            say({"case": case.key, "measured": asdict(settled(case, theirs, CLOCKS[clock]))})
    except Difference as difference:
        say({"different": f"{engine}: {difference}"})


def proved(engine: str, theirs: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """What is the same, and in how many steps that was seen. Raises Difference."""
    if engine == "sglang":
        yield "slots, tables, free list in order (ps 1: renamed)", prove(Ours, theirs[engine], *PROVED[engine])
        yield "trees in Python and in Rust", sum(prove_trees(Ours, theirs[name]) for name in ("sglang", "rust"))
    if engine == "vllm":
        yield "tables and free pages, renamed", prove(Ours, theirs[engine], *PROVED[engine])


def settled(case: Case, theirs: Mapping[str, Any], clock: Clock) -> Measured:
    """Measured, and measured anew while it is noisy."""
    for left in range(TRIES, 0, -1):
        found = measured(case, theirs, clock)
        if left == 1 or spread(case, found) <= NOISY:
            break
    return found


def measured(case: Case, theirs: Mapping[str, Any], clock: Clock) -> Measured:
    """One case."""
    beside: Make | None = theirs.get("sglang")
    if case.id in ("G6", "G7"):
        return counts.measure(case.what, Ours, beside)
    if not case.against:
        return growth.measure(case.id, beside, clock)
    load = {**pools.LOADS, **trees.LOADS}[case.id]()
    ours, other = (ready(make, load) for make in (Ours, theirs["rust" if "Rust" in case.what else case.against]))
    times = race((ours, other), ((ops, ops) for ops in load.rounds), load.timed, clock)
    ask_same(ours, other, PROVED[case.against][0][load.world.page_size], case.key)
    return ratio(times, load.calls)
