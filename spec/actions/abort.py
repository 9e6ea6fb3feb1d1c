"""abort: a request is dropped wherever it is; whatever it holds comes back, once.

SGLang: abort_request; a running one ends through release_kv_cache. vLLM: finish_requests with an abort status.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.back import NOTHING, Back, Cut
from kvledger.spec.actions.every_answer import evictions, givings
from kvledger.spec.actions.giving import Publisher, holding, judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import Holder, ReqId


class Abort(NamedTuple):
    """The request to drop."""

    req: ReqId


def requires(ledger: Ledger, act: Abort) -> str | None:
    """What the caller owes."""
    return None if act.req in ledger.requests else "the request is not live"


def back(ledger: Ledger, act: Abort) -> Back:
    """What comes back: of a request that runs all that is private, and if it is a turn, its session is empty. Of one
    that waits nothing, and its session keeps what it has, unless it is closing."""
    session = ledger.requests[act.req].session
    if ledger.holds_row(act.req):
        return Back(leaving=(act.req,), rule="PAGE-6" if session is None else "SES-4")
    if session is None or session not in ledger.records:
        return NOTHING
    if ledger.sessions[session].closing:
        return Back(leaving=(session,), rule="SES-3")
    return Back(cut=(Cut(session, ledger.records[session].committed_len, "SES-4"),))


def unlocking(ledger: Ledger, act: Abort, answer: Granted) -> tuple[Holder, ...]:
    """Whose locks are dropped before anything is evicted."""
    return () if answer.published else (act.req, *back(ledger, act).leaving)


def publishers(ledger: Ledger, act: Abort, answer: Granted) -> list[Publisher]:
    """Who may publish what it has committed: a choice of the backend, if it publishes on abort at all."""
    running = [act.req] if ledger.holds_row(act.req) else []
    return [holding(ledger, req, ledger.records[req].committed_len) for req in running]


def judge(ledger: Ledger, act: Abort, answer: Granted | Refused) -> None:
    """What the backend owes."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted, leaving=unlocking(ledger, act, answer))
    judge_given(ledger, "abort", publishers(ledger, act, answer), answer, back(ledger, act))


def effect(edit: Edit, act: Abort, answer: Granted) -> None:
    """What is then true."""
    for req, pages in answer.published:
        edit.publish(req, pages)
    if act.req in edit.records:
        edit.release(act.req)
    edit.forget(act.req)


def answers(ledger: Ledger, act: Abort, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for granted in evictions(ledger, least, unlocking(ledger, act, Granted())):
        yield from givings(ledger, "abort", publishers(ledger, act, granted), granted, least, back(ledger, act))
