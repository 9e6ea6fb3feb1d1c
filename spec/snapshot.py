"""A ledger in the middle of a run, told by whoever was there: where a recording begins that did not see the start.

It says what an engine knows: live requests, sessions, records, rows, and the prefix cache as a tree. What follows from
that, locks, owners, content, is worked out here, and the whole is then held against every law.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from kvledger.spec.actions import Submit
from kvledger.spec.backend import RecordView
from kvledger.spec.invariants import check_whole
from kvledger.spec.ledger import Entry, Ledger, Names, Request, Session, Tag, slots_in
from kvledger.spec.page import CACHED, PRIVATE, Page, SpecError, page_of
from kvledger.spec.record import Record
from kvledger.spec.world import Holder, Namespace, PageId, ReqId, SessionId, Slot, Token, World, WrongInput


class Node(NamedTuple):
    """One node of the prefix cache. tokens: those behind its parent's. pages: as many of its prefix, from its end
    backwards, as stand here. parent: the place of its parent in the list, somewhere before it; None: it begins a
    prefix, in this namespace."""

    tokens: tuple[Token, ...]
    pages: tuple[PageId, ...]
    parent: int | None = None
    namespace: Namespace = 0


class Talk(NamedTuple):
    """A session. tokens: of [0, committed_len) of its record, while that is with the session. turn: the one that lives.
    settled: the record has been with the session before. closing: it goes with its turn."""

    tokens: tuple[Token, ...] = ()
    namespace: Namespace = 0
    turn: ReqId | None = None
    settled: bool = False
    closing: bool = False


@dataclass(frozen=True)
class Snapshot:
    """requests: each as the submit that would bring it as it is now, its pending token included. records: of those who
    hold a row; one that a session has lent stands under the turn. table: the slots of [0, allocated_len) of each of
    them. admitted: who may start next, and the pages of its match."""

    requests: Sequence[Submit] = ()
    sessions: Mapping[SessionId, Talk] = field(default_factory=dict)
    records: Mapping[Holder, RecordView] = field(default_factory=dict)
    table: Mapping[Holder, Sequence[Slot]] = field(default_factory=dict)
    admitted: Mapping[ReqId, Sequence[PageId]] = field(default_factory=dict)
    cached: Sequence[Node] = ()


def opened(world: World, snapshot: Snapshot) -> Ledger:
    """The ledger that a snapshot tells. Raises WrongInput, one line, if no lawful run leads to it."""
    names = Names()
    requests, sessions = dict(_requests(names, snapshot)), dict(_sessions(names, snapshot))
    _ask_whole(world, snapshot, requests, sessions)
    records, tables = dict(_records(world, snapshot)), dict(_tables(world, snapshot))
    keys = list(_keys(world, names, snapshot))
    index = dict[Tag, Entry]()
    children = Counter({key: parent for key, parent, *_ in keys}.values() if world.has("LEAF_FIRST") else ())
    for key, parent, root, page in keys:
        others = index[key].pages if key in index else frozenset[PageId]()
        index[key] = Entry(others | {page}, parent, root, children[key])
    read = {holder: tables[holder][: record.protected_len // world.page_size] for holder, record in records.items()}
    admitted = {req: tuple(pages) for req, pages in snapshot.admitted.items()}
    locks = {holder: frozenset(pages) for holder, pages in (read | admitted).items() if pages}
    readers = Counter(chain.from_iterable(locks.values()))
    pages = {page: Page(CACHED, key, 0, readers[page]) for key, _, _, page in keys}
    tags = {page: _content(world, names, key) for key, _, _, page in keys}
    for holder, record in records.items():
        first, trail = len(read[holder]), (requests if holder in requests else sessions)[holder].trail
        for ordinal, page in enumerate(tables[holder][first:], first):
            if page in pages:
                raise WrongInput(f"snapshot: page {page} of {holder} has another owner, expected one")
            pages[page] = Page(PRIVATE, record.row or 0, ordinal, 0)
            written = trail[ordinal * world.page_size : min(record.committed_len, (ordinal + 1) * world.page_size)]
            tags |= {page: written} if written else {}
    ledger = Ledger(world, requests, sessions, admitted, records, tables, locks, pages, index, tags, names)
    try:
        check_whole(ledger)
    except SpecError as error:
        raise WrongInput(f"snapshot: {error}, expected what a lawful run leads to") from None
    return ledger


def _requests(names: Names, snapshot: Snapshot) -> Iterator[tuple[ReqId, Request]]:
    for each in snapshot.requests:
        root = names.root(each.namespace)
        yield each.req, Request(each.tokens, each.namespace, names.trail(root, each.tokens), root, *each[3:])


def _sessions(names: Names, snapshot: Snapshot) -> Iterator[tuple[SessionId, Session]]:
    for session, talk in snapshot.sessions.items():
        root = names.root(talk.namespace)
        yield session, Session(talk.namespace, root, talk.tokens, names.trail(root, talk.tokens), *talk[2:])


def _ask_whole(
    world: World, snapshot: Snapshot, requests: Mapping[ReqId, Request], sessions: Mapping[SessionId, Session]
) -> None:
    """That everybody who is spoken of is there, and in the world. Raises WrongInput."""
    if len(requests) < len(snapshot.requests):
        raise WrongInput("snapshot: a request stands there twice, expected each once")
    for part, named, there in (
        ("records", snapshot.records, requests.keys() | sessions.keys()),
        ("table", snapshot.table, snapshot.records.keys()),
        ("admitted", snapshot.admitted, requests.keys()),
    ):
        for who in sorted(named.keys() - there):
            raise WrongInput(f"snapshot: {part} of {who!r}, expected one of {', '.join(sorted(there)) or 'nobody'}")
    for who in sorted(snapshot.records.keys() - snapshot.table.keys()):
        raise WrongInput(f"snapshot: no table of {who!r}, expected the slots of its row")
    for req, request in requests.items():
        if not request.tokens or None in request.tokens:
            raise WrongInput(f"snapshot: request {req} has no token, or one that is None")
        of = request.session
        if of is not None and (of not in sessions or sessions[of].turn != req or not world.has("SESSIONS")):
            raise WrongInput(f"snapshot: request {req} is of session {of}, expected to be its turn there")
    for who, record in snapshot.records.items():
        if world.has("ROWS") and not 1 <= (record.row or 0) <= world.rows:
            raise WrongInput(f"snapshot: {who} holds row {record.row}, expected one from 1 to {world.rows}")


def _records(world: World, snapshot: Snapshot) -> Iterator[tuple[Holder, Record]]:
    """Where there are no rows the records are numbered, as the monitor does."""
    for number, (holder, record) in enumerate(snapshot.records.items(), 1):
        yield holder, Record(record.row if world.has("ROWS") else number, *record[1:])


def _tables(world: World, snapshot: Snapshot) -> Iterator[tuple[Holder, tuple[PageId, ...]]]:
    """Rows in pages."""
    size = world.page_size
    for holder, slots in snapshot.table.items():
        pages = tuple(page_of(slot, size) for slot in slots[::size])
        if tuple(slots) != slots_in(pages, 0, len(slots), size) or len(slots) != snapshot.records[holder].allocated_len:
            raise WrongInput(f"snapshot: table of {holder}, expected whole pages in order, up to its allocated_len")
        yield holder, pages


def _keys(world: World, names: Names, snapshot: Snapshot) -> Iterator[tuple[Tag, Tag, Tag, PageId]]:
    """Each cached page with its key, the key before that, and the namespace's root."""
    size, lag = world.page_size, world.declared.key_lag
    trails, roots = list[tuple[Tag, ...]](), list[Tag]()
    for number, node in enumerate(snapshot.cached):
        if node.parent is not None and not 0 <= node.parent < number:
            raise WrongInput(f"snapshot: cached[{number}].parent = {node.parent}, expected a node before it")
        root = names.root(node.namespace) if node.parent is None else roots[node.parent]
        before = () if node.parent is None else trails[node.parent]
        trail = before + names.trail(before[-1] if before else root, node.tokens)
        trails.append(trail)
        roots.append(root)
        last = (len(trail) - lag) // size
        if (len(trail) - lag) % size or not 0 < len(node.pages) <= last:
            said = f"{len(node.pages)} pages at the end of {len(trail)} tokens"
            raise WrongInput(f"snapshot: cached[{number}] has {said}, expected whole pages of these")
        for ordinal, page in enumerate(node.pages, last - len(node.pages)):
            end = (ordinal + 1) * size - 1 + lag
            yield trail[end], trail[end - size] if ordinal else root, root, page


def _content(world: World, names: Names, key: Tag) -> tuple[Tag, ...]:
    """What stands in a page under this key, position by position."""
    trail = [key]
    while len(trail) < world.page_size + world.declared.key_lag:
        trail.append(names.before(trail[-1]))
    return tuple(reversed(trail))[: world.page_size]
