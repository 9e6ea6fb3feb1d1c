"""Reads the Mooncake trace format: one JSON object a line, lengths and prefix-block ids, no text.

    {"timestamp": 3000, "input_length": 1200, "output_length": 52, "hash_ids": [0, 46, 47]}

timestamp: ms since the start, never decreasing. Lengths in tokens. hash_ids: one id for each 512 tokens of the
prompt, the last block perhaps in part. An id names its block and all before it, so it has one predecessor wherever
it stands, and the ids form a trie. The format gives no text, so tokens are made up: one fixed int for each place of
each id; who shares an id shares its tokens. Answers carry no ids: a later turn shows what it shares with one only by
its own blocks.

Traces of this format: kvcache-ai/Mooncake, FAST25-release/traces.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

from kvledger.spec.world import WrongInput

BLOCK = 512  # tokens a block in the file
Parents: TypeAlias = dict[int, int | None]  # id -> the id before it; None: it comes first


class TraceRequest(NamedTuple):
    """One request, after scaling. output_len in tokens, the first one included."""

    req: str
    prompt: tuple[int, ...]
    output_len: int


class Line(NamedTuple):
    """One line of the file, as it stands there."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]


def read(path: str, requests: int, block_tokens: int) -> list[TraceRequest]:
    """The first `requests` requests of the file, or all there are, with `block_tokens` tokens for each block of 512.

    Lengths become ceil(n * block_tokens / 512), so every prompt keeps its number of blocks. Raises WrongInput, one
    line, for a file that cannot be read or a line that is not of this format; lines that are not asked for are not
    looked at.
    """
    for name, value in (("requests", requests), ("tokens a block", block_tokens)):
        if value < 1:
            raise WrongInput(f"{value} {name}: expected a whole number >= 1")
    if block_tokens > BLOCK:
        raise WrongInput(f"{block_tokens} tokens a block: expected at most {BLOCK}, which is all that a block has")
    found = [
        TraceRequest(
            f"r{number}",
            tuple(_tokens(line.hash_ids, _scaled(line.input_length, block_tokens), block_tokens)),
            _scaled(line.output_length, block_tokens),
        )
        for number, line in enumerate(_lines(path, requests))
    ]
    if not found:
        raise WrongInput(f"{path}: an empty file, expected one JSON object a line")
    return found


def _lines(path: str, most: int) -> Iterator[Line]:
    parents: Parents = {}
    last = 0
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(islice(file, most), 1):
                try:
                    line = _parsed(raw)
                    if line.timestamp < last:
                        raise WrongInput(f"timestamp {line.timestamp}, expected {last} or later, as in the line before")
                    _join(parents, line.hash_ids)
                except WrongInput as wrong:
                    raise WrongInput(f"{path}:{number}: {wrong}") from None
                last = line.timestamp
                yield line
    except OSError as error:
        raise WrongInput(f"{path}: {error.strerror}, expected a file in the Mooncake format") from None


def _parsed(raw: bytes) -> Line:
    """One line, each field checked by itself."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise WrongInput(f"byte {error.start} is not UTF-8, expected a JSON object") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongInput(f"{reprlib.repr(text.strip())} is not JSON, expected an object") from None
    if not isinstance(found, dict):
        raise WrongInput(f"{reprlib.repr(found)}, expected a JSON object")
    for field in Line._fields:
        if field not in found:
            raise WrongInput(f"no field {field}, expected {', '.join(Line._fields)}")
    line = Line(*(found[field] for field in Line._fields))
    for field, least in (("timestamp", 0), ("input_length", 1), ("output_length", 0)):
        if not _whole(found[field], least):
            raise WrongInput(f"{field} {reprlib.repr(found[field])}, expected a whole number >= {least}")
    if not isinstance(line.hash_ids, list):
        raise WrongInput(f"hash_ids {reprlib.repr(line.hash_ids)}, expected a list of ids")
    for ident in line.hash_ids:
        if not _whole(ident, 0):
            raise WrongInput(f"hash_ids with {reprlib.repr(ident)}, expected whole numbers >= 0")
    blocks = -(-line.input_length // BLOCK)
    if len(line.hash_ids) != blocks:
        raise WrongInput(f"{len(line.hash_ids)} hash_ids, expected {blocks} for input_length {line.input_length}")
    return line


def _join(parents: Parents, ids: list[int]) -> None:
    """Adds one prompt's ids to the trie."""
    if len(set(ids)) != len(ids):
        twice = next(ident for place, ident in enumerate(ids) if ident in ids[:place])
        raise WrongInput(f"id {twice} stands twice in hash_ids, expected each once")
    before: int | None = None
    for ident in ids:
        known = parents.setdefault(ident, before)
        if known != before:
            raise WrongInput(f"id {ident} {_place(before)}, expected it {_place(known)}, as in an earlier line")
        before = ident


def _place(before: int | None) -> str:
    return "first" if before is None else f"after id {before}"


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _scaled(length: int, block_tokens: int) -> int:
    return -(-length * block_tokens // BLOCK)


def _tokens(ids: list[int], length: int, block_tokens: int) -> Iterator[int]:
    """Token = id and offset in one int."""
    return islice((ident * block_tokens + offset for ident in ids for offset in range(block_tokens)), length)
