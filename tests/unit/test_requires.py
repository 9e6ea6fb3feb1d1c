"""What a caller owes, clause by clause: a call that is forbidden for this reason, and the nearest one that is not.

Pages of two slots; three rows of four columns. `a` has three tokens; where it has started it holds KV for all of them
and has sampled a fourth, which is pending. `t` has the same tokens and is the first turn of session `s`, `u` its next.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from kvledger.spec import actions
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
    Flush,
    MatchPrefix,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Reply
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.world import Declaration, World
from kvledger.spec.worlds import JOINT

Call = tuple[Action, Reply]
ALL = World(rows=3, context_len=4, pages=6, page_size=2, declared=JOINT)


def without(*capabilities: str) -> World:
    """A backend that does not have these."""
    return replace(ALL, declared=Declaration("less", capabilities=ALL.declared.capabilities - {*capabilities}))


def declining(option: str) -> World:
    """A backend that does not know this option of a submit."""
    return replace(ALL, declared=replace(JOINT, name="plain", declines=frozenset({option})))


NO_CACHE = without("PREFIX_CACHE", "LEAF_FIRST", "EVICT", "CHECKPOINT")
LAGGING = replace(ALL, declared=replace(JOINT, name="bigram keys", key_lag=1))
ONE_A_CALL = replace(ALL, declared=replace(JOINT, name="one by one", max_batch=1))
UNSHARED = Submit("a", (1, 2, 3), "n", publish=False)
WAITS: list[Call] = [(Submit("a", (1, 2, 3), "n"), Reply())]
STARTED: list[Call] = [*WAITS, (Extend((("a", 3, 4),)), Reply(rows=[1], matched=[[]], slots=[[2, 3, 4]]))]
BEGUN: list[Call] = [*WAITS, (Extend((("a", 1, None),)), Reply(rows=[1], matched=[[]], slots=[[2]]))]
FULL: list[Call] = [*STARTED, (Decode((("a", 5),)), Reply(slots=[[5]]))]  # four columns, and a fifth token
PUBLISHED: list[Call] = [*STARTED, (Checkpoint("a", 2), Reply(slots=[[2, 3]], published={"a": 2}))]
CACHED: list[Call] = [*STARTED, (Finish("a", 3, True), Reply(published={"a": 2}))]  # of `a` page 1 is left
TWO: list[Call] = [*WAITS, (Submit("b", (5, 6, 7), "n"), Reply())]
TWO_STARTED: list[Call] = [
    *STARTED, TWO[1], (Extend((("b", 3, 8),)), Reply(rows=[2], matched=[[]], slots=[[6, 7, 8]])),
]  # fmt: skip
BARRED: list[Call] = [
    (UNSHARED, Reply()), (Submit("b", (5, 6, 7), "n"), Reply()),
    (Extend((("a", 3, 4), ("b", 3, 8))), Reply(rows=[1, 2], matched=[[], []], slots=[[2, 3, 4], [6, 7, 8]])),
]  # fmt: skip
LONG: list[Call] = [(Submit("a", (1, 2, 3, 4, 5), "n"), Reply())]  # a token longer than a row
AGAIN: list[Call] = [*CACHED, *WAITS]  # page 1 of its prompt is cached
RESERVED: list[Call] = [*STARTED, (Reserve("a", 1), Reply(slots=[[5]]))]  # the fourth column, and no KV in it
ADMITTED: list[Call] = [*WAITS, (Admit("a"), Reply(matched=[[]]))]
TALK = Submit("t", (1, 2, 3), "n", session="s")
NEXT = Submit("u", (1, 2, 3, 4), "n", session="s")
TURN: list[Call] = [(TALK, Reply()), (Extend((("t", 3, 4),)), Reply(rows=[1], matched=[[]], slots=[[2, 3, 4]]))]
TURN_PUBLISHED: list[Call] = [*TURN, (Checkpoint("t", 2), Reply(slots=[[2, 3]], published={"t": 2}))]
LAGGED: list[Call] = [*TURN, (Checkpoint("t", 3), Reply(slots=[[2, 3]], published={"t": 2}))]  # its key names token 3
END: Call = (Finish("t", 3, False), Reply())
IDLE: list[Call] = [*TURN, END]  # the session has KV for (1, 2, 3)
IDLE_PUBLISHED: list[Call] = [*TURN_PUBLISHED, END]  # and reads the first two of them in the cache
EMPTIED: list[Call] = [*TURN, (Abort("t"), Reply())]  # it has none
WAITS_TO_GO_ON: list[Call] = [*IDLE, (NEXT, Reply())]
CLOSING: list[Call] = [*TURN, (Close("s"), Reply())]


class Case(NamedTuple):
    """In this world, after these calls, the first is forbidden and the second is not. allowed_in: its world, where the
    declaration alone forbids; the second call is the first then."""

    world: World
    before: list[Call]
    forbidden: Action
    allowed: Action
    allowed_in: World | None = None


CASES: dict[str, list[Case]] = {
    # ---- submit
    "submit: a live request has this id": [
        Case(ALL, WAITS, Submit("a", (1,), "n"), Submit("b", (1,), "n")),
        Case(ALL, STARTED, Submit("a", (1,), "n"), Submit("b", (1,), "n")),
    ],
    "submit: the request has no token": [Case(ALL, [], Submit("a", (), "n"), Submit("a", (0,), "n"))],
    "submit: None is among the tokens": [Case(ALL, [], Submit("a", (1, None), "n"), Submit("a", (1, 0), "n"))],
    "submit: another namespace is there, and the backend knows one only": [
        Case(declining("NAMESPACES"), WAITS, Submit("b", (1,), "m"), Submit("b", (1,), "n")),
        Case(declining("NAMESPACES"), CACHED, Submit("b", (1,), "m"), Submit("b", (1,), "n")),
        Case(declining("NAMESPACES"), WAITS, Submit("b", (1,), "m"), Submit("b", (1,), "m"), ALL),
    ],
    "submit: the backend knows no match limit": [
        Case(declining("MATCH_LIMIT"), [], Submit("a", (1,), "n", 0), Submit("a", (1,), "n")),
        Case(declining("MATCH_LIMIT"), [], Submit("a", (1,), "n", 0), Submit("a", (1,), "n", 0), ALL),
    ],
    "submit: the backend cannot bar a request from publishing": [
        Case(declining("BARRED"), [], UNSHARED, UNSHARED._replace(publish=True)),
        Case(declining("BARRED"), [], UNSHARED, UNSHARED, ALL),
    ],
    "submit: the match limit is negative": [Case(ALL, [], Submit("a", (1,), "n", -1), Submit("a", (1,), "n", 0))],
    "submit: a session has this id": [
        Case(ALL, IDLE, Submit("s", (1,), "n"), Submit("b", (1,), "n")),
        Case(ALL, TURN, Submit("s", (1,), "n"), Submit("b", (1,), "n")),
        Case(ALL, EMPTIED, Submit("s", (1,), "n"), Submit("t", (1,), "n")),
    ],
    # ---- submit, of a turn
    "submit: the backend does not declare SESSIONS": [
        Case(without("SESSIONS"), [], TALK, TALK._replace(session=None)),
        Case(without("SESSIONS"), [], TALK, TALK, ALL),
    ],
    "submit: a request has the session's id": [
        Case(ALL, WAITS, TALK._replace(session="a"), TALK),
        Case(ALL, STARTED, TALK._replace(session="a"), TALK),
        Case(ALL, [], TALK._replace(session="t"), TALK),  # its own
    ],
    "submit: a turn has no match limit": [
        Case(ALL, [], TALK._replace(match_limit=2), TALK),
        Case(ALL, IDLE, NEXT._replace(match_limit=3), NEXT),
    ],
    "submit: a turn of this session lives": [
        Case(ALL, [(TALK, Reply())], NEXT, NEXT._replace(session="another")),  # it waits
        Case(ALL, TURN, NEXT, NEXT._replace(session="another")),
        Case(ALL, [*TURN, (Retract("t"), Reply())], NEXT, NEXT._replace(session="another")),
        Case(ALL, CLOSING, NEXT, NEXT._replace(session="another")),
    ],
    "submit: the session is of another namespace": [
        Case(ALL, IDLE, NEXT._replace(namespace="m"), NEXT),
        Case(ALL, EMPTIED, NEXT._replace(namespace="m"), NEXT),
    ],
    "submit: the turn ends below what its session has published, or leaves nothing to go on from": [
        Case(ALL, IDLE, NEXT._replace(tokens=(1,)), NEXT._replace(tokens=(1, 2))),  # one token is to be computed
        Case(ALL, IDLE_PUBLISHED, NEXT._replace(tokens=(1, 2)), NEXT._replace(tokens=(1, 2, 3))),
        Case(ALL, IDLE, NEXT._replace(tokens=(9,)), NEXT._replace(tokens=(1, 9))),
        Case(LAGGING, [*LAGGED, END], NEXT._replace(tokens=(1, 2, 3)), NEXT),
    ],
    "submit: the turn does not continue its session": [
        Case(ALL, IDLE, NEXT._replace(tokens=(1, 2, 9, 4)), NEXT),
        Case(ALL, IDLE, NEXT._replace(tokens=(9, 2, 3)), NEXT._replace(tokens=(1, 2, 9))),  # the last is computed anew
    ],
    # ---- extend
    "extend: the batch is empty": [Case(ALL, WAITS, Extend(()), Extend((("a", 3, 4),)))],
    "extend: a request stands twice in the batch": [
        Case(ALL, TWO, Extend((("a", 3, 4), ("a", 3, 4))), Extend((("a", 3, 4), ("b", 3, 4)))),
        Case(ALL, TWO, Extend((("a", 1, None), ("a", 3, 4))), Extend((("a", 1, None), ("b", 3, 4)))),
    ],
    "extend: the backend declares smaller batches": [
        Case(ONE_A_CALL, TWO, Extend((("a", 3, 4), ("b", 3, 4))), Extend((("a", 3, 4),))),
        Case(ONE_A_CALL, TWO, Extend((("a", 3, 4), ("b", 3, 4))), Extend((("a", 3, 4), ("b", 3, 4))), ALL),
    ],
    "extend: the request is not live": [
        Case(ALL, WAITS, Extend((("b", 3, 4),)), Extend((("a", 3, 4),))),
        Case(ALL, TWO, Extend((("a", 3, 4), ("c", 3, 4))), Extend((("a", 3, 4), ("b", 3, 4)))),
    ],
    "extend: upto does not lie above the prefix": [
        Case(ALL, WAITS, Extend((("a", 0, None),)), Extend((("a", 1, None),))),
        Case(ALL, BEGUN, Extend((("a", 1, None),)), Extend((("a", 2, None),))),
        Case(ALL, AGAIN, Extend((("a", 2, None),)), Extend((("a", 3, 4),))),  # the coming match is the prefix
    ],
    "extend: upto lies beyond the tokens": [Case(ALL, WAITS, Extend((("a", 4, None),)), Extend((("a", 3, 4),)))],
    "extend: upto lies beyond the row": [Case(ALL, LONG, Extend((("a", 5, 6),)), Extend((("a", 4, None),)))],
    "extend: no token is sampled, but upto is the end of the tokens": [
        Case(ALL, WAITS, Extend((("a", 3, None),)), Extend((("a", 3, 0),))),
    ],
    "extend: a token is sampled before the end of the tokens": [
        Case(ALL, WAITS, Extend((("a", 2, 0),)), Extend((("a", 2, None),))),
    ],
    "extend: the backend does not declare CHUNKED": [
        Case(without("CHUNKED"), WAITS, Extend((("a", 2, None),)), Extend((("a", 3, 4),))),
        Case(without("CHUNKED"), WAITS, Extend((("a", 2, None),)), Extend((("a", 2, None),)), ALL),
    ],
    "extend: slots are reserved: what is accepted is committed": [
        Case(ALL, RESERVED, Extend((("a", 4, 5),)), Commit("a", (5,))),
        Case(ALL, [*RESERVED, TWO[1]], Extend((("b", 3, 4), ("a", 4, 5))), Extend((("b", 3, 4),))),
    ],
    # ---- decode
    "decode: the batch is empty": [Case(ALL, STARTED, Decode(()), Decode((("a", 5),)))],
    "decode: a request stands twice in the batch": [
        Case(ALL, TWO_STARTED, Decode((("a", 5), ("a", 6))), Decode((("a", 5), ("b", 6)))),
    ],
    "decode: the backend declares smaller batches": [
        Case(ONE_A_CALL, TWO_STARTED, Decode((("a", 5), ("b", 6))), Decode((("a", 5),))),
        Case(ONE_A_CALL, TWO_STARTED, Decode((("a", 5), ("b", 6))), Decode((("a", 5), ("b", 6))), ALL),
    ],
    "decode: more than the pending token is without KV, or no row is held": [
        Case(ALL, STARTED, Decode((("b", 5),)), Decode((("a", 5),))),
        Case(ALL, [*STARTED, TWO[1]], Decode((("a", 5), ("b", 5))), Decode((("a", 5),))),  # b waits
        Case(ALL, [*STARTED, (Retract("a"), Reply())], Decode((("a", 5),)), Extend((("a", 4, 5),))),
        Case(ALL, BEGUN, Decode((("a", 5),)), Extend((("a", 3, 4),))),
    ],
    "decode: None is sampled, which is no token": [Case(ALL, STARTED, Decode((("a", None),)), Decode((("a", 0),)))],
    "decode: the row is full": [
        Case(ALL, FULL, Decode((("a", 6),)), Decode((("a", 6),)), replace(ALL, context_len=5)),
        Case(ALL, FULL, Decode((("a", 6),)), Finish("a", 4, True)),
    ],
    "decode: slots are reserved: what is accepted is committed": [
        Case(ALL, RESERVED, Decode((("a", 5),)), Commit("a", (5,))),
        Case(ALL, [*TWO_STARTED, (Reserve("b", 1), Reply(slots=[[9]]))], Decode((("a", 5), ("b", 6))),
             Decode((("a", 5),))),
    ],
    # ---- reserve, commit
    "reserve: the backend does not declare DRAFTS": [
        Case(without("DRAFTS"), STARTED, Reserve("a", 1), Reserve("a", 1), ALL),
    ],
    "reserve: more than the pending token is without KV, or no row is held": [
        Case(ALL, [*STARTED, TWO[1]], Reserve("b", 1), Reserve("a", 1)),  # b waits
        Case(ALL, STARTED, Reserve("b", 1), Reserve("a", 1)),
        Case(ALL, BEGUN, Reserve("a", 1), Extend((("a", 3, 4),))),
    ],
    "reserve: no slot is asked for": [
        Case(ALL, STARTED, Reserve("a", 0), Reserve("a", 1)),
        Case(ALL, STARTED, Reserve("a", -1), Reserve("a", 99)),  # more than the row has may be asked for
        Case(ALL, RESERVED, Reserve("a", 0), Reserve("a", 1)),  # and what is there already
    ],
    "commit: the backend does not declare DRAFTS": [
        Case(without("DRAFTS"), STARTED, Commit("a", (5,)), Decode((("a", 5),))),
    ],
    "commit: more than the pending token is without KV, or no row is held": [
        Case(ALL, RESERVED, Commit("b", (5,)), Commit("a", (5,))),
        Case(ALL, [*RESERVED, TWO[1]], Commit("b", (5,)), Commit("a", (5,))),
        Case(ALL, [*RESERVED, (Retract("a"), Reply())], Commit("a", (5,)), Extend((("a", 4, 5),))),
        Case(ALL, BEGUN, Commit("a", (5,)), Extend((("a", 3, 4),))),
    ],
    "commit: nothing is accepted, not even the pending token": [
        Case(ALL, RESERVED, Commit("a", ()), Commit("a", (5,))),
    ],
    "commit: None is among the tokens": [Case(ALL, RESERVED, Commit("a", (None,)), Commit("a", (0,)))],
    "commit: more is accepted than slots are reserved for": [
        Case(ALL, RESERVED, Commit("a", (5, 6)), Commit("a", (5,))),
        Case(ALL, STARTED, Commit("a", (5,)), Decode((("a", 5),))),
    ],
    # ---- admit, defer, match_prefix
    "admit: the backend does not declare SPLIT_ADMIT": [
        Case(without("SPLIT_ADMIT"), WAITS, Admit("a"), Admit("a"), ALL),
    ],
    "admit: the request is not live": [Case(ALL, WAITS, Admit("b"), Admit("a"))],
    "admit: the request holds a row": [
        Case(ALL, [*STARTED, TWO[1]], Admit("a"), Admit("b")),
        Case(ALL, TURN, Admit("t"), Retract("t")),
        Case(ALL, [*BEGUN, TWO[1]], Admit("a"), Admit("b")),
    ],
    "admit: the request is admitted already": [
        Case(ALL, ADMITTED, Admit("a"), Defer("a")),
        Case(ALL, [*WAITS_TO_GO_ON, (Admit("u"), Reply())], Admit("u"), Defer("u")),  # a turn that has no match
    ],
    "defer: the request is not admitted": [
        Case(ALL, WAITS, Defer("a"), Admit("a")),
        Case(ALL, ADMITTED, Defer("b"), Defer("a")),
        Case(ALL, [*ADMITTED, STARTED[1]], Defer("a"), Retract("a")),
    ],
    "match_prefix: the backend does not declare SPLIT_ADMIT": [
        Case(without("SPLIT_ADMIT"), WAITS, MatchPrefix("a"), MatchPrefix("a"), ALL),
    ],
    "match_prefix: the request is not live": [Case(ALL, WAITS, MatchPrefix("b"), MatchPrefix("a"))],
    "match_prefix: the request holds a row": [
        Case(ALL, [*STARTED, TWO[1]], MatchPrefix("a"), MatchPrefix("b")),
        Case(ALL, TURN, MatchPrefix("t"), Retract("t")),
    ],
    "match_prefix: the request is admitted already": [
        Case(ALL, [*ADMITTED, TWO[1]], MatchPrefix("a"), MatchPrefix("b")),
        Case(ALL, [*WAITS_TO_GO_ON, (Admit("u"), Reply())], MatchPrefix("u"), Defer("u")),
    ],
    "match_prefix: the turn goes on with its session's record": [
        Case(ALL, [*WAITS_TO_GO_ON, WAITS[0]], MatchPrefix("u"), MatchPrefix("a")),
        Case(ALL, [*TURN, (Retract("t"), Reply())], MatchPrefix("t"), Admit("t")),
        Case(ALL, [*WAITS_TO_GO_ON, (Submit("w", (1,), "n", session="new"), Reply())], MatchPrefix("u"),
             MatchPrefix("w")),  # a first turn starts as any request
    ],
    # ---- checkpoint
    "checkpoint: the backend does not declare CHECKPOINT": [
        Case(without("CHECKPOINT"), STARTED, Checkpoint("a", 2), Checkpoint("a", 2), ALL),
    ],
    "checkpoint: the request holds no row": [
        Case(ALL, STARTED, Checkpoint("b", 0), Checkpoint("a", 0)),
        Case(ALL, [*STARTED, TWO[1]], Checkpoint("b", 0), Checkpoint("a", 0)),
    ],
    "checkpoint: the request is barred from publishing": [Case(ALL, BARRED, Checkpoint("a", 2), Checkpoint("b", 2))],
    "checkpoint: upto is negative": [Case(ALL, STARTED, Checkpoint("a", -1), Checkpoint("a", 0))],
    "checkpoint: upto lies below what is published already": [
        Case(ALL, PUBLISHED, Checkpoint("a", 1), Checkpoint("a", 2)),
    ],
    "checkpoint: upto lies above what is committed": [
        Case(ALL, STARTED, Checkpoint("a", 4), Checkpoint("a", 3)),  # the pending token has no KV
        Case(ALL, BEGUN, Checkpoint("a", 2), Checkpoint("a", 1)),
    ],
    # ---- finish, retract, abort
    "finish: the request holds no row": [
        Case(ALL, STARTED, Finish("b", 0, True), Finish("a", 0, True)),
        Case(ALL, WAITS, Finish("a", 0, False), Abort("a")),
    ],
    "finish: keep is negative": [
        Case(ALL, STARTED, Finish("a", -1, True), Finish("a", 0, True)),
        Case(ALL, STARTED, Finish("a", -1, False), Finish("a", 0, False)),
    ],
    "finish: keep lies above what is committed": [
        Case(ALL, STARTED, Finish("a", 4, True), Finish("a", 3, True)),
        Case(ALL, PUBLISHED, Finish("a", 4, False), Finish("a", 1, False)),  # below protected it may lie
    ],
    "finish: a turn ends into its session, and publishes nothing": [
        Case(ALL, TURN, Finish("t", 3, True), Finish("t", 3, False)),
        Case(ALL, CLOSING, Finish("t", 3, True), Finish("t", 3, False)),
    ],
    "finish: keep lies below what the session reads, or leaves it nothing": [
        Case(ALL, TURN, Finish("t", 0, False), Finish("t", 1, False)),
        Case(ALL, TURN_PUBLISHED, Finish("t", 1, False), Finish("t", 2, False)),
        Case(LAGGING, LAGGED, Finish("t", 2, False), Finish("t", 3, False)),
        Case(ALL, CLOSING, Finish("t", 0, False), Finish("t", 1, False)),
    ],
    "retract: the request holds no row": [
        Case(ALL, WAITS_TO_GO_ON, Retract("u"), Abort("u")),  # its session's record is not its own
        Case(ALL, STARTED, Retract("b"), Retract("a")),
        Case(ALL, WAITS, Retract("a"), Abort("a")),
        Case(ALL, [*BEGUN, TWO[1]], Retract("b"), Retract("a")),
    ],
    "abort: the request is not live": [
        Case(ALL, WAITS, Abort("b"), Abort("a")),
        Case(ALL, [*STARTED, (Abort("a"), Reply())], Abort("a"), Submit("a", (1,), "n")),
    ],
    # ---- close
    "close: the session does not exist": [
        Case(ALL, IDLE, Close("r"), Close("s")),
        Case(ALL, TURN, Close("t"), Close("s")),  # a turn is no session
        Case(ALL, [*IDLE, (Close("s"), Reply())], Close("s"), TALK),
        Case(ALL, [*CLOSING, (Abort("t"), Reply())], Close("s"), TALK),
    ],
    "close: the session is closed already": [Case(ALL, CLOSING, Close("s"), Abort("t"))],
    # ---- evict, flush
    "evict: the backend does not declare EVICT": [Case(without("EVICT"), CACHED, Evict(1), Evict(1), ALL)],
    "evict: no page is wanted": [
        Case(ALL, CACHED, Evict(0), Evict(1)),
        Case(ALL, CACHED, Evict(-1), Evict(99)),  # more than there is may be wanted
    ],
    "evict: nothing is evictable": [
        Case(ALL, STARTED, Evict(1), Flush()),  # private
        Case(ALL, PUBLISHED, Evict(1), Finish("a", 2, True)),  # cached, and read
    ],
    "flush: the backend does not declare PREFIX_CACHE": [
        Case(NO_CACHE, STARTED, Flush(), Flush(), ALL),
    ],
}  # fmt: skip


def after(world: World, calls: list[Call]) -> Ledger:
    """The ledger after a run that is judged."""
    monitor = Monitor(world)
    for act, reply in calls:
        monitor.step(act, reply)
    return monitor.ledger


@pytest.mark.parametrize(("reason", "case"), [(reason, case) for reason, cases in CASES.items() for case in cases])
def test_a_call_is_forbidden_for_this_reason_and_the_nearest_one_is_not(reason: str, case: Case) -> None:
    action, _, says = reason.partition(": ")
    assert name_of(case.forbidden) == action
    assert file_of(case.forbidden).requires(after(case.world, case.before), case.forbidden) == says
    allowed_in = after(case.allowed_in or case.world, case.before)
    assert file_of(case.allowed).requires(allowed_in, case.allowed) is None


def test_every_reason_of_the_sources_has_a_case() -> None:
    """Read off the files: every text that a `requires` returns, or what it asks."""
    assert CASES.keys() == set(reasons())


def reasons() -> Iterator[str]:
    for path in sorted(Path(str(actions.__file__)).parent.glob("*.py")):
        for function in answering(ast.parse(path.read_text(encoding="utf-8"))).values():
            yield from (f"{path.stem}: {text}" for text in returned(function, path))


def answering(file: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions of a file that return a reason or None: its `requires`, and those that it asks."""
    functions = [node for node in file.body if isinstance(node, ast.FunctionDef)]
    return {each.name: each for each in functions if each.returns and ast.unparse(each.returns) == "str | None"}


def returned(function: ast.FunctionDef, path: Path) -> Iterator[str]:
    """Every text in a return of this function; the conditions of a choice, which hold words of their own, aside, and
    what another function of the file returns, which is read there."""
    others = answering(ast.parse(path.read_text(encoding="utf-8")))
    for node in ast.walk(function):
        if isinstance(node, ast.Return):
            values = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
            for value in values:
                if isinstance(value, ast.Call) and ast.unparse(value.func) in others:
                    continue
                assert isinstance(value, ast.Constant), f"{function.name}: a reason that is not written out"
                if value.value is not None:
                    yield str(value.value)
