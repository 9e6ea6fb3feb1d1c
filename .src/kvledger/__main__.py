"""The command line: a table from command to module. A module is imported only when its command is called.

Each module offers HELP (one line), add_arguments(parser) and run(args) -> exit code.
Exit 0: conforms. 1: does not. 2: could not tell, or wrong use.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import NoReturn

from kvledger import __version__
from kvledger.spec.world import WrongInput
from kvledger.tests.engines.venvs import Elsewhere, start_again

COMMANDS = {
    "check": ("kvledger.tests.kit.check", "check your engine against the law"),
    "record": ("kvledger.tests.record.command", "record a small run of live pools, and say what that costs"),
    "audit": ("kvledger.tests.record.audit", "judge a recorded run, without the engine that made it"),
    "replay": ("kvledger.tests.replay.command", "drive a backend with a real request trace or a stored one"),
    "engines": ("kvledger.tests.engines.command", "list the real engines, set one up, hunt on its scheduler"),
    "rules": ("kvledger.spec.rulebook", "print the rules of the law, or one of them"),
    "explore": ("kvledger.spec.explore", "visit every state of a small world"),
    "explain": ("kvledger.tests.report.explain", "say in words what a stored trace shows"),
    "zoo": ("kvledger.tests.zoo.hunt", "hunt the faults that the kit must catch"),
    "bench": ("kvledger.fast.bench.command", "time the fast ledger against SGLang's and vLLM's own pools"),
    "prove": ("kvledger.proofs.command", "settle the law for every size, where that can be done"),
    "needs": ("kvledger.tests.law.needs", "delete each guard of the law in turn, and see what it changes"),
}
EXAMPLES = """examples:
  kvledger check                        check the backends that ship with kvledger
  kvledger check my_adapter:make        check yours
  kvledger rules one-holder             what a rule says, and why
  kvledger explore TINY_A               every state of a small world
"""


class Parser(argparse.ArgumentParser):
    """Says in one line which word was wrong; --help says the rest."""

    def error(self, message: str) -> NoReturn:
        """Exit 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a wrong input costs one line and exit code 2, never a traceback."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # closed by whoever started us
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # somebody else's text may hold what no encoding can say
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    gc.set_threshold(100_000, 20, 100)  # a ledger is many small tuples and no cycles: looking for those costs a sixth
    words = list(sys.argv[1:] if argv is None else argv)
    called = next((word for word in words if not word.startswith("-")), "")
    says = f"kvledger {called}".rstrip()
    try:
        code = _run(words, called)
        sys.stdout.flush()
    except Elsewhere as elsewhere:  # the same words, in the engine's environment
        start_again(elsewhere.engine, words)
    except WrongInput as wrong:
        print(f"{says}: {wrong}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # nobody reads on
        _leave_unsaid()
        return 2
    except OSError as error:  # a full disk, a folder that is gone
        print(f"{says}: {error.strerror or error}", file=sys.stderr)
        _leave_unsaid()
        return 2
    except KeyboardInterrupt:
        print(f"{says}: interrupted", file=sys.stderr)
        return 2
    return code


def _run(words: Sequence[str], called: str) -> int:
    parser = Parser(
        prog="kvledger",
        description="An executable law of who owns which KV row and page.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kvledger {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module_name, sentence) in COMMANDS.items():
        sub = commands.add_parser(name, help=sentence, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name == called:
            module = _module(module_name)
            sub.description, sub.epilog = sentence + ".", module.HELP
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    args = parser.parse_args(words)
    if args.command is None:
        parser.print_help()
        return 2
    return int(args.run(args))


def _module(name: str) -> ModuleType:
    """A command's module. Raises WrongInput if something is not installed that it needs."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "kvledger":
            raise
        raise WrongInput(f"needs {error.name}: pip install kvledger") from None


def _leave_unsaid() -> None:
    """What could not be printed is not tried again when Python ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    raise SystemExit(main())
