"""Wrong books beside right ones: every view that is one change away from what the law holds true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvledger.spec.backend import CachedView, RecordView, Totals, View
from kvledger.spec.ledger import Ledger
from kvledger.tests.engines.oracle import shown


def spoilt(ledger: Ledger) -> Iterator[View]:
    """One entry more, less or another in one part of an honest view."""
    view, world = shown(ledger), ledger.world
    rows, pages = list(view.free_rows or ()), list(view.free_pages or ())
    for row in range(world.rows + 2) if world.has("ROWS") else ():
        yield replace(view, free_rows=[*rows, row])
        yield replace(view, free_rows=[each for each in rows if each != row])
    for page in range(world.pages + 2):
        yield replace(view, free_pages=[*pages, page])
        yield replace(view, free_pages=[each for each in pages if each != page])
    records, table, cached = dict(view.records or {}), dict(view.table or {}), dict(view.cached or {})
    for req in (*ledger.requests, *ledger.sessions):
        record = records.get(req)
        if record is None:
            yield replace(view, records={**records, req: RecordView(1, 0, 1, 1)})
            continue
        yield replace(view, records={other: each for other, each in records.items() if other != req})
        _, protected, committed, allocated = record
        for another in (*range(1, world.rows + 1), None):
            yield replace(view, records={**records, req: RecordView(another, protected, committed, allocated)})
        for lengths in ((protected + 1, committed, allocated), (protected, committed - 1, allocated),
                        (protected, committed, allocated + 1), (protected, allocated + 1, allocated)):  # fmt: skip
            yield replace(view, records={**records, req: RecordView(record.row, *lengths)})
        for at in range(len(table[req])):
            for move in (1, world.page_size):
                slots = list(table[req])
                slots[at] += move
                yield replace(view, table={**table, req: slots})
    for page in range(1, world.pages + 1):
        entry = cached.get(page)
        if entry is None:
            yield replace(view, cached={**cached, page: CachedView("of its own", 0)})
            continue
        yield replace(view, cached={other: each for other, each in cached.items() if other != page})
        yield replace(view, cached={**cached, page: CachedView(entry.key, entry.locks + 1)})
        for key in {each.key for each in cached.values()} | {"another"}:
            yield replace(view, cached={**cached, page: CachedView(key, entry.locks)})
    totals = view.totals or Totals(0, 0, 0, 0)
    yield from (replace(view, totals=totals._replace(**{part: 99})) for part in totals._fields)
