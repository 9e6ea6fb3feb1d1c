"""`kvledger engines`: the real engines that can be checked, and the environment that each needs."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from tqdm import tqdm

from kvledger.spec.world import WrongInput
from kvledger.tests.engines.install import install
from kvledger.tests.engines.venvs import ENGINES, VLLM, Engine, ask_here, engine_of
from kvledger.tests.kit.load import NAMES

POLICIES = ("priority", "fcfs")  # of vLLM's scheduler

HELP = """examples:
  kvledger engines                 the engines, their versions and backends, and where they are installed
  kvledger engines setup sglang    make SGLang's environment; afterwards: kvledger check sglang
  kvledger engines setup sglang-0.5.10    an older one, in that environment, which is made first if it is not there
  kvledger engines hunt vllm       run seeded programs on vLLM's own scheduler, by priority, and judge what it does
  kvledger engines hunt vllm --policy fcfs --programs 600

Each engine lives in an environment of its own, with a torch for the CPU; no GPU is asked for. It is made in
$KVLEDGER_ENGINES, or else in ~/.cache/kvledger/engines, and can be removed by removing its folder.
Exit 0: done, or nothing found. 1: the hunt found a rule broken. 2: wrong use, or it could not be set up.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger engines`."""
    parser.add_argument("action", nargs="?", choices=("setup", "hunt"), help="make an engine's environment; or run "
                        "programs on its own scheduler (vllm)")  # fmt: skip
    parser.add_argument("engine", nargs="*", metavar="NAME", help=f"one of {', '.join(ENGINES)}")
    parser.add_argument("--policy", choices=POLICIES, default=POLICIES[0], help="of the hunt (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the hunt's first program (default: %(default)s)")
    parser.add_argument("--programs", type=int, default=200, help="how many the hunt runs (default: %(default)s)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Exit code 0: listed, or all set up. Raises WrongInput for a name that is none, or a step that failed."""
    if args.action is None:
        print("\n".join(listed()))
        return 0
    if args.action == "hunt":
        return hunt(args)
    if not args.engine:
        raise WrongInput(f"setup of nothing: expected {' or '.join(ENGINES)}")
    for name in args.engine:
        if name not in ENGINES:
            raise WrongInput(f"engine {name!r}: expected {' or '.join(ENGINES)}")
    for name in args.engine:
        set_up(ENGINES[name])
    return 0


def hunt(args: argparse.Namespace) -> int:
    """On vLLM's scheduler, in its environment. Raises Elsewhere from any other."""
    if args.engine != [VLLM.name]:
        raise WrongInput(f"hunt {' '.join(args.engine)}".strip() + f": expected {VLLM.name}, whose scheduler is driven")
    if args.programs < 1:
        raise WrongInput(f"--programs {args.programs}: expected at least 1")
    ask_here(VLLM.name, VLLM.name)
    scheduler = import_module("kvledger.tests.engines.vllm_hunt")
    with tqdm(total=args.programs, unit="program", leave=False, disable=args.quiet or not sys.stderr.isatty()) as bar:
        code: int = scheduler.hunt(args.policy, args.seed, args.programs, bar.update)
    return code


def listed() -> list[str]:
    """A line an engine, and one below it for its backends."""
    lines = []
    for engine in ENGINES.values():
        where = short(engine.place) if engine.is_set_up else f"not set up: kvledger engines setup {engine.name}"
        lines += [f"{engine.name:<16}{engine.version:<8}{where}", f"  check {' '.join(backends(engine))}"]
    return lines


def backends(engine: Engine) -> list[str]:
    """The names that its backends have on the command line."""
    return [name for name, place in NAMES.items() if engine_of(place.partition(":")[0]) is engine]


def short(place: Path) -> str:
    """A path as a person would type it."""
    return f"~/{place.relative_to(Path.home())}" if place.is_relative_to(Path.home()) else str(place)


def set_up(engine: Engine) -> None:
    """Make its environment, step by step before the user's eyes."""
    if engine.is_set_up:
        print(f"{engine.title} is set up already, in {short(engine.place)}")
        return
    print(f"{engine.title}, in {short(engine.place)}; this takes some minutes", flush=True)
    install(engine, lambda text: print(text, end="", file=sys.stdout, flush=True))
    print(f"next: kvledger check {backends(engine)[0]}")
