"""The types and shapes of what a backend says, checked and copied at the moment it is said.

A wrong one is a mistake of its adapter: WrongInput, one line. Whatever counts as a whole number or a list elsewhere
(numpy, torch) counts here; from here on all are tuples, and what the engine changes later changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, TypeVar

from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.backend import CachedView, RecordView, Totals, View
from kvledger.spec.itf import short
from kvledger.spec.world import PageId, ReqId, Row, Slot, WrongInput

WIDEST = 2**63  # no engine counts further
LONGEST = 2**22  # numbers in one list

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Said(Reply):
    """A Reply whose types are checked, copied into tuples: what the engine changes later does not change it."""

    rows: tuple[Row, ...] = ()
    matched: tuple[tuple[Slot, ...], ...] = ()
    slots: tuple[tuple[Slot, ...], ...] = ()
    published: dict[ReqId, int] = field(default_factory=dict)
    evicted: tuple[PageId, ...] = ()  # with repetitions, if it says them
    freed: Freed | None = None
    listed: dict[ReqId, tuple[Slot, ...]] = field(default_factory=dict)


class Seen(View):
    """A View whose types are checked, copied. A cache key is named by the lowest page under it."""


def tidy(reply: object, where: str) -> Said | Refused:
    """A backend's answer, checked and copied. where: who answered what, to begin the complaint with."""
    return _read(_tidy, reply, where, f"{where} with something")


def tidy_view(view: object, name: str) -> Seen:
    """A backend's view, checked and copied. name: whose view it is, to begin the complaint with."""
    return _read(_tidy_view, view, name, f"{name} shows a view")


def _read(how: Callable[[object, str], V], said: object, where: str, what: str) -> V:
    """What is looked at here is somebody else's, to its last __index__ and __eq__: it may raise anything."""
    try:
        return how(said, where)
    except WrongInput:
        raise
    except Exception as error:
        raise WrongInput(f"{what} that cannot be read: {type(error).__name__} while looking at it") from None


def _tidy(reply: object, where: str) -> Said | Refused:
    if isinstance(reply, Said):
        return reply
    if isinstance(reply, Refused):
        if reply.short not in (None, "rows", "pages"):
            raise WrongInput(f"{where} with short = {short(reply.short)}: expected 'rows', 'pages' or None")
        return Refused(reply.short, numbers(reply.evicted, where, "evicted"), _freed(reply.freed, where))
    if not isinstance(reply, Reply):
        raise WrongInput(f"{where} with a {type(reply).__name__}: expected a Reply or Refused")
    published = _by_request(reply.published, where, "published", "length")
    lengths = numbers(list(published.values()), where, "published")
    listed_slots = _by_request(reply.listed, where, "listed", "slots")
    return Said(
        numbers(reply.rows, where, "rows"),
        tuple(numbers(each, where, "matched") for each in list_of_lists(reply.matched, where, "matched")),
        tuple(numbers(each, where, "slots") for each in list_of_lists(reply.slots, where, "slots")),
        dict(zip(published, lengths, strict=True)),
        numbers(reply.evicted, where, "evicted"),
        _freed(reply.freed, where),
        {req: numbers(slots, where, "listed") for req, slots in listed_slots.items()},
    )


def _tidy_view(view: object, name: str) -> Seen:
    if isinstance(view, Seen):
        return view
    if not isinstance(view, View):
        raise WrongInput(f"{name} shows a {type(view).__name__} as its view: expected a View")
    where = f"{name} shows a view"
    cached = _mapping(view.cached, _cached, where, "cached", "a page and its CachedView: a hashable key, locks")
    return Seen(
        None if view.free_rows is None else numbers(view.free_rows, where, "free_rows"),
        None if view.free_pages is None else numbers(view.free_pages, where, "free_pages"),
        _mapping(view.records, _record, where, "records", "a request and its RecordView: a row or None, three lengths"),
        _mapping(view.table, _slots, where, "table", "a request and its slots, a list of whole numbers"),
        None if cached is None else _named(cached, where),
        None if view.totals is None else _totals(view.totals, where),
    )


