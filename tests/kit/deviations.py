"""What an engine is known to do against the law: a TOML file, one entry a fault, each with a run that still shows it.

    [[deviation]]
    rule = "ATOM-1"                        # the rule that breaks, or RAISES, or HANGS
    by = "extend"                          # the action at which it does
    when = ["pages are refused"]           # situations (spec/situations.py), all of which are the case then
    kind = "fault"                         # or "choice": the engine means it
    reason = "one line: what happens"
    witness = "sglang-atom-1.itf.json"     # beside the file: a stored run that ends in it
    backends = ["sglang", "sglang-rust"]   # of those that share the file; all of them, if absent

A run that comes to an entry ends there, and the search goes on with others: nothing that follows can be judged. A rule
that has an entry DEVIATES; a witness that does not fail any more is an error, for then the entry hides something else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast

from kvledger.spec.action import NAMES as ACTIONS
from kvledger.spec.action import name_of
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import RULES
from kvledger.spec.situations import SITUATIONS, Moment
from kvledger.spec.trace import HANGS, RAISES, Step, read
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.load import NAMES
from kvledger.tests.kit.lockstep import Finding

KINDS = ("fault", "choice")
SHIPPED = Path(__file__).parents[1] / "engines/deviations"


@dataclass(frozen=True)
class Deviation:
    """One entry. witness: where the stored run lies."""

    rule: str
    by: str
    kind: str
    reason: str
    witness: Path
    when: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()

    def explains(self, finding: Finding, world: World, steps: Sequence[Step]) -> bool:
        """Whether this finding is the one that is known. steps: of the run, the guilty one last."""
        last = steps[-1]
        if last.probe or (finding.rule, name_of(last.act)) != (self.rule, self.by):
            return False
        refused = isinstance(last.answer, Refused) and self.rule not in (RAISES, HANGS)  # there it is no answer at all
        moment = Moment(before(world, steps), last.act, cast(Refused, last.answer) if refused else Granted())
        return all(SITUATIONS[name].holds(moment) for name in self.when)


def before(world: World, steps: Sequence[Step]) -> Ledger:
    """What was true before the last of these steps."""
    monitor = Monitor(world, count_armed=False)
    for step in steps[:-1]:
        if not step.probe:
            monitor.step(step.act, step.answer)
    return monitor.ledger


def known(target: str, path: str | None) -> tuple[Deviation, ...]:
    """The entries for a backend: of this file, or of the one that ships for its engine, whatever the version. Raises
    WrongInput."""
    if path is not None:
        return read_file(Path(path))
    module = NAMES.get(target, "").partition(":")[0].rpartition(".")[2]
    shipped = SHIPPED / f"{module.partition('_')[0]}.toml"
    found = read_file(shipped) if shipped.is_file() else ()
    return tuple(each for each in found if not each.backends or target in each.backends)


def read_file(path: Path) -> tuple[Deviation, ...]:
    """Every entry of a file. Raises WrongInput with the entry and what was expected."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WrongInput(f"deviations {path}: expected a TOML file that can be read, but: {error}") from None
    if set(entries) != {"deviation"} or not isinstance(entries.get("deviation", []), list):
        raise WrongInput(f"deviations {path}: expected entries [[deviation]] and nothing else")
    return tuple(_entry(entry, path, number) for number, entry in enumerate(entries.get("deviation", []), 1))


def _entry(entry: object, path: Path, number: int) -> Deviation:
    where = f"deviations {path}, entry {number}"
    known_fields = {field.name for field in fields(Deviation)}
    if not isinstance(entry, dict) or not known_fields.issuperset(entry):
        strange = sorted(set(entry) - known_fields) if isinstance(entry, dict) else entry
        raise WrongInput(f"{where}: {strange} is none of {', '.join(sorted(known_fields))}")
    lists = {name: entry.get(name, []) for name in ("when", "backends")}
    texts = {name: entry.get(name) for name in ("rule", "by", "kind", "reason", "witness")}
    for name, text in texts.items():
        if not isinstance(text, str) or not text:
            raise WrongInput(f"{where}: {name} = {text!r}, expected a text")
    for name, words in lists.items():
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise WrongInput(f"{where}: {name} = {words!r}, expected a list of texts")
    for name, words, allowed in (
        ("rule", [texts["rule"]], (*RULES, RAISES, HANGS)), ("by", [texts["by"]], ACTIONS.values()),
        ("kind", [texts["kind"]], KINDS), ("when", lists["when"], SITUATIONS), ("backends", lists["backends"], NAMES),
    ):  # fmt: skip
        strange = next((word for word in words if word not in allowed), None)
        if strange is not None:
            raise WrongInput(f"{where}: {name} has {strange!r}, expected one of {', '.join(map(str, allowed))}")
    witness = path.parent / str(texts.pop("witness"))
    if not witness.is_file():
        raise WrongInput(f"{where}: witness {witness} is not there")
    return Deviation(**texts, witness=witness, when=tuple(lists["when"]), backends=tuple(lists["backends"]))  # type: ignore[arg-type]


def title(deviation: Deviation) -> str:
    """Its rule, for people."""
    return RULES[deviation.rule].title if deviation.rule in RULES else deviation.rule


def length(deviation: Deviation) -> int:
    """How many actions its witness has."""
    return len(read(deviation.witness).steps)
