"""A request as the driver sees it: how far it has come. The driver holds no page and no row."""

from __future__ import annotations

from dataclasses import dataclass

from kvledger.spec.world import Token
from kvledger.tests.replay.faults import Fate
from kvledger.tests.replay.request import TraceRequest, answer


@dataclass(eq=False, slots=True)
class Live:
    """Lengths in tokens. place: when it comes, among all. awaits: how many must end before. turn: whether it is one for
    this backend. lent: it goes on with what its session keeps, since it was let in. protected: as far as is known."""

    trace: TraceRequest
    place: int
    fate: Fate
    turn: bool
    awaits: int = 0
    submitted: bool = False
    closing: bool = False
    lent: bool = False
    sampled: int = 0
    committed: int = 0
    protected: int = 0

    @property
    def length(self) -> int:
        """Tokens, the pending one included."""
        return len(self.trace.prompt) + self.sampled

    @property
    def tokens(self) -> tuple[int, ...]:
        """Those tokens."""
        return self.trace.prompt + answer(self.trace.number, 0, self.sampled)

    @property
    def caught_up(self) -> bool:
        """Whether it runs and only its last token is without KV."""
        return 0 < self.committed == self.length - 1

    @property
    def left(self) -> int:
        """How many tokens of its answer are still to be sampled."""
        return self.trace.samples - self.sampled

    def next_tokens(self, most: int) -> tuple[Token, ...]:
        """So many of these, or all that are left."""
        return answer(self.trace.number, self.sampled, self.sampled + min(most, self.left))

    def give_back(self) -> None:
        """It holds nothing any more."""
        self.committed = self.protected = 0
        self.lent = False

    def forget(self) -> None:
        """It is not known to the backend any more."""
        self.give_back()
        self.submitted = self.closing = False
