"""A file with one JSON object a line, and its fields, each checked by itself: what the readers of all formats share."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from kvledger.spec.world import WrongInput

Object: TypeAlias = Mapping[str, object]


class Line(NamedTuple):
    """One object, and where it stands: FILE:LINE."""

    place: str
    found: Object


@contextmanager
def at(place: str) -> Iterator[None]:
    """What is wrong in here is wrong there."""
    try:
        yield
    except WrongInput as wrong:
        raise WrongInput(f"{place}: {wrong}") from None


def lines(path: str) -> Iterator[Line]:
    """The objects of a file, read as they are asked for. Raises WrongInput for a file that cannot be read or is empty,
    and for a line that is no JSON object."""
    place = path
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                if not raw.strip():
                    continue
                place = f"{path}:{number}"
                with at(place):
                    found = _object(raw)
                yield Line(place, found)
    except OSError as error:
        raise WrongInput(f"{path}: {error.strerror}, expected a trace of requests") from None
    if place == path:
        raise WrongInput(f"{path}: an empty file, expected one JSON object a line")


def _object(raw: bytes) -> Object:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise WrongInput(f"byte {error.start} is not UTF-8, expected a JSON object") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongInput(f"{reprlib.repr(text.strip())} is not JSON, expected an object") from None
    return as_object(found)


def as_object(found: object) -> Object:
    """Raises WrongInput for what is no object."""
    if not isinstance(found, dict):
        raise WrongInput(f"{reprlib.repr(found)}, expected a JSON object")
    return found


def fields(found: Object, names: Sequence[str]) -> None:
    """Raises WrongInput for the first of these fields that is not there."""
    for name in names:
        if name not in found:
            raise WrongInput(f"no field {name}, expected {', '.join(names)}")


def number(found: Object, field: str, least: int) -> int:
    """A whole number. Raises WrongInput."""
    value = found[field]
    if isinstance(value, int) and _whole(value, least):
        return value
    raise WrongInput(f"{field} {reprlib.repr(value)}, expected a whole number >= {least}")


def ids(found: Object) -> list[int]:
    """The field hash_ids: whole numbers. Raises WrongInput."""
    value = found["hash_ids"]
    if not isinstance(value, list):
        raise WrongInput(f"hash_ids {reprlib.repr(value)}, expected a list of ids")
    for ident in value:
        if not _whole(ident, 0):
            raise WrongInput(f"hash_ids with {reprlib.repr(ident)}, expected whole numbers >= 0")
    return value


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
