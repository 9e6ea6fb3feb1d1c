"""A small serving loop over a block manager that knows nothing of kvledger: what `kvledger record` records.

It shows what a developer adds to a loop of his own: the lines with `self.note`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from kvledger.spec.actions import Action, Decode, Extend, Finish, Retract, Submit
from kvledger.spec.answer import Freed, Reply
from kvledger.spec.world import Declaration, Slot, World
from kvledger.tests.engines.block_manager import BlockManager, NoBlocks

BLOCK, BLOCKS, WIDTH = 16, 64, 512
RUNNING, ANSWER = 8, 24
WORLD = World(RUNNING, WIDTH, BLOCKS, BLOCK, Declaration("block_manager", "1", frozenset({"PAGED", "CHUNKED"})))


class Server:
    """A block manager and two queues. note: is told each action with what came of it. actions: how many so far."""

    def __init__(self, seed: int, note: Callable[[Action, Reply], object]) -> None:
        self.random, self.note = Random(seed), note
        self.manager = BlockManager(BLOCKS, BLOCK)
        self.waiting: deque[tuple[str, int]] = deque()
        self.running: dict[str, int] = {}  # how many tokens are to come
        self.arrived = self.actions = 0

    def serve(self, actions: int) -> None:
        """So many calls, and then on until everybody has ended."""
        while self.actions < actions or self.waiting or self.running:
            if self.actions < actions and len(self.waiting) < RUNNING:
                self.arrive()
            if self.waiting and len(self.running) < RUNNING:
                self.prefill()
            for name in list(self.running):
                if name in self.running:
                    self.decode(name)

    def arrive(self) -> None:
        """A request of its own: nothing is shared here."""
        self.arrived += 1
        name, length = f"r{self.arrived}", self.random.randrange(8, 160)
        self.manager.add(name, length)
        self.waiting.append((name, ANSWER))
        self.act(Submit(name, tuple(f"{name} {at}" for at in range(length)), 0), Reply())

    def prefill(self) -> None:
        """Who has waited longest gets places for all its tokens, if there are any."""
        name, left = self.waiting[0]
        length = self.manager.sequences[name].length
        try:
            places = self.manager.fill(name, length)
        except NoBlocks:
            return
        self.waiting.popleft()
        self.running[name] = left - 1
        self.manager.append(name)
        self.act(Extend(((name, length, left),)), Reply(matched=[[]], slots=[slots(places)]))

    def decode(self, name: str) -> None:
        """One token more; when there is no place for it, the last one gives way."""
        seq = self.manager.sequences[name]
        try:
            places = self.manager.fill(name, seq.filled + 1)
        except NoBlocks:
            last = next(reversed(self.running))
            self.waiting.appendleft((last, self.running.pop(last)))
            self.act(Retract(last), Reply(freed=pages(self.manager.preempt(last))))
            return
        self.manager.append(name)
        self.running[name] -= 1
        self.act(Decode(((name, self.running[name]),)), Reply(slots=[slots(places)]))
        if not self.running[name]:
            del self.running[name]
            filled = seq.filled
            self.act(Finish(name, filled, False), Reply(freed=pages(self.manager.remove(name))))

    def act(self, action: Action, reply: Reply) -> None:
        self.actions += 1
        self.note(action, reply)


def slots(places: list[tuple[int, int]]) -> list[Slot]:
    """kvledger's page 0 is padding, so a block's number is one more here."""
    return [(index + 1) * BLOCK + offset for index, offset in places]


def pages(indices: list[int]) -> Freed:
    """The blocks that went back."""
    return Freed(tuple(index + 1 for index in indices))
