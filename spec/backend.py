"""What an implementation offers so that it can be judged: three methods, two of them short.

    class MyEngine:
        def declare(self) -> Declaration: ...        how it works where good engines differ
        def do(self, action) -> Reply | Refused: ... perform it; say what you chose
        def view(self) -> View | None: ...           optional: your own books, read, never computed from the answers

    def make(world: World) -> Backend: ...           the only thing you export

`do` alone is the black-box grade. A view is compared with the law, never merged with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from kvledger.spec.actions import Action
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.world import Declaration, Holder, PageId, Row, Slot, World

__all__ = [
    "Action",
    "Backend",
    "CachedView",
    "Declaration",
    "Freed",
    "KeepsContent",
    "Make",
    "RecordView",
    "Refused",
    "Reply",
    "Scrambles",
    "Totals",
    "View",
    "World",
]


class RecordView(NamedTuple):
    """One holder's KV record as the backend keeps it. Lengths in tokens. row None: the backend has no rows."""

    row: Row | None
    protected_len: int
    committed_len: int
    allocated_len: int


class CachedView(NamedTuple):
    """One cached page. key: any hashable that is equal iff namespace and prefix are. locks: who reads it now."""

    key: Hashable
    locks: int


class Totals(NamedTuple):
    """The backend's own statistics, in pages. available + evictable + protected + private = all pages (CONS-1).

    evictable: cached and unlocked. protected: cached and locked. private: held by one request or session.
    """

    available: int
    evictable: int
    protected: int
    private: int


@dataclass(frozen=True)
class View:
    """A backend's own books after an action. None: this backend cannot show that part.

    free_rows, free_pages: as the backend lists them, repetitions kept, in any order.
    records: of every live request and every session that the backend believes to hold KV, and of no other. A record
    that is lent to a turn stands there once, under the turn or under its session.
    table: the slots of [0, allocated_len) of each of them, read from the backend's own table; what stands
    behind them is not looked at.
    cached: every page in the prefix cache.
    """

    free_rows: Sequence[Row] | None = None
    free_pages: Sequence[PageId] | None = None
    records: Mapping[Holder, RecordView] | None = None
    table: Mapping[Holder, Sequence[Slot]] | None = None
    cached: Mapping[PageId, CachedView] | None = None
    totals: Totals | None = None


class Backend(Protocol):
    """An implementation under judgement."""

    def declare(self) -> Declaration:
        """How it works where good engines differ; the same answer every time."""

    def do(self, action: Action, /) -> Reply | Refused:
        """Perform the action and say what was chosen. Raising is a finding."""

    def view(self) -> View | None:
        """The backend's own books, or None."""


@runtime_checkable
class KeepsContent(Protocol):
    """Capability CONTENT: the backend stores one tag a slot where an engine stores K and V."""

    def write(self, slots: Sequence[Slot], tags: Sequence[int], /) -> None:
        """Called by the kit after each grant, as a forward pass would: slots[i] now holds tags[i]."""

    def read(self, holder: Holder, /) -> Sequence[int]:
        """The tags of [0, committed_len) of a request or idle session that holds KV, through the backend's table."""


@runtime_checkable
class Scrambles(Protocol):
    """Capability SCRAMBLE: the backend can spoil what nobody may read (REC-3)."""

    def scramble(self) -> None:
        """Overwrite the stale lengths of every record that holds no KV. Answers must not change."""


Make: TypeAlias = Callable[[World], Backend]
