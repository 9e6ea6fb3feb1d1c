"""Makes tests/vectors: for each situation the shortest run that reaches it, for each rule the shortest that breaks it.

    python -m kvledger.tests.vectors.make           write them
    python -m kvledger.tests.vectors.make --check   compare with what is stored; exit 1 if anything differs

Both are found by exploration. The search is deterministic: the same law gives the same bytes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvledger.spec.explore import Path as Moves
from kvledger.spec.explore import explore
from kvledger.spec.rules import RULES
from kvledger.spec.saying import of_path
from kvledger.spec.situations import SITUATIONS
from kvledger.spec.trace import text
from kvledger.spec.worlds import WORLDS
from kvledger.tests.law.broken import broken

HERE = Path(__file__).parent
VALID, BROKEN = "valid", "broken"


def made(folder: str) -> dict[str, str]:
    """File name -> content, for every vector of a folder."""
    return made_valid() if folder == VALID else made_broken()


def made_broken() -> dict[str, str]:
    """For every rule that a run can break."""
    runs = broken(quiet=not sys.stderr.isatty())
    return {file_of(RULES[rule].title): text(trace) for rule, trace in runs.items()}


def made_valid() -> dict[str, str]:
    """For every situation. The shortest path over all worlds; the first world's, if equal."""
    best: dict[str, tuple[str, Moves]] = {}
    for world, (sizes, scope) in WORLDS.items():
        for situation, moves in explore(sizes, scope, laws=False).reached.items():
            if situation not in best or len(moves) < len(best[situation][1]):
                best[situation] = world, moves
    files = {}
    for situation in SITUATIONS:
        world, moves = best[situation]
        files[file_of(situation)] = text(of_path(WORLDS[world][0], moves, note=f"{situation} ({world})"))
    return files


def file_of(title: str) -> str:
    """The file of a situation or a rule: its words, with dashes between them."""
    words = re.findall("[a-z0-9]+", title.lower().replace("'", ""))
    return "-".join(words) + ".itf.json"


def stored(folder: str) -> dict[str, str]:
    """File name -> content, of what lies in a folder."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((HERE / folder).glob("*.itf.json"))}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The files that differ, or stand on one side only."""
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def main(argv: Sequence[str] | None = None) -> int:
    """Write, or compare. Exit code 1: something differs."""
    parser = argparse.ArgumentParser(prog="python -m kvledger.tests.vectors.make", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a stored vector differs")
    parser.add_argument("folder", nargs="*", help="valid, broken; default: both")
    args = parser.parse_args(argv)
    if not {VALID, BROKEN}.issuperset(args.folder):
        parser.error(f"folder {' '.join(args.folder)}: expected valid or broken")
    return max(_renew(folder, args.check) for folder in args.folder or (VALID, BROKEN))


def _renew(folder: str, check: bool) -> int:
    files, before = made(folder), stored(folder)
    changed = differences(files, before)
    for name in changed:
        word = "changed" if name in files and name in before else "new" if name in files else "gone"
        print(f"{word:9}{folder}/{name}")
        if check:
            continue
        if name in files:
            (HERE / folder).mkdir(exist_ok=True)
            (HERE / folder / name).write_text(files[name], encoding="utf-8", newline="\n")
        else:
            (HERE / folder / name).unlink()
    print(f"{len(files)} {folder} vectors, {len(changed)} {'differ' if check else 'written'}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
