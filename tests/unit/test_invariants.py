"""The laws see what is wrong: as a whole always, and where an edit touched, as far as one look at it can tell.

Each reachable ledger is spoiled in one place, in every way that a wrong effect could, with that place as touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple, TypeAlias, TypeVar

import pytest

from kvledger.spec.action import apply
from kvledger.spec.actions import Action
from kvledger.spec.edit import Edit
from kvledger.spec.explore import Answer, explore
from kvledger.spec.invariants import check_touched, check_whole
from kvledger.spec.ledger import Entry, Ledger, Tag
from kvledger.spec.page import CACHED, PRIVATE, Page, SpecError, pages_for
from kvledger.spec.record import Record
from kvledger.spec.world import Holder, PageId, ReqId, SessionId
from kvledger.spec.worlds import WORLDS
from kvledger.tests.unit.reachable import reachable

T = TypeVar("T")
Spoil: TypeAlias = Callable[[Edit], None]  # raises NothingToSpoil where the ledger has no such place
WORLDS_LOOKED_AT = {"TINY_A": 3, "DUPLICATES": 3, "KEY_LAG": 3, "DRAFTS": 8, "SMALL": 16}  # one state in so many


class Fault(NamedTuple):
    """One way to spoil a ledger, and what the laws say of it."""

    spoil: Spoil
    says: str


SEEN: dict[str, Fault] = {}  # by both looks
SEEN_AS_A_WHOLE: dict[str, Fault] = {}  # a page does not know which rows list it, a key not which keys name it


class NothingToSpoil(Exception):
    """This ledger has no place of that kind."""


def spoils(name: str, says: str, where: dict[str, Fault] = SEEN) -> Callable[[Spoil], None]:
    """Register a way to spoil. says: the law that sees it, and enough of its words to tell its clauses apart."""

    def register(spoil: Spoil) -> None:
        where[name] = Fault(spoil, says)

    return register


def first(places: Iterable[T]) -> T:
    for place in places:
        return place
    raise NothingToSpoil


def own(edit: Edit) -> tuple[Holder, PageId]:
    """A holder, and the last page of its row, which is private."""
    return first((holder, table[-1]) for holder, table in edit.tables.items() if edit.pages[table[-1]].kind == PRIVATE)


def cached(edit: Edit) -> PageId:
    return first(page for page, state in edit.pages.items() if state.kind == CACHED)


def free(edit: Edit) -> PageId:
    return first(page for page in range(1, edit.world.pages + 1) if page not in edit.pages)


def waiting(edit: Edit) -> Holder:
    """A request that holds nothing."""
    return first(req for req in edit.requests if req not in edit.records and req not in edit.admitted)


def running(edit: Edit) -> Holder:
    """A request that holds a row; of a session's record the session's own laws speak first."""
    return first(req for req in edit.records if req in edit.requests)


def talking(edit: Edit, *, holds: bool) -> SessionId:
    """A session that holds a record, or one that does not."""
    return first(name for name in edit.sessions if (name in edit.records) == holds)


def admitted(edit: Edit) -> ReqId:
    """A request that was admitted with a match."""
    return first(req for req, pages in edit.admitted.items() if pages)


def change(edit: Edit, session: SessionId, **fields: object) -> None:
    """Writes into a session."""
    edit.sessions[session] = edit.sessions[session]._replace(**fields)  # type: ignore[arg-type]
    edit.touched.holders.add(session)


def copied(edit: Edit, page: PageId) -> PageId:
    """A free page becomes a copy of a cached one that nobody reads, under the same key."""
    twin, key = free(edit), edit.pages[page].owner
    edit.pages[twin], edit.tags[twin] = Page(CACHED, key, 0, 0), edit.tags[page]
    edit.index[key] = edit.index[key]._replace(pages=edit.index[key].pages | {twin})
    edit.touched.pages.add(twin)
    edit.touched.keys.add(key)
    return twin


def with_leaves_first(edit: Edit) -> Iterable[Tag]:
    return edit.index if edit.world.has("LEAF_FIRST") else ()


def with_duplicates(edit: Edit) -> Iterable[Tag]:
    return edit.index if edit.world.has("DUPLICATES") else ()


def lengths(edit: Edit, holder: Holder, *, committed: int = 0, allocated: int = 0) -> None:
    """Adds to the lengths of a record."""
    _, _, committed_len, allocated_len = record = edit.records[holder]
    edit.records[holder] = record._replace(
        committed_len=committed_len + committed, allocated_len=allocated_len + allocated
    )
    edit.touched.holders.add(holder)


def other_content(edit: Edit, page: PageId) -> None:
    """Drafts have none, until they are committed."""
    *before, last = edit.tags.get(page, (0,))
    edit.tags[page] = (*before, last + 1)
    edit.touched.pages.add(page)


@spoils("a lock too many", "LOCK-1, . locks and . readers")
def _(edit: Edit) -> None:
    page = cached(edit)
    edit.pages[page] = edit.pages[page]._replace(locks=edit.pages[page].locks + 1)
    edit.touched.pages.add(page)


@spoils("a receipt is lost", "LOCK-1, reads 0 pages below")
def _(edit: Edit) -> None:
    holder = first(holder for holder in edit.locks if holder in edit.records)
    del edit.locks[holder]
    edit.touched.holders.add(holder)


@spoils("a page without a reader is read", "LOCK-1")
def _(edit: Edit) -> None:
    holder, page = own(edit)
    edit.locks[holder] = edit.locks.get(holder, frozenset()) | {page}
    edit.touched.pages.add(page)


@spoils("two own pages change places", "PAGE-2, owned by row . at ., which lists it not")
def _(edit: Edit) -> None:
    tables = edit.tables.items()
    holder = first(who for who, table in tables if len(table) > 1 and edit.pages[table[-2]].kind == PRIVATE)
    *before, one, two = edit.tables[holder]
    edit.tables[holder] = (*before, two, one)
    edit.touched.pages.update((one, two))


@spoils("a row lists another page", "PAGE-2, owned by row . at ., which lists it not")
def _(edit: Edit) -> None:
    holder, page = own(edit)
    edit.tables[holder] = (*edit.tables[holder][:-1], free(edit))
    edit.touched.pages.add(page)


@spoils("a page is owned by a row that nobody holds", "PAGE-2, owned by row . at ., which lists it not")
def _(edit: Edit) -> None:
    page = free(edit)
    edit.pages[page] = Page(PRIVATE, edit.world.rows + 1, 0, 0)
    edit.touched.pages.add(page)


@spoils("a page stands behind the end of its row", "PAGE-2, owned by row . at ., which lists it not")
def _(edit: Edit) -> None:
    holder, page = own(edit)
    edit.pages[page] = edit.pages[page]._replace(ordinal=len(edit.tables[holder]))
    edit.touched.pages.add(page)


@spoils("a row is held twice", "ROW-1, row . is held twice")
def _(edit: Edit) -> None:
    one, two = first(zip(edit.records, list(edit.records)[1:], strict=False))
    edit.records[one] = edit.records[one]._replace(row=edit.records[two].row)
    edit.touched.holders.add(one)


@spoils("more is committed than allocated", "REC-2, lengths")
def _(edit: Edit) -> None:
    holder = running(edit)
    _, _, committed, allocated = edit.records[holder]
    lengths(edit, holder, committed=allocated - committed + 1)


@spoils("a token less is committed than written", "TAG-1, not what its owner wrote")
def _(edit: Edit) -> None:
    holder, page = own(edit)
    if holder in edit.sessions or page not in edit.tags:
        raise NothingToSpoil
    lengths(edit, holder, committed=-1)
    edit.touched.pages.add(page)


@spoils("a page more is allocated than listed", "TAB-2, . pages for . tokens")
def _(edit: Edit) -> None:
    size, width = edit.world.page_size, edit.world.context_len
    shorter = (holder for holder, record in edit.records.items() if record.allocated_len + size <= width)
    lengths(edit, first(shorter), allocated=size)


@spoils("more is allocated than a row has columns", "REC-2, lengths")
def _(edit: Edit) -> None:
    """And its row lists a page for them."""
    holder, record = first(edit.records.items())
    lengths(edit, holder, allocated=edit.world.context_len + 1 - record.allocated_len)
    more = pages_for(edit.world.context_len + 1, edit.world.page_size) - len(edit.tables[holder])
    edit.tables[holder] += (free(edit),) * more


@spoils("a row is held without KV", "REC-2, lengths")
def _(edit: Edit) -> None:
    holder = running(edit)
    if edit.records[holder].protected_len:
        raise NothingToSpoil
    edit.records[holder] = Record(edit.records[holder].row, 0, 0, 0)
    edit.tables[holder] = ()
    edit.touched.holders.add(holder)


@spoils("a holder is no request", "REC-1, holds a row and does not live")
def _(edit: Edit) -> None:
    """Nor is it a session, or the turn that one names."""
    holder = running(edit)
    if edit.requests.pop(holder).session is not None:
        raise NothingToSpoil
    edit.touched.holders.add(holder)


@spoils("a request has fewer tokens than KV", "REC-2, more KV than tokens")
def _(edit: Edit) -> None:
    holder = running(edit)
    request, record = edit.requests[holder], edit.records[holder]
    edit.requests[holder] = request._replace(tokens=request.tokens[: record.committed_len - 1])
    edit.touched.holders.add(holder)


@spoils("who has no row reads a page", "reads or lists pages without a row")
def _(edit: Edit) -> None:
    """It is counted among the page's readers."""
    req, page = waiting(edit), cached(edit)
    edit.locks[req] = frozenset({page})
    edit.pages[page] = edit.pages[page]._replace(locks=edit.pages[page].locks + 1)
    edit.touched.holders.add(req)


