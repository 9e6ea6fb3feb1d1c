"""abort: a request is dropped wherever it is; whatever it holds comes back, once.

SGLang: abort_request; a running one ends through release_kv_cache. vLLM: finish_requests with an abort status.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.answering import evictions, givings
from kvledger.spec.actions.giving import Publisher, holding, judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.ledger import Edit, Ledger
from kvledger.spec.world import ReqId


class Abort(NamedTuple):
    """The request to drop."""

    req: ReqId


def requires(ledger: Ledger, act: Abort) -> str | None:
    """What the caller owes."""
    return None if act.req in ledger.requests else "the request is not live"


def leaving(ledger: Ledger, act: Abort) -> tuple[tuple[ReqId, ...], list[Publisher]]:
    """Who gives everything back, and may publish what it has committed first: nobody, if the request waits."""
    if not ledger.holds_row(act.req):
        return (), []
    return (act.req,), [holding(ledger, act.req, ledger.records[act.req].committed_len)]


def judge(ledger: Ledger, act: Abort, answer: Granted | Refused) -> None:
    """What the backend owes. Publishing is its choice, if it publishes on abort at all."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted)
    who, publishers = leaving(ledger, act)
    judge_given(ledger, "abort", publishers, answer, who)


def effect(edit: Edit, act: Abort, answer: Granted) -> None:
    """What is then true."""
    for req, pages in answer.published:
        edit.publish(req, pages)
    if edit.ledger.holds_row(act.req):
        edit.release(act.req)
    edit.forget(act.req)


def answers(ledger: Ledger, act: Abort, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    who, publishers = leaving(ledger, act)
    for granted in evictions(ledger, least):
        yield from givings(ledger, "abort", publishers, granted, least, who)
