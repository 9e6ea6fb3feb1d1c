"""kvledger prove: settle what can be settled of the law, and print what came of it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tqdm import tqdm

from kvledger.proofs.parts import PARTS, chosen, settle
from kvledger.proofs.status import differences, listed, part_of
from kvledger.proofs.verdict import Verdict
from kvledger.spec.whole_file import write_whole
from kvledger.spec.world import WrongInput

STDOUT = "-"
HELP = f"""parts:
{chr(10).join(f"  {name:10}{part.sentence}{' (minutes: --deep)' if part.deep else ''}" for name, part in PARTS.items())}

examples:
  kvledger prove                   everything that is settled in two minutes
  kvledger prove cells records     two parts of it
  kvledger prove --deep            everything
  kvledger prove --json -          the verdicts, as JSON

exit 0: all is settled, as proofs/STATUS.md lists it. 1: something is not; a counterexample is told, if there is one.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger prove`."""
    parser.add_argument("part", nargs="*", help=f"parts: {', '.join(PARTS)}")
    parser.add_argument("--deep", action="store_true", help="what takes minutes, too")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts there as well; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Settle the parts, print a line a verdict. Exit 1 if one does not hold, or is not as STATUS.md lists it."""
    names = chosen(args.part, args.deep)
    if args.json not in (None, STDOUT):
        _ask_file(args.json)
    verdicts = _settled(names, args.quiet or not sys.stderr.isatty())
    other = differences(verdicts, names)
    if args.json != STDOUT:
        for verdict in verdicts:
            print(line(verdict))
        print(summary(verdicts))
        for difference in other:
            print(f"NOT AS LISTED  {difference}")
    if args.json is not None:
        text = json.dumps([each._asdict() for each in verdicts], indent=1) + "\n"
        if args.json == STDOUT:
            print(text, end="")
        else:
            write_whole(args.json, [text])
    return 1 if other or not all(verdict.holds for verdict in verdicts) else 0


def _ask_file(name: str) -> None:
    """Raises WrongInput, before the minutes that the rest takes, unless it can be written."""
    path = Path(name).absolute()
    if not name or not path.parent.is_dir() or path.is_dir():
        raise WrongInput(f"--json {name or repr(name)}: expected a file in a folder that exists")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise WrongInput(f"--json {name}: expected a file that may be written")


def _settled(names: list[str], quiet: bool) -> list[Verdict]:
    verdicts = []
    expected = sum(part_of(name) in names for name in listed())
    with tqdm(total=expected or None, unit="verdict", leave=False, disable=quiet) as bar:
        for verdict in settle(names, bar.set_description):
            verdicts.append(verdict)
            bar.update()
    return verdicts


def line(verdict: Verdict) -> str:
    """One line of the table; under it, indented, where it does not hold."""
    mark = "" if verdict.holds else "  NOT SETTLED"
    shown = [f"{verdict.name:28}{verdict.seconds:6.2f} s  {verdict.words}{mark}"]
    shown += [f"    {told}" for told in verdict.counterexample.splitlines() if not verdict.holds]
    return "\n".join(shown)


def summary(verdicts: list[Verdict]) -> str:
    """How many hold, what they cost in CPU seconds, and the goal that took longest."""
    holding = sum(verdict.holds for verdict in verdicts)
    said = f"{holding} of {len(verdicts)} hold; {sum(verdict.seconds for verdict in verdicts):.1f} CPU s"
    slowest = max(verdicts, key=lambda each: each.slowest[1], default=None)
    if slowest is not None and slowest.slowest[0]:
        said += f"; slowest goal: {slowest.name}, {slowest.slowest[0]}, {slowest.slowest[1]:.3f} s"
    return said
