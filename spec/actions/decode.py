"""decode: KV for each caught-up request's pending token, one more column; the sampled token is appended.

SGLang: alloc_for_decode. vLLM: KVCacheManager.allocate_slots(request, 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.every_answer import givings, takings
from kvledger.spec.actions.giving import Publisher, growing, judge_given
from kvledger.spec.actions.taking import Member, judge_refused, judge_taken
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import ReqId, Token


class Decode(NamedTuple):
    """Members: request, and the token it samples next. No request twice."""

    batch: tuple[tuple[ReqId, Token], ...]


def requires(ledger: Ledger, act: Decode) -> str | None:
    """What the caller owes."""
    if not act.batch:
        return "the batch is empty"
    if len({req for req, _ in act.batch}) != len(act.batch):
        return "a request stands twice in the batch"
    if len(act.batch) > (ledger.world.declared.max_batch or len(act.batch)):
        return "the backend declares smaller batches"
    for req, token in act.batch:
        if not ledger.caught_up(req):
            return "more than the pending token is without KV, or no row is held"
        if token is None:
            return "None is sampled, which is no token"
        if ledger.over_allocated(req):
            return "slots are reserved: what is accepted is committed"
        if ledger.records[req].committed_len >= ledger.world.context_len:
            return "the row is full"
    return None


def members(ledger: Ledger, act: Decode) -> list[Member]:
    """Who needs KV for which position."""
    committed = [(req, ledger.records[req].committed_len) for req, _ in act.batch]
    return [Member(req, length, length + 1, starts=False) for req, length in committed]


def publishers(ledger: Ledger, act: Decode, answer: Granted) -> list[Publisher]:
    """Who may publish what it has committed by its end."""
    return growing(ledger, members(ledger, act), answer)


def judge(ledger: Ledger, act: Decode, answer: Granted | Refused) -> None:
    """What the backend owes."""
    batch = members(ledger, act)
    if isinstance(answer, Refused):
        judge_refused(ledger, batch, answer)
        return
    judge_taken(ledger, batch, answer)
    judge_given(ledger, "decode", publishers(ledger, act, answer), answer)


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
            yield from givings(ledger, "decode", publishers(ledger, act, answer), answer, least)
