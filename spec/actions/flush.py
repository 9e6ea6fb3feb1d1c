"""flush: the prefix cache is emptied, and idle sessions with it, unless a request is in the way.

SGLang: flush_cache, which also waits for the waiting queue to be empty. vLLM: reset_prefix_cache, which does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.back import Back
from kvledger.spec.actions.every_answer import eviction_sets, givings
from kvledger.spec.actions.giving import judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.rules import need
from kvledger.spec.world import ReqId


class Flush(NamedTuple):
    """Takes nothing, asks for everything."""


def requires(ledger: Ledger, act: Flush) -> str | None:
    """What the caller owes. Nothing about timing: a flush while a request runs is the backend's to refuse."""
    return None if ledger.world.has("PREFIX_CACHE") else "the backend does not declare PREFIX_CACHE"


def in_the_way(ledger: Ledger) -> list[ReqId]:
    """The requests that hold a row, or the lock of an admission."""
    return [req for req in ledger.requests if ledger.holds_row(req) or req in ledger.admitted]


def back(ledger: Ledger) -> Back:
    """What comes back: the records of idle sessions."""
    return Back(leaving=tuple(holder for holder in ledger.records if holder in ledger.sessions))


def judge(ledger: Ledger, act: Flush, answer: Granted | Refused) -> None:
    """What the backend owes: refused if a request holds a row or a lock; if one only waits, as it likes."""
    if isinstance(answer, Refused):
        need(bool(ledger.requests), "EVICT-2", refused=True)
        judge_refused(ledger, [], answer, forbidden=True)
        return
    busy = in_the_way(ledger)
    judge_evicted(ledger, answer.evicted, leaving=back(ledger).leaving)
    need(not busy, "LOCK-2", page=None, holders=tuple(busy))
    cached = ledger.cached()
    need(answer.evicted == cached, "EVICT-2", asked=None, owed=len(cached), evicted=len(answer.evicted))
    judge_given(ledger, "flush", [], answer, back(ledger))


def effect(edit: Edit, act: Flush, answer: Granted) -> None:
    """What is then true. The pages that apply evicts are in nobody's way any more."""
    for session in back(edit.ledger).leaving:
        edit.release(session)


def answers(ledger: Ledger, act: Flush, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    if ledger.requests:
        yield from (Refused(None, gone) for gone in eviction_sets(ledger, least=least))
    if not in_the_way(ledger):
        yield from givings(ledger, "flush", [], Granted(evicted=ledger.cached()), least, back(ledger))
