"""finish: a request has ended. Its whole pages may go to the cache; then everything it holds comes back, once.

SGLang: release_kv_cache with a checkpoint first. vLLM: KVCacheManager.free.
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


class Finish(NamedTuple):
    """[0, keep) is worth keeping, and is published iff publish. keep may lie below what is published already."""

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
    return None


def publishers(ledger: Ledger, act: Finish, answer: Granted) -> list[Publisher]:
    """Who may publish, and how far. A keep below protected publishes nothing and frees nothing below protected."""
    return [holding(ledger, act.req, act.keep * act.publish)]


def judge(ledger: Ledger, act: Finish, answer: Granted | Refused) -> None:
    """What the backend owes."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted)
    judge_given(ledger, "finish", publishers(ledger, act, answer), answer, leaving=(act.req,))


def effect(edit: Edit, act: Finish, answer: Granted) -> None:
    """What is then true."""
    for req, pages in answer.published:
        edit.publish(req, pages)
    edit.release(act.req)
    edit.forget(act.req)


def answers(ledger: Ledger, act: Finish, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for granted in evictions(ledger, least):
        yield from givings(ledger, "finish", publishers(ledger, act, granted), granted, least, leaving=(act.req,))
