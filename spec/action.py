"""One step of the law: which file speaks for which action, and the order judge, then write."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Protocol, TypeVar, cast

from kvledger.spec.actions import (
    Abort,
    Action,
    Admit,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Defer,
    Evict,
    Extend,
    Finish,
    Flush,
    MatchPrefix,
    Reserve,
    Retract,
    Submit,
    abort,
    admit,
    checkpoint,
    close,
    commit,
    decode,
    defer,
    evict,
    extend,
    finish,
    flush,
    match_prefix,
    reserve,
    retract,
    submit,
)
from kvledger.spec.actions.giving import Publisher
from kvledger.spec.actions.taking import Member, trims
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import PUBLISHING

A = TypeVar("A", contravariant=True)


class ActionFile(Protocol[A]):
    """What each file in spec/actions/ exports, in this order."""

    def requires(self, ledger: Ledger, act: A, /) -> str | None:
        """What the caller owes; None: the action may be called."""

    def judge(self, ledger: Ledger, act: A, answer: Granted | Refused, /) -> None:
        """What the backend owes; raises Broken. Reads only. The specific rule before the general one."""

    def effect(self, edit: Edit, act: A, answer: Granted, /) -> None:
        """What is then true. Writes only; no guard runs here."""

    def answers(self, ledger: Ledger, act: A, least: bool, /) -> Iterator[Granted | Refused]:
        """Every legal answer of a small world; least: one of each kind that matters."""


FILES: dict[type, ModuleType] = {
    Submit: submit,
    Admit: admit,
    Defer: defer,
    MatchPrefix: match_prefix,
    Extend: extend,
    Decode: decode,
    Reserve: reserve,
    Commit: commit,
    Checkpoint: checkpoint,
    Finish: finish,
    Retract: retract,
    Abort: abort,
    Close: close,
    Evict: evict,
    Flush: flush,
}
NAMES = {action: file.__name__.rpartition(".")[2] for action, file in FILES.items()}
TAKING = (Extend, Decode, Reserve)
MATCHING = (Admit, MatchPrefix)


def file_of(act: Action) -> ActionFile[Action]:
    """The file that speaks for this action."""
    return cast("ActionFile[Action]", FILES[type(act)])


def name_of(act: Action) -> str:
    """The action's name: extend, match_prefix, ..."""
    return NAMES[type(act)]


def members_of(ledger: Ledger, act: Action) -> list[Member]:
    """Who needs slots for which positions in this action, or a match; nobody, in those that take nothing."""
    return FILES[type(act)].members(ledger, act) if isinstance(act, TAKING + MATCHING) else []


def publishers_of(ledger: Ledger, act: Action, answer: Granted) -> list[Publisher]:
    """Who may publish in this action, and how far; nobody, in those that publish nothing."""
    return FILES[type(act)].publishers(ledger, act, answer) if name_of(act) in PUBLISHING else []


def apply(
    ledger: Ledger, act: Action, answer: Granted | Refused, *, in_place: bool = False, writer: type[Edit] = Edit
) -> Edit:
    """Write what a judged answer makes true. A refusal has an effect too: what it evicted is gone, and what lay beyond
    the prefix of a turn that would have started. writer: an Edit, or one that is watched."""
    edit = writer(ledger, in_place=in_place)
    locked = [page for page in answer.evicted if ledger.page(page).locks]  # until somebody leaves
    edit.evict(answer.evicted if not locked else set(answer.evicted).difference(locked))
    if isinstance(answer, Granted):
        file_of(act).effect(edit, act, answer)
    else:
        for session, upto, _ in trims(ledger, members_of(ledger, act)).cut:
            edit.cut(session, upto)
    edit.evict(locked)
    return edit


def step(ledger: Ledger, act: Action, answer: Granted | Refused) -> Ledger:
    """Judge, then the ledger that follows. Raises Broken, and then nothing was written."""
    file_of(act).judge(ledger, act, answer)
    return apply(ledger, act, answer).commit()
