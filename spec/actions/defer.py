"""defer: an admitted request does not start after all. Its lock is dropped; it waits.

SGLang: an admission that fails after its match, and matches again in a later step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.every_answer import evictions, givings
from kvledger.spec.actions.giving import judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import ReqId


class Defer(NamedTuple):
    """The admitted request that waits again."""

    req: ReqId


def requires(ledger: Ledger, act: Defer) -> str | None:
    """What the caller owes."""
    return None if act.req in ledger.admitted else "the request is not admitted"


def judge(ledger: Ledger, act: Defer, answer: Granted | Refused) -> None:
    """What the backend owes: it may not refuse what takes nothing."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted, leaving=(act.req,))
    judge_given(ledger, "defer", [], answer)


def effect(edit: Edit, act: Defer, answer: Granted) -> None:
    """What is then true."""
    edit.defer(act.req)


def answers(ledger: Ledger, act: Defer, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for granted in evictions(ledger, least, (act.req,)):
        yield from givings(ledger, "defer", [], granted, least)