@spoils("who has no row lists a page", "reads or lists pages without a row")
def _(edit: Edit) -> None:
    req = waiting(edit)
    edit.tables[req] = (1,)
    edit.touched.holders.add(req)


@spoils("a page is owned that does not exist", "page ..?: no lawful page")
def _(edit: Edit) -> None:
    """The one after the last; or the padding page."""
    holder, page = own(edit)
    other = edit.world.pages + 1 if len(edit.tables[holder]) > 1 else 0
    edit.pages[other], edit.tags[other] = edit.pages.pop(page), edit.tags.pop(page, ())
    edit.tables[holder] = (*edit.tables[holder][:-1], other)
    edit.touched.pages.add(other)


@spoils("a private page has a lock", "no lawful page")
def _(edit: Edit) -> None:
    _, page = own(edit)
    edit.pages[page] = edit.pages[page]._replace(locks=1)
    edit.touched.pages.add(page)


@spoils("a private page holds other content", "TAG-1, not what its owner wrote")
def _(edit: Edit) -> None:
    other_content(edit, own(edit)[1])


@spoils("a cached page holds other content", "TAG-1, not what its key names")
def _(edit: Edit) -> None:
    other_content(edit, cached(edit))


@spoils("a free page has content", "TAG-1, a free page has content")
def _(edit: Edit) -> None:
    page = free(edit)
    edit.tags[page] = (1,) * edit.world.page_size
    edit.touched.pages.add(page)


