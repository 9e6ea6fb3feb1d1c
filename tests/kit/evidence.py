"""What a step lets one see: a rule that it could have broken counts only if something was looked at that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Set

from kvledger.spec.action import members_of
from kvledger.spec.actions import Abort, Action, Admit, Close, Extend, Finish, Flush, Retract
from kvledger.spec.actions.taking import trims
from kvledger.spec.backend import View
from kvledger.spec.ledger import Ledger
from kvledger.spec.rules import RULES, VIEW_PARTS


def gives_back(ledger: Ledger, act: Action) -> bool:
    """Whether this call gives anything back, or is about what a session keeps: what an answer then says was freed is
    evidence (FREED). ledger: before the call."""
    if isinstance(act, Extend | Admit):
        return bool(trims(ledger, members_of(ledger, act)).cut)
    ends = isinstance(act, Finish | Retract | Abort) and ledger.behind(act.req) in ledger.records
    return ends or isinstance(act, Close) or (isinstance(act, Flush) and bool(ledger.records))


def shown(view: View) -> set[str]:
    """The parts of a view that are there."""
    return {part for part in VIEW_PARTS if getattr(view, part.lower()) is not None}


def counting(arms: Iterable[str], looked_at: Set[str]) -> list[str]:
    """Of the rules that a step could have broken, those that what was looked at would have shown."""
    return [rule for rule in arms if not looked_at.isdisjoint(RULES[rule].shown_by)]
