"""The only writer of the state. The kernels decide a page's or a record's own fields; who refers to whom is said here.

A kernel is called also where its result is not kept, for its guard: what is free, and who holds nothing, is absent
from the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar, cast

from kvledger.spec import page as kernel
from kvledger.spec import record as record_kernel
from kvledger.spec.ledger import Entry, Ledger, Request, Tag
from kvledger.spec.page import FREE_PAGE, pages_for
from kvledger.spec.world import Holder, PageId, ReqId, Row, Token

K = TypeVar("K")
V = TypeVar("V")


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
        maps = (self.requests, self.records, self.tables, self.locks, self.pages, self.index, self.tags)
        return Ledger(self.world, *maps, self.names)

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
