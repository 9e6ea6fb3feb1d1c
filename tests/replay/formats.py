"""The formats of recorded traces, told apart by what their first line says; a file of any of them becomes requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from sys import maxsize
from typing import NamedTuple

from kvledger.spec.world import WrongInput
from kvledger.tests.replay import mooncake, weka
from kvledger.tests.replay.lines import Line, lines
from kvledger.tests.replay.request import TraceRequest
from kvledger.tests.replay.weave import Call, weave

SCALE = 32  # how many tokens of a file one token stands for, if nobody says


class Format(NamedTuple):
    """sign: the field of its lines by which it is known. block: tokens of one of its blocks. requests: how many are
    taken if nobody says. sessions: whether it says who goes on from whom."""

    name: str
    sign: str
    block: int
    requests: int
    sessions: bool
    calls: Callable[[Iterable[Line], int, bool], list[Call]]


FORMATS = (
    Format("Mooncake", "hash_ids", mooncake.BLOCK, 300, False, mooncake.calls),
    Format("WEKA", "requests", weka.BLOCK, maxsize, True, weka.calls),
)


def read(
    path: str, requests: int | None = None, block_tokens: int | None = None, sessions: bool | None = None
) -> list[TraceRequest]:
    """The first `requests` requests of the file, or all there are, with `block_tokens` tokens for each of its blocks.

    sessions: whether conversations are sessions, inferred where the file does not say them; else each turn is a plain
    request. None, each: what the format has by default. Raises WrongInput, one line, for a file that cannot be read or
    is of no format known here, and for sizes out of range.
    """
    for name, value in (("requests", requests), ("tokens a block", block_tokens)):
        if value is not None and value < 1:
            raise WrongInput(f"{value} {name}: expected a whole number >= 1")
    rest = lines(path)
    first = next(rest)
    known = next((each for each in FORMATS if each.sign in first.found), None)
    if known is None:
        signs = " or ".join(f"{each.sign} ({each.name})" for each in FORMATS)
        raise WrongInput(f"{first.place}: no field by which a format is known, expected {signs}")
    if block_tokens is not None and block_tokens > known.block:
        raise WrongInput(
            f"{block_tokens} tokens a block: expected at most {known.block}, which is all that a block of {path} has"
        )
    with_sessions = known.sessions if sessions is None else sessions
    most = known.requests if requests is None else requests
    calls = known.calls(chain([first], rest), most, with_sessions)
    if not calls:
        raise WrongInput(f"{path}: no request in it, expected one at least")
    found = weave(calls, known.block, known.block // SCALE if block_tokens is None else block_tokens)
    return found if with_sessions else [request._replace(session=None, keep=0) for request in found]
