"""One request of a trace, whatever the format: what the readers make, and what the driver takes."""

from __future__ import annotations

from typing import NamedTuple

ALIKE = 1_000_000  # tokens between the answers of two requests that do not answer alike


class TraceRequest(NamedTuple):
    """One request, after scaling. Lengths in tokens.

    output_len: of its answer, the first token included. number: its place in the file, which decides how it answers.
    session: whose turn it is; None: it is a plain request. keep: how much of its prompt and answer the session's next
    turn begins with; 0: it is the last turn. after: the requests that must have ended before it comes.
    """

    req: str
    prompt: tuple[int, ...]
    output_len: int
    number: int = 0
    session: str | None = None
    keep: int = 0
    after: tuple[str, ...] = ()

    @property
    def samples(self) -> int:
        """How many tokens it samples: a prefill alone samples one."""
        return max(1, self.output_len)

    @property
    def positions(self) -> int:
        """How many positions need KV before it ends: all but that of the token sampled last."""
        return len(self.prompt) + self.samples - 1


def answer(number: int, first: int, upto: int) -> tuple[int, ...]:
    """Tokens [first, upto) of the answer of the request with this number: a fixed function, never a token of another
    sort. Every second request gives one common answer; else no two of them would ever decode a page of the same key."""
    start = -1 - number % 2 * number * ALIKE
    return tuple(range(start - first, start - upto, -1))
