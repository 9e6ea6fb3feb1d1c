"""What a contender is asked to do, in words that fit all of them, and what it offers to be timed.

Requests have names, small whole numbers, each used once. An operation is prepared, which is not timed; then called,
which is; then noted, which is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from kvledger.spec.world import World

Names: TypeAlias = npt.NDArray[np.int64]
Tokens: TypeAlias = npt.NDArray[np.int32]
Slots: TypeAlias = npt.NDArray[np.int64]
MOST_NAMES = 1 << 18


class Extend(NamedTuple):
    """All of these start. keys: what each may find in the cache; () is nothing for all."""

    names: Names
    uptos: Names
    keys: Sequence[Tokens] = ()


class Chunk(NamedTuple):
    """All of these have started, and go on prefilling."""

    names: Names
    uptos: Names


class Decode(NamedTuple):
    """One more position for each."""

    names: Names


class Turn(NamedTuple):
    """The same, where each needs a page first: a kind of its own, so that it need not be timed."""

    names: Names


class Release(NamedTuple):
    """They end, and give back what is theirs."""

    names: Names


class Publish(NamedTuple):
    """The whole pages of [0, upto) of a running request go to the cache. tokens: at least so many."""

    name: int
    tokens: Tokens
    upto: int


class Insert(NamedTuple):
    """A prefix enters the tree by itself, with fresh pages. Whole pages."""

    tokens: Tokens


class Match(NamedTuple):
    """What the tree has of it."""

    tokens: Tokens


class Evict(NamedTuple):
    """So many pages leave the tree, at least."""

    pages: int


Op: TypeAlias = Extend | Chunk | Decode | Release | Publish | Insert | Match | Evict | Turn
Call: TypeAlias = Callable[[], Any]


class Side(Protocol):
    """A contender."""

    world: World

    def prepare(self, op: Any, /) -> Call:
        """Everything that can be had before: what is left is the call."""
        ...

    def note(self, op: Any, result: Any, /) -> None:
        """What the contender answered, for the operations to come."""
        ...


class Shown(Side, Protocol):
    """A contender that lets one see whether it does what another does."""

    def slots(self, op: Any, result: Any, /) -> Slots | None:
        """The slots that a call answered with, or the slots of the pages that it found; None: it does not say."""
        ...

    def row(self, name: int, /) -> Slots:
        """The slots of a running request, in order."""
        ...

    def running(self) -> list[int]:
        """The names of all requests that run."""
        ...

    def free(self) -> Slots:
        """The free pages, the next to go first."""
        ...


def do(side: Side, op: Op) -> Any:
    """One operation, untimed."""
    result = side.prepare(op)()
    side.note(op, result)
    return result
