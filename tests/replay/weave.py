"""From the calls of a file to requests with tokens: who shares a block shares its tokens, and who goes on from another
begins with that one's prompt and answer.

A file says no text, so tokens are made up: a block that was not seen before repeats what its prompt goes on from, as
far as that reaches, and is new beyond. One that was seen has its tokens already. Where these two disagree the call
does not go on from that one after all: what it shares with it is what their blocks share.

The first call that goes on from another is the next turn of its session. A second one is a fork: its session's record
is taken, so it is a plain request, or the first turn of a session of its own, and shares the prefix through the cache.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import count, islice
from typing import NamedTuple

from kvledger.tests.replay.request import TraceRequest, answer


class Call(NamedTuple):
    """One request, as a file says it: lengths in its tokens. blocks: the name of each block of the prompt, the last one
    perhaps filled in part. parent: the number of the call from which it goes on. after: the numbers of those that must
    have ended before it comes, beside the parent."""

    blocks: Sequence[Hashable]
    input_len: int
    output_len: int
    parent: int | None = None
    after: tuple[int, ...] = ()


def weave(calls: Sequence[Call], block: int, block_tokens: int) -> list[TraceRequest]:
    """A request for each call, with `block_tokens` tokens for each block of `block`.

    Lengths become ceil(n * block_tokens / block), so every prompt keeps its number of blocks; a prompt that has room
    for its parent's answer and a token more has it after rounding, too.
    """
    made: list[TraceRequest] = []
    texts, next_turn = Texts(block_tokens), dict[int, int]()

    def scaled(length: int) -> int:
        return -(-length * block_tokens // block)

    for number, call in enumerate(calls):
        length, parent, begin = scaled(call.input_len), call.parent, tuple[int, ...]()
        if parent is not None:
            before, recorded = made[parent], calls[parent]
            prompt = len(before.prompt)
            whole = call.input_len >= recorded.input_len + recorded.output_len
            length = max(length, prompt + before.samples * whole + 1)
            begin = before.prompt + answer(before.number, 0, min(before.samples, length - 1 - prompt))
            if not texts.agree(call.blocks, length, begin):
                length, parent, begin = scaled(call.input_len), None, ()
        session = None
        if parent is not None and parent not in next_turn:
            next_turn[parent] = number
            session = made[parent].session or f"s{parent}"
            made[parent] = made[parent]._replace(session=session, keep=len(begin))
        after = call.after if call.parent is None else (call.parent, *call.after)
        made.append(
            TraceRequest(
                f"r{number}",
                texts.prompt(call.blocks, length, begin),
                scaled(call.output_len),
                number,
                session,
                after=tuple(f"r{other}" for other in dict.fromkeys(after)),
            )
        )
    return made


class Texts:
    """The tokens of every block so far."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens, self.known, self.fresh = block_tokens, dict[Hashable, tuple[int, ...]](), count()

    def agree(self, blocks: Sequence[Hashable], length: int, begin: tuple[int, ...]) -> bool:
        """Whether a prompt of these blocks can begin so."""
        for name, start, end in self.spans(blocks, length):
            known = self.known.get(name, ())[: end - start]
            if known[: max(0, len(begin) - start)] != begin[start : start + len(known)]:
                return False
        return True

    def prompt(self, blocks: Sequence[Hashable], length: int, begin: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens of a prompt that begins so, as far as its blocks agree."""
        tokens: list[int] = []
        for name, start, end in self.spans(blocks, length):
            piece = self.known.get(name, ())[: end - start]
            if start + len(piece) < end:
                piece += begin[start + len(piece) : end]
                piece += tuple(islice(self.fresh, end - start - len(piece)))
                self.known[name] = piece
            tokens += piece
        return tuple(tokens)

    def spans(self, blocks: Sequence[Hashable], length: int) -> Iterator[tuple[Hashable, int, int]]:
        """Each block, where it starts and where it ends; the last one where the prompt does."""
        for ordinal, name in enumerate(blocks, 1):
            start = (ordinal - 1) * self.block_tokens
            yield name, start, length if ordinal == len(blocks) else start + self.block_tokens
