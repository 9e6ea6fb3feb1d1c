"""Where a backend's own books disagree with the law, and which rule each kind of disagreement breaks.

A view is compared, never merged: the law goes on from the answers alone. Records before rows before pages, so
that a finding names what went wrong first, not what followed from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from kvledger.spec.actions import Abort, Action, Admit, Close, Extend, Finish, Reserve, Retract
from kvledger.spec.backend import CachedView, RecordView, Totals, View
from kvledger.spec.ledger import Ledger, Tag, slots_in
from kvledger.spec.page import CACHED, FREE, PRIVATE, page_of, pages_for
from kvledger.spec.world import Holder, PageId, Row, Slot

Shown = TypeVar("Shown")

# Kind of disagreement -> the rule it breaks. After a refusal every kind breaks ATOM-1, after a probe GUARD-1.
RULE_OF = {
    "holds KV without cause": "REC-1",
    "holds no KV though it should": "REC-1",
    "is on another row": "ROW-3",
    "has lengths out of order": "REC-2",
    "has other lengths": "REC-2",
    "row 0 is on the free list": "ROW-2",
    "a row that does not exist is on the free list": "ROW-1",
    "the row is on the free list more than once": "ROW-1",
    "a held row is on the free list": "ROW-1",
    "a free row is not on the free list": "ROW-1",
    "a column lies at the wrong offset": "TAB-1",
    "a column lists another page": "TAB-2",
    "page 0 is on the free list": "PAGE-3",
    "a page that does not exist is on the free list": "PAGE-1",
    "the page is on the free list more than once": "PAGE-1",
    "a private page is on the free list": "PAGE-1",
    "a cached page is on the free list": "PAGE-1",
    "a locked page is on the free list": "LOCK-2",
    "a free page is not on the free list": "PAGE-2",
    "a private page is in the cache": "CACHE-3",
    "a free page is in the cache": "PAGE-2",
    "a cached page is not in the cache": "CACHE-4",
    "two namespaces have one key": "NS-1",
    "two prefixes have one key": "CACHE-4",
    "one prefix has two keys": "CACHE-4",
    "the page has other locks": "LOCK-1",
    "the totals differ": "CONS-1",
}


# What a session's own rules name, where a step owes something to one.
OF_SESSIONS = frozenset({
    "holds KV without cause",
    "holds no KV though it should",
    "is on another row",
    "has other lengths",
    "a held row is on the free list",
    "a private page is on the free list",
    "a locked page is on the free list",
    "the page has other locks",
})  # fmt: skip
OF_LENGTHS = frozenset({"has other lengths", "has lengths out of order"})


class Difference(NamedTuple):
    """One disagreement: what kind, about what ("row 3", "page 5", a request), and both sides in words. holder: whose
    record, row or page it is by the law; None: nobody's, or everybody's."""

    kind: str
    subject: str
    law: str
    backend: str
    holder: Holder | None = None


class Owed(NamedTuple):
    """What one step owes beyond what every step does. rule: what kinds of disagreement are called, unless they are
    about somebody else than these holders."""

    rule: str | None = None
    kinds: frozenset[str] = frozenset()
    holders: frozenset[Holder] = frozenset()

    def named(self, difference: Difference) -> str | None:
        """The rule that this disagreement breaks, if it is one of these."""
        about = difference.holder is None or difference.holder in self.holders
        return self.rule if about and difference.kind in self.kinds else None


def owed_by(ledger: Ledger, act: Action) -> Owed:
    """What this step owes to a session, or to drafts. ledger: before it."""
    match act:
        case Reserve(req):
            return Owed("DRAFT-1", OF_LENGTHS, frozenset({req}))
        case Close(session):
            turn = ledger.sessions[session].turn
            return Owed("SES-3", OF_SESSIONS, frozenset({session, session if turn is None else turn}))
        case Finish(req) | Retract(req) | Abort(req) if (talk := ledger.requests[req].session) is not None:
            ran = isinstance(act, Abort) and req in ledger.records
            closes = ledger.sessions[talk].closing and not ran and not isinstance(act, Retract)
            rule = "SES-3" if closes else "SES-4" if isinstance(act, Abort) else "SES-1"
            return Owed(rule, OF_SESSIONS, frozenset({talk, req}))
        case Extend() | Admit():
            reqs = [act.req] if isinstance(act, Admit) else [req for req, _, _ in act.batch]
            lent = {req: lender for req in reqs if (lender := ledger.lender(req)) is not None}
            return Owed("SES-2", OF_SESSIONS, frozenset((*lent, *lent.values()))) if lent else Owed()
    return Owed()


def differences(ledger: Ledger, view: View) -> Iterator[Difference]:
    """Every disagreement between the law and the parts that the view shows, the telling ones first."""
    records, table = _lent(ledger, view.records), _lent(ledger, view.table)
    if records is not None:
        yield from _of_records(ledger, records)
    if view.free_rows is not None and ledger.world.has("ROWS"):
        yield from _of_free_rows(ledger, view.free_rows)
    if view.free_pages is not None:
        yield from _of_free_pages(ledger, view.free_pages)
    if table is not None:
        yield from _of_table(ledger, table)
    if view.cached is not None:
        yield from _of_cache(ledger, view.cached)
    if view.totals is not None:
        yield from _of_totals(ledger, view.totals)


def _lent(ledger: Ledger, held: Mapping[Holder, Shown] | None) -> Mapping[Holder, Shown] | None:
    """A record that is lent may be shown under the turn or under its session, once: as the law has it."""
    if held is None or not ledger.sessions:
        return held
    shown = dict(held)
    for session, (_, _, _, _, turn, *_) in ledger.sessions.items():
        for law, other in ((session, turn), (turn, session)):
            if law in ledger.records and law not in shown and other in shown:
                shown[law] = shown.pop(other)  # type: ignore[index]
    return shown


def _of_records(ledger: Ledger, records: Mapping[Holder, RecordView]) -> Iterator[Difference]:
    size, declared = ledger.world.page_size, ledger.world.declared
    for req in dict.fromkeys([*ledger.records, *records]):
        law, shown = ledger.records.get(req), records.get(req)
        if law is None:
            said = f"holds {_held(ledger, records[req].row)}"
            yield Difference("holds KV without cause", req, "holds nothing", said, req)
            continue
        if shown is None:
            held = f"holds {_held(ledger, law.row)}"
            yield Difference("holds no KV though it should", req, held, "holds nothing", req)
            continue
        if ledger.world.has("ROWS") and shown.row != law.row:
            yield Difference("is on another row", req, _held(ledger, law.row), _held(ledger, shown.row), req)
        _, protected, committed, allocated = shown
        if not 0 <= protected <= committed <= allocated <= pages_for(ledger.world.context_len, size) * size:
            yield Difference("has lengths out of order", req, str(tuple(law[1:])), str(tuple(shown[1:])), req)
        exact = declared.exact_lengths
        upto = law.allocated_len if exact else pages_for(law.allocated_len, size) * size
        if (protected, committed, allocated) != (law.protected_len, law.committed_len, upto):
            yield Difference("has other lengths", req, _lengths(law[1:]), _lengths(shown[1:]), req)


def _held(ledger: Ledger, row: Row | None) -> str:
    words: dict[Row | None, str] = {None: "no row"}
    return words.get(row, f"row {row}") if ledger.world.has("ROWS") else "KV"


def _lengths(lengths: Sequence[int]) -> str:
    return "{} protected, {} committed, {} allocated".format(*lengths)


def _of_free_rows(ledger: Ledger, free: Sequence[Row]) -> Iterator[Difference]:
    held = {record.row: holder for holder, record in ledger.records.items()}
    for row, times in sorted(Counter(free).items()):
        if row == 0:
            yield Difference("row 0 is on the free list", "row 0", "never free", "free")
        elif not 1 <= row <= ledger.world.rows:
            yield Difference("a row that does not exist is on the free list", f"row {row}", "no row", "free")
        elif times > 1:
            yield Difference("the row is on the free list more than once", f"row {row}", "once", f"{times} times")
        elif row in held:
            law = f"held by {held[row]}"
            yield Difference("a held row is on the free list", f"row {row}", law, "free", held[row])
    listed = set(free) | held.keys()
    lost = (row for row in range(1, ledger.world.rows + 1) if row not in listed)
    for row in islice(lost, ledger.world.rows - sum(1 <= row <= ledger.world.rows for row in listed if row)):
        yield Difference("a free row is not on the free list", f"row {row}", "free", "not free")


def _of_free_pages(ledger: Ledger, free: Sequence[PageId]) -> Iterator[Difference]:
    if sorted(free) == [page for page in range(1, ledger.world.pages + 1) if page not in ledger.pages]:
        return
    for page, times in sorted(Counter(free).items()):
        state = ledger.page(page)
        if page == 0:
            yield Difference("page 0 is on the free list", "page 0", "never free", "free")
        elif not 1 <= page <= ledger.world.pages:
            yield Difference("a page that does not exist is on the free list", f"page {page}", "no page", "free")
        elif times > 1:
            yield Difference("the page is on the free list more than once", f"page {page}", "once", f"{times} times")
        elif state.kind == PRIVATE:
            owner = ledger.holder_of(state.owner)
            yield Difference("a private page is on the free list", f"page {page}", f"held by {owner}", "free", owner)
        elif state.kind == CACHED and state.locks:
            law = f"cached, {state.locks} locks"
            yield Difference("a locked page is on the free list", f"page {page}", law, "free")
        elif state.kind == CACHED:
            yield Difference("a cached page is on the free list", f"page {page}", "cached", "free")
    listed = {page for page in free if ledger.is_free(page)}
    lost = (page for page in range(1, ledger.world.pages + 1) if ledger.is_free(page) and page not in listed)
    for page in islice(lost, ledger.free_page_count() - len(listed)):
        yield Difference("a free page is not on the free list", f"page {page}", "free", "not free")


def _of_table(ledger: Ledger, table: Mapping[Holder, Sequence[Slot]]) -> Iterator[Difference]:
    size = ledger.world.page_size
    for req in sorted(table.keys() - ledger.tables.keys()):
        yield Difference("holds KV without cause", req, "has no row", f"lists {len(table[req])} slots", req)
    for req, pages in ledger.tables.items():
        allocated, slots = ledger.records[req].allocated_len, tuple(table.get(req, ()))
        law = slots_in(pages, 0, allocated, size)
        if slots == law:
            continue
        for position, slot in enumerate(law):
            shown = slots[position] if position < len(slots) else None
            if shown == slot:
                continue
            offset_wrong = shown is not None and shown % size != position % size
            kind = "a column lies at the wrong offset" if offset_wrong else "a column lists another page"
            where = "nothing" if shown is None else f"slot {shown}, page {page_of(shown, size)}"
            yield Difference(
                kind, req, f"slot {slot}, page {page_of(slot, size)} at {position}", f"{where} at {position}"
            )
            break


def _of_cache(ledger: Ledger, cached: Mapping[PageId, CachedView]) -> Iterator[Difference]:
    key_of: dict[Hashable, Tag] = {}
    shown_of: dict[Tag, Hashable] = {}
    for page in sorted(cached.keys() | {page for entry in ledger.index.values() for page in entry.pages}):
        state, shown = ledger.page(page), cached.get(page)
        name = f"page {page}"
        if shown is None:
            yield Difference("a cached page is not in the cache", name, "cached", "not cached")
        elif state.kind == PRIVATE:
            law = f"private to {ledger.holder_of(state.owner)}"
            yield Difference("a private page is in the cache", name, law, "cached")
        elif state.kind == FREE:
            yield Difference("a free page is in the cache", name, "free", "cached")
        else:
            other = key_of.setdefault(shown.key, state.owner)
            if other != state.owner:
                apart = ledger.index[other].root != ledger.index[state.owner].root
                kind = "two namespaces have one key" if apart else "two prefixes have one key"
                yield Difference(kind, name, "a prefix of its own", "under the key of another prefix")
            elif shown_of.setdefault(state.owner, shown.key) != shown.key:
                yield Difference("one prefix has two keys", name, "the key of its prefix", "another key")
            if shown.locks != state.locks:
                law, said = f"{state.locks} locks", f"{shown.locks} locks"
                yield Difference("the page has other locks", name, law, said)


def _of_totals(ledger: Ledger, totals: Totals) -> Iterator[Difference]:
    private = sum(page.kind == PRIVATE for page in ledger.pages.values())
    evictable = len(ledger.evictable())
    law = Totals(ledger.free_page_count(), evictable, len(ledger.pages) - private - evictable, private)
    if totals != law:
        ours, said = (", ".join(f"{word} {value}" for word, value in each._asdict().items()) for each in (law, totals))
        yield Difference("the totals differ", "the pool", ours, said)
