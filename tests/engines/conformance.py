"""The conformance table of README.md: one line a rule, one column a backend, from the reports of `kvledger check`.

    kvledger check reference blocks --json ours.json; kvledger check sglang --json sglang.json
    python -m kvledger.tests.engines.conformance ours.json sglang.json           write what these reports say
    python -m kvledger.tests.engines.conformance ours.json sglang.json --check   compare only; exit 1 if any differs

A column whose backend is in no report, since its engine is not set up here, stays as it stands.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

from kvledger.spec.rules import RULES
from kvledger.spec.world import WrongInput
from kvledger.tests.kit.verdict import NOT_DECLARED
from kvledger.tests.law.tables import ROOT, place

NAME, FILE = "conformance", "README.md"
BACKENDS = ("reference", "blocks", "sglang", "sglang-rust", "sglang-radix", "sglang-no-cache", "sglang-unasked",
            "sglang-0.5.20", "sglang-0.5.10", "vllm")  # fmt: skip
Words = Mapping[str, str]  # rule -> the word for it


def reported(paths: Sequence[str]) -> dict[str, Words]:
    """Backend -> its words, of every report in these files. Raises WrongInput."""
    found: dict[str, Words] = {}
    for path in paths:
        try:
            reports = list[dict[str, Any]](json.loads(Path(path).read_text(encoding="utf-8")) or [{}])
            found |= {
                report["backend"]: {rule: each["verdict"] for rule, each in report["rules"].items()}
                for report in reports
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise WrongInput(f"report {path}: expected what kvledger check --json writes, but: {error!r}") from None
    return found


def standing(table: str) -> dict[str, Words]:
    """Backend -> its words, as the table has them."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if not rows:
        return {}
    rules = [row[0].partition(" ")[0] for row in rows[2:]]
    return {name: dict(zip(rules, cells, strict=True)) for name, *cells in zip(rows[0], *rows[2:], strict=True)}


def made(words: Mapping[str, Words]) -> str:
    """The table: a dash for what a backend does not declare."""
    lines = [f"| rule | {' | '.join(BACKENDS)} |", "|---" * (len(BACKENDS) + 1) + "|"]
    for rule in RULES.values():
        cells = [words.get(name, {}).get(rule.id, "") for name in BACKENDS]
        lines.append(f"| {rule.title} | {' | '.join('-' if cell == NOT_DECLARED else cell for cell in cells)} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write, or compare. Exit code 1: something differs; 2: wrong use."""
    parser = argparse.ArgumentParser(prog="python -m kvledger.tests.engines.conformance", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("report", nargs="+", help="a file that kvledger check --json has written")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a word differs")
    args = parser.parse_args(argv)
    try:
        before, stands, after = place(NAME, FILE)
        words = reported(args.report)
    except (OSError, WrongInput) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    for name in BACKENDS:
        if name not in words:
            print(f"{name}: no report, its column stays as it stands")
    table = made({**standing(stands), **words})
    if table == stands:
        print(f"{NAME:12}{FILE:18}as it stands")
        return 0
    if args.check:
        sys.stdout.writelines(unified_diff(stands.splitlines(True), table.splitlines(True), "stands", "is"))
        return 1
    (ROOT / FILE).write_text(before + table + after, encoding="utf-8", newline="\n")
    print(f"{NAME:12}{FILE:18}written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
