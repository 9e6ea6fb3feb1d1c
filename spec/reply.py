"""The types and shapes of what a backend says. A wrong one is a mistake of its adapter: WrongInput, one line.

Whatever counts as a whole number or a list elsewhere (numpy, torch) counts here; from here on all are tuples.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import NamedTuple

from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.backend import View
from kvledger.spec.world import PageId, ReqId, Row, Slot, WrongInput


class Said(NamedTuple):
    """A Reply in tuples."""

    rows: tuple[Row, ...]
    matched: list[tuple[Slot, ...]]
    slots: list[tuple[Slot, ...]]
    published: dict[ReqId, int]
    evicted: tuple[PageId, ...]
    freed: Freed | None


def tidy(reply: object, where: str) -> Said | Refused:
    """A backend's answer, its types checked. where: who answered what, to begin the complaint with."""
    if isinstance(reply, Refused):
        if reply.short not in (None, "rows", "pages"):
            raise WrongInput(f"{where} with short = {reply.short!r}: expected 'rows', 'pages' or None")
        return Refused(reply.short, frozenset(numbers(reply.evicted, where, "evicted")), _freed(reply.freed, where))
    if not isinstance(reply, Reply):
        raise WrongInput(f"{where} with a {type(reply).__name__}: expected a Reply or Refused")
    if not hasattr(reply.published, "items"):
        raise WrongInput(f"{where} with published = {reply.published!r}: expected a mapping of request to length")
    published = dict(reply.published.items())
    lengths = numbers(published.values(), where, "published")
    return Said(
        numbers(reply.rows, where, "rows"),
        [numbers(each, where, "matched") for each in listed(reply.matched, where, "matched")],
        [numbers(each, where, "slots") for each in listed(reply.slots, where, "slots")],
        dict(zip(published, lengths, strict=True)),
        numbers(reply.evicted, where, "evicted"),
        _freed(reply.freed, where),
    )


def check_view(view: object, name: str) -> None:
    """A backend's view, its types checked as far as comparing it needs."""
    if not isinstance(view, View):
        raise WrongInput(f"{name} shows a {type(view).__name__} as its view: expected a View or None")
    where = f"{name} shows a view"
    for field in ("free_rows", "free_pages"):
        if getattr(view, field) is not None:
            numbers(getattr(view, field), where, field)
    for field, width in (("records", 4), ("cached", 2), ("table", None)):
        value = getattr(view, field)
        if value is None:
            continue
        if not hasattr(value, "items"):
            raise WrongInput(f"{where} with {field} = {value!r}: expected a mapping")
        for key, each in value.items():
            if width is not None and (not isinstance(each, tuple) or len(each) != width):
                raise WrongInput(f"{where} with {field}[{key!r}] = {each!r}: expected {width} fields")
            if field == "records":
                numbers(each[1:], where, f"{field}[{key!r}]")
            elif field == "table":
                numbers(each, where, f"{field}[{key!r}]")


def numbers(values: Iterable[int], where: str, what: str) -> tuple[int, ...]:
    """Whole numbers, in a tuple."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise WrongInput(f"{where} with {what} = {values!r}: expected a list of whole numbers") from None


def listed(values: Iterable[Iterable[int]], where: str, what: str) -> list[Iterable[int]]:
    """A list of lists."""
    try:
        return list(values)
    except TypeError:
        raise WrongInput(f"{where} with {what} = {values!r}: expected a list of lists") from None


def counted(lists: list[tuple[int, ...]], expected: int, where: str, what: str) -> None:
    """As many lists as there are members that need one."""
    if len(lists) != expected:
        raise WrongInput(f"{where} with {len(lists)} {what}: expected {expected}")


def _freed(freed: object, where: str) -> Freed | None:
    if freed is None:
        return None
    if not isinstance(freed, Freed):
        raise WrongInput(f"{where} with freed = {freed!r}: expected a Freed or None")
    return Freed(*(tuple(sorted(numbers(part, where, "freed"))) for part in freed))
