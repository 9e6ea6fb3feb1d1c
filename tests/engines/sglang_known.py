"""The faults of SGLang 0.5.23 that are known: for each a program that shows it, and what would repair it.

A check of `sglang` ends at the first of them. `sglang-repaired` is the same engine behind a caller that makes up for
them, so that a check of it goes on: whatever it finds is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from kvledger.spec.actions import (
    Abort,
    Action,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Extend,
    Finish,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.backend import Make, Reply
from kvledger.spec.trace import RAISES
from kvledger.spec.world import ReqId, Token, World
from kvledger.tests.engines import sglang
from kvledger.tests.engines.sglang_trees import NO_CACHE, PYTHON, RADIX, RUST, Tree


class Known(NamedTuple):
    """One fault. rule: what it breaks, at the last of these actions."""

    name: str
    rule: str
    make: Make
    actions: Sequence[Action]
    story: str


WORLD = World(rows=4, context_len=12, pages=6, page_size=4)


def submit(req: ReqId, length: int, session: str | None = None) -> Submit:
    """A request with a prompt of its own."""
    return Submit(req, tuple((req, number) for number in range(length)), 0, session=session)


def extend(req: ReqId, upto: int, token: Token = 0) -> Extend:
    """To the end of its tokens."""
    return Extend(((req, upto, token),))


CUT: Sequence[Action] = (
    submit("A", 6), extend("A", 6), Decode((("A", 1),)), Retract("A"), extend("A", 8), Checkpoint("A", 8),
    Finish("A", 6, True),
)  # fmt: skip
KNOWN = (
    Known(
        "row without KV", "ATOM-1", sglang.make_unasked,
        [submit("A", 12), submit("B", 12), submit("C", 12), Extend((("A", 12, 0), ("B", 12, 0), ("C", 12, 0)))],
        "alloc_for_extend binds rows before it allocates. Where it then runs out of memory the rows stay bound: such a "
        "request can neither be released nor extended again. The scheduler's budget is all that stands before it.",
    ),
    Known(
        "cut below what is published", RAISES, sglang.make, CUT,
        "A retracted request is prefilled again with its output, and the checkpoint publishes both. If it then ends "
        "with its thinking stripped (strip_thinking_cache), it owns its prompt alone, less than is published: the "
        "insertion fails an assertion, and the request is never released.",
    ),
    Known(
        "cut below what is published, RadixCache", "PAGE-6", sglang.make_radix, CUT,
        "The same on the plain tree: pages that the tree goes on listing are freed, and handed out again.",
    ),
    Known(
        "close lost", "PAGE-6", sglang.make,
        [submit("A", 4, "S"), extend("A", 4), Retract("A"), Close("S"), Abort("A")],
        "A retracted turn stands in its session as the last request, unfinished. If it is aborted while it waits, it "
        "stays so for ever, and a close that waits for it never takes effect: row and pages are lost.",
    ),
    Known(
        "turn detached", "ROW-4", sglang.make,
        [submit("B", 1), submit("C", 1), submit("D", 1), extend("B", 1), extend("C", 1), extend("D", 1),
         submit("A", 4, "S"), extend("A", 4), Retract("A"), extend("A", 5), Retract("A"), extend("A", 6)],
        "Session.finish_req cuts the request before off from the session. A turn that is retracted twice is itself "
        "the request before: it starts again as nobody's turn, with a second row, beside the record it had.",
    ),
    Known(
        "draft taken for text", "SES-1", sglang.make,
        [submit("A", 6, "S"), extend("A", 6), Reserve("A", 2), Commit("A", (1,)), Finish("A", 7, False)],
        "When a turn ends, its session takes as committed all that was said, the last token too, if there is a slot "
        "for it. Without overlap nothing has computed its KV: the next turn reads what a rejected draft left there.",
    ),
    Known(
        "draft taken for text, retracted", "SES-1", sglang.make,
        [submit("A", 6, "S"), extend("A", 6), Reserve("A", 2), Retract("A")],
        "The same when a turn is retracted. If it is aborted before it starts again, the next turn reads that slot.",
    ),
)  # fmt: skip


class Repaired(sglang.SGLang):
    """Nothing of the engine's is replaced: its caller does a little more."""

    def finish(self, rid: ReqId, keep: int, publish: bool) -> Reply:
        """No cut below what is published; and a session is handed no reserved slots."""
        req, before = self.reqs[rid], self.books()
        self.hand_in_drafts(req)
        keep = keep if req.session else max(keep, req.kv.cache_protected_len)
        return replace(super().finish(rid, keep, publish), freed=self.freed(before))

    def retract(self, rid: ReqId) -> Reply:
        """A turn is not the request before itself."""
        req, before = self.reqs[rid], self.books()
        self.hand_in_drafts(req)
        self.leave(req)
        return replace(super().retract(rid), freed=self.freed(before))

    def abort(self, rid: ReqId) -> Reply:
        """A turn that is gone is not the last request."""
        if not sglang.runs(self.reqs[rid]):
            self.leave(self.reqs[rid])
        return super().abort(rid)

    def hand_in_drafts(self, req: Any) -> None:
        if req.session:
            self.tree.session._free_tail(req.kv, req.kv.kv_committed_len)

    def leave(self, req: Any) -> None:
        if req.session:
            req.session.req_nodes.pop(req.rid, None)


def repaired(tree: Tree) -> Make:
    """Such an engine, under a name of its own."""
    return partial(Repaired, tree._replace(name=f"{tree.name}-repaired"), True)


make, make_rust, make_radix, make_no_cache = map(repaired, (PYTHON, RUST, RADIX, NO_CACHE))
