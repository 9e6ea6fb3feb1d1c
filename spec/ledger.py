"""The whole state, and every view derived from it. Edit (spec/edit.py) is its only writer.

What is free is not stored: a page or a row that no map mentions is free. Ghosts are kept for the laws alone:
`trail` and `tags` name content, so that "whose KV is this" has an answer at every step.

A tag is one int for a whole prefix, namespace included: tag(before, token), interned in `Names`. The key of a
cached page is the tag where its last token ends, so a key names the page's content and all before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias

from kvledger.spec.page import CACHED, FREE_PAGE, Page, pages_for, slot_of, whole_pages
from kvledger.spec.record import NO_RECORD, Record
from kvledger.spec.world import Holder, Namespace, PageId, ReqId, Row, SessionId, Slot, Token, World

Tag: TypeAlias = int  # names one prefix inside one namespace; >= 1


class Root(NamedTuple):
    """The empty prefix of a namespace; wrapped, because a namespace may look like anything."""

    namespace: Namespace


class Names:
    """Interns prefixes: the same prefix gets the same tag, another one never does. Belongs to one run."""

    def __init__(self) -> None:
        self._tags: dict[Root | tuple[Tag, Token], Tag] = {}
        self._before: list[Tag] = [0]  # by tag: the tag one token earlier; 0 before a root
        self.roots: list[Tag] = []

    def root(self, namespace: Namespace) -> Tag:
        """The tag of the empty prefix."""
        found = self._tags.get(Root(namespace))
        if found is None:
            found = self._tags[Root(namespace)] = len(self._before)
            self._before.append(0)
            self.roots.append(found)
        return found

    def known_root(self, namespace: Namespace) -> Tag | None:
        """The tag of the empty prefix, if that namespace has been seen."""
        return self._tags.get(Root(namespace))

    def trail(self, before: Tag, tokens: Iterable[Token]) -> tuple[Tag, ...]:
        """The tag after each of these tokens, in turn."""
        tags, trail, links = self._tags, list[Tag](), self._before
        known, add, link = tags.get, trail.append, links.append  # the one loop over every token of every prompt
        for token in tokens:
            found = known(step := (before, token))
            if found is None:
                found = tags[step] = len(links)
                link(before)
            add(before := found)
        return tuple(trail)

    def known(self, before: Tag, tokens: Iterable[Token]) -> Tag | None:
        """The tag after all of these tokens, if that prefix has been seen."""
        for token in tokens:
            found = self._tags.get((before, token))
            if found is None:
                return None
            before = found
        return before

    def before(self, tag: Tag) -> Tag:
        """The tag one token earlier; 0 for a root."""
        return self._before[tag]


class Request(NamedTuple):
    """A live request. Ended ones are forgotten, and their ids may come again."""

    tokens: tuple[Token, ...]  # the pending token included
    namespace: Namespace
    trail: tuple[Tag, ...]  # ghost: trail[i] is the tag of tokens[: i + 1]
    root: Tag  # ghost: the tag of no tokens at all
    match_limit: int | None
    publish: bool
    session: SessionId | None = None  # whose turn it is


class Session(NamedTuple):
    """A conversation, from its first turn until it is closed. Between turns its record stands under its own id."""

    namespace: Namespace
    root: Tag  # ghost
    tokens: tuple[Token, ...] = ()  # of [0, committed_len) of its record, while it holds one
    trail: tuple[Tag, ...] = ()  # ghost: theirs
    turn: ReqId | None = None  # the one that lives, if only waiting
    settled: bool = False  # its record has been with the session once, and publishes nothing more
    closing: bool = False  # closed while a turn lives: it goes when the turn ends


class Entry(NamedTuple):
    """One key of the prefix cache."""

    pages: frozenset[PageId]  # never empty; one member without DUPLICATES
    parent: Tag  # the key of the page before; the root for a first page
    root: Tag  # the namespace
    children: int  # cached keys right under this one; counted only with LEAF_FIRST


@dataclass(frozen=True)
class Ledger:
    """Who owns what. Equality is by value; two runs have different tags, so compare those by canonical form."""

    world: World
    requests: Mapping[ReqId, Request]
    sessions: Mapping[SessionId, Session]
    admitted: Mapping[ReqId, tuple[PageId, ...]]  # who may start next, and what it has matched and locked
    records: Mapping[Holder, Record]  # of those who hold a row; absent: holds nothing
    tables: Mapping[Holder, tuple[PageId, ...]]  # the row, in pages: those of [0, allocated_len)
    locks: Mapping[Holder, frozenset[PageId]]  # a receipt: the cached pages that a holder reads
    pages: Mapping[PageId, Page]  # absent: free
    index: Mapping[Tag, Entry]  # the prefix cache, by key
    tags: Mapping[PageId, tuple[Tag, ...]]  # ghost: what is written in a page, position by position
    names: Names = field(compare=False)

    @classmethod
    def start(cls, world: World) -> Ledger:
        """Everything is free."""
        return cls(world, {}, {}, {}, {}, {}, {}, {}, {}, {}, Names())

    def page(self, page: PageId) -> Page:
        """The state of a page."""
        return self.pages.get(page, FREE_PAGE)

    def is_free(self, page: PageId) -> bool:
        """Whether this is a page of the pool that nobody owns."""
        return 1 <= page <= self.world.pages and page not in self.pages

    def free_page_count(self) -> int:
        """How many pages nobody owns."""
        return self.world.pages - len(self.pages)

    def cached(self) -> frozenset[PageId]:
        """The pages of the prefix cache. A scan."""
        return frozenset(page for page, state in self.pages.items() if state.kind == CACHED)

    def evictable(self) -> list[PageId]:
        """The pages that are cached and read by nobody. A scan: asked for only where it decides."""
        return [page for page, state in self.pages.items() if state.kind == CACHED and state.locks == 0]

    def is_only_namespace(self, namespace: Namespace) -> bool:
        """Whether no request and no key of another namespace is there."""
        roots = {each.root for held in (self.requests, self.sessions, self.index) for each in held.values()}
        return roots <= {self.names.known_root(namespace)}

    def free_row_count(self) -> int:
        """How many rows nobody holds."""
        return self.world.rows - len(self.records)

    def holder_of(self, row: Row) -> Holder | None:
        """Who holds this row."""
        return next((holder for holder, record in self.records.items() if record.row == row), None)

    def record(self, holder: Holder) -> Record:
        """The KV record of a holder; one that holds nothing if there is none."""
        return self.records.get(holder, NO_RECORD)

    def holds_row(self, req: ReqId) -> bool:
        """Whether the request holds KV, half-prefilled included."""
        return self.record(req).holds_kv

    def caught_up(self, req: ReqId) -> bool:
        """Whether only the token sampled last is without KV."""
        return self.holds_row(req) and self.records[req].committed_len == len(self.requests[req].tokens) - 1

    def over_allocated(self, req: ReqId) -> bool:
        """Whether slots are reserved beyond what has KV: drafts."""
        record = self.record(req)
        return record.holds_kv and record.allocated_len > record.committed_len

    def lender(self, req: ReqId) -> SessionId | None:
        """The session whose record this request takes up when it starts; None: it starts with a row of its own, or
        has started."""
        session = self.requests[req].session
        return session if session in self.records and req not in self.records else None

    def behind(self, req: ReqId) -> Holder:
        """Under whom the record stands that this request goes on with."""
        lender = self.lender(req)
        return req if lender is None else lender

    def tokens_of(self, holder: Holder) -> tuple[Token, ...]:
        """What is known of the tokens behind a holder's record."""
        return self.requests[holder].tokens if holder in self.requests else self.sessions[holder].tokens

    def trail_of(self, holder: Holder) -> tuple[Tag, ...]:
        """Ghost: the tags of those tokens."""
        return self.requests[holder].trail if holder in self.requests else self.sessions[holder].trail

    def least_kept(self, holder: Holder) -> int:
        """How much of a record a session keeps at least, in tokens: what is read from the cache, with every token that
        its keys name (one more with key_lag 1); of a record that reads nothing, one token to go on from."""
        protected = self.record(holder).protected_len
        return protected + self.world.declared.key_lag if protected else 1

    def may_publish(self, req: ReqId, by: str) -> bool:
        """Whether this action may pass KV of the request to the cache: it is not barred, and its record was never a
        session's; but an aborted turn ends as any request does."""
        request = self.requests[req]
        settled = request.session is not None and self.sessions[request.session].settled
        return request.publish and (not settled or by == "abort")

    def key(self, request: Request, ordinal: int) -> Tag:
        """The key of the request's page `ordinal`: the tag where it ends (one token further with key_lag 1)."""
        return request.trail[(ordinal + 1) * self.world.page_size - 1 + self.world.declared.key_lag]

    def parent_key(self, request: Request, ordinal: int) -> Tag:
        """The key of the page before page `ordinal`."""
        return self.key(request, ordinal - 1) if ordinal else request.root

    def publishable(self, length: int) -> int:
        """How many pages of [0, length) can stand under a key."""
        return whole_pages(max(0, length - self.world.declared.key_lag), self.world.page_size)

    def match_cap(self, request: Request) -> int:
        """How many tokens a match may take: one must be left to compute, and match_limit may say less."""
        most = len(request.tokens) - 1
        return most if request.match_limit is None else min(most, request.match_limit)

    def longest_match(self, req: ReqId) -> int:
        """How many pages a start of this waiting request finds now, less the declared back-off."""
        request = self.requests[req]
        found, most = 0, self.publishable(self.match_cap(request))
        while found < most and self.key(request, found) in self.index:
            found += 1
        return max(0, found - self.world.declared.match_backoff)

    def prefix(self, req: ReqId) -> int:
        """Where the next extend of a request begins, in tokens: at its committed length; a turn, at its session's, but
        for one token that is left to compute; else at its match, the one it was admitted with or the coming one."""
        if self.holds_row(req):
            return self.records[req].committed_len
        lender = self.lender(req)
        if lender is not None:
            return min(self.records[lender].committed_len, len(self.requests[req].tokens) - 1)
        found = len(self.admitted[req]) if req in self.admitted else self.longest_match(req)
        return found * self.world.page_size

    def row_of(self, req: ReqId) -> tuple[PageId, ...]:
        """The pages that its row lists when the next extend begins: of a turn, without what lies beyond its prefix."""
        lender = self.lender(req)
        if lender is not None:
            return self.tables[lender][: pages_for(self.prefix(req), self.world.page_size)]
        return self.tables[req]


def slots_in(pages: Sequence[PageId], start: int, upto: int, page_size: int) -> tuple[Slot, ...]:
    """The slots of positions [start, upto) of a row that lists these pages: inside a page one after another."""
    before = start // page_size
    firsts = (slot_of(page, 0, page_size) for page in pages[before : pages_for(upto, page_size)])
    slots = tuple(chain.from_iterable(range(first, first + page_size) for first in firsts))
    return slots[start - before * page_size : upto - before * page_size]
