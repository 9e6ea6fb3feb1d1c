"""close: a conversation is over, and its session's record comes back. While a turn lives it waits for the turn's end.

SGLang: SessionController.close, StreamingSession.release_session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.spec.actions.back import Back, Cut
from kvledger.spec.actions.every_answer import evictions, givings
from kvledger.spec.actions.giving import judge_given
from kvledger.spec.actions.taking import judge_evicted, judge_refused
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import SessionId


class Close(NamedTuple):
    """The session to close."""

    session: SessionId


def requires(ledger: Ledger, act: Close) -> str | None:
    """What the caller owes."""
    if act.session not in ledger.sessions:
        return "the session does not exist"
    return "the session is closed already" if ledger.sessions[act.session].closing else None


def back(ledger: Ledger, act: Close) -> Back:
    """What comes back: of an idle session all, while a turn lives nothing."""
    turn = ledger.sessions[act.session].turn
    held = [holder for holder in (act.session, turn) if holder is not None and holder in ledger.records]
    if turn is None:
        return Back(leaving=tuple(held), rule="SES-3")
    return Back(cut=tuple(Cut(holder, ledger.records[holder].allocated_len, "SES-3") for holder in held))


def judge(ledger: Ledger, act: Close, answer: Granted | Refused) -> None:
    """What the backend owes: it may not refuse what takes nothing."""
    if isinstance(answer, Refused):
        judge_refused(ledger, [], answer)
        return
    gives = back(ledger, act)
    judge_evicted(ledger, answer.evicted, leaving=gives.leaving)
    judge_given(ledger, "close", [], answer, gives)


def effect(edit: Edit, act: Close, answer: Granted) -> None:
    """What is then true."""
    edit.close(act.session)


def answers(ledger: Ledger, act: Close, least: bool) -> Iterator[Granted | Refused]:
    """Every legal answer of a small world."""
    gives = back(ledger, act)
    for granted in evictions(ledger, least, gives.leaving):
        yield from givings(ledger, "close", [], granted, least, gives)
