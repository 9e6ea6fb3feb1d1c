"""What a reader sees: the machine, the proof, then a line a case: ratios, what they should be, and a word."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kvledger.fast.bench.cases import COUNT, MISS, RATIO, SHARE, TIMED, Case, Measured, verdict
from kvledger.tests.engines.venvs import ENGINES
from kvledger.tests.kit.calibration import ROUNDS

CLOCKS = {"cpu": "thread CPU time", "wall": "wall clock"}


@dataclass
class Found:
    """What the processes have said so far. equal: who was compared, and in how many steps; different: where one did
    not do the same."""

    clock: str
    measured: dict[str, Measured] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    equal: dict[str, int] = field(default_factory=dict)
    calibrated: list[float] = field(default_factory=list)
    different: str | None = None

    def take(self, line: Mapping[str, Any]) -> None:
        """One line of a process."""
        match line:
            case {"case": key, "measured": measured}:
                self.measured[key] = Measured(**measured)
            case {"versions": versions}:
                self.versions |= {name: version for name, version in versions.items() if version}
            case {"equal": steps}:
                self.equal |= steps
            case {"calibrated": seconds}:
                self.calibrated.append(seconds)
            case {"different": text}:
                self.different = text
            case _:
                raise ValueError(f"a process said {line!r:.80}")


def table(cases: Sequence[Case], found: Found) -> str:
    """All of it. Lines of a case: the contender's microseconds, ours, the value, must, reach, the word."""
    lines = [*head(cases, found), ""]
    if found.different:
        return "\n".join([*lines, f"different   {found.different}"])
    for ratios in (True, False):
        some = [case for case in cases if (case.kind == RATIO) == ratios]
        if some:
            lines += [titles(ratios), *(line(case, found.measured.get(case.key)) for case in some), ""]
    return "\n".join([*lines, *foot(cases, found)])


def head(cases: Sequence[Case], found: Found) -> list[str]:
    """The machine, who is compared, and the proof that they do the same."""
    torch = f"torch {found.versions.get('torch', '?')}, numpy {found.versions.get('numpy', '?')}"
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    against = [f"{name} {found.versions[name]} (real code)" for name in ENGINES if name in found.versions]
    lines = [f"machine     {os.cpu_count()} cores, {platform.machine()}, {torch}{load}"]
    lines.append(f"clock       {CLOCKS[found.clock]}, 1 thread, median of {TIMED} rounds in turns")
    if found.calibrated:
        lines.append(f"calibrated  {min(found.calibrated):.3f} s for {ROUNDS:,} steps of plain Python")
    if against:
        lines.append(f"against     {', '.join(against)}")
    lines += [f"equal       {what}: {steps:,} steps, 0 differences" for what, steps in found.equal.items()]
    absent = dict.fromkeys(case.against for case in cases if case.against and not ENGINES[case.against].is_set_up)
    return lines + [f"not compared: {name} is not set up, kvledger engines setup {name}" for name in absent]


def titles(ratios: bool) -> str:
    """Over the lines of ratios, and over the others: there small and large are microseconds, or counts."""
    theirs, ours = ("theirs us", "ours us") if ratios else ("small", "large")
    value = "ratio (q25..q75)" if ratios else "ours"
    beside = "" if ratios else "sglang "
    return f"{'id':<4}{'case':<36}{theirs:>10}{ours:>8}  {value:<20}{'must':>6}{'reach':>7}  {beside}verdict"


def line(case: Case, measured: Measured | None) -> str:
    """One case."""
    must = "-" if case.must is None else shown(case, case.must)
    sign = ">=" if case.kind == RATIO else "<="
    ends = f"{sign + must if case.must is not None else must:>6}{shown(case, case.reach):>7}"
    word = verdict(case, measured)
    if measured is None:
        return f"{case.id:<4}{case.what:<36}{'':>10}{'':>8}  {'':<20}{ends}  {word}"
    value = shown(case, measured.value)
    if case.kind != COUNT or measured.q25 != measured.q75:
        value += f" ({shown(case, measured.q25)}..{shown(case, measured.q75)})"
    beside = "" if case.kind == RATIO else f"{'-' if measured.beside is None else shown(case, measured.beside):<7}"
    theirs = "" if measured.theirs is None else figure(measured.theirs)
    return f"{case.id:<4}{case.what:<36}{theirs:>10}{figure(measured.ours):>8}  {value:<20}{ends}  {beside}{word}"


def shown(case: Case, value: float) -> str:
    """A value in the unit of its kind."""
    if case.kind == SHARE:
        return f"{value:.0%}"
    if case.kind == COUNT:
        return f"{value:.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 or value == int(value) else f"{value:.2f}"


def figure(value: float) -> str:
    """Microseconds, or a count."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def foot(cases: Sequence[Case], found: Found) -> list[str]:
    """How many of each word, and the worst."""
    words = Counter(verdict(case, found.measured.get(case.key)) for case in cases)
    lines = [", ".join(f"{count} {word}" for word, count in words.items())]
    missed = [case for case in cases if verdict(case, found.measured.get(case.key)) == MISS]
    if missed:
        worst = max(missed, key=lambda case: short_of(case, found.measured[case.key]))
        lines.append(f"furthest from its must: {worst.id} {worst.what}")
    reached = sum(case.meets(each.value, case.reach) for case in cases if (each := found.measured.get(case.key)))
    return [*lines, f"{reached} of {len(cases)} reach what would be good", "gpu: not measured"]


def short_of(case: Case, measured: Measured) -> float:
    """How many times it falls short of its must."""
    assert case.must is not None
    if case.kind == RATIO:
        return case.must / measured.value
    return measured.value / case.must if case.must else float("inf")


def as_json(cases: Sequence[Case], found: Found) -> dict[str, Any]:
    """The same for machines. rows: in the table's order; measured: null where a case is not compared."""
    rows = []
    for case in cases:
        measured = found.measured.get(case.key)
        rows.append({**asdict(case), "measured": measured and asdict(measured), "verdict": verdict(case, measured)})
    return {
        "clock": found.clock,
        "versions": found.versions,
        "calibration": {"steps": ROUNDS, "seconds": found.calibrated},
        "equal": found.equal,
        "different": found.different,
        "rows": rows,
    }
