"""The way back from the law's view of an answer to a backend's words: from pages to slots. Undoes Monitor."""

from __future__ import annotations

from kvledger.spec.actions import Action, Checkpoint, Decode, Extend, decode, extend
from kvledger.spec.actions.giving import Publisher
from kvledger.spec.actions.taking import Member
from kvledger.spec.answer import Granted, Refused, Reply
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import slot_of
from kvledger.spec.world import PageId, Slot


def said(ledger: Ledger, act: Action, answer: Granted | Refused) -> Reply | Refused:
    """What a backend says that gives this legal answer. ledger: before the action."""
    if isinstance(answer, Refused):
        return answer
    size = ledger.world.page_size

    def in_slots(table: tuple[PageId, ...], start: int, upto: int) -> tuple[Slot, ...]:
        return tuple(slot_of(table[position // size], position, size) for position in range(start, upto))

    members: list[Member] = []
    publishers: list[Publisher] = []
    if isinstance(act, Extend):
        members = extend.members(ledger, act)
        publishers = extend.publishers(ledger, members, answer)
    elif isinstance(act, Decode):
        members = decode.members(ledger, act)
        publishers = decode.publishers(ledger, members, answer)
    slots = [in_slots(who.table, member.prefix, who.upto) for member, who in zip(members, publishers, strict=True)]
    if isinstance(act, Checkpoint):
        slots = [in_slots(pages, 0, len(pages) * size) for _, pages in answer.published]
    starts = {who.req: who.protected for who in publishers}
    return Reply(
        rows=answer.rows if ledger.world.has("ROWS") else (),
        matched=tuple(in_slots(pages, 0, len(pages) * size) for pages in answer.matched),
        slots=tuple(slots),
        published={
            req: starts.get(req, ledger.record(req).protected_len) + len(pages) * size
            for req, pages in answer.published
        },
        evicted=answer.evicted,
        freed=answer.freed,
    )
