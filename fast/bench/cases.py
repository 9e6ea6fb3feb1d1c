"""What is asked of each figure, as data: the least that must be reached, and what would be good.

A ratio is the contender's time by ours, so more is better. Growth is ours at the larger size by ours at the smaller, a
share is of the whole step, a count is a number; there less is better, and the contender's own stands beside.
"""

from __future__ import annotations

from dataclasses import dataclass

RATIO, GROWTH, SHARE, COUNT = "ratio", "growth", "share", "count"
TIMED, WARM = 15, 2  # rounds that count, and those before them that do not
ROUNDS = TIMED + WARM
NOISY = 1.3  # where the upper quartile is so many times the lower, nothing can be said
OK, MISS, UNSURE, ABSENT, SHORT = "ok", "MISS", "noisy", "not compared", "short"


@dataclass(frozen=True)
class Case:
    """One line of the table. against: whose environment it runs in, and who it is compared with; "" is ours alone, with
    SGLang beside where it is there. must: None where only `reach` is asked for."""

    id: str
    what: str
    against: str
    must: float | None
    reach: float
    kind: str = RATIO

    @property
    def key(self) -> str:
        """What tells it from every other."""
        return f"{self.id} {self.what}"

    def meets(self, value: float, target: float) -> bool:
        """Whether a figure is as good as this."""
        return value >= target if self.kind == RATIO else value <= target


@dataclass(frozen=True)
class Measured:
    """What a case showed. theirs, ours: microseconds a call; of growth, at the smaller and the larger size; of a share,
    without and with what is asked about. value, q25, q75: as its kind says; of a count, the most of it, the least and
    the most. beside: the contender's own value, where there is one."""

    theirs: float | None
    ours: float
    value: float
    q25: float
    q75: float
    beside: float | None = None


def verdict(case: Case, measured: Measured | None) -> str:
    """ok or MISS; short, where there is no must and it is below what would be good; noisy, if the quartiles lie too far
    apart to say; not compared, if there is no figure. A count that is not the same at every size is a MISS."""
    if measured is None:
        return ABSENT
    if spread(case, measured) > NOISY:
        return UNSURE
    if case.kind == COUNT and measured.q25 != measured.q75:
        return MISS
    if case.must is None:
        return OK if case.meets(measured.value, case.reach) else SHORT
    return OK if case.meets(measured.value, case.must) else MISS


def spread(case: Case, measured: Measured) -> float:
    """The upper quartile by the lower: of a share, of the times that it comes from."""
    if case.kind == COUNT:
        return 1.0
    if case.kind == SHARE:
        return (1 - measured.q25) / (1 - measured.q75)
    return measured.q75 / measured.q25


def code(verdicts: list[str]) -> int:
    """Exit code: 1 if a must is missed; else 2 if something was too noisy to say; else 0, absent engines or not."""
    return 1 if MISS in verdicts else 2 if UNSURE in verdicts else 0


CASES = (
    Case("E1", "extend+write bs 1, ps 16", "sglang", 8, 15),
    Case("E2", "extend+write bs 32, ps 16", "sglang", 7, 11),
    Case("E3", "extend+write bs 256, ps 16", "sglang", 9, 14),
    Case("E4", "extend+write bs 1024, ps 64", "sglang", 11, 18),
    Case("E5", "extend+write bs 256, ps 1", "sglang", 3.5, 5),
    Case("E6", "extend+write bs 1, ps 1", "sglang", 1.5, 2),
    Case("E7", "chunk from mid-page bs 64, ps 16", "sglang", 11, 17),
    Case("D1", "decode bs 256, ps 16", "sglang", 5, 8),
    Case("D2", "decode bs 32, ps 16, no edge", "sglang", 10, 15),
    Case("D3", "decode bs 1024, ps 16", "sglang", 6, 9),
    Case("D4", "decode bs 256, ps 1", "sglang", 2.5, 3.3),
    Case("F1", "release 64 x 64 pages, pool 1e5", "sglang", 4, 6),
    Case("F2", "release 64 x 64 pages, pool 1e6", "sglang", 6, 10),
    Case("W1", "step bs 256, prompt 1024, pool 1e5", "sglang", 3.5, 6),
    Case("W2", "step bs 1024, prompt 512, pool 2e5", "sglang", 4.5, 7),
    Case("R1", "match 4k of 1000, ps 16", "sglang", 8, 12),
    Case("R2", "match 32k of 100, ps 16", "sglang", 12, 20),
    Case("R3", "insert 4k, ps 16", "sglang", 4, 6),
    Case("T1", "match 4k, Rust core", "sglang", None, 1),
    Case("T2", "insert 4k, Rust core", "sglang", None, 1),
    Case("T3", "evict 1 of 1000, Rust core", "sglang", None, 1),
    Case("V1", "step bs 256, vLLM's BlockPool", "vllm", 1 / 3, 1 / 2),
    Case("G1", "release, pool 1e4 -> 1e6", "", 1.25, 1.05, GROWTH),
    Case("G2", "take 64 pages, pool 1e4 -> 1e6", "", 1.25, 1.05, GROWTH),
    Case("G3", "decode, 2k -> 32k, pool 2e4 -> 2e6", "", 1.3, 1.1, GROWTH),
    Case("G4", "evict a leaf, 1e3 -> 1e5 leaves", "", 12, 6, GROWTH),
    Case("G5", "match 1k, 1e2 -> 1e4 sequences", "", 1.5, 1.1, GROWTH),
    Case("G6", "operators of an extend, bs 1 -> 1024", "", 8, 6, COUNT),
    Case("G6", "operators of a decode, bs 1 -> 1024", "", 6, 5, COUNT),
    Case("G6", "operators of a release, bs 1 -> 1024", "", 14, 13, COUNT),
    Case("G7", "host syncs in 1000 steps", "", 0, 0, COUNT),
    Case("G8", "double-free check, share of a step", "", 0.30, 0.20, SHARE),
)
