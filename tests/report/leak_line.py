"""SGLang's leak line, read: for each pool what it counts, and the total that this should come to.

Its idle check and its busy check print NAME=NUMBER, and every generation names and orders them in another way:
managers/scheduler.py at first, scheduler_runtime_checker_mixin.py until 0.5.10, scheduler_components/
invariant_checker.py since. What stands before, between and behind is passed over, so a whole log may be given, also one
that writes its line ends as \\n.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import gcd
from typing import NamedTuple

SLOTS, ROWS, FULL = "slots", "rows", "full"
PARTS = ("available", "evictable", "protected", "session_held", "uncached")

WORD = re.compile(
    r"(?P<rows>req_to_token_pool memory leak detected)"
    r"|(?P<head>(?i:leak detected|mem check))"
    r"|(?P<skipped>leak-check skipped)"
    r"|\[(?P<pool>full|swa|mamba(?:-active|-int8)?)\]"
    r"|(?<![\w.])(?P<name>[A-Za-z_][\w.]*)(?:\(\))?=(?P<number>-?\d{1,18})(?![\w.])"
)
PART = re.compile(rf"(?:(full|swa|mamba)_)?({'|'.join(PARTS)})(?:_size)?(?:_(full|swa))?")
# A total, by the end of its name: of this pool; "", of the one that is spoken of.
TOTALS = {
    "total": "",
    "total_size": ROWS,
    "max_total_num_token": FULL,
    "max_total_num_tokens": FULL,
    "full_tokens_per_layer": FULL,
    "swa_tokens_per_layer": "swa",
    "token_to_kv_pool_allocator.size": FULL,
    "mamba_pool.size": "mamba",
}
TOTAL, WHOLE = "total", "total_tokens"  # WHOLE: the parts were added up already


class Sum(NamedTuple):
    """One pool's sum as a line has it: of rows, or of slots of KV (of states, in a mamba pool). parts: by SGLang's
    names, as far as they are printed. whole: what they come to, where the line says that alone. total: None where it is
    cut off. page_size: in slots, None where nobody says it."""

    pool: str
    parts: Mapping[str, int]
    whole: int | None
    total: int | None
    page_size: int | None

    @property
    def unit(self) -> str:
        """What is counted: rows, or slots."""
        return ROWS if self.pool == ROWS else SLOTS

    @property
    def counted(self) -> int:
        """What the parts come to."""
        return sum(self.parts.values()) if self.whole is None else self.whole

    @property
    def off(self) -> int:
        """Above 0: more is counted than there is; below 0: less. Of a line that is cut off it is the part below 0."""
        return min(self.parts.values()) if self.total is None else self.counted - self.total

    @property
    def impossible(self) -> list[str]:
        """The parts that nobody can have: less than nothing, or more than there is."""
        return [name for name, value in self.parts.items() if value < 0 or value > (self.total or value)]

    @property
    def most_page_size(self) -> int:
        """A page has no more slots than this, if all that is counted is whole pages."""
        return gcd(self.counted, self.total or 0, *self.parts.values())


def sums(text: str, page_size: int | None = None) -> list[Sum]:
    """Every sum in a text, in its order. One whose total is cut off is there only if a part of it is below 0.
    page_size: in slots; None: as the text says, if it does (the server's arguments do, at its start)."""
    text = text.replace("\\n", "\n")
    said = [int(number) for number in re.findall(r"(?<!\w)page_size=(\d{1,18})\b", text)]
    size = page_size or next(filter(None, reversed(said)), None)
    found = []
    for pool, numbers in _groups(text):
        parts = {name: numbers[name] for name in PARTS if name in numbers}
        each = Sum(pool, parts, numbers.get(WHOLE), numbers.get(TOTAL), size)
        if (parts or each.whole is not None) and (each.total is not None or min(parts.values(), default=0) < 0):
            found.append(each)
    return found


def _groups(text: str) -> list[tuple[str, dict[str, int]]]:
    """Pool by pool the numbers that belong together. A name that comes again begins another sum; but one that says
    whose it is only says it more exactly (an old line adds available and evictable up, then gives both)."""
    groups: list[tuple[str, dict[str, int]]] = []
    current: dict[str, dict[str, int]] = {}
    here = FULL
    for word in WORD.finditer(text):
        if word["rows"] or word["head"]:
            current, here = {}, ROWS if word["rows"] else FULL
        elif word["pool"] or word["skipped"]:
            here = word["pool"] or ""  # a pool that is not checked has no name
        elif named := _named(word["name"].removeprefix("self."), here):
            pool, name = named
            if pool not in current or (name in current[pool] and "." not in word["name"].removeprefix("self.")):
                current[pool] = {}
                groups.append((pool, current[pool]))
            current[pool][name] = int(word["number"])
    return [group for group in groups if group[0]]


def _named(name: str, here: str) -> tuple[str, str] | None:
    """Of which pool, and which part or total, a number is. here: the pool that is spoken of."""
    *_, last = ends = name.split(".")
    for total in (last, ".".join(ends[-2:])):
        if total in TOTALS:
            return TOTALS[total] or here, TOTAL
    if last == WHOLE:
        return here, WHOLE
    part = PART.fullmatch(last)
    return (part[1] or part[3] or here, part[2]) if part else None
