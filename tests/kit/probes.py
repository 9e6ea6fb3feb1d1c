"""Forbidden calls: for each clause about the call one that is wrong in this clause and in nothing else.

Not for those about the declaration: who does not declare an action, such as EVICT, is never asked for it. A guard has
as many clauses as the law has reasons to forbid; a call that is wrong in two of them tests one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

from kvledger.spec.action import file_of, name_of
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
    MatchPrefix,
    Reserve,
    Retract,
    Submit,
    decode,
    extend,
)
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import Namespace, ReqId, Token

NOWHERE = "nowhere"  # a token and a namespace that nobody has
Grown: TypeAlias = tuple[ReqId, int, Token | None]  # a member of an extend
Decoded: TypeAlias = tuple[ReqId, Token]  # and of a decode


def forbidden(ledger: Ledger, idle: ReqId, namespace: Namespace) -> dict[str, list[Action]]:
    """Calls that the law forbids now, by action and reason. idle: an id that no live request has."""
    found: dict[str, list[Action]] = {}
    calls = (_of_submit(ledger, idle, namespace), _of_turns(ledger, idle, namespace), _of_growth(ledger, idle),
             _of_drafts(ledger, idle), _of_admission(ledger, idle), _of_ends(ledger, idle))  # fmt: skip
    for act in chain.from_iterable(calls):
        reason = file_of(act).requires(ledger, act)
        if reason is not None:
            found.setdefault(f"{name_of(act)}: {reason}", []).append(act)
    return found


def _of_submit(ledger: Ledger, idle: ReqId, namespace: Namespace) -> Iterator[Action]:
    yield from (Submit(req, (0, 1), namespace) for req in ledger.requests)
    yield Submit(idle, (), namespace)
    yield Submit(idle, (0, None), namespace)
    if ledger.world.has("MATCH_LIMIT"):
        yield Submit(idle, (0, 1), namespace, -1)


def _of_turns(ledger: Ledger, idle: ReqId, namespace: Namespace) -> Iterator[Action]:
    """Turns that do not go on where their session is, and closes of what is not there."""
    if not ledger.world.has("SESSIONS"):
        return
    two: tuple[Token, ...] = (0, 1)
    yield from (Submit(idle, two, namespace, session=each) for each in (idle, *ledger.requests))
    if ledger.world.has("MATCH_LIMIT"):
        yield Submit(idle, two, namespace, 1, session="nobody's")
    yield Close("nobody's")
    for name, session in ledger.sessions.items():
        yield from (Submit(name, two, session.namespace), Close(name))
        tokens = (*session.tokens, 0)
        yield Submit(idle, tokens, session.namespace, session=name)
        yield Submit(idle, session.tokens[: max(1, ledger.record(name).protected_len)], session.namespace, session=name)
        yield Submit(idle, (NOWHERE, *tokens[1:], 0), session.namespace, session=name)
        if ledger.world.has("NAMESPACES"):
            yield Submit(idle, tokens, NOWHERE, session=name)


def _of_drafts(ledger: Ledger, idle: ReqId) -> Iterator[Action]:
    """reserve and commit."""
    if not ledger.world.has("DRAFTS"):
        return
    yield from (Reserve(idle, 1), Commit(idle, (0,)))
    for req in ledger.requests:
        record = ledger.record(req)
        yield from (Reserve(req, 0), Reserve(req, 1), Commit(req, ()), Commit(req, (None,)))
        yield Commit(req, (0,) * (max(0, record.allocated_len - record.committed_len) + 1))


def _of_admission(ledger: Ledger, idle: ReqId) -> Iterator[Action]:
    """admit, defer, match_prefix."""
    if ledger.world.has("SPLIT_ADMIT"):
        for req in (idle, *ledger.requests):
            yield from (Admit(req), Defer(req), MatchPrefix(req))


def _of_growth(ledger: Ledger, idle: ReqId) -> Iterator[Action]:
    """extend and decode: each wrong member alone, and behind one that is right."""
    yield from (Extend(()), Decode(()))
    extends: list[Grown] = []
    decodes: list[Decoded] = []
    wrong_extends: list[Grown] = [(idle, 1, None)]
    wrong_decodes: list[Decoded] = [(idle, 0)]
    for req in ledger.requests:
        mine = list(_members(ledger, req))
        right = [member for member in mine if extend.requires(ledger, Extend((member,))) is None]
        extends += right[-1:]
        wrong_extends += [member for member in mine if member not in right]
        may = decode.requires(ledger, Decode(((req, 0),))) is None
        (decodes if may else wrong_decodes).append((req, 0))
        wrong_decodes += [(req, None)] if may else []
    yield from (Extend((member,)) for member in wrong_extends)
    yield from (Decode((member,)) for member in wrong_decodes)
    for good in extends[:1]:
        yield Extend((good, good))
        yield from (Extend((good, bad)) for bad in wrong_extends if bad[0] != good[0])
    for well in decodes[:1]:
        yield Decode((well, well))
        yield from (Decode((well, ill)) for ill in wrong_decodes if ill[0] != well[0])
    most = ledger.world.declared.max_batch
    if most is not None and len(extends) > most:
        yield Extend(tuple(extends[: most + 1]))


def _members(ledger: Ledger, req: ReqId) -> Iterator[Grown]:
    """An extend of one request, right or wrong in one thing."""
    end, prefix, width = len(ledger.requests[req].tokens), ledger.prefix(req), ledger.world.context_len
    for upto in dict.fromkeys((-1, 0, 1, prefix - 1, prefix, min(end, width), end + 1, width + 1)):
        yield req, upto, 0 if upto == end else None
    yield req, end, None
    if prefix + 1 < end:
        yield from ((req, prefix + 1, 0), (req, prefix + 1, None))


def _of_ends(ledger: Ledger, idle: ReqId) -> Iterator[Action]:
    """checkpoint, finish, retract, abort, evict."""
    yield from (Finish(idle, 0, False), Retract(idle), Abort(idle))
    for req in ledger.requests:
        record = ledger.record(req)
        yield from (Finish(req, -1, False), Finish(req, record.committed_len + 1, ledger.requests[req].session is None))
        yield from (Finish(req, record.committed_len, True), Finish(req, record.protected_len - 1, False), Retract(req))
        yield Finish(req, 0, False)
        if ledger.world.has("CHECKPOINT"):
            yield from (Checkpoint(req, record.committed_len), Checkpoint(req, record.committed_len + 1))
            yield Checkpoint(req, record.protected_len - 1)
    if ledger.world.has("EVICT"):
        yield from (Evict(0), Evict(1))
