"""extend: KV for more of each request's tokens; a waiting request starts: match, lock, row and slots, or nothing.

SGLang: alloc_for_extend, after init_next_round_input. vLLM: get_computed_blocks and KVCacheManager.allocate_slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.every_answer import givings, takings
from kvledger.spec.actions.giving import Publisher, growing, judge_given
from kvledger.spec.actions.taking import Member, judge_refused, judge_taken, trims
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import ReqId, Token


class Extend(NamedTuple):
    """Members: request, upto, and the token it samples next, given iff upto is the end of its tokens."""

    batch: tuple[tuple[ReqId, int, Token | None], ...]


def requires(ledger: Ledger, act: Extend) -> str | None:
    """What the caller owes."""
    if not act.batch:
        return "the batch is empty"
    if len({req for req, _, _ in act.batch}) != len(act.batch):
        return "a request stands twice in the batch"
    if len(act.batch) > (ledger.world.declared.max_batch or len(act.batch)):
        return "the backend declares smaller batches"
    for req, upto, token in act.batch:
        if req not in ledger.requests:
            return "the request is not live"
        if ledger.over_allocated(req):
            return "slots are reserved: what is accepted is committed"
        end = len(ledger.requests[req].tokens)
        if upto <= ledger.prefix(req):
            return "upto does not lie above the prefix"
        if upto > end:
            return "upto lies beyond the tokens"
        if upto > ledger.world.context_len:
            return "upto lies beyond the row"
        if token is None and upto == end:
            return "no token is sampled, but upto is the end of the tokens"
        if token is not None and upto != end:
            return "a token is sampled before the end of the tokens"
        if upto != end and not ledger.world.has("CHUNKED"):
            return "the backend does not declare CHUNKED"
    return None


def members(ledger: Ledger, act: Extend) -> list[Member]:
    """Who needs KV for which positions."""
    held = ledger.records
    return [Member(req, ledger.prefix(req), upto, ledger.behind(req) not in held) for req, upto, _ in act.batch]


def publishers(ledger: Ledger, act: Extend, answer: Granted) -> list[Publisher]:
    """Who may publish what it has committed by its end."""
    return growing(ledger, members(ledger, act), answer)


def judge(ledger: Ledger, act: Extend, answer: Granted | Refused) -> None:
    """What the backend owes."""
    batch = members(ledger, act)
    if isinstance(answer, Refused):
        judge_refused(ledger, batch, answer)
        return
    judge_taken(ledger, batch, answer)
    judge_given(ledger, "extend", publishers(ledger, act, answer), answer, trims(ledger, batch))


def effect(edit: Edit, act: Extend, answer: Granted) -> None:
    """What is then true. The tails of turns come back before any page is handed out."""
    rows, matched = iter(answer.rows), iter(answer.matched)
    for req in [req for req, _, _ in act.batch if edit.ledger.lender(req) is not None]:
        edit.take_up(req)
    for (req, upto, token), pages in zip(act.batch, answer.pages, strict=True):
        if edit.records.get(req) is None:
            edit.start(req, next(rows), next(matched), pages, upto)
        else:
            edit.grow(req, pages, upto)
        if token is not None:
            edit.sample(req, token)
    for req, pages in answer.published:
        edit.publish(req, pages)


def answers(ledger: Ledger, act: Extend, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    batch = members(ledger, act)
    back = trims(ledger, batch)
    for answer in takings(ledger, batch, least):
        if isinstance(answer, Refused):
            yield answer
        else:
            yield from givings(ledger, "extend", publishers(ledger, act, answer), answer, least, back)
