"""Reads the Mooncake trace format: one request a line, lengths and prefix-block ids, no text.

    {"timestamp": 3000, "input_length": 1200, "output_length": 52, "hash_ids": [0, 46, 47]}

timestamp: ms since the start, never decreasing. Lengths in tokens. hash_ids: one id for each 512 tokens of the
prompt, the last block perhaps in part; they form a trie (trie.py).

Sessions are not said. Where they are asked for, a request goes on from an earlier one if it has all full blocks of
that, two at least, and room for its answer; of several from the one with the most blocks, then from the latest. Of
an earlier prompt a last block that is filled in part counts for nothing: the answer fills it, and it gets another id.

Traces of this format: kvcache-ai/Mooncake, FAST25-release/traces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from kvledger.spec.world import WrongInput
from kvledger.tests.replay.lines import Line, Object, at, fields, ids, number
from kvledger.tests.replay.trie import Trie
from kvledger.tests.replay.weave import Call

BLOCK = 512  # tokens a block in the file


class Recorded(NamedTuple):
    """One line of the file, as it stands there."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]


def calls(lines: Iterable[Line], most: int, infer: bool) -> list[Call]:
    """The first `most` requests, or all there are. infer: with whom each goes on from. Raises WrongInput, one line,
    for a line that is not of this format; lines that are not asked for are not looked at."""
    made: list[Call] = []
    trie, earlier, last = Trie(), Earlier(), 0
    for place, found in islice(lines, most):
        with at(place):
            recorded = _recorded(found)
            if recorded.timestamp < last:
                raise WrongInput(f"timestamp {recorded.timestamp}, expected {last} or later, as in the line before")
            trie.join(recorded.hash_ids)
        last = recorded.timestamp
        parent = earlier.parent(recorded) if infer else None
        earlier.add(recorded)
        made.append(Call(recorded.hash_ids, recorded.input_length, recorded.output_length, parent))
    return made


class Earlier:
    """The requests so far, by their last full block: with the trie that says all of their full blocks."""

    def __init__(self) -> None:
        self.count = 0
        self.ending: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # id -> number, prompt and answer

    def add(self, recorded: Recorded) -> None:
        """One more."""
        full = recorded.input_length // BLOCK
        if full >= 2:
            said = recorded.input_length + recorded.output_length
            self.ending[recorded.hash_ids[full - 1]].append((self.count, said))
        self.count += 1

    def parent(self, recorded: Recorded) -> int | None:
        """The number of the one from which this one goes on."""
        for ident in reversed(recorded.hash_ids[1:]):
            for earlier, said in reversed(self.ending.get(ident, ())):
                if said <= recorded.input_length:
                    return earlier
        return None


def _recorded(found: Object) -> Recorded:
    """One line, each field checked by itself."""
    fields(found, Recorded._fields)
    length = number(found, "input_length", 1)
    recorded = Recorded(number(found, "timestamp", 0), length, number(found, "output_length", 0), ids(found))
    blocks = -(-length // BLOCK)
    if len(recorded.hash_ids) != blocks:
        raise WrongInput(f"{len(recorded.hash_ids)} hash_ids, expected {blocks} for input_length {length}")
    return recorded
