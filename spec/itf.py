"""Values in ITF, the JSON of Apalache's and Quint's traces (ADR-015): each kind of value, written and read.

    whole number {"#bigint": "5"}      tuple {"#tup": [...]}      set {"#set": [...]}      map {"#map": [[k, v], ...]}
    record {"field": ...}              variant {"tag": "Name", "value": {...}}            text and truth as in JSON

None is the variant Nothing; a tag None could not become a type in Python. A record is written without the fields that
have their default, and read without the fields that nobody knows. What cannot be written or read is a WrongInput that
begins with `where`.

Plain JSON is read as well, and `plain` makes it: whole numbers, lists for tuples and sets, objects for maps, null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from operator import index
from reprlib import Repr
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kvledger.spec.world import WrongInput

T = TypeVar("T")
Json: TypeAlias = object
NOTHING: Json = {"tag": "Nothing", "value": {}}
NONE = (None, NOTHING)
DIGITS = 600  # of the longest number: fewer than the least limit that Python can be set to
LIMIT = 10**DIGITS
LINE = 80  # characters of somebody's value that fit into a line of ours
CUT = Repr()
CUT.maxother = LINE
DECIMAL = re.compile(f"-?[0-9]{{1,{DIGITS}}}")


class Kind(NamedTuple):
    """One kind of value. put: value, where -> JSON. take: JSON, where -> value."""

    put: Callable[[Any, str], Json]
    take: Callable[[Json, str], Any]


def wrong(where: str, value: object, expected: str) -> WrongInput:
    """The complaint: where, what stands there, what was expected. One line."""
    return WrongInput(f"{where} = {short(value)}, expected {expected}")


def short(value: object) -> str:
    """A value on one line, cut where it is long."""
    try:
        line = " ".join(CUT.repr(value).split())
    except Exception:  # a repr of somebody else's, or a number too long to be written
        line = f"a {type(value).__name__}"
    return line if len(line) <= LINE else line[: LINE - 3] + "..."


def as_object(json: Json, where: str) -> dict[str, Json]:
    """A JSON object."""
    if not isinstance(json, dict):
        raise wrong(where, json, "an object")
    return json


def parsed(raw: bytes, where: str, take: Callable[[Json, str], T]) -> T:
    """What `take` makes of JSON in UTF-8. Raises WrongInput, and nothing else."""
    try:
        return take(json.loads(raw.decode(), object_pairs_hook=_each_once), where)
    except WrongInput as wrong:
        raise wrong if str(wrong).startswith(where) else WrongInput(f"{where}: {wrong}") from None
    except RecursionError:
        raise WrongInput(f"{where}: nested too deeply, expected something flatter") from None
    except json.JSONDecodeError as error:
        raise WrongInput(f"{where}: line {error.lineno}, column {error.colno}: {error.msg}, expected JSON") from None
    except ValueError as error:
        raise WrongInput(f"{where}: {error}, expected JSON in UTF-8") from None


def _each_once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object; a name that stands twice would hide what it said first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise WrongInput(f"{short(twice)} stands twice in one object, expected each name once")
    return found


def only(json: dict[str, Json], names: Iterable[str], where: str) -> None:
    """Raises WrongInput for a field that is none of these: written by hand, it is likely a misspelt one."""
    for name in json.keys() - set(names):
        raise WrongInput(f"{where} has a field {short(name)}, expected some of {', '.join(names)}")


# ---- one value


def _put_number(value: Any, where: str) -> Json:
    try:
        number = int(index(value))
    except TypeError:
        raise wrong(where, value, "a whole number") from None
    if abs(number) >= LIMIT:
        raise WrongInput(f"{where} is a number of more than {DIGITS} digits, expected a shorter one")
    return {"#bigint": str(number)}


def _take_number(json: Json, where: str) -> int:
    match json:
        case bool():
            pass
        case int():
            return json
        case {"#bigint": str(digits)} if DECIMAL.fullmatch(digits):
            return int(digits)
    raise wrong(where, json, "a whole number")


def _exactly(kind: type, expected: str) -> Kind:
    def same(value: Any, where: str) -> Any:
        if type(value) is not kind:
            raise wrong(where, value, expected)
        return value

    return Kind(same, same)


def _put_token(value: Any, where: str) -> Json:
    if value is None:
        return NOTHING
    if type(value) is tuple:
        return {"#tup": [_put_token(each, where) for each in value]}
    if type(value) is int:
        return _put_number(value, where)
    if type(value) in (str, bool):
        return value
    raise wrong(where, value, "text, a whole number, a truth value, None or a tuple of them")


def _take_token(json: Json, where: str) -> Hashable:
    match json:
        case str() | bool():
            return json
        case int() | {"#bigint": _}:
            return _take_number(json, where)
        case list(items) | {"#tup": list(items)}:
            return tuple([_take_token(each, where) for each in items])
    if json in NONE:
        return None
    raise wrong(where, json, "text, a whole number, a truth value, Nothing or a tuple of them")


NUMBER = Kind(_put_number, _take_number)
TEXT = _exactly(str, "text")
TRUTH = _exactly(bool, "true or false")
TOKEN = Kind(_put_token, _take_token)  # tokens and namespaces; 1 and True stay apart in a file


def one_of(*words: str) -> Kind:
    """One of these words."""

    def same(value: Any, where: str) -> Any:
        if type(value) is not str or value not in words:
            raise wrong(where, value, f"one of {', '.join(words)}")
        return value

    return Kind(same, same)


def optional(kind: Kind) -> Kind:
    """A value of this kind, or None."""
    return Kind(
        lambda value, where: NOTHING if value is None else kind.put(value, where),
        lambda json, where: None if json in NONE else kind.take(json, where),
    )


# ---- many values


def _listed(values: Iterable[Any], where: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise wrong(where, values, "a list") from None


def _items(json: Json, where: str) -> list[Json]:
    match json:
        case list(items) | {"#tup": list(items)} | {"#set": list(items)}:
            return items
    raise wrong(where, json, "a tuple")


def tuple_of(kind: Kind) -> Kind:
    """Any number of values of one kind, in order."""
    return Kind(
        lambda values, where: {"#tup": [kind.put(each, where) for each in _listed(values, where)]},
        lambda json, where: tuple([kind.take(each, where) for each in _items(json, where)]),
    )


def tuple_with(*kinds: Kind) -> Kind:
    """As many values as kinds, each of its kind."""

    def take(json: Json, where: str) -> tuple[Any, ...]:
        items = _items(json, where)
        if len(items) != len(kinds):
            raise wrong(where, items, f"a tuple of {len(kinds)}")
        return tuple([kind.take(each, where) for kind, each in zip(kinds, items, strict=True)])

    return Kind(
        lambda values, where: {"#tup": [kind.put(each, where) for kind, each in zip(kinds, values, strict=True)]},
        take,
    )


def set_of(kind: Kind) -> Kind:
    """A set; where a value stands twice, which a set would hide, a tuple."""

    def put(values: Any, where: str) -> Json:
        listed = _listed(values, where)
        pairs = sorted(zip(listed, [kind.put(each, where) for each in listed], strict=True), key=lambda pair: pair[0])
        items = [json for _, json in pairs]
        return {"#tup" if any(items[at] == items[at - 1] for at in range(1, len(items))) else "#set": items}

    def take(json: Json, where: str) -> frozenset[Any] | tuple[Any, ...]:
        items = tuple([kind.take(each, where) for each in _items(json, where)])
        return items if len(set(items)) < len(items) else frozenset(items)

    return Kind(put, take)


def _pairs(json: Json, key: Kind) -> list[Any] | None:
    """Of a map, its keys with their values; None: it is none. In plain JSON a number that is a key is text."""
    match json:
        case {"#map": list(pairs)}:
            return pairs if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs) else None
        case dict():
            read = (lambda name: {"#bigint": name}) if key is NUMBER else str
            return [[read(name), each] for name, each in json.items()]
    return None


def map_of(key: Kind, value: Kind) -> Kind:
    """A mapping."""

    def put(mapping: Any, where: str) -> Json:
        if not hasattr(mapping, "items"):
            raise wrong(where, mapping, "a mapping")
        pairs = [[key.put(name, where), value.put(each, f"{where}[{name!r}]")] for name, each in mapping.items()]
        return {"#map": pairs}

    def take(json: Json, where: str) -> dict[Any, Any]:
        pairs = _pairs(json, key)
        found = {}
        for name, each in pairs or ():
            taken = key.take(name, where)
            found[taken] = value.take(each, f"{where}[{taken!r}]")
        if pairs is None or len(found) < len(pairs):
            raise wrong(where, json, "a map, no key twice")
        return found

    return Kind(put, take)


# ---- records and variants


def record_of(make: Callable[..., Any], /, *, full: bool = False, **kinds: Kind) -> Kind:
    """A dataclass or named tuple, field by field. full: those that have their default are written too."""
    defaults = {name: kinds[name].put(value, name) for name, value in _defaults(make).items() if name in kinds}

    def put(value: Any, where: str) -> Json:
        record = {}
        for name, kind in kinds.items():
            if not hasattr(value, name):
                raise wrong(where, value, f"a {make.__name__}")
            json = kind.put(getattr(value, name), f"{where}.{name}")
            if full or name not in defaults or json != defaults[name]:
                record[name] = json
        return record

    def take(json: Json, where: str) -> Any:
        record = as_object(json, where)
        for name in kinds:
            if name not in record and name not in defaults:
                raise WrongInput(f"{where} has no field {name}, expected one")
        found = {name: kind.take(record[name], f"{where}.{name}") for name, kind in kinds.items() if name in record}
        try:
            return make(**found)
        except WrongInput as error:
            raise WrongInput(f"{where}: {error}") from None

    return Kind(put, take)


def _defaults(make: Any) -> dict[str, Any]:
    if not is_dataclass(make):
        return dict(make._field_defaults)
    found = {each.name: each.default for each in fields(make) if each.default is not MISSING}
    made = {each.name: each.default_factory() for each in fields(make) if each.default_factory is not MISSING}
    return found | made


def variant_of(**kinds: Kind) -> Kind:
    """One of several classes, told apart by their names."""

    def put(value: Any, where: str) -> Json:
        tag = next((base.__name__ for base in type(value).__mro__ if base.__name__ in kinds), None)
        if tag is None:
            raise wrong(where, value, f"one of {', '.join(kinds)}")
        return {"tag": tag, "value": kinds[tag].put(value, where)}

    def take(json: Json, where: str) -> Any:
        match json:
            case {"tag": str(tag), "value": value} if tag in kinds:
                return kinds[tag].take(value, where)
        raise wrong(where, json, f"a variant, tagged one of {', '.join(kinds)}")

    return Kind(put, take)


# ---- plain JSON


def plain(json: Json) -> Json:
    """The same value in plain JSON, as people and other languages write it; a variant stays one."""
    if not isinstance(json, dict):
        return json
    if "#bigint" in json:
        return int(json["#bigint"])
    if "#tup" in json or "#set" in json:
        return [plain(each) for each in json["#tup" if "#tup" in json else "#set"]]
    if "#map" in json:
        return {plain(name): plain(each) for name, each in json["#map"]}
    return None if json == NOTHING else {name: plain(each) for name, each in json.items()}
