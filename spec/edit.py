"""The only writer of the state. The kernels decide a page's or a record's own fields; who refers to whom is said here.

A kernel is called also where its result is not kept, for its guard: what is free, and who holds nothing, is absent
from the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar, cast

from kvledger.spec import page as kernel
from kvledger.spec import record as record_kernel
from kvledger.spec.ledger import Entry, Ledger, Request, Session, Tag
from kvledger.spec.page import FREE_PAGE, pages_for
from kvledger.spec.world import Holder, PageId, ReqId, Row, SessionId, Token

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
        writable = _itself if in_place else dict
        self.requests = writable(ledger.requests)
        self.sessions = writable(ledger.sessions)
        self.admitted = writable(ledger.admitted)
        self.records = writable(ledger.records)
        self.tables = writable(ledger.tables)
        self.locks = writable(ledger.locks)
        self.pages = writable(ledger.pages)
        self.index = writable(ledger.index)
        self.tags = writable(ledger.tags)
        self.touched = Touched(set(), set(), set())
        self._leaf_first = self.world.has("LEAF_FIRST")
        self._in_place = in_place

    def commit(self) -> Ledger:
        """The ledger with everything written."""
        if self._in_place:
            return self.ledger
        return Ledger(
            self.world, self.requests, self.sessions, self.admitted, self.records, self.tables, self.locks, self.pages,
            self.index, self.tags, self.names,
        )  # fmt: skip

    def submit(self, req: ReqId, request: Request) -> None:
        """A request waits; if it is a turn, its session waits for it. A session begins with its first turn."""
        self.requests[req] = request
        if request.session is not None:
            session = self.sessions.get(request.session, Session(request.namespace, request.root))
            self.sessions[request.session] = session._replace(turn=req)

    def admit(self, req: ReqId, matched: tuple[PageId, ...]) -> None:
        """A waiting request locks what it matched. A turn has its session's record cut to where it will go on."""
        lender = self.ledger.lender(req)
        if lender is not None:
            self.cut(lender, self.ledger.prefix(req))
        self.admitted[req] = matched
        self._lock(req, matched)
        self.touched.holders.add(req)

    def defer(self, req: ReqId) -> None:
        """An admitted request waits again, without its lock."""
        if self.admitted.pop(req, None) is not None:
            self._unlock(req)
            self.touched.holders.add(req)

    def sample(self, req: ReqId, token: Token) -> None:
        """The sampled token is appended: it is pending."""
        request = self.requests[req]
        sampled = (token,)
        trail = request.trail + self.names.trail(request.trail[-1], sampled)
        self.requests[req] = request._replace(tokens=request.tokens + sampled, trail=trail)

    def start(self, req: ReqId, row: Row, matched: tuple[PageId, ...], pages: tuple[PageId, ...], upto: int) -> None:
        """A waiting request takes a row, locks its match, and gets slots and KV up to `upto`."""
        size = self.world.page_size
        self.records[req] = record_kernel.start(row, len(matched) * size, upto, size)
        self.tables[req] = matched
        if self.admitted.pop(req, None) is None:
            self._lock(req, matched)
        self._own(req, pages)
        self._write(req, len(matched) * size, upto)

    def grow(self, req: ReqId, pages: tuple[PageId, ...], upto: int) -> None:
        """Slots and KV for [committed, upto); the partial last page is filled before a new one is."""
        record = self.records[req]
        self.records[req] = record_kernel.grow(record, upto, self.world.page_size)
        self._own(req, pages)
        self._write(req, record.committed_len, upto)

    def reserve(self, req: ReqId, pages: tuple[PageId, ...], upto: int) -> None:
        """Slots for [allocated, upto), and no KV yet."""
        self.records[req] = record_kernel.reserve(self.records[req], upto, self.world.page_size)
        self._own(req, pages)

    def accept(self, req: ReqId, tokens: Iterable[Token]) -> None:
        """The pending token and all of these but the last have KV, in slots that are there; the last is pending."""
        record = self.records[req]
        for token in tokens:
            self.sample(req, token)
        upto = len(self.requests[req].tokens) - 1
        self.records[req] = record_kernel.commit(record, upto, self.world.page_size)
        self._write(req, record.committed_len, upto)

    def take_up(self, req: ReqId) -> None:
        """A turn goes on with its session's record, from its prefix: what lies beyond is freed."""
        session = cast(SessionId, self.ledger.lender(req))
        self.cut(session, self.ledger.prefix(req))
        self.admitted.pop(req, None)
        self._hand(session, req)
        self.sessions[session] = self.sessions[session]._replace(tokens=(), trail=())

    def hand_over(self, req: ReqId, keep: int) -> None:
        """A turn's record passes to its session, with row and lock; what lies beyond `keep` is freed."""
        request = self.requests[req]
        session = cast(SessionId, request.session)
        self.cut(req, keep)
        self._hand(req, session)
        tokens, trail = request.tokens[:keep], request.trail[:keep]
        self.sessions[session] = self.sessions[session]._replace(tokens=tokens, trail=trail, settled=True)

    def cut(self, holder: Holder, upto: int) -> None:
        """[upto, allocated) is given up, its whole pages are freed."""
        size, pages = self.world.page_size, pages_for(upto, self.world.page_size)
        record = self.records[holder] = record_kernel.cut(self.records[holder], upto, size)
        self._give_back(self.tables[holder][pages:], cast(int, record.row))
        self.tables[holder] = self.tables[holder][:pages]
        if upto > record.protected_len:
            page = self.tables[holder][-1]
            self.tags[page] = self.tags[page][: upto - (pages - 1) * size]
            self.touched.pages.add(page)
        if holder in self.sessions:
            session = self.sessions[holder]
            self.sessions[holder] = session._replace(tokens=session.tokens[:upto], trail=session.trail[:upto])
        self.touched.holders.add(holder)

    def publish(self, req: ReqId, pages: tuple[PageId, ...]) -> None:
        """[protected, k) goes to the cache: each own page under its key, or, merged, freed for the one there."""
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

    def release(self, holder: Holder) -> None:
        """Every private page of a holder goes back, then its lock, then its row. The one way to give back. Where it is
        a session or a turn, the next turn starts as the first one did."""
        record = self.records.pop(holder)
        record_kernel.release(record, self.world.page_size)
        first = record.protected_len // self.world.page_size
        self._give_back(self.tables.pop(holder)[first:], cast(int, record.row))
        self._unlock(holder)
        self.touched.holders.add(holder)
        session = holder if holder in self.sessions else self.requests[holder].session
        if session is not None:
            self.sessions[session] = self.sessions[session]._replace(tokens=(), trail=(), settled=False)

    def forget(self, req: ReqId) -> None:
        """The request has ended; a session that was closed meanwhile goes with its turn."""
        self.defer(req)
        session = self.requests.pop(req).session
        if session is not None:
            self.sessions[session] = self.sessions[session]._replace(turn=None)
            if self.sessions[session].closing:
                self.close(session)

    def close(self, session: SessionId) -> None:
        """A session goes, and its record comes back: now, or when its turn ends."""
        if self.sessions[session].turn is not None:
            self.sessions[session] = self.sessions[session]._replace(closing=True)
            return
        if session in self.records:
            self.release(session)
        del self.sessions[session]

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

    def _own(self, req: ReqId, pages: tuple[PageId, ...]) -> None:
        """Pages behind those that the row lists, private to it."""
        table, row = self.tables[req], cast(int, self.records[req].row)
        for ordinal, page in enumerate(pages, len(table)):
            self.pages[page] = kernel.grant(self.pages.get(page, FREE_PAGE), row, ordinal)
        self.tables[req] = table + pages
        self.touched.pages.update(pages)
        self.touched.holders.add(req)

    def _write(self, req: ReqId, prefix: int, upto: int) -> None:
        """What positions [prefix, upto) hold from now on."""
        table, size, trail = self.tables[req], self.world.page_size, self.requests[req].trail
        for ordinal in range(prefix // size, pages_for(upto, size)):
            page = table[ordinal]
            self.tags[page] = trail[ordinal * size : min(upto, (ordinal + 1) * size)]
            self.touched.pages.add(page)
        self.touched.holders.add(req)

    def _hand(self, giver: Holder, taker: Holder) -> None:
        """Row, table and lock stand under another holder. No page is touched: a private one names the row."""
        self.records[taker], self.tables[taker] = self.records.pop(giver), self.tables.pop(giver)
        if giver in self.locks:
            self.locks[taker] = self.locks.pop(giver)
        self.touched.holders.update((giver, taker))

    def _give_back(self, pages: Iterable[PageId], row: Row) -> None:
        for page in pages:
            kernel.give_back(self.pages[page], row)
            self._free(page)

    def _unlock(self, holder: Holder) -> None:
        for page in self.locks.pop(holder, ()):
            self.pages[page] = kernel.unlock(self.pages[page])
            self.touched.pages.add(page)

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
        del self.pages[page]
        self.tags.pop(page, None)  # a page of drafts has none
        self.touched.pages.add(page)


def _itself(mapping: Mapping[K, V]) -> dict[K, V]:
    return cast("dict[K, V]", mapping)
