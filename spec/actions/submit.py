"""submit: a request arrives with its tokens. It waits and holds nothing.

SGLang: a Req in the waiting queue. vLLM: Scheduler.add_request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.every_answer import evictions, givings
from kvledger.spec.actions.giving import judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger, Request
from kvledger.spec.world import Namespace, ReqId, SessionId, Token


class Submit(NamedTuple):
    """match_limit: no more than this many tokens may come from the cache. publish False: nothing of it is shared.
    session: the conversation whose next turn this is; it comes into being with its first."""

    req: ReqId
    tokens: tuple[Token, ...]
    namespace: Namespace
    match_limit: int | None = None
    publish: bool = True
    session: SessionId | None = None


def requires(ledger: Ledger, act: Submit) -> str | None:
    """What the caller owes."""
    if act.req in ledger.requests:
        return "a live request has this id"
    if not act.tokens:
        return "the request has no token"
    if None in act.tokens:
        return "None is among the tokens"
    if not ledger.world.has("NAMESPACES") and not ledger.is_only_namespace(act.namespace):
        return "another namespace is there, and the backend knows one only"
    if act.match_limit is not None and not ledger.world.has("MATCH_LIMIT"):
        return "the backend knows no match limit"
    if not act.publish and not ledger.world.has("BARRED"):
        return "the backend cannot bar a request from publishing"
    if act.match_limit is not None and act.match_limit < 0:
        return "the match limit is negative"
    if act.req in ledger.sessions:
        return "a session has this id"
    return None if act.session is None else _of_turn(ledger, act, act.session)


def _of_turn(ledger: Ledger, act: Submit, session: SessionId) -> str | None:
    if not ledger.world.has("SESSIONS"):
        return "the backend does not declare SESSIONS"
    if session in (act.req, *ledger.requests):
        return "a request has the session's id"
    if act.match_limit is not None:
        return "a turn has no match limit"
    if session not in ledger.sessions:
        return None
    known = ledger.sessions[session]
    if known.turn is not None:
        return "a turn of this session lives"
    if known.namespace != act.namespace:
        return "the session is of another namespace"
    record, goes_on = ledger.record(session), min(len(known.tokens), len(act.tokens) - 1)
    if record.holds_kv and goes_on < ledger.least_kept(session):
        return "the turn ends below what its session has published, or leaves nothing to go on from"
    if act.tokens[:goes_on] != known.tokens[:goes_on]:
        return "the turn does not continue its session"
    return None


def judge(ledger: Ledger, act: Submit, answer: Granted | Refused) -> None:
    """What the backend owes: it may not refuse what takes nothing."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    judge_evicted(ledger, answer.evicted)
    judge_given(ledger, "submit", [], answer)


def effect(edit: Edit, act: Submit, answer: Granted) -> None:
    """What is then true."""
    root = edit.names.root(act.namespace)
    trail = edit.names.trail(root, act.tokens)
    edit.submit(act.req, Request(act.tokens, act.namespace, trail, root, *act[3:]))


def answers(ledger: Ledger, act: Submit, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    for granted in evictions(ledger, least):
        yield from givings(ledger, "submit", [], granted, least)
