"""The laws see what is wrong: as a whole always, and where an edit touched, as far as one look at it can tell.

Each reachable ledger is spoiled in one place, in every way that a wrong effect could, with that place as touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeAlias, TypeVar

import pytest

from kvledger.spec.action import apply
from kvledger.spec.actions import Action
from kvledger.spec.edit import Edit
from kvledger.spec.explore import Answer, explore
from kvledger.spec.invariants import check_touched, check_whole
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import CACHED, PRIVATE, Page, SpecError
from kvledger.spec.world import Holder, PageId
from kvledger.spec.worlds import WORLDS
from kvledger.tests.unit.reachable import reachable

T = TypeVar("T")
Spoil: TypeAlias = Callable[[Edit], None]  # raises NothingToSpoil where the ledger has no such place
WORLDS_LOOKED_AT = ["TINY_A", "DUPLICATES", "KEY_LAG"]
SEEN: dict[str, Spoil] = {}  # by both looks
SEEN_AS_A_WHOLE: dict[str, Spoil] = {}  # a page does not know which rows list it, a key not which keys name it


class NothingToSpoil(Exception):
    """This ledger has no place of that kind."""


def spoils(name: str, where: dict[str, Spoil] = SEEN) -> Callable[[Spoil], Spoil]:
    return lambda spoil: where.setdefault(name, spoil)


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


def lengths(edit: Edit, holder: Holder, *, committed: int = 0, allocated: int = 0) -> None:
    """Adds to the lengths of a record."""
    _, _, committed_len, allocated_len = record = edit.records[holder]
    edit.records[holder] = record._replace(
        committed_len=committed_len + committed, allocated_len=allocated_len + allocated
    )
    edit.touched.holders.add(holder)


def other_content(edit: Edit, page: PageId) -> None:
    edit.tags[page] = (*edit.tags[page][:-1], edit.tags[page][-1] + 1)
    edit.touched.pages.add(page)


@spoils("a lock too many")
def _(edit: Edit) -> None:
    page = cached(edit)
    edit.pages[page] = edit.pages[page]._replace(locks=edit.pages[page].locks + 1)
    edit.touched.pages.add(page)


@spoils("a receipt is lost")
def _(edit: Edit) -> None:
    holder = first(edit.locks)
    del edit.locks[holder]
    edit.touched.holders.add(holder)


@spoils("a page without a reader is read")
def _(edit: Edit) -> None:
    holder, page = own(edit)
    edit.locks[holder] = edit.locks.get(holder, frozenset()) | {page}
    edit.touched.pages.add(page)


@spoils("two own pages change places")
def _(edit: Edit) -> None:
    tables = edit.tables.items()
    holder = first(who for who, table in tables if len(table) > 1 and edit.pages[table[-2]].kind == PRIVATE)
    *before, one, two = edit.tables[holder]
    edit.tables[holder] = (*before, two, one)
    edit.touched.pages.update((one, two))


@spoils("a row lists another page")
def _(edit: Edit) -> None:
    holder, page = own(edit)
    edit.tables[holder] = (*edit.tables[holder][:-1], free(edit))
    edit.touched.pages.add(page)


@spoils("a page is owned by a row that nobody holds")
def _(edit: Edit) -> None:
    page = free(edit)
    edit.pages[page] = Page(PRIVATE, edit.world.rows + 1, 0, 0)
    edit.touched.pages.add(page)


@spoils("a row is held twice")
def _(edit: Edit) -> None:
    one, two = first(zip(edit.records, list(edit.records)[1:], strict=False))
    edit.records[one] = edit.records[one]._replace(row=edit.records[two].row)
    edit.touched.holders.add(one)


@spoils("more is committed than allocated")
def _(edit: Edit) -> None:
    lengths(edit, first(edit.records), committed=1)


@spoils("a token less is committed than written")
def _(edit: Edit) -> None:
    holder, page = own(edit)
    lengths(edit, holder, committed=-1)
    edit.touched.pages.add(page)


@spoils("a page more is allocated than listed")
def _(edit: Edit) -> None:
    lengths(edit, first(edit.records), allocated=edit.world.page_size)


@spoils("a private page holds other content")
def _(edit: Edit) -> None:
    other_content(edit, own(edit)[1])


@spoils("a cached page holds other content")
def _(edit: Edit) -> None:
    other_content(edit, cached(edit))


@spoils("a free page has content")
def _(edit: Edit) -> None:
    page = free(edit)
    edit.tags[page] = (1,) * edit.world.page_size
    edit.touched.pages.add(page)


@spoils("a key does not list its page")
def _(edit: Edit) -> None:
    page = cached(edit)
    key = edit.pages[page].owner
    edit.index[key] = edit.index[key]._replace(pages=edit.index[key].pages - {page})
    edit.touched.pages.add(page)
    edit.touched.keys.add(key)


@spoils("a key lists a free page")
def _(edit: Edit) -> None:
    key = first(edit.index)
    edit.index[key] = edit.index[key]._replace(pages=edit.index[key].pages | {free(edit)})
    edit.touched.keys.add(key)


@spoils("a page is cached whose parent is gone")
def _(edit: Edit) -> None:
    key = first(key for key, entry in edit.index.items() if edit.world.has("LEAF_FIRST") and entry.parent == entry.root)
    edit.index[key] = edit.index[key]._replace(parent=-1)
    edit.touched.keys.add(key)


@spoils("a listed page is free", SEEN_AS_A_WHOLE)
def _(edit: Edit) -> None:
    _, page = own(edit)
    del edit.pages[page], edit.tags[page]
    edit.touched.pages.add(page)


@spoils("a row reads a page that is not its prefix", SEEN_AS_A_WHOLE)
def _(edit: Edit) -> None:
    holder = first(who for who, reads in edit.locks.items() if len(reads) > 1)
    one, two, *after = edit.tables[holder]
    edit.tables[holder] = (two, one, *after)
    edit.touched.holders.add(holder)


@spoils("a child too many is counted", SEEN_AS_A_WHOLE)
def _(edit: Edit) -> None:
    key = first(key for key in edit.index if edit.world.has("LEAF_FIRST"))
    edit.index[key] = edit.index[key]._replace(children=edit.index[key].children + 1)
    edit.touched.keys.add(key)


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


@pytest.mark.parametrize("fault", SEEN | SEEN_AS_A_WHOLE)
def test_what_is_spoiled_is_seen(fault: str) -> None:
    times = 0
    for name in WORLDS_LOOKED_AT:
        for edit in (spoiled(ledger, (SEEN | SEEN_AS_A_WHOLE)[fault]) for ledger in states(name)[::3]):
            if edit is not None:
                times += 1
                with pytest.raises(SpecError):
                    check_whole(edit.commit())
                if fault in SEEN:
                    with pytest.raises(SpecError):
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
