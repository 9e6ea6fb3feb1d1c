"""checkpoint: what is whole of a running request's [0, upto) goes to the prefix cache; the request reads it there.

SGLang: cache_unfinished_req, checkpoint_kv_cache. vLLM publishes inside allocation and has no such call.
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


class Checkpoint(NamedTuple):
    """Publish what is whole of [0, upto)."""

    req: ReqId
    upto: int


def requires(ledger: Ledger, act: Checkpoint) -> str | None:
    """What the caller owes."""
    if not ledger.world.has("CHECKPOINT"):
        return "the backend does not declare CHECKPOINT"
    if not ledger.holds_row(act.req):
        return "the request holds no row"
    if not ledger.requests[act.req].publish:
        return "the request is barred from publishing"
    if act.upto < 0:
        return "upto is negative"
    record = ledger.records[act.req]
    if not record.protected_len <= ledger.publishable(act.upto) * ledger.world.page_size:
        return "upto lies below what is published already"
    if act.upto > record.committed_len:
        return "upto lies above what is committed"
    return None


def publishers(ledger: Ledger, act: Checkpoint, answer: Granted) -> list[Publisher]:
    """Who publishes, and how far."""
    return [holding(ledger, act.req, act.upto)]


def judge(ledger: Ledger, act: Checkpoint, answer: Granted | Refused) -> None:
    """What the backend owes."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted)
    judge_given(ledger, "checkpoint", publishers(ledger, act, answer), answer)


def effect(edit: Edit, act: Checkpoint, answer: Granted) -> None:
    """What is then true."""
    for req, pages in answer.published:
        edit.publish(req, pages)


def answers(ledger: Ledger, act: Checkpoint, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for granted in evictions(ledger, least):
        yield from givings(ledger, "checkpoint", publishers(ledger, act, granted), granted, least)
