"""The SHOULD rules: what a good backend does where it can, and nobody is blamed for leaving undone."""

from __future__ import annotations

from collections.abc import Iterator

from kvledger.spec.action import name_of
from kvledger.spec.actions import Evict, Flush
from kvledger.spec.actions.taking import demand
from kvledger.spec.answer import Granted
from kvledger.spec.situations import Moment


def left_undone(moment: Moment) -> Iterator[str]:
    """The SHOULD rules that this transition does not keep. Looks at the ledger before it."""
    ledger, act, answer = moment.ledger, moment.act, moment.answer
    wanted = isinstance(act, Evict | Flush)
    if answer.evicted and not wanted and ledger.free_page_count() >= sum(demand(ledger, moment.members)):
        yield "EVICT-3"
    if isinstance(answer, Granted):
        published = dict(answer.published)
        for req, protected, upto, *_ in moment.publishers:
            done = protected // ledger.world.page_size + len(published.get(req, ()))
            if ledger.may_publish(req, name_of(act)) and done < ledger.publishable(upto):
                yield "CACHE-6"
