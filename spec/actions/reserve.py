"""reserve: slots for drafted tokens, ahead of what is known. Only allocated_len moves; commit says what was accepted.

SGLang: alloc_for_spec_decode. vLLM: allocate_slots with lookahead tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from kvledger.spec.actions.every_answer import eviction_sets, givings, takings
from kvledger.spec.actions.giving import judge_given
from kvledger.spec.actions.taking import Member, judge_refused, judge_taken
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import pages_for
from kvledger.spec.rules import need
from kvledger.spec.world import ReqId


class Reserve(NamedTuple):
    """Slots for n tokens beyond what is committed, the pending one among them."""

    req: ReqId
    n: int


def requires(ledger: Ledger, act: Reserve) -> str | None:
    """What the caller owes. Nothing about the end of the row: the backend stops there, or refuses."""
    if not ledger.world.has("DRAFTS"):
        return "the backend does not declare DRAFTS"
    if not ledger.caught_up(act.req):
        return "more than the pending token is without KV, or no row is held"
    return None if act.n >= 1 else "no slot is asked for"


def range_of(ledger: Ledger, act: Reserve) -> tuple[int, int]:
    """How far the slots reach at least and at most: to the end of the page, and of the row."""
    record, size, width = ledger.records[act.req], ledger.world.page_size, ledger.world.context_len
    least = max(record.allocated_len, record.committed_len + act.n)
    return min(least, width), min(pages_for(least, size) * size, width)


def members(ledger: Ledger, act: Reserve) -> list[Member]:
    """Who needs slots, for which positions at least."""
    return [Member(act.req, ledger.records[act.req].allocated_len, range_of(ledger, act)[0], starts=False)]


def judge(ledger: Ledger, act: Reserve, answer: Granted | Refused) -> None:
    """What the backend owes."""
    batch, width = members(ledger, act), ledger.world.context_len
    if isinstance(answer, Refused):
        judge_refused(ledger, batch, answer, forbidden=ledger.records[act.req].committed_len + act.n > width)
        return
    least, most = range_of(ledger, act)
    upto = answer.reserved
    need(least <= upto <= most, "DRAFT-1", req=act.req, upto=upto, least=least, most=most, width=width)
    judge_taken(ledger, batch, answer)
    judge_given(ledger, "reserve", [], answer)


def effect(edit: Edit, act: Reserve, answer: Granted) -> None:
    """What is then true."""
    edit.reserve(act.req, answer.pages[0], answer.reserved)


def answers(ledger: Ledger, act: Reserve, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world. least: as few slots as may be, and as many."""
    first, most = range_of(ledger, act)
    if ledger.records[act.req].committed_len + act.n > ledger.world.context_len:
        yield from (Refused(None, gone) for gone in eviction_sets(ledger, least=least))
    for answer in takings(ledger, members(ledger, act), least):
        if isinstance(answer, Refused):
            yield answer
            continue
        for upto in sorted({first, most}) if least else range(first, most + 1):
            yield from givings(ledger, "reserve", [], replace(answer, reserved=upto), least)
