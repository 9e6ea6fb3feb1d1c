"""What is true in every reachable state: once for the whole ledger, once for what an edit touched.

A law that fails here accuses the spec (SpecError): `judge` accepted what it should not have, or `effect` wrote
what it should not have. Because a private page says where it stands (row, ordinal) and a record lists its pages,
each law looks from one side only, and both sides together leave no room for a page with two owners or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from kvledger.spec import page as page_kernel
from kvledger.spec import record as record_kernel
from kvledger.spec.edit import Touched
from kvledger.spec.ledger import Entry, Ledger, Session, Tag
from kvledger.spec.page import CACHED, FREE, FREE_PAGE, PRIVATE, SpecError, pages_for
from kvledger.spec.world import Holder, PageId, Row, SessionId


def check_whole(ledger: Ledger) -> None:
    """Every law, everywhere. Raises SpecError with the law and the culprit."""
    holders = ledger.records.keys() | ledger.tables.keys() | ledger.locks.keys() | ledger.admitted.keys()
    holders |= ledger.sessions.keys()
    readers = Counter(chain.from_iterable(ledger.locks.values()))
    pages = ledger.pages.keys() | ledger.tags.keys() | readers.keys()
    keys = ledger.index.keys() | {state.owner for state in ledger.pages.values() if state.kind == CACHED}
    _raise(_broken(ledger, holders, {page: readers[page] for page in pages}, keys))
    _raise(f"row of {holder} lists the wrong page {page}" for holder, page in _misplaced(ledger))
    _raise(f"key {key} counts {ledger.index[key].children} children" for key in _miscounted(ledger))


def check_touched(ledger: Ledger, touched: Touched) -> None:
    """Every law, at what an edit touched. Left to check_whole: the order of a row that did not change, and the
    counts of children."""
    readers = Counter(dict.fromkeys(touched.pages, 0))
    readers.update(chain.from_iterable(touched.pages & lock for lock in ledger.locks.values()))
    _raise(_broken(ledger, touched.holders, readers, touched.keys))


def _raise(complaints: Iterable[str]) -> None:
    for complaint in complaints:
        raise SpecError(complaint)


def _broken(
    ledger: Ledger, holders: Iterable[Holder], readers: Mapping[PageId, int], keys: Iterable[Tag]
) -> Iterator[str]:
    """What is wrong with these holders, pages (each with the number of those who read it) and keys."""
    for holder in holders:
        complaint = _of_holder(ledger, holder)
        if complaint:
            yield f"holder {holder}: {complaint}"
    holder_of = {record.row: holder for holder, record in ledger.records.items()}
    for page, reading in readers.items():
        complaint = _of_page(ledger, page, reading, holder_of)
        if complaint:
            yield f"page {page}: {complaint}"
    for key in keys:
        complaint = _of_key(ledger, key, ledger.index.get(key))
        if complaint:
            yield f"key {key}: {complaint}"


def _of_holder(ledger: Ledger, holder: Holder) -> str | None:
    """REC-1, REC-2, ROW-1, and a table as long as the record says."""
    record, size = ledger.record(holder), ledger.world.page_size
    table, lock = ledger.tables.get(holder, ()), ledger.locks.get(holder, frozenset())
    if holder in ledger.sessions and (complaint := _of_session(ledger, holder, ledger.sessions[holder])):
        return complaint
    if holder in ledger.admitted:
        fits = not record.holds_kv and not table and lock == frozenset(ledger.admitted[holder])
        return None if fits and holder in ledger.requests else "LOCK-1, admitted, and holds more or less than its match"
    if not record.holds_kv:
        return "reads or lists pages without a row" if table or lock else None
    if not record_kernel.lawful(record, size) or record.allocated_len > ledger.world.context_len:
        return f"REC-2, lengths {record[1:]}"
    if holder not in ledger.requests and holder not in ledger.sessions:
        return "REC-1, holds a row and does not live"
    if record.committed_len > len(ledger.tokens_of(holder)):
        return "REC-2, more KV than tokens"
    if len(table) != pages_for(record.allocated_len, size):
        return f"TAB-2, {len(table)} pages for {record.allocated_len} tokens"
    if len(lock) != record.protected_len // size:
        return f"LOCK-1, reads {len(lock)} pages below {record.protected_len}"
    if sum(other.row == record.row for other in ledger.records.values()) != 1:
        return f"ROW-1, row {record.row} is held twice"
    return None


def _of_session(ledger: Ledger, name: SessionId, session: Session) -> str | None:
    """SES-1 to SES-3, as far as one state shows them."""
    turn = session.turn
    stranger = turn is not None and (turn not in ledger.requests or ledger.requests[turn].session != name)
    if name in ledger.requests or stranger:
        return "SES-1, has a request's id, or a turn that is not its own"
    if name in ledger.records and turn in ledger.records:
        return "SES-1, holds a record beside its turn"
    if len(session.tokens) != ledger.record(name).committed_len * (name in ledger.records):
        return f"SES-2, knows {len(session.tokens)} tokens"
    if session.closing and turn is None:
        return "SES-3, closed, and still there"
    return None


def _of_page(
    ledger: Ledger, page: PageId, reading: int, holder_of: Mapping[Row | None, Holder]
) -> str | None:
    """PAGE-1, PAGE-2, PAGE-3, LOCK-1, TAG-1."""
    state, tags = ledger.pages.get(page, FREE_PAGE), ledger.tags.get(page, ())
    if not page_kernel.lawful(state) or not 1 <= page <= ledger.world.pages:
        return f"no lawful page: {state}"
    if reading != state.locks:
        return f"LOCK-1, {state.locks} locks and {reading} readers"
    if state.kind == FREE:
        return "TAG-1, a free page has content" if tags else None
    if state.kind == PRIVATE:
        holder = holder_of.get(state.owner)
        table = ledger.tables.get(holder, ()) if holder is not None else ()
        if holder is None or state.ordinal >= len(table) or table[state.ordinal] != page:
            return f"PAGE-2, owned by row {state.owner} at {state.ordinal}, which lists it not"
        return None if tags == _content(ledger, holder, state.ordinal) else "TAG-1, not what its owner wrote"
    if state.owner not in ledger.index or page not in ledger.index[state.owner].pages:
        return f"PAGE-2, cached under key {state.owner}, which lists it not"
    end = ledger.names.before(state.owner) if ledger.world.declared.key_lag else state.owner
    whole = len(tags) == ledger.world.page_size
    return None if whole and tags[-1] == end else "TAG-1, not what its key names"


def _of_key(ledger: Ledger, key: Tag, entry: Entry | None) -> str | None:
    """CACHE-4 with LEAF_FIRST, CACHE-5, and an index that agrees with the pages."""
    if entry is None:
        return None
    if not entry.pages or (len(entry.pages) > 1 and not ledger.world.has("DUPLICATES")):
        return f"CACHE-5, {len(entry.pages)} pages under one key"
    for page in entry.pages:
        if ledger.pages.get(page, FREE_PAGE)[:2] != (CACHED, key):
            return "CACHE-4, lists a page that is not cached under it"
    if ledger.world.has("LEAF_FIRST") and entry.parent != entry.root and entry.parent not in ledger.index:
        return "CACHE-4, its parent is not cached"
    return None


def _content(ledger: Ledger, holder: Holder, ordinal: int) -> tuple[Tag, ...]:
    """What the holder wrote in its page `ordinal`, from its tokens."""
    size = ledger.world.page_size
    upto = min(ledger.records[holder].committed_len, (ordinal + 1) * size)
    return ledger.trail_of(holder)[ordinal * size : upto]


def _misplaced(ledger: Ledger) -> Iterator[tuple[Holder, PageId]]:
    """TAB-2: below protected a row lists pages it reads, cached under its own prefix; from there on its own."""
    for holder, record in ledger.records.items():
        first = record.protected_len // ledger.world.page_size
        for ordinal, page in enumerate(ledger.tables[holder]):
            state = ledger.page(page)
            if ordinal < first:
                end = (ordinal + 1) * ledger.world.page_size - 1 + ledger.world.declared.key_lag
                key = ledger.trail_of(holder)[end : end + 1]
                fits = state.kind == CACHED and (state.owner,) == key and page in ledger.locks[holder]
            else:
                fits = state == (PRIVATE, record.row, ordinal, 0)
            if not fits:
                yield holder, page


def _miscounted(ledger: Ledger) -> Iterator[Tag]:
    """EVICT-1's count of children, against the parents that the keys name."""
    if ledger.world.has("LEAF_FIRST"):
        children: dict[Tag, int] = {}
        for entry in ledger.index.values():
            children[entry.parent] = children.get(entry.parent, 0) + 1
        yield from (key for key, entry in ledger.index.items() if entry.children != children.get(key, 0))