def numbers(values: Iterable[int], where: str, what: str) -> tuple[int, ...]:
    """Whole numbers, in a tuple."""
    try:
        return _integers(values)
    except TypeError:
        raise WrongInput(f"{where} with {what} = {short(values)}: expected a list of whole numbers") from None
    except ValueError as error:
        raise WrongInput(f"{where} with {what} that has {error}") from None


def list_of_lists(values: Iterable[Iterable[int]], where: str, what: str) -> list[Iterable[int]]:
    """A list of lists."""
    try:
        if isinstance(values, dict):
            raise TypeError
        len(values)  # type: ignore[arg-type]
        return list(values)
    except TypeError:
        raise WrongInput(f"{where} with {what} = {short(values)}: expected a list of lists") from None


def counted(lists: Sequence[tuple[int, ...]], expected: int, where: str, what: str) -> None:
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
        return Totals(*_integers(_kind(totals, Totals)))
    except (TypeError, ValueError):
        raise WrongInput(f"{where} with totals = {short(totals)}: expected Totals, four numbers of pages") from None


def _by_request(values: Any, where: str, what: str, expected: str) -> dict[ReqId, Any]:
    if not hasattr(values, "items") or not all(isinstance(req, str) for req in values):
        raise WrongInput(f"{where} with {what} = {short(values)}: expected a mapping of request to {expected}")
    return dict(values.items())


def _named(cached: Mapping[PageId, tuple[Hashable, int]], where: str) -> dict[PageId, CachedView]:
    """Only whether two keys are equal counts, and whose code decides that is the engine's: asked once, here."""
    first: dict[Hashable, PageId] = {}
    try:
        return {page: CachedView(first.setdefault(key, page), locks) for page, (key, locks) in sorted(cached.items())}
    except Exception as error:
        raise WrongInput(f"{where} with cached keys that cannot be compared: {type(error).__name__}") from None


def _mapping(
    values: Any, tidied: Callable[[Any, Any], tuple[K, V]], where: str, what: str, expected: str
) -> dict[K, V] | None:
    """A mapping, entry by entry."""
    if values is None:
        return None
    if not hasattr(values, "items"):
        raise WrongInput(f"{where} with {what} = {short(values)}: expected a mapping")
    found = {}
    for key, each in list(values.items()):
        try:
            name, value = tidied(key, each)
        except (TypeError, ValueError):
            raise WrongInput(f"{where} with {what}[{short(key)}] = {short(each)}: expected {expected}") from None
        found[name] = value
    return found


# ---- one entry, in tuples; a TypeError says that it cannot be


def _record(req: Any, shown: Any) -> tuple[ReqId, RecordView]:
    held, *lengths = _kind(shown, RecordView)
    return _kind(req, str), RecordView(held if held is None else _number(held), *_integers(lengths))


def _slots(req: Any, shown: Any) -> tuple[ReqId, tuple[Slot, ...]]:
    return _kind(req, str), _integers(shown)


def _cached(page: Any, shown: Any) -> tuple[PageId, tuple[Hashable, int]]:
    key, locks = _kind(shown, CachedView)
    hash(key)
    return _number(page), (key, _number(locks))


def _kind(value: Any, kind: type[V]) -> V:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _number(value: Any) -> int:
    number = index(value)
    if abs(number) >= WIDEST:
        raise ValueError(f"a number of more than {WIDEST.bit_length() - 1} bits")
    return number


def _integers(values: Any) -> tuple[int, ...]:
    """No dict, and nothing without a length: an iterator would be empty when it is looked at again."""
    if isinstance(values, dict):
        raise TypeError
    if len(values) > LONGEST:
        raise ValueError(f"more than {LONGEST:,} numbers")
    whole = tuple(map(index, values))
    if whole and not -WIDEST < min(whole) <= max(whole) < WIDEST:
        raise ValueError(f"a number of more than {WIDEST.bit_length() - 1} bits")
    return whole
