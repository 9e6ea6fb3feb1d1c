"""retract: under pressure a request gives everything back and waits; its tokens, the pending one too, stay.

A turn's record goes back to its session, and only this turn may start next.

SGLang: retract_decode, release_kv_cache without a checkpoint. vLLM: preemption.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.back import Back, Cut
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


def back(ledger: Ledger, act: Retract) -> Back:
    """What comes back: all that is private; of a turn what lies beyond its committed length."""
    if ledger.requests[act.req].session is None:
        return Back(leaving=(act.req,))
    return Back(cut=(Cut(act.req, ledger.records[act.req].committed_len, "SES-1"),))


def judge(ledger: Ledger, act: Retract, answer: Granted | Refused) -> None:
    """What the backend owes."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    gives = back(ledger, act)
    judge_evicted(ledger, answer.evicted, leaving=gives.leaving)
    judge_given(ledger, "retract", [], answer, gives)


def effect(edit: Edit, act: Retract, answer: Granted) -> None:
    """What is then true."""
    if edit.requests[act.req].session is None:
        edit.release(act.req)
    else:
        edit.hand_over(act.req, edit.records[act.req].committed_len)


def answers(ledger: Ledger, act: Retract, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    gives = back(ledger, act)
    for granted in evictions(ledger, least, gives.leaving):
        yield from givings(ledger, "retract", [], granted, least, gives)
