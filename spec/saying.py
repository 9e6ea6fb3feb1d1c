"""The way back from law to backend: what one says, in slots, that gives a legal answer. The monitor reads it forth.

So a path of exploration becomes a stored run, and the oracle a backend.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvledger.spec.action import TAKING, apply, members_of, publishers_of
from kvledger.spec.actions import Action, Checkpoint, Reserve
from kvledger.spec.actions.giving import growing
from kvledger.spec.answer import Granted, Refused, Reply
from kvledger.spec.ledger import Ledger, slots_in
from kvledger.spec.trace import Step, Trace
from kvledger.spec.world import ReqId, Slot, World


def of_path(world: World, path: Iterable[tuple[Action, Granted | Refused]], backend: str = "", note: str = "") -> Trace:
    """A path of exploration as the run of a backend that chose these answers."""
    ledger, steps = Ledger.start(world), []
    for act, answer in path:
        steps.append(Step(act, said(ledger, act, answer)))
        ledger = apply(ledger, act, answer).commit()
    return Trace(world, tuple(steps), backend=backend, note=note)


def said(ledger: Ledger, act: Action, answer: Granted | Refused) -> Reply | Refused:
    """What a backend says that gives this legal answer: slots for pages. ledger: before the action."""
    if isinstance(answer, Refused):
        return answer
    size = ledger.world.page_size

    who = {publisher.req: publisher for publisher in publishers_of(ledger, act, answer)}
    members = members_of(ledger, act) if isinstance(act, TAKING) else []
    tables = {each.req: each.table for each in growing(ledger, members, answer)}
    if isinstance(act, Reserve):
        members = [members[0]._replace(upto=answer.reserved)]
    slots = [slots_in(tables[member.req], member.prefix, member.upto, size) for member in members]
    if isinstance(act, Checkpoint):
        slots = [slots_in(pages, 0, len(pages) * size, size) for _, pages in answer.published]
    published, listed = dict[ReqId, int](), dict[ReqId, tuple[Slot, ...]]()
    for req, pages in answer.published:
        _, protected, _, table, _ = who[req]
        published[req] = protected + len(pages) * size
        merged = pages != table[protected // size :][: len(pages)]
        if merged and ledger.world.has("DUPLICATES") and not isinstance(act, Checkpoint):
            listed[req] = slots_in(pages, 0, len(pages) * size, size)
    return Reply(
        rows=answer.rows if ledger.world.has("ROWS") else (),
        matched=tuple(slots_in(pages, 0, len(pages) * size, size) for pages in answer.matched),
        slots=tuple(slots),
        published=published,
        evicted=answer.evicted,
        freed=answer.freed,
        listed=listed,
    )
