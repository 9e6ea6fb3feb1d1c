"""The whole state, every view derived from it, and Edit: its only writer.

What is free is not stored: a page or a row that no map mentions is free. Ghosts are kept for the laws alone:
`trail` and `tags` name content, so that "whose KV is this" has an answer at every step.

A tag is one int for a whole prefix, namespace included: tag(before, token), interned in `Names`. The key of a
cached page is the tag where its last token ends, so a key names the page's content and all before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar, cast

from kvledger.spec import page as kernel
from kvledger.spec import record as record_kernel
from kvledger.spec.page import CACHED, FREE_PAGE, Page, pages_for, whole_pages
from kvledger.spec.record import NO_RECORD, Record
from kvledger.spec.world import Holder, Namespace, PageId, ReqId, Row, Token, World

Tag: TypeAlias = int  # names one prefix inside one namespace; >= 1
K = TypeVar("K")
V = TypeVar("V")


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
        return cls(world, {}, {}, {}, {}, {}, {}, {}, Names())

    def page(self, page: PageId) -> Page:
        """The state of a page."""
        return self.pages.get(page, FREE_PAGE)

    def is_free(self, page: PageId) -> bool:
        """Whether this is a page of the pool that nobody owns."""
        return 1 <= page <= self.world.pages and page not in self.pages

    def free_pages(self) -> int:
        """How many pages nobody owns."""
        return self.world.pages - len(self.pages)

    def evictable(self) -> list[PageId]:
        """The pages that are cached and read by nobody. A scan: asked for only where it decides."""
        return [page for page, state in self.pages.items() if state.kind == CACHED and state.locks == 0]

    def alone(self, namespace: Namespace) -> bool:
        """Whether no request and no key of another namespace is there."""
        roots = {request.namespace for request in self.requests.values()} | {namespace}
        known = {self.names.root(name) for name in roots}
        return len(roots) == 1 and known.issuperset(entry.root for entry in self.index.values())

    def free_rows(self) -> int:
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
        """Where the next extend of a request begins, in tokens: its committed length, or its coming match."""
        if self.holds_row(req):
            return self.records[req].committed_len
        return self.longest_match(req) * self.world.page_size


class Touched(NamedTuple):
    """What one edit wrote, for the laws that look at nothing else."""

    holders: set[Holder]
    pages: set[PageId]
    keys: set[Tag]


class Edit:
    """The only writer. A copy for exploration; in place for the monitor, which is legal because judging comes
    first and nothing here can fail on a judged answer. Kernel transitions decide a page's or a record's own
    fields; this layer says who refers to whom."""

    def __init__(self, ledger: Ledger, *, in_place: bool = False) -> None:
        self.ledger, self.world, self.names = ledger, ledger.world, ledger.names
        self.requests = _writable(ledger.requests, in_place)
        self.records = _writable(ledger.records, in_place)
        self.tables = _writable(ledger.tables, in_place)
        self.locks = _writable(ledger.locks, in_place)
        self.pages = _writable(ledger.pages, in_place)
        self.index = _writable(ledger.index, in_place)
        self.tags = _writable(ledger.tags, in_place)
        self.touched = Touched(set(), set(), set())
        self._leaf_first = self.world.has("LEAF_FIRST")
        self._in_place = in_place

    def commit(self) -> Ledger:
        """The ledger with everything written."""
        if self._in_place:
            return self.ledger
        return Ledger(
            self.world,
            self.requests,
            self.records,
            self.tables,
            self.locks,
            self.pages,
            self.index,
            self.tags,
            self.names,
        )

    def submit(self, req: ReqId, request: Request) -> None:
        """A request waits."""
        self.requests[req] = request

    def sample(self, req: ReqId, token: Token) -> None:
        """The sampled token is appended: it is pending."""
        request = self.requests[req]
        tail = self.names.trail(request.trail[-1], (token,))
        self.requests[req] = request._replace(tokens=(*request.tokens, token), trail=request.trail + tail)

    def start(self, req: ReqId, row: Row, matched: tuple[PageId, ...], pages: tuple[PageId, ...], upto: int) -> None:
        """A waiting request takes a row, locks its match, and gets slots and KV up to `upto`."""
        size = self.world.page_size
        self.records[req] = record_kernel.start(row, len(matched) * size, upto, size)
        self.tables[req] = matched
        self._lock(req, matched)
        self._hand_out(req, pages, len(matched) * size, upto)

    def grow(self, req: ReqId, pages: tuple[PageId, ...], upto: int) -> None:
        """Slots and KV for [committed, upto); the partial last page is filled before a new one is."""
        record = self.records[req]
        self.records[req] = record_kernel.grow(record, upto, self.world.page_size)
        self._hand_out(req, pages, record.committed_len, upto)

    def publish(self, req: ReqId, pages: tuple[PageId, ...]) -> None:
        """[protected, k) goes to the cache: each own page under its key, or, merged, freed for the one there."""
        if not pages:
            return
        request, record, size = self.requests[req], self.records[req], self.world.page_size
        first = record.protected_len // size
        for ordinal, (own, stays) in enumerate(
            zip(self.tables[req][first : first + len(pages)], pages, strict=True), first
        ):
            if own == stays:
                self._cache(own, self.ledger.key(request, ordinal), self.ledger.parent_key(request, ordinal), request)
            else:
                kernel.give_back(self.pages[own], cast(int, record.row))
                self._free(own)
        self._lock(req, pages)
        self.tables[req] = self.tables[req][:first] + pages + self.tables[req][first + len(pages) :]
        self.records[req] = record_kernel.protect(record, (first + len(pages)) * size, size)
        self.touched.holders.add(req)

    def release(self, req: ReqId) -> None:
        """Every private page of the request goes back, then its lock, then its row. The one way to give back."""
        record = self.records.pop(req)
        record_kernel.release(record, self.world.page_size)
        for page in self.tables.pop(req)[record.protected_len // self.world.page_size :]:
            kernel.give_back(self.pages[page], cast(int, record.row))
            self._free(page)
        for page in self.locks.pop(req, ()):
            self.pages[page] = kernel.unlock(self.pages[page])
            self.touched.pages.add(page)
        self.touched.holders.add(req)

    def forget(self, req: ReqId) -> None:
        """The request has ended."""
        del self.requests[req]

    def evict(self, pages: Iterable[PageId]) -> None:
        """Cached pages that nobody reads become free."""
        for page in pages:
            key = self.pages[page].owner
            kernel.evict(self.pages[page])
            self._free(page)
            entry = self.index[key]
            self.touched.keys.add(key)
            if entry.pages == {page}:
                del self.index[key]
                self._count_child(entry.parent, -1)
            else:
                self.index[key] = Entry(entry.pages - {page}, *entry[1:])

    def _hand_out(self, req: ReqId, pages: tuple[PageId, ...], prefix: int, upto: int) -> None:
        table, size, row = self.tables[req], self.world.page_size, cast(int, self.records[req].row)
        for ordinal, page in enumerate(pages, len(table)):
            self.pages[page] = kernel.grant(self.pages.get(page, FREE_PAGE), row, ordinal)
        self.tables[req] = table = table + pages
        trail = self.requests[req].trail
        for ordinal in range(prefix // size, pages_for(upto, size)):
            page = table[ordinal]
            self.tags[page] = trail[ordinal * size : min(upto, (ordinal + 1) * size)]
            self.touched.pages.add(page)
        self.touched.holders.add(req)

    def _lock(self, req: ReqId, pages: tuple[PageId, ...]) -> None:
        if pages:
            for page in pages:
                self.pages[page] = kernel.lock(self.pages[page])
            self.touched.pages.update(pages)
            self.locks[req] = self.locks.get(req, frozenset()).union(pages)

    def _cache(self, page: PageId, key: Tag, parent: Tag, request: Request) -> None:
        self.pages[page] = kernel.publish(self.pages[page], key)
        entry = self.index.get(key)
        if entry is None:
            self.index[key] = Entry(frozenset((page,)), parent, request.root, 0)
            self._count_child(parent, +1)
        else:
            self.index[key] = Entry(entry.pages | {page}, *entry[1:])
        self.touched.keys.add(key)

    def _count_child(self, parent: Tag, more: int) -> None:
        if self._leaf_first and parent in self.index:
            entry = self.index[parent]
            self.index[parent] = Entry(*entry[:3], entry.children + more)
            self.touched.keys.add(parent)

    def _free(self, page: PageId) -> None:
        del self.pages[page], self.tags[page]
        self.touched.pages.add(page)


def _writable(mapping: Mapping[K, V], in_place: bool) -> dict[K, V]:
    return cast("dict[K, V]", mapping) if in_place else dict(mapping)
