"""Reads the WEKA format: one session of a coding agent a line, with its calls, and the sub-agents among them.

    {"block_size": 64, "requests": [
        {"type": "n", "in": 15161, "out": 291, "hash_ids": [1, 2, ..., 236]},
        {"type": "subagent", "requests": [{"type": "s", "in": 9300, "out": 80, "hash_ids": [300, ...]}, ...]},
        {"type": "s", "in": 15800, "out": 97, "hash_ids": [1, 2, ..., 236, 237, ...]}]}

type: n plain, s streaming, subagent: calls of its own, while the parent waits. in, out: tokens. hash_ids: one id for
each full block of the prompt; they form a trie inside their line and mean nothing outside of it. Other fields are
not looked at.

A call comes when the one before it, and the sub-agents between them, have ended. It goes on from that one if it has
all of its blocks and more tokens; else the prompt was edited, and the conversation begins anew. An answer that does
not fit into the next prompt (thinking that was dropped) goes on as far as it fits.

Traces of this format: callanjfox/kv-cache-tester, traces.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from kvledger.spec.world import WrongInput
from kvledger.tests.replay.lines import Line, Object, as_object, at, fields, ids, number
from kvledger.tests.replay.trie import Trie
from kvledger.tests.replay.weave import Call

BLOCK = 64  # tokens a block in the file
TYPES = ("n", "s", "subagent")


def calls(lines: Iterable[Line], most: int, infer: bool) -> list[Call]:
    """The first `most` calls, or all there are, session after session. infer: there is nothing to infer. Raises
    WrongInput, one line, for a line that is not of this format; lines that are not asked for are not looked at."""
    made: list[Call] = []
    for place, found in lines:
        with at(place):
            fields(found, ("block_size", "requests"))
            if number(found, "block_size", 1) != BLOCK:
                raise WrongInput(f"block_size {found['block_size']}, expected {BLOCK}")
            try:
                Conversation(place, made).walk(found, ())
            except RecursionError:
                raise WrongInput("sub-agents inside sub-agents without end, expected a few levels") from None
        if len(made) >= most:
            break
    return made[:most]


class Conversation:
    """One line on its way into calls. made: those of all lines so far."""

    def __init__(self, line: str, made: list[Call]) -> None:
        self.line, self.made, self.trie = line, made, Trie()

    def walk(self, found: Object, after: tuple[int, ...]) -> tuple[int, ...]:
        """Adds the calls under `requests`; the first of them comes after these. Whoever ends last."""
        items = found["requests"]
        if not isinstance(items, list):
            raise WrongInput(f"requests {reprlib.repr(items)}, expected a list")
        last: int | None = None
        helpers: tuple[int, ...] = ()  # the last calls of the sub-agents since
        for place, item in enumerate(items, 1):
            with at(f"request {place}"):
                kind = self.kind(as_object(item))
                if kind == "subagent":
                    helpers += self.walk(item, after)
                else:
                    last = self.add(item, last, after + helpers)
                    after, helpers = (last,), ()
        return after + helpers

    def kind(self, item: Object) -> object:
        """What sort of request this is, with the fields of its sort."""
        fields(item, ("type",))
        if item["type"] not in TYPES:
            raise WrongInput(f"type {reprlib.repr(item['type'])}, expected one of {', '.join(TYPES)}")
        fields(item, ("type", "requests") if item["type"] == "subagent" else ("type", "in", "out", "hash_ids"))
        return item["type"]

    def add(self, item: Object, last: int | None, after: tuple[int, ...]) -> int:
        """One call more, and its number. last: the one before it in its conversation."""
        length, blocks = number(item, "in", 1), ids(item)
        if len(blocks) != length // BLOCK:
            raise WrongInput(f"{len(blocks)} hash_ids, expected {length // BLOCK} for in {length}")
        self.trie.join(blocks)
        names: list[object] = [(self.line, ident) for ident in blocks]
        if length % BLOCK:  # a partial block has no id: it is one with that of another prompt if all else is
            names.append((self.line, names[-1] if names else None, length))
        before = None if last is None else self.made[last]
        full = 0 if before is None else before.input_len // BLOCK
        goes_on = before is not None and names[:full] == before.blocks[:full] and length > before.input_len
        self.made.append(Call(names, length, number(item, "out", 0), last if goes_on else None, after))
        return len(self.made) - 1
