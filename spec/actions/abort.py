"""abort: a request is dropped wherever it is; whatever it holds comes back, once.

SGLang: abort_request; a running one ends through release_kv_cache. vLLM: finish_requests with an abort status.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.every_answer import evictions, givings
from kvledger.spec.actions.giving import Publisher, holding, judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import ReqId


class Abort(NamedTuple):
    """The request to drop."""

    req: ReqId


def requires(ledger: Ledger, act: Abort) -> str | None:
    """What the caller owes."""
    return None if act.req in ledger.requests else "the request is not live"


def leaving(ledger: Ledger, act: Abort) -> tuple[ReqId, ...]:
    """Who gives everything back: nobody, if the request waits."""
    return (act.req,) if ledger.holds_row(act.req) else ()


def publishers(ledger: Ledger, act: Abort, answer: Granted) -> list[Publisher]:
    """Who may publish what it has committed: a choice of the backend, if it publishes on abort at all."""
    return [holding(ledger, req, ledger.records[req].committed_len) for req in leaving(ledger, act)]


def judge(ledger: Ledger, act: Abort, answer: Granted | Refused) -> None:
    """What the backend owes."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted)
    judge_given(ledger, "abort", publishers(ledger, act, answer), answer, leaving(ledger, act))


def effect(edit: Edit, act: Abort, answer: Granted) -> None:
    """What is then true."""
    for req, pages in answer.published:
        edit.publish(req, pages)
    for req in leaving(edit.ledger, act):
        edit.release(req)
    edit.forget(act.req)


def answers(ledger: Ledger, act: Abort, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for granted in evictions(ledger, least):
        yield from givings(ledger, "abort", publishers(ledger, act, granted), granted, least, leaving(ledger, act))
