"""`kvledger engines`: the real engines that can be checked, and the environment that each needs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvledger.spec.world import WrongInput
from kvledger.tests.engines.install import install
from kvledger.tests.engines.venvs import ENGINES, Engine, engine_of
from kvledger.tests.kit.load import NAMES

HELP = """examples:
  kvledger engines                 the engines, their versions and backends, and where they are installed
  kvledger engines setup sglang    make SGLang's environment; afterwards: kvledger check sglang

Each engine lives in an environment of its own, with a torch for the CPU; no GPU is asked for. It is made in
$KVLEDGER_ENGINES, or else in ~/.cache/kvledger/engines, and can be removed by removing its folder.
Exit 0: done. 2: wrong use, or it could not be set up.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger engines`."""
    parser.add_argument("action", nargs="?", choices=("setup",), help="make an engine's environment")
    parser.add_argument("engine", nargs="*", metavar="NAME", help=f"one of {', '.join(ENGINES)}")


def run(args: argparse.Namespace) -> int:
    """Exit code 0: listed, or all set up. Raises WrongInput for a name that is none, or a step that failed."""
    if args.action is None:
        print("\n".join(listed()))
        return 0
    if not args.engine:
        raise WrongInput(f"setup of nothing: expected {' or '.join(ENGINES)}")
    for name in args.engine:
        if name not in ENGINES:
            raise WrongInput(f"engine {name!r}: expected {' or '.join(ENGINES)}")
    for name in args.engine:
        set_up(ENGINES[name])
    return 0


def listed() -> list[str]:
    """A line an engine, and one below it for its backends."""
    lines = []
    for engine in ENGINES.values():
        where = short(engine.place) if engine.is_set_up else f"not set up: kvledger engines setup {engine.name}"
        lines += [f"{engine.name:<8}{engine.version:<8}{where}", f"  check {' '.join(backends(engine))}"]
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
