"""The ledger as a person reads it: what a stored trace says is true after a step. Names, no ghosts, no tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kvledger.spec.actions import Submit
from kvledger.spec.backend import RecordView
from kvledger.spec.itf import NUMBER, TEXT, TRUTH, map_of, optional, record_of, tuple_of, variant_of
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import CACHED
from kvledger.spec.stored import ACTIONS, NUMBERS, PAGES, RECORD
from kvledger.spec.world import Holder, PageId, ReqId, SessionId


class Private(NamedTuple):
    """A page that belongs to place `ordinal` of the holder's row."""

    holder: Holder
    ordinal: int


class Cached(NamedTuple):
    """A page of the prefix cache. locks: how many holders read it."""

    locks: int


class Key(NamedTuple):
    """A cached key: its pages, and the lowest page of the key before it (None: no such key is cached)."""

    pages: frozenset[PageId]
    parent: PageId | None


@dataclass(frozen=True)
class Conversation:
    """A session. turn: the one that lives. settled: it publishes nothing more. closing: it goes with its turn."""

    turn: ReqId | None = None
    settled: bool = False
    closing: bool = False


@dataclass(frozen=True)
class Keyframe:
    """requests: each as the submit that would bring it as it is now. pages: those that are not free.
    index: each cached key, named by its lowest page. admitted: who may start next, and the pages of its match."""

    requests: tuple[Submit, ...]
    records: Mapping[Holder, RecordView]
    tables: Mapping[Holder, tuple[PageId, ...]]
    pages: Mapping[PageId, Private | Cached]
    index: Mapping[PageId, Key]
    sessions: Mapping[SessionId, Conversation] = field(default_factory=dict)
    admitted: Mapping[ReqId, tuple[PageId, ...]] = field(default_factory=dict)


KEYFRAME = record_of(
    Keyframe,
    requests=tuple_of(ACTIONS[Submit]),
    records=map_of(TEXT, RECORD),
    tables=map_of(TEXT, NUMBERS),
    pages=map_of(
        NUMBER,
        variant_of(
            Private=record_of(Private, holder=TEXT, ordinal=NUMBER),
            Cached=record_of(Cached, locks=NUMBER),
        ),
    ),
    index=map_of(NUMBER, record_of(Key, pages=PAGES, parent=optional(NUMBER))),
    sessions=map_of(TEXT, record_of(Conversation, turn=optional(TEXT), settled=TRUTH, closing=TRUTH)),
    admitted=map_of(TEXT, NUMBERS),
)


def keyframe(ledger: Ledger) -> Keyframe:
    """What the law holds true now, in a fixed order."""
    holder_of = {record.row: holder for holder, record in ledger.records.items()}
    pages: dict[PageId, Private | Cached] = {}
    for page, state in sorted(ledger.pages.items()):
        pages[page] = Cached(state.locks) if state.kind == CACHED else Private(holder_of[state.owner], state.ordinal)
    lowest = {tag: min(entry.pages) for tag, entry in ledger.index.items()}
    keys = {lowest[tag]: Key(entry.pages, lowest.get(entry.parent)) for tag, entry in ledger.index.items()}
    return Keyframe(
        requests=tuple(
            Submit(req, each.tokens, each.namespace, each.match_limit, each.publish, each.session)
            for req, each in sorted(ledger.requests.items())
        ),
        records={holder: RecordView(*record) for holder, record in sorted(ledger.records.items())},
        tables=dict(sorted(ledger.tables.items())),
        pages=pages,
        index=dict(sorted(keys.items())),
        sessions={name: Conversation(*each[4:]) for name, each in sorted(ledger.sessions.items())},
        admitted=dict(sorted(ledger.admitted.items())),
    )
