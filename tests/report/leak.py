"""What SGLang's leak line says: how far a sum is off, how many pages that is, who may have done it, what to do next.

80 columns. A sum has no steps, so it accuses nobody: it names the rules that can break so, and `kvledger check` finds
out which one does.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from kvledger.spec.rules import RULES
from kvledger.tests.report.leak_causes import Cause, causes
from kvledger.tests.report.leak_line import FULL, ROWS, SLOTS, Sum

WIDTH, INDENT = 80, 8
TOLD = 6  # causes that are told in a sentence; the others are named
NEXT = """\
next    kvledger check sglang             SGLang itself, judged at every step
        kvledger check my_adapter:make    yours: the guilty step, in few calls
        kvledger audit run.jsonl          a run recorded beside the server"""


def told(sums: Sequence[Sum]) -> str:
    """All that these sums say. Of each pool that is off the first sum is told: it is the nearest to the fault."""
    wrong = [each for each in sums if each.off]
    if not wrong:
        odd = next((each for each in sums if each.impossible), None)
        says = "It is right." if len(sums) == 1 else f"The last of {len(sums):,} sums; all are right."
        says += " Most rules can break without a sum that shows it."
        if odd is not None:
            says = f"It is right, but {' and '.join(odd.impossible)} cannot be so: two faults may cancel out."
        return "\n".join([*_figures(odd or sums[-1]), *_folded(says), *_hinted(odd or sums[-1]), "", NEXT])
    firsts = {each.pool: each for each in reversed(wrong)}
    shown = [each for each in wrong if firsts[each.pool] is each]
    out: list[str] = []
    for first in shown:
        later = [each for each in wrong if each.pool == first.pool][1:]
        out += [*_figures(first), *_folded(_size(first)), *_folded(_course(later)), *_folded(_model(first))]
        out += [*_hinted(first), ""]
    for sign in dict.fromkeys(map(_sign, shown)):
        out += [*_table(sign, suspects([each for each in shown if _sign(each) == sign])), ""]
    rule = RULES[suspects(shown[:1])[0].rule]
    return "\n".join([*out, NEXT, f"        kvledger rules {rule.name}"])


def suspects(sums: Sequence[Sum]) -> list[Cause]:
    """Who may have done it, the likeliest first: of sums that are off to one side."""
    hinted = {rule for each in sums for _, rules in hints(each) for rule in rules}
    sessions = any(each.parts.get("session_held") for each in sums)
    return causes(sums[0].unit, sums[0].off, hinted, sessions=sessions)


def hints(each: Sum) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What the parts of a sum say by themselves: a sentence, and the rules that it speaks for."""
    held, uncached, protected = (each.parts.get(name, 0) for name in ("session_held", "uncached", "protected"))
    if held < 0:
        says = ("session_held is below 0: a session's record has less than the cache has of it, as where an aborted "
                "turn left its own short one to the session (sglang#22273).")  # fmt: skip
        yield says, ("SES-4", "REC-2")
    for name, value in (("session_held", held), ("uncached", uncached)):
        if value > 0 and each.off == value:
            says = f"That is {name} once more: a record that is lent to a turn counts twice (sglang#22152)."
            yield says, ("CONS-1",)
    if protected > 0 and not uncached and not held:
        says = ("protected is not 0, though nothing runs and no session holds KV: a lock was left behind "
                f"({RULES['LOCK-1'].title}). That alone changes no sum.")  # fmt: skip
        yield says, ()
    size = each.page_size if _counted(each) == SLOTS and each.page_size else 1
    if any(number % size for number in (each.off, *each.parts.values())):
        says = ("Not all of this is whole pages. Pool and tree count nothing else, so a record's length is wrong, such "
                "as a protected_len that ends inside a page.")  # fmt: skip
        yield says, ("REC-2",)
    if each.unit == ROWS and each.off >= 0:
        yield "A decode server (disaggregation) has pre-allocated rows beyond the total that it prints.", ()


def _hinted(each: Sum) -> list[str]:
    return [line for sentence, _ in hints(each) for line in _folded(sentence)]


def _sign(each: Sum) -> tuple[str, bool]:
    return each.unit, each.off > 0


def _counted(each: Sum) -> str:
    return "states" if each.pool.startswith("mamba") else each.unit


def _figures(each: Sum) -> list[str]:
    """The sum, written out, and what it should be."""
    parts = " + ".join(f"{name} {value:,}" for name, value in each.parts.items()) or "all parts"
    if each.total is None:
        return _folded(f"{parts}: the line is cut off, and its total with it", each.pool)
    return _folded(f"{parts} = {each.counted:,}, of {each.total:,} {_counted(each)}", each.pool)


def _size(each: Sum) -> str:
    """How far it is off, and in pages; or how large a page may be, where nobody says."""
    what = "too many: something counts twice." if each.off > 0 else "too few: something is nobody's."
    off = abs(each.off)
    if each.total is None:
        return ""
    says = f"{off:,} {what}"
    if _counted(each) != SLOTS:
        return says
    if each.page_size:
        rest = off % each.page_size
        return f"{says} {_pages(off, each.page_size)}{f', and {rest:,} over' if rest else ''}."
    if each.most_page_size == 1:
        return f"{says} {_pages(off, 1)}, or not of whole pages (--page-size)."
    return f"{says} {_pages(off, each.most_page_size)}, if pages are as large as these figures allow (--page-size)."


def _pages(slots: int, size: int) -> str:
    return f"{slots // size:,} {'page' if slots // size == 1 else 'pages'} of {size:,}"


def _course(later: Sequence[Sum]) -> str:
    return f"The first of {len(later) + 1:,} that are off; the last is off by {later[-1].off:+,}." if later else ""


def _model(each: Sum) -> str:
    known = each.pool in (FULL, ROWS)
    return "" if known else f"The law has no {each.pool} pool: its rules are read as those of a pool of pages."


def _table(sign: tuple[str, bool], found: Sequence[Cause]) -> list[str]:
    """The likeliest in two lines each, the others by name."""
    unit, more = sign
    title = f"too {'many' if more else 'few'} {unit}: who can do that, the likeliest first"
    out = [f"{title:<58}suspect"]
    for cause in found[:TOLD]:
        out += [f"  {RULES[cause.rule].title:<56}{', '.join(cause.suspects.split())}", f"      {cause.what}"]
    others = "; ".join(f"{RULES[cause.rule].title} ({', '.join(cause.suspects.split())})" for cause in found[TOLD:])
    return out + _folded(others, "  also")


def _folded(text: str, lead: str = "") -> list[str]:
    """Lines of one section: what it is about, then everything behind that."""
    return textwrap.wrap(text, WIDTH, initial_indent=f"{lead:<{INDENT}}", subsequent_indent=" " * INDENT,
                         break_on_hyphens=False)  # fmt: skip