@spoils("a key does not list its page", "PAGE-2, cached under key .*, which lists it not")
def _(edit: Edit) -> None:
    page = cached(edit)
    key = edit.pages[page].owner
    edit.index[key] = edit.index[key]._replace(pages=edit.index[key].pages - {page})
    edit.touched.pages.add(page)
    edit.touched.keys.add(key)


@spoils("a page is cached under no key", "PAGE-2, cached under key .*, which lists it not")
def _(edit: Edit) -> None:
    page = cached(edit)
    del edit.index[edit.pages[page].owner]
    edit.touched.pages.add(page)


@spoils("a cached page is half full", "TAG-1, not what its key names")
def _(edit: Edit) -> None:
    page = cached(edit)
    edit.tags[page] = edit.tags[page][1:]
    edit.touched.pages.add(page)


@spoils("two pages are under one key, and no duplicate may be", "CACHE-5, 2 pages under one key")
def _(edit: Edit) -> None:
    if edit.world.has("DUPLICATES"):
        raise NothingToSpoil
    copied(edit, cached(edit))


@spoils("a key has no page", "CACHE-5, 0 pages under one key")
def _(edit: Edit) -> None:
    root = first(request.root for request in edit.requests.values())
    edit.index[-1] = Entry(frozenset(), root, root, 0)
    edit.touched.keys.add(-1)


