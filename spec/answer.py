"""What a backend answers, and what the law sees of it.

A backend speaks in slots: Reply, or Refused. The monitor turns slots into pages once (TAB-1), so everything
behind it, judge, effect and answers, sees Granted or Refused. Absent means default: a field that comes later
spoils no stored trace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kvledger.spec.world import PageId, ReqId, Row, Slot

# for each request that published: the pages of [protected, k) as they stand under their keys, who merges after whom it
# merges with
Published: TypeAlias = tuple[tuple[ReqId, tuple[PageId, ...]], ...]


class Freed(NamedTuple):
    """What went back, sorted, with repetitions: a set would hide a double free."""

    pages: tuple[PageId, ...] = ()
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Granted:
    """The answer in pages. Tuples by batch member stand in batch order.

    rows: one for each member that starts. matched: the pages of the prefix found, for each member that starts.
    pages: each member's new pages, by position. published: for each holder that published, the pages of
    [protected, k) as they stand under their keys from now on; k is protected + their number, in pages.
    evicted: the pages that left the cache to make room. freed: what was given back (None: cannot tell).
    reserved: of a reserve, how far slots reach now, in tokens.
    """

    rows: tuple[Row, ...] = ()
    matched: tuple[tuple[PageId, ...], ...] = ()
    pages: tuple[tuple[PageId, ...], ...] = ()
    published: Published = ()
    evicted: frozenset[PageId] = frozenset()
    freed: Freed | None = None
    reserved: int = 0


@dataclass(frozen=True)
class Refused:
    """The answer "no", to the whole batch.

    short: "rows" or "pages"; None: not short of anything, but forbidden now (a flush while a request runs, a
    call outside what the action requires). evicted: the pages that left the cache before it gave up. freed: nothing,
    or what lay beyond the prefix of a turn that did not start (None: cannot tell).
    """

    short: str | None = None
    evicted: Collection[PageId] = frozenset()
    freed: Freed | None = None


@dataclass(frozen=True)
class Reply:
    """The answer "yes", as a backend gives it: slots where the law has pages.

    rows: the row of each member that starts (capability ROWS), in batch order.
    matched: the slots of the prefix found, for each member that starts.
    slots: the slots of each member's new positions. checkpoint: one member, the slots of [protected, k) as the
    row lists them from now on. reserve: one member, the slots of [allocated, as far as they reach).
    published: request -> k, the length under keys from now on, for each request that published.
    evicted: pages that left the cache. freed: what was given back, with repetitions (None: cannot tell).
    listed: request -> the slots of [protected, k) as its row lists them from now on, where DUPLICATES leaves a choice
    (a checkpoint says it in slots). Without it: its own page, or, if that was freed, the lowest under the key.
    """

    rows: Sequence[Row] = ()
    matched: Sequence[Sequence[Slot]] = ()
    slots: Sequence[Sequence[Slot]] = ()
    published: Mapping[ReqId, int] = field(default_factory=dict)
    evicted: Collection[PageId] = frozenset()
    freed: Freed | None = None
    listed: Mapping[ReqId, Sequence[Slot]] = field(default_factory=dict)
