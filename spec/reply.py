"""The types and shapes of what a backend says. A wrong one is a mistake of its adapter: WrongInput, one line.

Whatever counts as a whole number or a list elsewhere (numpy, torch) counts here; from here on all are tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import Any, NamedTuple, TypeVar

from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.backend import CachedView, RecordView, Totals, View
from kvledger.spec.itf import short
from kvledger.spec.world import PageId, ReqId, Row, Slot, WrongInput

K = TypeVar("K")
V = TypeVar("V")


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
            raise WrongInput(f"{where} with short = {short(reply.short)}: expected 'rows', 'pages' or None")
        return Refused(reply.short, frozenset(numbers(reply.evicted, where, "evicted")), _freed(reply.freed, where))
    if not isinstance(reply, Reply):
        raise WrongInput(f"{where} with a {type(reply).__name__}: expected a Reply or Refused")
    if not hasattr(reply.published, "items") or not all(isinstance(req, str) for req in reply.published):
        raise WrongInput(f"{where} with published = {short(reply.published)}: expected a mapping of request to length")
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


def tidy_view(view: object, name: str) -> View:
    """A backend's view, its types checked. name: whose view it is, to begin the complaint with."""
    if not isinstance(view, View):
        raise WrongInput(f"{name} shows a {type(view).__name__} as its view: expected a View")
    where = f"{name} shows a view"
    return View(
        None if view.free_rows is None else numbers(view.free_rows, where, "free_rows"),
        None if view.free_pages is None else numbers(view.free_pages, where, "free_pages"),
        _mapping(view.records, _record, where, "records", "a request and its RecordView: a row or None, three lengths"),
        _mapping(view.table, _slots, where, "table", "a request and its slots, a list of whole numbers"),
        _mapping(view.cached, _cached, where, "cached", "a page and its CachedView: a hashable key, a number of locks"),
        None if view.totals is None else _totals(view.totals, where),
    )


def numbers(values: Iterable[int], where: str, what: str) -> tuple[int, ...]:
    """Whole numbers, in a tuple."""
    try:
        return _whole(values)
    except TypeError:
        raise WrongInput(f"{where} with {what} = {short(values)}: expected a list of whole numbers") from None


def listed(values: Iterable[Iterable[int]], where: str, what: str) -> list[Iterable[int]]:
    """A list of lists."""
    try:
        return list(_sized(values))
    except TypeError:
        raise WrongInput(f"{where} with {what} = {short(values)}: expected a list of lists") from None


def counted(lists: list[tuple[int, ...]], expected: int, where: str, what: str) -> None:
    """As many lists as there are members that need one."""
    if len(lists) != expected:
        raise WrongInput(f"{where} with {len(lists)} {what}: expected {expected}")


def _freed(freed: object, where: str) -> Freed | None:
    if freed is None:
        return None
    if not isinstance(freed, Freed):
        raise WrongInput(f"{where} with freed = {short(freed)}: expected a Freed or None")
    return Freed(*(tuple(sorted(numbers(part, where, "freed"))) for part in freed))


def _totals(totals: object, where: str) -> Totals:
    try:
        return Totals(*_whole(_kind(totals, Totals)))
    except TypeError:
        raise WrongInput(f"{where} with totals = {short(totals)}: expected Totals, four numbers of pages") from None


def _mapping(
    values: Any, tidied: Callable[[Any, Any], tuple[K, V]], where: str, what: str, expected: str
) -> dict[K, V] | None:
    """A mapping, entry by entry."""
    if values is None:
        return None
    if not hasattr(values, "items"):
        raise WrongInput(f"{where} with {what} = {short(values)}: expected a mapping")
    found = {}
    for key, each in values.items():
        try:
            name, value = tidied(key, each)
        except TypeError:
            raise WrongInput(f"{where} with {what}[{short(key)}] = {short(each)}: expected {expected}") from None
        found[name] = value
    return found


# ---- one entry, in tuples; a TypeError says that it cannot be


def _record(req: Any, shown: Any) -> tuple[ReqId, RecordView]:
    held, *lengths = _kind(shown, RecordView)
    return _kind(req, str), RecordView(held if held is None else index(held), *_whole(lengths))


def _slots(req: Any, shown: Any) -> tuple[ReqId, tuple[Slot, ...]]:
    return _kind(req, str), _whole(shown)


def _cached(page: Any, shown: Any) -> tuple[PageId, CachedView]:
    key, locks = _kind(shown, CachedView)
    hash(key)
    return index(page), CachedView(key, index(locks))


def _kind(value: Any, kind: type[V]) -> V:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _whole(values: Any) -> tuple[int, ...]:
    return tuple(map(index, _sized(values)))


def _sized(values: Any) -> Any:
    """No dict, and nothing without a length: an iterator would be empty when it is looked at again."""
    if isinstance(values, dict):
        raise TypeError
    len(values)
    return values