@spoils("a key lists the page of another", "CACHE-4, lists a page that is not cached under it")
def _(edit: Edit) -> None:
    one, two = first(zip(with_duplicates(edit), list(edit.index)[1:], strict=False))
    edit.index[one] = edit.index[one]._replace(pages=edit.index[one].pages | edit.index[two].pages)
    edit.touched.keys.add(one)


@spoils("a key lists a free page", "CACHE-4, lists a page that is not cached under it")
def _(edit: Edit) -> None:
    key = first(with_duplicates(edit))
    edit.index[key] = edit.index[key]._replace(pages=edit.index[key].pages | {free(edit)})
    edit.touched.keys.add(key)


@spoils("a page is cached whose parent is gone", "CACHE-4, its parent is not cached")
def _(edit: Edit) -> None:
    key = first(with_leaves_first(edit))
    edit.index[key] = edit.index[key]._replace(parent=-1)
    edit.touched.keys.add(key)


@spoils("a listed page is free", "row of (r.|s) lists the wrong page", SEEN_AS_A_WHOLE)
def _(edit: Edit) -> None:
    _, page = own(edit)
    del edit.pages[page]
    edit.tags.pop(page, None)
    edit.touched.pages.add(page)


@spoils("a row reads a page that is not its prefix", "row of (r.|s) lists the wrong page", SEEN_AS_A_WHOLE)
def _(edit: Edit) -> None:
    holder = first(who for who, reads in edit.locks.items() if len(reads) > 1 and who in edit.records)
    one, two, *after = edit.tables[holder]
    edit.tables[holder] = (two, one, *after)
    edit.touched.holders.add(holder)


@spoils("a row lists the copy of what it reads", "row of (r.|s) lists the wrong page", SEEN_AS_A_WHOLE)
def _(edit: Edit) -> None:
    if not edit.world.has("DUPLICATES"):
        raise NothingToSpoil
    holder = first(edit.locks)
    one, *after = edit.tables[holder]
    edit.tables[holder] = (copied(edit, one), *after)


@spoils("a row lists a page of another", "row of (r.|s) lists the wrong page", SEEN_AS_A_WHOLE)
def _(edit: Edit) -> None:
    holder, page = own(edit)
    another = first(who for who in edit.records if who != holder and not edit.records[who].protected_len)
    edit.tables[another] += (page,)
    upto = len(edit.tables[another]) * edit.world.page_size
    lengths(edit, another, allocated=upto - edit.records[another].allocated_len)
    if upto > edit.world.context_len:
        raise NothingToSpoil


@spoils("a child too many is counted", "key .* counts . children", SEEN_AS_A_WHOLE)
def _(edit: Edit) -> None:
    key = first(with_leaves_first(edit))
    edit.index[key] = edit.index[key]._replace(children=edit.index[key].children + 1)
    edit.touched.keys.add(key)


# ---- sessions and admissions


@spoils("a session has a request's id", "SES-1, has a request's id, or a turn that is not its own")
def _(edit: Edit) -> None:
    name, request = first(edit.sessions), first(edit.requests.values())
    edit.requests[name] = request
    edit.touched.holders.add(name)


@spoils("a session's turn is somebody else", "SES-1, has a request's id, or a turn that is not its own")
def _(edit: Edit) -> None:
    change(edit, first(edit.sessions), turn=first(req for req in edit.requests if edit.requests[req].session is None))


@spoils("a session's turn has ended", "SES-1, has a request's id, or a turn that is not its own")
def _(edit: Edit) -> None:
    idle = first(name for name, session in edit.sessions.items() if session.turn is None)
    change(edit, idle, turn="of old")


