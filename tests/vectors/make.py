"""Makes tests/vectors/valid: for each situation the shortest run that reaches it, found by exploration.

    python -m kvledger.tests.vectors.make           write them
    python -m kvledger.tests.vectors.make --check   compare with what is stored; exit 1 if anything differs

The search is deterministic: the same law gives the same bytes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvledger.spec.explore import Path as Moves
from kvledger.spec.explore import explore
from kvledger.spec.situations import SITUATIONS
from kvledger.spec.trace import of_path, text
from kvledger.spec.worlds import WORLDS

VALID = Path(__file__).parent / "valid"


def made() -> dict[str, str]:
    """File name -> content, for every situation. The shortest path over all worlds; the first world's, if equal."""
    best: dict[str, tuple[str, Moves]] = {}
    for world, (sizes, scope) in WORLDS.items():
        for situation, moves in explore(sizes, scope).reached.items():
            if situation not in best or len(moves) < len(best[situation][1]):
                best[situation] = world, moves
    files = {}
    for situation in SITUATIONS:
        world, moves = best[situation]
        files[file_of(situation)] = text(of_path(WORLDS[world][0], moves, f"explore {world}", situation))
    return files


def file_of(situation: str) -> str:
    """The file of a situation: its words, with dashes between them."""
    words = re.findall("[a-z0-9]+", situation.lower().replace("'", ""))
    return "-".join(words) + ".itf.json"


def stored() -> dict[str, str]:
    """File name -> content, of what lies in the folder."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(VALID.glob("*.itf.json"))}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The files that differ, or stand on one side only."""
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def main(argv: Sequence[str] | None = None) -> int:
    """Write, or compare. Exit code 1: something differs."""
    parser = argparse.ArgumentParser(prog="python -m kvledger.tests.vectors.make", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a stored vector differs")
    args = parser.parse_args(argv)
    files, before = made(), stored()
    changed = differences(files, before)
    for name in changed:
        word = "changed" if name in files and name in before else "new" if name in files else "gone"
        print(f"{word:9}{name}")
        if args.check:
            continue
        if name in files:
            VALID.mkdir(exist_ok=True)
            (VALID / name).write_text(files[name], encoding="utf-8", newline="\n")
        else:
            (VALID / name).unlink()
    print(f"{len(files)} vectors, {len(changed)} {'differ' if args.check else 'written'}")
    return 1 if args.check and changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
