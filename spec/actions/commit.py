"""commit: the drafts were verified. The pending token and the accepted ones have KV now, in slots that were reserved.

SGLang: kv_committed_len after verification. vLLM: num_computed_tokens, less the rejected ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.every_answer import evictions, givings
from kvledger.spec.actions.giving import Publisher, judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import ReqId, Token


class Commit(NamedTuple):
    """tokens: what follows the pending token now; the last of them is pending next, the others have KV."""

    req: ReqId
    tokens: tuple[Token, ...]


def requires(ledger: Ledger, act: Commit) -> str | None:
    """What the caller owes."""
    if not ledger.world.has("DRAFTS"):
        return "the backend does not declare DRAFTS"
    if not ledger.caught_up(act.req):
        return "more than the pending token is without KV, or no row is held"
    if not act.tokens:
        return "nothing is accepted, not even the pending token"
    if None in act.tokens:
        return "None is among the tokens"
    record = ledger.records[act.req]
    if record.committed_len + len(act.tokens) > record.allocated_len:
        return "more is accepted than slots are reserved for"
    return None


def publishers(ledger: Ledger, act: Commit, answer: Granted) -> list[Publisher]:
    """Who may publish what it has committed by its end."""
    record, request = ledger.records[act.req], ledger.requests[act.req]
    trail = request.trail + ledger.names.trail(request.trail[-1], act.tokens)
    request = request._replace(tokens=request.tokens + act.tokens, trail=trail)
    upto = record.committed_len + len(act.tokens)
    return [Publisher(act.req, record.protected_len, upto, ledger.tables[act.req], request)]


def judge(ledger: Ledger, act: Commit, answer: Granted | Refused) -> None:
    """What the backend owes: it may not refuse what takes nothing."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted)
    judge_given(ledger, "commit", publishers(ledger, act, answer), answer)


def effect(edit: Edit, act: Commit, answer: Granted) -> None:
    """What is then true."""
    edit.accept(act.req, act.tokens)
    for req, pages in answer.published:
        edit.publish(req, pages)


def answers(ledger: Ledger, act: Commit, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for granted in evictions(ledger, least):
        yield from givings(ledger, "commit", publishers(ledger, act, granted), granted, least)
