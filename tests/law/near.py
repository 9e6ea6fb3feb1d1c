"""Wrong answers beside right ones: everything that is one change away from a legal answer, in pages and in slots.

Also what no legal answer is near to: a refusal where grants are legal, a grant where none is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count, islice

from kvledger.spec.action import TAKING, members_of
from kvledger.spec.actions import Action, Reserve
from kvledger.spec.actions.every_answer import matches
from kvledger.spec.actions.taking import demand
from kvledger.spec.answer import Freed, Granted, Refused, Reply
from kvledger.spec.explore import Answer
from kvledger.spec.ledger import Ledger
from kvledger.spec.saying import said
from kvledger.spec.world import PageId, ReqId, World

SHORT = (None, "rows", "pages")


def near(ledger: Ledger, act: Action, legal: Collection[Answer]) -> Iterator[Answer]:
    """One change away from each legal answer, in pages; and some grants, for where none is legal."""
    world, room = ledger.world, frozenset(ledger.evictable())
    pages = range(world.pages + 2)
    yield from plain_grants(ledger, act)
    yield from (Refused(short, gone) for short in SHORT for gone in (frozenset[PageId](), room))
    for answer in legal:
        gone = frozenset(answer.evicted)
        for page in pages:
            yield replace(answer, evicted=gone ^ {page})
            yield from (replace(answer, evicted=gone ^ {page, other}) for other in gone - {page})
        if isinstance(answer, Refused):
            continue
        if answer.pages:
            yield from (replace(answer, rows=rows) for rows in changed(answer.rows, range(world.rows + 2)))
        yield from (replace(answer, matched=lists) for lists in one_changed(answer.matched, pages))
        yield from (replace(answer, pages=lists) for lists in one_changed(answer.pages, pages))
        if isinstance(act, Reserve):
            yield from (replace(answer, reserved=upto) for upto in range(world.context_len + world.page_size + 1))
        stays = dict(answer.published)
        for req in [*ledger.requests, "nobody"]:
            for changed_to in changed(stays.get(req, ()), pages):
                published = {**stays, req: changed_to}
                yield replace(answer, published=tuple(each for each in published.items() if each[1]))


def near_freed(freed: Freed, world: World) -> Iterator[Freed]:
    """One page or row more, less, or another."""
    yield from (freed._replace(pages=tuple(sorted(pages))) for pages in changed(freed.pages, range(world.pages + 1)))
    yield from (freed._replace(rows=tuple(sorted(rows))) for rows in changed(freed.rows, range(world.rows + 1)))


def near_replies(ledger: Ledger, act: Action, legal: Collection[Answer]) -> Iterator[Reply | Refused]:
    """One change away from each legal answer as a backend says it, in slots."""
    size, world = ledger.world.page_size, ledger.world
    slots = range((world.pages + 2) * size)
    for grant in plain_grants(ledger, act):
        yield said(ledger, act, grant)
    for short in SHORT:
        yield Refused(short)
        yield Refused(short, freed=Freed((1,)))
    for answer in legal:
        reply = said(ledger, act, answer)
        if isinstance(reply, Refused):
            yield from (replace(reply, evicted=frozenset({page})) for page in range(world.pages + 2))
            continue
        yield from (replace(reply, rows=rows) for rows in changed(tuple(reply.rows), range(world.rows + 2)))
        matched, given = (tuple(tuple(each) for each in lists) for lists in (reply.matched, reply.slots))
        more = (matched[:-1], (*matched, ()))
        yield from (replace(reply, matched=other) for other in (*one_changed(matched, slots), *more))
        yield from (replace(reply, slots=other) for other in (*one_changed(given, slots), given[:-1]))
        yield from _near_matched(ledger, act, reply)
        gone = tuple(sorted(reply.evicted))
        yield from (replace(reply, evicted=(*gone, page)) for page in range(world.pages + 2))
        yield from (replace(reply, evicted=gone[:-1]) for _ in gone[:1])
        if reply.freed is not None:
            yield from (replace(reply, freed=freed) for freed in near_freed(reply.freed, world))
        yield from _near_published(ledger, reply)


def _near_matched(ledger: Ledger, act: Action, reply: Reply) -> Iterator[Reply]:
    """What lies cached under a start's tokens, however long and in whatever namespace, passed for its match."""
    size, members = ledger.world.page_size, members_of(ledger, act)
    turns = [turn for turn, member in enumerate(members) if member.starts]
    for nth, turn in enumerate(turns):
        for pages in _cached_under(ledger, members[turn].req):
            found = tuple(page * size + offset for page in pages for offset in range(size))
            more = len(found) - len(reply.matched[nth])
            matched, slots = list(reply.matched), list(reply.slots)
            matched[nth] = found
            if slots:
                slots[turn] = tuple(slots[turn])[more:] if more >= 0 else ()
            yield replace(reply, matched=matched, slots=slots)


def _cached_under(ledger: Ledger, req: ReqId) -> Iterator[tuple[PageId, ...]]:
    tokens, lag = ledger.requests[req].tokens, ledger.world.declared.key_lag
    for root in ledger.names.roots:
        pages: tuple[PageId, ...] = ()
        for end in range(ledger.world.page_size, len(tokens) - lag + 1, ledger.world.page_size):
            entry = ledger.index.get(ledger.names.known(root, tokens[: end + lag]) or 0)
            if entry is None:
                break
            pages = (*pages, min(entry.pages))
            yield pages


def _near_published(ledger: Ledger, reply: Reply) -> Iterator[Reply]:
    size = ledger.world.page_size
    here = range(ledger.world.context_len + 2 * size)
    for req in [*ledger.requests, "nobody"]:
        for upto in here:
            yield replace(reply, freed=None, published={**reply.published, req: upto}, listed={})
    for req, upto in reply.published.items():
        yield replace(reply, freed=None, published=_without(reply.published, req), listed={})
        protected = ledger.record(req).protected_len
        for page in range(ledger.world.pages + 2):
            slots = tuple(range(page * size, page * size + upto - protected))
            yield replace(reply, freed=None, listed={**reply.listed, req: slots})
            yield replace(reply, freed=None, listed={**reply.listed, req: slots[:-1]})


def _without(published: Mapping[ReqId, int], req: ReqId) -> dict[ReqId, int]:
    return {other: upto for other, upto in published.items() if other != req}


def plain_grants(ledger: Ledger, act: Action) -> Iterator[Granted]:
    """What a backend would answer that counts its rows and pages from 1 on, whoever has them."""
    seeking = members_of(ledger, act)
    taking = seeking if isinstance(act, TAKING) else []
    upto = max((member.upto for member in taking), default=0) if isinstance(act, Reserve) else 0
    starting = sum(member.starts for member in taking)
    for gone in (frozenset[PageId](), frozenset(ledger.evictable())):
        ids = count(1)
        pages = tuple(tuple(islice(ids, asked)) for asked in demand(ledger, taking))
        rows = tuple(range(1, starting + 1))
        yield Granted(rows, next(matches(ledger, seeking)), pages, evicted=gone, reserved=upto)


def changed(items: tuple[int, ...], ids: Collection[int]) -> Iterator[tuple[int, ...]]:
    """One item another, the last one gone, or one more at the end."""
    for at in range(len(items)):
        yield from ((*items[:at], each, *items[at + 1 :]) for each in ids)
    yield from chain([items[:-1]], ((*items, each) for each in ids))


def one_changed(lists: tuple[tuple[int, ...], ...], ids: Collection[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """One of the lists changed in one place."""
    for at, each in enumerate(lists):
        yield from ((*lists[:at], other, *lists[at + 1 :]) for other in changed(each, ids))