@spoils("a session holds a record beside its turn", "SES-1, holds a record beside its turn")
def _(edit: Edit) -> None:
    name = first(name for name, session in edit.sessions.items() if session.turn in edit.records)
    edit.records[name] = Record(edit.world.rows + 1, 0, 1, 1)
    edit.touched.holders.add(name)


@spoils("a session knows a token less than it has KV for", "SES-2, knows . tokens")
def _(edit: Edit) -> None:
    name = talking(edit, holds=True)
    change(edit, name, tokens=edit.sessions[name].tokens[:-1])


@spoils("a session knows tokens and has no KV", "SES-2, knows 1 tokens")
def _(edit: Edit) -> None:
    change(edit, talking(edit, holds=False), tokens=("a",))


@spoils("a closed session stays when no turn lives", "SES-3, closed, and still there")
def _(edit: Edit) -> None:
    change(edit, first(name for name, session in edit.sessions.items() if session.turn is None), closing=True)


@spoils("a session's own page holds other content", "TAG-1, not what its owner wrote")
def _(edit: Edit) -> None:
    name = talking(edit, holds=True)
    other_content(edit, first(page for page in edit.tables[name] if edit.pages[page].kind == PRIVATE))


@spoils("an admitted request has lost its lock", "LOCK-1, admitted, and holds more or less than its match")
def _(edit: Edit) -> None:
    req = admitted(edit)
    del edit.locks[req]
    edit.touched.holders.add(req)


@spoils("an admitted request reads what it was not admitted with", "LOCK-1, admitted, and holds more or less")
def _(edit: Edit) -> None:
    req = admitted(edit)
    edit.admitted[req] = ()
    edit.touched.holders.add(req)


@spoils("an admitted request lists its match", "LOCK-1, admitted, and holds more or less than its match")
def _(edit: Edit) -> None:
    req = admitted(edit)
    edit.tables[req] = edit.admitted[req]
    edit.touched.holders.add(req)


@spoils("an admitted request holds a row", "LOCK-1, admitted, and holds more or less than its match")
def _(edit: Edit) -> None:
    req = running(edit)
    edit.admitted[req] = tuple(edit.locks.get(req, ()))
    edit.touched.holders.add(req)


@spoils("who is admitted does not live", "LOCK-1, admitted, and holds more or less than its match")
def _(edit: Edit) -> None:
    req = first(req for req in edit.admitted if edit.requests[req].session is None)
    del edit.requests[req]
    edit.touched.holders.add(req)


@cache
def states(name: str) -> list[Ledger]:
    return reachable(*WORLDS[name])


def spoiled(ledger: Ledger, spoil: Spoil) -> Edit | None:
    edit = Edit(ledger)
    try:
        spoil(edit)
    except NothingToSpoil:
        return None
    return edit


@pytest.mark.parametrize("name", SEEN | SEEN_AS_A_WHOLE)
def test_what_is_spoiled_is_seen(name: str) -> None:
    """By the law that it breaks: as a whole, and, if it can be seen there, where it was touched."""
    fault, times = (SEEN | SEEN_AS_A_WHOLE)[name], 0
    for world, stride in WORLDS_LOOKED_AT.items():
        for edit in (spoiled(ledger, fault.spoil) for ledger in states(world)[::stride]):
            if edit is not None:
                times += 1
                with pytest.raises(SpecError, match=fault.says):
                    check_whole(edit.commit())
                if name in SEEN:
                    with pytest.raises(SpecError, match=fault.says):
                        check_touched(edit.commit(), edit.touched)
                else:
                    check_touched(edit.commit(), edit.touched)
    assert times > 20


@pytest.mark.parametrize("name", WORLDS_LOOKED_AT)
def test_what_the_law_writes_is_lawful_where_it_is_touched_and_as_a_whole(name: str) -> None:
    def check(before: Ledger, act: Action, answer: Answer, after: Ledger) -> None:
        edit = apply(before, act, answer)
        assert edit.commit() == after
        check_touched(after, edit.touched)
        check_whole(after)

    explore(*WORLDS[name], on_transition=check)
