"""What each of the law's types looks like in a stored trace: the table that writing and reading both go by."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kvledger.spec.actions import (
    Abort,
    Admit,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Defer,
    Evict,
    Extend,
    Finish,
    Flush,
    MatchPrefix,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.backend import CachedView, RecordView, Totals, View
from kvledger.spec.itf import (
    NUMBER,
    TEXT,
    TOKEN,
    TRUTH,
    Json,
    Kind,
    map_of,
    one_of,
    optional,
    record_of,
    set_of,
    tuple_of,
    tuple_with,
    variant_of,
    wrong,
)
from kvledger.spec.snapshot import Node, Snapshot, Talk
from kvledger.spec.world import Declaration, PageId, World

NUMBERS, PAGES = tuple_of(NUMBER), set_of(NUMBER)
FREED = record_of(Freed, pages=NUMBERS, rows=NUMBERS)

# ---- state 0. Written in full: a default that changes must not change an old trace.

DECLARATION = record_of(
    Declaration,
    full=True,
    name=TEXT,
    version=TEXT,
    capabilities=set_of(TEXT),
    publishes_on=set_of(TEXT),
    max_batch=optional(NUMBER),
    headroom=NUMBER,
    match_backoff=NUMBER,
    key_lag=NUMBER,
    exact_lengths=TRUTH,
    declines=set_of(TEXT),
)
WORLD = record_of(
    World, full=True, rows=NUMBER, context_len=NUMBER, pages=NUMBER, page_size=NUMBER, declared=DECLARATION
)

# ---- a step

ACTIONS: dict[type, Kind] = {
    Submit: record_of(
        Submit, req=TEXT, tokens=tuple_of(TOKEN), namespace=TOKEN, match_limit=optional(NUMBER), publish=TRUTH,
        session=optional(TEXT),
    ),
    Admit: record_of(Admit, req=TEXT),
    Defer: record_of(Defer, req=TEXT),
    MatchPrefix: record_of(MatchPrefix, req=TEXT),
    Extend: record_of(Extend, batch=tuple_of(tuple_with(TEXT, NUMBER, TOKEN))),
    Decode: record_of(Decode, batch=tuple_of(tuple_with(TEXT, TOKEN))),
    Reserve: record_of(Reserve, req=TEXT, n=NUMBER),
    Commit: record_of(Commit, req=TEXT, tokens=tuple_of(TOKEN)),
    Checkpoint: record_of(Checkpoint, req=TEXT, upto=NUMBER),
    Finish: record_of(Finish, req=TEXT, keep=NUMBER, publish=TRUTH),
    Retract: record_of(Retract, req=TEXT),
    Abort: record_of(Abort, req=TEXT),
    Close: record_of(Close, session=TEXT),
    Evict: record_of(Evict, n=NUMBER),
    Flush: record_of(Flush),
}
REPLY = record_of(
    Reply,
    rows=NUMBERS,
    matched=tuple_of(NUMBERS),
    slots=tuple_of(NUMBERS),
    published=map_of(TEXT, NUMBER),
    evicted=PAGES,
    freed=optional(FREED),
    listed=map_of(TEXT, NUMBERS),
)
REFUSED = record_of(Refused, short=optional(one_of("rows", "pages")), evicted=PAGES, freed=optional(FREED))
ANSWER = variant_of(Reply=REPLY, Refused=REFUSED)

# ---- what a backend shows

RECORD = record_of(RecordView, row=optional(NUMBER), protected_len=NUMBER, committed_len=NUMBER, allocated_len=NUMBER)
TOTALS = record_of(Totals, available=NUMBER, evictable=NUMBER, protected=NUMBER, private=NUMBER)
_CACHED = map_of(NUMBER, record_of(CachedView, key=NUMBER, locks=NUMBER))


def _put_cached(cached: Any, where: str) -> Json:
    """A key may be anything, and only its being equal to another counts: the lowest page under it stands for it."""
    first: dict[Hashable, PageId] = {}
    try:
        named = {page: CachedView(first.setdefault(key, page), locks) for page, (key, locks) in sorted(cached.items())}
    except (AttributeError, TypeError, ValueError):
        raise wrong(where, cached, "a mapping of page to CachedView") from None
    return _CACHED.put(named, where)


READ = map_of(TEXT, NUMBERS)
VIEW = record_of(
    View,
    free_rows=optional(NUMBERS),
    free_pages=optional(NUMBERS),
    records=optional(map_of(TEXT, RECORD)),
    table=optional(map_of(TEXT, NUMBERS)),
    cached=optional(Kind(_put_cached, _CACHED.take)),
    totals=optional(TOTALS),
)

# ---- where a run begins that was not seen from its start

NODE = record_of(Node, tokens=tuple_of(TOKEN), pages=NUMBERS, parent=optional(NUMBER), namespace=TOKEN)
TALK = record_of(
    Talk, tokens=tuple_of(TOKEN), namespace=TOKEN, turn=optional(TEXT), settled=TRUTH, closing=TRUTH
)
SNAPSHOT = record_of(
    Snapshot,
    requests=tuple_of(ACTIONS[Submit]),
    sessions=map_of(TEXT, TALK),
    records=map_of(TEXT, RECORD),
    table=map_of(TEXT, NUMBERS),
    admitted=map_of(TEXT, NUMBERS),
    cached=tuple_of(NODE),
)
