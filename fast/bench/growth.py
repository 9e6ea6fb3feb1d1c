"""The cases of ours alone: what a call costs when pool, context or tree is larger, and what its double-free check
costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kvledger.fast.bench.cases import ROUNDS, WARM, Measured
from kvledger.fast.bench.measure import Clock, growth, race, share
from kvledger.fast.bench.ours import Ours
from kvledger.fast.bench.pools import W1, Load, decode, release
from kvledger.fast.bench.trees import evict, match
from kvledger.fast.bench.work import Call, Side, do
from kvledger.fast.pages import FreeStack
from kvledger.fast.plan import Pages
from kvledger.spec.world import World

Make: TypeAlias = Callable[[World], Side]
AnySide = TypeVar("AnySide", bound=Side)


class Take(NamedTuple):
    """So many pages off the free list."""

    pages: int


class Stack:
    """A free list by itself; what was taken goes back when it is noted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pages = FreeStack(world.pages, "page")

    def prepare(self, op: Take) -> Call:
        return partial(self.pages.take, op.pages)

    def note(self, op: Take, pages: Pages) -> None:
        self.pages.give(pages)


def take(pages: int) -> Load:
    """64 pages, a hundred times."""
    rounds: Iterator[Sequence[Any]] = iter([[Take(64)] * 100] * ROUNDS)
    return Load(World(1, 16, pages, 16), (), rounds, (Take,), 100)


class Unchecked(FreeStack):
    """Nobody asks whether a page is taken, and nobody notes it."""

    def check(self, numbers: Any) -> None:
        """Anything may go back."""

    def take(self, count: int) -> Pages:
        numbers = self.stack[self.head : self.head + count].copy()
        self.head += count
        return numbers

    def give(self, numbers: Any) -> None:
        head = self.head - len(numbers)
        self.stack[head : self.head] = numbers
        self.head = head


def unchecked(world: World) -> Ours:
    """Our ledger with such a list of pages."""
    ours = Ours(world)
    ours.ledger.pages = Unchecked(world.pages, "page")
    return ours


# The small load and the large one; and fewer calls for a contender of which all of them would take too long.
SIZES: dict[str, tuple[Callable[[], Load], Callable[[], Load]]] = {
    "G1": (partial(release, 10_000, 32, together=False), partial(release, 1_000_000, 32, together=False)),
    "G2": (partial(take, 10_000), partial(take, 1_000_000)),
    "G3": (partial(decode, 256, 16, 32, 2048, 20_000), partial(decode, 256, 16, 32, 32_768, 2_000_000)),
    "G4": (partial(evict, 1_000), partial(evict, 100_000)),
    "G5": (partial(match, 1024, 100, 32, 6), partial(match, 1024, 10_000, 32, 6)),
}
FEWER = {"G4": (partial(evict, 1_000, 2, WARM + 3), partial(evict, 100_000, 2, WARM + 3))}


def ready(make: Callable[[World], AnySide], load: Load) -> AnySide:
    """A contender that has done what comes before the clock starts."""
    side = make(load.world)
    for op in load.before:
        do(side, op)
    return side


def grown(loads: tuple[Callable[[], Load], Callable[[], Load]], make: Make, clock: Clock) -> Measured:
    """The same contender at two sizes, in turns."""
    small, large = (load() for load in loads)
    sides = [ready(make, small), ready(make, large)]
    return growth(race(sides, zip(small.rounds, large.rounds, strict=True), small.timed, clock), small.calls)


def measure(id: str, theirs: Make | None, clock: Clock) -> Measured:
    """One of G1 to G5, with the contender's own growth beside it; or G8."""
    if id == "G8":
        load = W1()
        sides = [ready(unchecked, load), ready(Ours, load)]
        return share(race(sides, ((ops, ops) for ops in load.rounds), load.timed, clock), load.calls)
    found = grown(SIZES[id], Stack if id == "G2" else Ours, clock)
    if theirs is None or id == "G2":
        return found
    return replace(found, beside=grown(FEWER.get(id, SIZES[id]), theirs, clock).value)
