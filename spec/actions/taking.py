"""How rows and pages are taken, for every action that takes any: judged here once.

The order is the law's: what was evicted, what was matched, which rows, which pages. Specific before general.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kvledger.spec.actions.back import Back, Cut, beyond, given_back, judge_freed, unlocked_by
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.ledger import Ledger, Tag
from kvledger.spec.page import CACHED, new_pages
from kvledger.spec.rules import need
from kvledger.spec.world import Holder, PageId, ReqId


class Member(NamedTuple):
    """One member of a batch: positions [prefix, upto) need slots. starts: it takes a row, and what it matches in the
    cache; a turn that goes on with its session's record does neither."""

    req: ReqId
    prefix: int
    upto: int
    starts: bool


def demand(ledger: Ledger, members: Iterable[Member]) -> list[int]:
    """How many new pages each member needs."""
    return [new_pages(member.prefix, member.upto, ledger.world.page_size) for member in members]


def trims(ledger: Ledger, members: Iterable[Member]) -> Back:
    """What lies beyond the prefix of each turn that goes on with its session's record: freed before room is sought."""
    lent = ((ledger.lender(member.req), member.prefix) for member in members if not member.starts)
    return Back(cut=tuple(Cut(session, prefix, "SES-2") for session, prefix in lent if session is not None))


def trimmed(ledger: Ledger, members: Iterable[Member]) -> set[PageId]:
    """The pages that those cuts free."""
    return {page for cut in trims(ledger, members).cut for page in beyond(ledger, cut)}


def judge_evicted(
    ledger: Ledger, evicted: Collection[PageId], reading: Collection[PageId] = (), leaving: Collection[Holder] = ()
) -> None:
    """Only cached pages go, nobody reads them, and what remains is closed under parents.

    reading: pages that this very call has matched; they are locked before room is made. leaving: holders whose locks
    this very call drops before.
    """
    unlocked = unlocked_by(ledger, leaving) if evicted else ()
    for page in sorted(evicted):
        need(ledger.page(page).kind == CACHED, "EVICT-4", page=page)
        need((ledger.page(page).locks == 0 or page in unlocked) and page not in reading, "LOCK-2", page=page)
    if evicted and ledger.world.has("LEAF_FIRST"):
        gone = {ledger.pages[page].owner for page in evicted}
        gone = {key for key in gone if ledger.index[key].pages.issubset(evicted)}
        children = Counter(ledger.index[key].parent for key in gone)
        for page in sorted(evicted):
            key = ledger.pages[page].owner
            need(key not in gone or ledger.index[key].children == children[key], "EVICT-1", page=page)


def judge_refused(ledger: Ledger, members: list[Member], answer: Refused, forbidden: bool = False) -> None:
    """A refusal of the whole batch needs a cause: it is forbidden, or rows or pages are short, all evicted."""
    judge_evicted(ledger, answer.evicted)
    if answer.freed is not None:
        back = trims(ledger, members)
        judge_freed(ledger, answer.freed, back, given_back(ledger, back))
    if forbidden and answer.short is None:
        return
    starters = [member for member in members if member.starts]
    if answer.short == "rows" and ledger.world.has("ROWS"):
        need(len(starters) > ledger.free_row_count(), "ROW-4", starting=len(starters), free=ledger.free_row_count())
    else:
        asked, room = sum(demand(ledger, members)), obtainable(ledger, members)
        fits = answer.short == "pages" and asked > room
        need(fits, "PAGE-5", short=answer.short, demand=asked, obtainable=room, members=len(members))


def obtainable(ledger: Ledger, members: list[Member]) -> int:
    """Free and evictable pages, without those that the starting members may match and those kept back for starts."""
    starters = [member for member in members if member.starts]
    matched: Counter[Tag] = Counter()
    for member in starters:
        if member.req in ledger.admitted:
            continue  # what it matched is locked already
        request = ledger.requests[member.req]
        matched.update(ledger.key(request, ordinal) for ordinal in range(member.prefix // ledger.world.page_size))
    taken = 0
    for key, times in matched.items():  # of a key's duplicates each may read another one
        taken += min(times, [ledger.pages[page].locks for page in ledger.index[key].pages].count(0))
    kept_back = ledger.world.declared.headroom if starters else 0
    room = ledger.free_page_count() + len(trimmed(ledger, members)) + len(ledger.evictable())
    return room - taken - kept_back


def judge_taken(ledger: Ledger, members: list[Member], answer: Granted) -> None:
    """Evictions, matches, rows and pages of a grant."""
    starters = [member.req for member in members if member.starts]
    judge_evicted(ledger, answer.evicted, {page for pages in answer.matched for page in pages})
    for req, pages in zip(starters, answer.matched, strict=True):
        judge_matched(ledger, req, pages)
    judge_rows(ledger, starters, answer)
    judge_pages(ledger, members, answer)


def judge_matched(ledger: Ledger, req: ReqId, pages: tuple[PageId, ...]) -> None:
    """A start reads the longest cached prefix that it may, of its own namespace, and leaves a token to compute."""
    request, length = ledger.requests[req], len(pages) * ledger.world.page_size
    need(length <= ledger.match_cap(request), "CACHE-2", req=req, matched=length, most=ledger.match_cap(request))
    for ordinal, page in enumerate(pages):
        state = ledger.page(page)
        need(state.kind == CACHED, "CACHE-4", req=req, page=page, ordinal=ordinal)
        need(ledger.index[state.owner].root == request.root, "NS-1", req=req, page=page)
        need(state.owner == ledger.key(request, ordinal), "CACHE-4", req=req, page=page, ordinal=ordinal)
    if req in ledger.admitted:
        fits = pages == ledger.admitted[req]
        need(fits, "LOCK-2", req=req, page=None, admitted=ledger.admitted[req], matched=pages)
        return
    longest = ledger.longest_match(req)
    need(len(pages) == longest, "CACHE-1", req=req, matched=length, longest=longest * ledger.world.page_size)


def judge_rows(ledger: Ledger, starters: list[ReqId], answer: Granted) -> None:
    """Each member that starts gets a row of its own that was free; the others keep theirs."""
    first = starters[0] if starters else None
    need(len(answer.rows) == len(starters), "REC-1", req=first, starting=len(starters), rows=len(answer.rows))
    handed: set[int] = set()
    for req, row in zip(starters, answer.rows, strict=True):
        need(row != 0, "ROW-2", req=req, row=row)
        held = ledger.holder_of(row)
        fits = not ledger.world.has("ROWS") or 1 <= row <= ledger.world.rows
        need(fits and held is None and row not in handed, "ROW-1", req=req, row=row, held_by=held)
        handed.add(row)


def judge_pages(ledger: Ledger, members: list[Member], answer: Granted) -> None:
    """Each member gets as many pages as its new positions need, each free until now and nobody else's."""
    for member, asked, pages in zip(members, demand(ledger, members), answer.pages, strict=True):
        need(len(pages) == asked, "PAGE-4", req=member.req, demand=asked, got=len(pages))
    handed: set[PageId] = set()
    cut_off = trimmed(ledger, members)
    for member, pages in zip(members, answer.pages, strict=True):
        for page in pages:
            need(page != 0, "PAGE-3", req=member.req, page=page)
            free = ledger.is_free(page) or page in answer.evicted or page in cut_off
            need(free and page not in handed, "PAGE-1", req=member.req, page=page, twice=page in handed)
            handed.add(page)
