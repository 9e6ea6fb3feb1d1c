"""What a run of the driver came to, counted as it goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kvledger.spec.actions import Action, Decode, Extend
from kvledger.spec.answer import Granted, Refused


@dataclass
class Summary:
    """calls: those granted, by kind; members: the same, but one for each member of a batch; refusals: by what was
    short. evicted in pages. prompt_tokens: of the requests that have ended. matched_tokens: of every start, restarts
    included; kept_tokens: the same, of turns that went on with their session's record. told: what else happened, in
    words, with how often."""

    calls: Counter[str] = field(default_factory=Counter)
    members: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    evicted: int = 0
    prompt_tokens: int = 0
    matched_tokens: int = 0
    kept_tokens: int = 0
    peak_running: int = 0

    @property
    def request_actions(self) -> int:
        """Granted actions, one for each member of a batch."""
        return self.members.total()

    def count(self, action: Action, answer: Granted | Refused) -> None:
        """Takes one call and its answer in."""
        self.evicted += len(answer.evicted)
        if isinstance(answer, Refused):
            self.refusals[str(answer.short)] += 1
        else:
            kind = type(action).__name__.lower()
            self.calls[kind] += 1
            self.members[kind] += len(action.batch) if isinstance(action, Extend | Decode) else 1

    def figures(self, peak_pages: int) -> dict[str, int]:
        """Every figure with its name; of what is not in every run, those that occur."""
        occurring = {
            "tokens kept by sessions": self.kept_tokens,
            "sessions closed": self.calls["close"],
            **dict(sorted(self.told.items())),
            **{f"refusals, short of {short}": times for short, times in sorted(self.refusals.items())},
        }
        return {
            "requests finished": self.calls["finish"],
            "request actions": self.request_actions,
            "calls": self.calls.total(),
            "tokens prompted": self.prompt_tokens,
            "tokens matched": self.matched_tokens,
            "tokens decoded": self.members["decode"] + self.calls["commit"] + self.told["tokens drafted, accepted"],
            "prompt chunks": self.members["extend"],
            "checkpoints": self.calls["checkpoint"],
            "pages evicted": self.evicted,
            "retractions": self.calls["retract"],
            **{name: value for name, value in occurring.items() if value},
            "peak running": self.peak_running,
            "peak pages": peak_pages,
        }
