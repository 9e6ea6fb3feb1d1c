"""A busy SGLang of any generation, and which parts of its view change when somebody spoils its books: for the scripts
that run inside its environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from kvledger.spec.actions import Checkpoint, Decode, Extend, Finish, Submit
from kvledger.spec.backend import View
from kvledger.spec.world import ReqId, World


def submit(req: ReqId, length: int, session: str | None = None) -> Submit:
    return Submit(req, tuple((req, number) for number in range(length)), 0, session=session)


def extend(req: ReqId, upto: int) -> Extend:
    return Extend(((req, upto, 0),))


def busy(make: Callable[[World], Any]) -> Any:
    """A runs with a page published and one of its own, S keeps a record of a turn that ended, and a page is cached that
    nobody reads."""
    engine = make(World(rows=4, context_len=16, pages=9, page_size=4))
    for act in (
        submit("D", 4), extend("D", 4), Checkpoint("D", 4), Finish("D", 4, True),
        submit("B", 6, "S"), extend("B", 6), Finish("B", 6, False),
        submit("A", 6), extend("A", 6), Checkpoint("A", 6), Decode((("A", 1),)),
    ):  # fmt: skip
        engine.do(act)
    return engine


def changed(make: Callable[[World], Any], spoils: Iterable[Callable[[Any], None]]) -> dict[str, list[str]]:
    """The parts of a view that change when one number of the engine's is changed, by what changed it."""
    found = {}
    for spoil in spoils:
        engine = busy(make)
        before = engine.view()
        spoil(engine)
        after = engine.view()
        found[spoil.__name__] = [each.name for each in fields(View)
                                 if getattr(before, each.name) != getattr(after, each.name)]  # fmt: skip
    return found
