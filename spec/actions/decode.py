"""decode: KV for each caught-up request's pending token, one more column; the sampled token is appended.

SGLang: alloc_for_decode. vLLM: KVCacheManager.allocate_slots(request, 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.answering import givings, takings
from kvledger.spec.actions.giving import growing, judge_given
from kvledger.spec.actions.taking import Member, judge_refused, judge_taken
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.ledger import Edit, Ledger
from kvledger.spec.world import ReqId, Token


class Decode(NamedTuple):
    """Members: request, and the token it samples next. No request twice."""

    batch: tuple[tuple[ReqId, Token], ...]


def requires(ledger: Ledger, act: Decode) -> str | None:
    """What the caller owes."""
    if not act.batch:
        return "a batch has members"
    if len({req for req, _ in act.batch}) != len(act.batch):
        return "no request stands twice in a batch"
    if len(act.batch) > (ledger.world.declared.max_batch or len(act.batch)):
        return "the backend declares smaller batches"
    for req, token in act.batch:
        if not ledger.caught_up(req):
            return "a request decodes when only its pending token is without KV"
        if token is None:
            return "None is not a token"
        if ledger.records[req].committed_len >= ledger.world.context_len:
            return "the row is full"
    return None


def members(ledger: Ledger, act: Decode) -> list[Member]:
    """Who needs KV for which position."""
    committed = [(req, ledger.records[req].committed_len) for req, _ in act.batch]
    return [Member(req, length, length + 1, starts=False) for req, length in committed]


def judge(ledger: Ledger, act: Decode, answer: Granted | Refused) -> None:
    """What the backend owes."""
    batch = members(ledger, act)
    if isinstance(answer, Refused):
        judge_refused(ledger, batch, answer)
        return
    judge_taken(ledger, batch, answer)
    judge_given(ledger, "decode", growing(ledger, batch, answer), answer)


def effect(edit: Edit, act: Decode, answer: Granted) -> None:
    """What is then true."""
    for (req, token), pages in zip(act.batch, answer.pages, strict=True):
        edit.grow(req, pages, edit.records[req].committed_len + 1)
        edit.sample(req, token)
    for req, pages in answer.published:
        edit.publish(req, pages)


def answers(ledger: Ledger, act: Decode, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    batch = members(ledger, act)
    for answer in takings(ledger, batch, least):
        if isinstance(answer, Refused):
            yield answer
        else:
            yield from givings(ledger, "decode", growing(ledger, batch, answer), answer, least)
