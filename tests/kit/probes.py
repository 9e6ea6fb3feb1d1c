"""Forbidden calls: for each clause about the call one that is wrong in this clause and in nothing else.

Not for those about the declaration: who does not declare an action, such as EVICT, is never asked for it. A guard has
as many clauses as the law has reasons to forbid; a call that is wrong in two of them tests one.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvledger.spec.action import file_of, name_of
from kvledger.spec.actions import Abort, Action, Checkpoint, Decode, Evict, Extend, Finish, Retract, Submit
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import Namespace, ReqId


def forbidden(ledger: Ledger, idle: ReqId, namespace: Namespace) -> dict[str, list[Action]]:
    """Calls that the law forbids now, by action and reason. idle: an id that no live request has."""
    found: dict[str, list[Action]] = {}
    for act in (*_of_submit(ledger, idle, namespace), *_of_growth(ledger, idle), *_of_ends(ledger, idle)):
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


def _of_growth(ledger: Ledger, idle: ReqId) -> Iterator[Action]:
    """extend and decode, alone and beside a member that is right."""
    yield from (Extend(()), Decode(()), Extend(((idle, 1, None),)), Decode(((idle, 0),)))
    width, good = ledger.world.context_len, list[tuple[ReqId, int, int | None]]()
    for req, request in ledger.requests.items():
        end, prefix = len(request.tokens), ledger.prefix(req)
        upto = min(end, width)
        token = 0 if upto == end else None
        yield Extend(((req, prefix, 0 if prefix == end else None),))
        yield Extend(((req, end + 1, None),))
        yield Extend(((req, width + 1, 0 if width + 1 == end else None),))
        yield Extend(((req, end, None),))
        if prefix + 1 < end:
            yield Extend(((req, prefix + 1, 0),))
            if not ledger.world.has("CHUNKED"):
                yield Extend(((req, prefix + 1, None),))
        if prefix < upto:
            good.append((req, upto, token))
            yield Extend(((req, upto, token), (req, upto, token)))
            yield Extend(((req, upto, token), (idle, 1, None)))
        yield Decode(((req, 0),))
        yield Decode(((req, None),))
        yield Decode(((req, 0), (req, 0)))
        yield Decode(((req, 0), (idle, 0)))
    most = ledger.world.declared.max_batch
    if most is not None and len(good) > most:
        yield Extend(tuple(good[: most + 1]))


def _of_ends(ledger: Ledger, idle: ReqId) -> Iterator[Action]:
    """checkpoint, finish, retract, abort, evict."""
    yield from (Finish(idle, 0, False), Retract(idle), Abort(idle))
    for req in ledger.requests:
        record = ledger.record(req)
        yield from (Finish(req, -1, False), Finish(req, record.committed_len + 1, True), Retract(req))
        if ledger.world.has("CHECKPOINT"):
            yield from (Checkpoint(req, record.committed_len), Checkpoint(req, record.committed_len + 1))
            yield Checkpoint(req, record.protected_len - 1)
    if ledger.world.has("EVICT"):
        yield from (Evict(0), Evict(1))
