"""admit: a waiting request matches the cache and locks what it found; it takes neither row nor slots yet.

SGLang: init_next_round_input and the scheduler's lock of the last node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.every_answer import eviction_sets, givings, matches
from kvledger.spec.actions.giving import judge_given
from kvledger.spec.actions.taking import Member, judge_evicted, judge_matched, judge_refused, trims
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import ReqId


class Admit(NamedTuple):
    """The request that may start next. A turn's match is its session's record, which is cut to where it goes on."""

    req: ReqId


def requires(ledger: Ledger, act: Admit) -> str | None:
    """What the caller owes."""
    if not ledger.world.has("SPLIT_ADMIT"):
        return "the backend does not declare SPLIT_ADMIT"
    if act.req not in ledger.requests:
        return "the request is not live"
    if ledger.holds_row(act.req):
        return "the request holds a row"
    return "the request is admitted already" if act.req in ledger.admitted else None


def members(ledger: Ledger, act: Admit) -> list[Member]:
    """Who matches; positions it does not ask for."""
    prefix = ledger.prefix(act.req)
    return [Member(act.req, prefix, prefix, starts=ledger.lender(act.req) is None)]


def judge(ledger: Ledger, act: Admit, answer: Granted | Refused) -> None:
    """What the backend owes: it may not refuse what takes nothing."""
    batch = members(ledger, act)
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted, {page for pages in answer.matched for page in pages})
    for pages in answer.matched:
        judge_matched(ledger, act.req, pages)
    judge_given(ledger, "admit", [], answer, trims(ledger, batch))


def effect(edit: Edit, act: Admit, answer: Granted) -> None:
    """What is then true."""
    edit.admit(act.req, answer.matched[0] if answer.matched else ())


def answers(ledger: Ledger, act: Admit, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    batch = members(ledger, act)
    for matched in matches(ledger, batch):
        reading = {page for path in matched for page in path}
        for gone in eviction_sets(ledger, least=least, reading=reading):
            granted = Granted(matched=matched, evicted=gone)
            yield from givings(ledger, "admit", [], granted, least, trims(ledger, batch))
