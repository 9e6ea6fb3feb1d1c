"""match_prefix: how much of a waiting request is cached. A question: nothing but recency and node edges changes.

SGLang: match_prefix, asked by the policy that orders the waiting queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.every_answer import eviction_sets, givings, matches
from kvledger.spec.actions.giving import judge_given
from kvledger.spec.actions.taking import Member, judge_evicted, judge_matched, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import ReqId


class MatchPrefix(NamedTuple):
    """The waiting request that is asked about."""

    req: ReqId


def requires(ledger: Ledger, act: MatchPrefix) -> str | None:
    """What the caller owes."""
    if not ledger.world.has("SPLIT_ADMIT"):
        return "the backend does not declare SPLIT_ADMIT"
    if act.req not in ledger.requests:
        return "the request is not live"
    if ledger.holds_row(act.req):
        return "the request holds a row"
    if act.req in ledger.admitted:
        return "the request is admitted already"
    return None if ledger.lender(act.req) is None else "the turn goes on with its session's record"


def members(ledger: Ledger, act: MatchPrefix) -> list[Member]:
    """Who matches; positions it does not ask for."""
    prefix = ledger.prefix(act.req)
    return [Member(act.req, prefix, prefix, starts=True)]


def judge(ledger: Ledger, act: MatchPrefix, answer: Granted | Refused) -> None:
    """What the backend owes: it may not refuse what takes nothing."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted, {page for pages in answer.matched for page in pages})
    judge_matched(ledger, act.req, answer.matched[0])
    judge_given(ledger, "match_prefix", [], answer)


def effect(edit: Edit, act: MatchPrefix, answer: Granted) -> None:
    """What is then true: nothing else."""


def answers(ledger: Ledger, act: MatchPrefix, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for matched in matches(ledger, members(ledger, act)):
        reading = {page for path in matched for page in path}
        for gone in eviction_sets(ledger, least=least, reading=reading):
            yield from givings(ledger, "match_prefix", [], Granted(matched=matched, evicted=gone), least)
