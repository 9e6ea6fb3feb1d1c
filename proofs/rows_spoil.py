"""A ledger with one entry spoilt: what laws must see, and agree about with spec/invariants.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvledger.spec.ledger import Ledger
from kvledger.spec.page import CACHED, PRIVATE, Page


def spoilt(ledger: Ledger) -> Iterator[tuple[str, Ledger]]:
    """Every ledger that differs from this one in one entry, each with the entry in words."""
    yield from _pages(ledger)
    yield from _records(ledger)
    yield from _tables(ledger)
    yield from _locks(ledger)
    yield from _index(ledger)
    yield from _requests(ledger)
    yield from _admitted(ledger)


def _pages(ledger: Ledger) -> Iterator[tuple[str, Ledger]]:
    keys = list(ledger.index)
    rows = [record.row for record in ledger.records.values() if record.holds_kv]
    for page in range(1, ledger.world.pages + 1):
        state = ledger.pages.get(page)
        others = [Page(CACHED, key, 0, locks) for key in keys for locks in (0, 1, 2)]
        others += [Page(PRIVATE, row or 0, ordinal, 0) for row in rows for ordinal in range(3)]
        others += [Page(PRIVATE, row or 0, 0, 1) for row in rows]
        for other in others:
            if other != state:
                yield f"page {page} is {other}", replace(ledger, pages={**ledger.pages, page: other})
        if state is not None:
            left = {each: owner for each, owner in ledger.pages.items() if each != page}
            tags = {each: content for each, content in ledger.tags.items() if each != page}
            yield f"page {page} is free", replace(ledger, pages=left, tags=tags)


def _records(ledger: Ledger) -> Iterator[tuple[str, Ledger]]:
    size = ledger.world.page_size
    for holder, record in ledger.records.items():
        others = [record._replace(row=other.row) for other in ledger.records.values()]
        for more in (-size, size):
            others.append(record._replace(protected_len=record.protected_len + more))
            others.append(record._replace(committed_len=record.committed_len + more))
            others.append(record._replace(allocated_len=record.allocated_len + more))
        for session in ledger.sessions.keys() - ledger.records.keys():
            both = {**ledger.records, session: record}
            yield f"the record of {holder} is also {session}'s", replace(ledger, records=both)
        for other in others:
            if other != record:
                yield f"the record of {holder} is {other}", replace(ledger, records={**ledger.records, holder: other})


def _tables(ledger: Ledger) -> Iterator[tuple[str, Ledger]]:
    for holder, table in ledger.tables.items():
        for place in range(len(table)):
            for page in range(1, ledger.world.pages + 1):
                if page != table[place]:
                    other = (*table[:place], page, *table[place + 1 :])
                    tables = {**ledger.tables, holder: other}
                    yield f"{holder} lists {page} at place {place}", replace(ledger, tables=tables)


def _locks(ledger: Ledger) -> Iterator[tuple[str, Ledger]]:
    for holder in (*ledger.requests, *ledger.sessions):
        lock = ledger.locks.get(holder, frozenset())
        for page in range(1, ledger.world.pages + 1):
            other = lock ^ {page}
            yield f"{holder} has receipts {sorted(other)}", replace(ledger, locks={**ledger.locks, holder: other})


def _index(ledger: Ledger) -> Iterator[tuple[str, Ledger]]:
    for key, entry in ledger.index.items():
        for page in range(1, ledger.world.pages + 1):
            other = entry._replace(pages=entry.pages ^ {page})
            yield f"key {key} lists {sorted(other.pages)}", replace(ledger, index={**ledger.index, key: other})


def _requests(ledger: Ledger) -> Iterator[tuple[str, Ledger]]:
    for req in ledger.requests:
        if req not in ledger.records:  # the tokens of who holds a row are looked at before anything is said
            left = {each: request for each, request in ledger.requests.items() if each != req}
            yield f"{req} is gone", replace(ledger, requests=left)


def _admitted(ledger: Ledger) -> Iterator[tuple[str, Ledger]]:
    for req, match in ledger.admitted.items():
        left = {each: found for each, found in ledger.admitted.items() if each != req}
        yield f"{req} is not admitted", replace(ledger, admitted=left)
        for page in range(1, ledger.world.pages + 1):
            other = match[:-1] if page in match else (*match, page)
            yield f"{req} is admitted with {other}", replace(ledger, admitted={**ledger.admitted, req: other})
    for req in ledger.records.keys() & ledger.requests.keys():
        yield f"{req} is admitted beside its row", replace(ledger, admitted={**ledger.admitted, req: ()})
