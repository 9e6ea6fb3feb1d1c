"""retract: under pressure a request gives everything back and waits; its tokens, the pending one too, stay.

SGLang: retract_decode, release_kv_cache without a checkpoint. vLLM: preemption.
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


class Retract(NamedTuple):
    """The request to push back."""

    req: ReqId


def requires(ledger: Ledger, act: Retract) -> str | None:
    """What the caller owes."""
    return None if ledger.holds_row(act.req) else "the request holds no row"


def judge(ledger: Ledger, act: Retract, answer: Granted | Refused) -> None:
    """What the backend owes."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted)
    judge_given(ledger, "retract", [], answer, leaving=(act.req,))


def effect(edit: Edit, act: Retract, answer: Granted) -> None:
    """What is then true."""
    edit.release(act.req)


def answers(ledger: Ledger, act: Retract, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for granted in evictions(ledger, least):
        yield from givings(ledger, "retract", [], granted, least, leaving=(act.req,))
