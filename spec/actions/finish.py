"""finish: a request has ended. Its whole pages may go to the cache; then everything it holds comes back, once.

SGLang: release_kv_cache with a checkpoint first. vLLM: KVCacheManager.free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.back import Back, Cut
from kvledger.spec.actions.every_answer import evictions, givings
from kvledger.spec.actions.giving import Publisher, holding, judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import ReqId


class Finish(NamedTuple):
    """[0, keep) is worth keeping, and is published iff publish. keep may lie below what is published already.

    A turn publishes nothing: its session keeps row, lock and [0, keep).
    """

    req: ReqId
    keep: int
    publish: bool


def requires(ledger: Ledger, act: Finish) -> str | None:
    """What the caller owes."""
    if not ledger.holds_row(act.req):
        return "the request holds no row"
    if act.keep < 0:
        return "keep is negative"
    if act.keep > ledger.records[act.req].committed_len:
        return "keep lies above what is committed"
    if ledger.requests[act.req].session is not None:
        if act.publish:
            return "a turn ends into its session, and publishes nothing"
        if act.keep < ledger.least_kept(act.req):
            return "keep lies below what the session reads, or leaves it nothing"
    return None


def back(ledger: Ledger, act: Finish) -> Back:
    """What comes back: all that is private; of a turn what lies beyond keep, unless its session is closing."""
    session = ledger.requests[act.req].session
    if session is None:
        return Back(leaving=(act.req,))
    if ledger.sessions[session].closing:
        return Back(leaving=(act.req,), rule="SES-3")
    return Back(cut=(Cut(act.req, act.keep, "SES-1"),))


def publishers(ledger: Ledger, act: Finish, answer: Granted) -> list[Publisher]:
    """Who may publish, and how far. A keep below protected publishes nothing and frees nothing below protected."""
    return [holding(ledger, act.req, act.keep * act.publish)]


def judge(ledger: Ledger, act: Finish, answer: Granted | Refused) -> None:
    """What the backend owes."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    gives = back(ledger, act)
    judge_evicted(ledger, answer.evicted, leaving=() if answer.published else gives.leaving)
    judge_given(ledger, "finish", publishers(ledger, act, answer), answer, gives)


def effect(edit: Edit, act: Finish, answer: Granted) -> None:
    """What is then true."""
    for req, pages in answer.published:
        edit.publish(req, pages)
    if edit.requests[act.req].session is None:
        edit.release(act.req)
    else:
        edit.hand_over(act.req, act.keep)
    edit.forget(act.req)


def answers(ledger: Ledger, act: Finish, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    gives = back(ledger, act)
    for granted in evictions(ledger, least, gives.leaving):
        yield from givings(ledger, "finish", publishers(ledger, act, granted), granted, least, gives)
