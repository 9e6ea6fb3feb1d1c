"""evict: the caller wants room; the backend chooses which cached pages go.

SGLang: RadixCache.evict. vLLM: BlockPool.evict_blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.every_answer import eviction_sets
from kvledger.spec.actions.giving import judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Freed, Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.rules import need


class Evict(NamedTuple):
    """At least n pages are wanted."""

    n: int


def requires(ledger: Ledger, act: Evict) -> str | None:
    """What the caller owes."""
    if not ledger.world.has("EVICT"):
        return "the backend does not declare EVICT"
    if act.n < 1:
        return "no page is wanted"
    return None if ledger.evictable() else "nothing is evictable"


def judge(ledger: Ledger, act: Evict, answer: Granted | Refused) -> None:
    """What the backend owes. It may take more: node caches take whole nodes."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted)
    owed = min(act.n, len(ledger.evictable()))
    need(len(answer.evicted) >= owed, "EVICT-2", asked=act.n, owed=owed, evicted=len(answer.evicted))
    judge_given(ledger, "evict", [], answer)


def effect(edit: Edit, act: Evict, answer: Granted) -> None:
    """What is then true: apply has taken the evicted pages out already, as for every action."""


def answers(ledger: Ledger, act: Evict, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for gone in eviction_sets(ledger, least=least, at_least=min(act.n, len(ledger.evictable()))):
        yield Granted(evicted=gone, freed=Freed())
