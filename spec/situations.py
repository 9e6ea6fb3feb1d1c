"""What must be reachable, and which rules each situation arms.

A rule that never had a chance to break says nothing. A situation is a transition, seen before its effect, in
which a wrong answer exists; it arms the rules that this answer would break. Exploration must reach all of them,
and a check must arm every rule often enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

from kvledger.spec.action import MATCHING, TAKING, members_of, name_of, publishers_of
from kvledger.spec.actions import (
    Abort,
    Action,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Defer,
    Evict,
    Extend,
    Finish,
    Flush,
    Reserve,
    Retract,
)
from kvledger.spec.actions.flush import in_the_way
from kvledger.spec.actions.giving import Publisher
from kvledger.spec.actions.taking import Member, demand, obtainable, trims
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import pages_for
from kvledger.spec.world import ReqId, World


class Moment:
    """A transition before its effect, with what several situations ask of it, computed once."""

    def __init__(self, ledger: Ledger, act: Action, answer: Granted | Refused) -> None:
        self.ledger, self.act, self.answer = ledger, act, answer
        self.granted = isinstance(answer, Granted)
        members = members_of(ledger, act)
        self.seekers = [member for member in members if member.starts]  # who matches the cache
        self.members = members if isinstance(act, TAKING) else []
        self.starters = [member for member in self.members if member.starts]
        self.going_on = trims(ledger, members).cut  # the sessions whose record a turn takes up, and from where
        self.leaver, self.turn = None, None  # who gives up a row by this; whose session this is about
        if isinstance(act, (Finish, Retract, Abort)):
            self.leaver = act.req if ledger.holds_row(act.req) else None
            self.turn = ledger.requests[act.req].session

    def hits(self) -> Iterator[Member]:
        """The members that match the cache and find something. Who was admitted has matched already."""
        return (member for member in self.seekers if member.prefix and member.req not in self.ledger.admitted)

    def closing(self) -> bool:
        """Whether a turn ends by this whose session was closed meanwhile."""
        ends = self.granted and isinstance(self.act, (Finish, Abort))
        return ends and self.turn is not None and self.ledger.sessions[self.turn].closing

    def settles(self) -> bool:
        """Whether a session takes a turn's record over."""
        if self.turn is None or self.leaver is None or not self.granted:
            return False
        closing = self.ledger.sessions[self.turn].closing
        return isinstance(self.act, Retract) or (isinstance(self.act, Finish) and not closing)

    @cached_property
    def publishers(self) -> list[Publisher]:
        """Who may publish in this action, as far as it has committed by its end."""
        may = name_of(self.act) in self.ledger.world.declared.publishes_on
        if not may or not isinstance(self.answer, Granted) or (isinstance(self.act, Finish) and not self.act.publish):
            return []
        return publishers_of(self.ledger, self.act, self.answer)

    def may_publish(self, req: ReqId) -> bool:
        """Whether this action may publish of this request."""
        return self.ledger.may_publish(req, name_of(self.act))

    def duplicates(self) -> bool:
        """Whether a page is published whose key is cached already."""
        ledger = self.ledger
        for req, pages in self.answer.published if isinstance(self.answer, Granted) else ():
            who = next(publisher for publisher in self.publishers if publisher.req == req)
            first, request = who.protected // ledger.world.page_size, who.request
            if any(ledger.key(request, ordinal) in ledger.index for ordinal in range(first, first + len(pages))):
                return True
        return False

    def private(self) -> int:
        """How many private pages the leaving request gives back."""
        if self.leaver is None or self.settles():
            return 0
        protected = self.ledger.records[self.leaver].protected_len
        return len(self.ledger.tables[self.leaver]) - protected // self.ledger.world.page_size

    def past_the_row(self) -> bool:
        """Whether more is to be reserved than the row has columns: that may be refused for no cause but this."""
        width = self.ledger.world.context_len
        return isinstance(self.act, Reserve) and self.ledger.records[self.act.req].committed_len + self.act.n > width

    def evicts(self) -> bool:
        """Whether pages leave the cache."""
        return bool(self.answer.evicted)

    def exact_fit(self) -> bool:
        """Whether a grant takes the last page that could be had."""
        asked = sum(demand(self.ledger, self.members))
        tight = self.granted and asked > 0 and self.ledger.free_page_count() <= asked
        return tight and obtainable(self.ledger, self.members) == asked


Predicate: TypeAlias = Callable[[Moment], bool]


class Situation(NamedTuple):
    """What is the case, and the rules that a wrong answer here would break. needs: the capability, if any, without
    which it is never the case."""

    holds: Predicate
    arms: tuple[str, ...]
    needs: str | None = None


SITUATIONS: dict[str, Situation] = {}


def situation(name: str, arms: str = "", needs: str | None = None) -> Callable[[Predicate], Predicate]:
    """Register a situation under its name."""

    def register(test: Predicate) -> Predicate:
        SITUATIONS[name] = Situation(test, tuple(arms.split()), needs)
        return test

    return register


def possible(world: World) -> dict[str, Situation]:
    """The situations that may come up in this world: it has what they need."""
    return {name: each for name, each in SITUATIONS.items() if each.needs is None or world.has(each.needs)}


def armed(moment: Moment) -> set[str]:
    """The rules that this transition could have broken."""
    return {rule for each in SITUATIONS.values() if each.arms and each.holds(moment) for rule in each.arms}


# ---- rows


@situation("a request starts", "ROW-2 REC-1")
def _(m: Moment) -> bool:
    return m.granted and bool(m.starters)


@situation("a request starts beside another that holds a row", "ROW-1")
def _(m: Moment) -> bool:
    return m.granted and bool(m.starters) and bool(m.ledger.records)


@situation("the last free row is taken", "ROW-4")
def _(m: Moment) -> bool:
    return m.granted and bool(m.starters) and len(m.starters) == m.ledger.free_row_count()


@situation("rows are refused", "ATOM-1")
def _(m: Moment) -> bool:
    return isinstance(m.answer, Refused) and m.answer.short == "rows"


@situation("a held row grows", "ROW-3 REC-2 TAB-2 TAG-1")
def _(m: Moment) -> bool:
    return m.granted and len(m.members) > len(m.starters)


@situation("a request fills its row", "PAGE-4 PAGE-5")
def _(m: Moment) -> bool:
    return m.granted and any(who.upto == m.ledger.world.context_len for who in m.members)


@situation("two requests hold rows")
def _(m: Moment) -> bool:
    return len(m.ledger.records) > 1


# ---- pages


@situation("pages are granted beside owned ones", "PAGE-1 PAGE-3 PAGE-4")
def _(m: Moment) -> bool:
    return isinstance(m.answer, Granted) and any(m.answer.pages) and bool(m.ledger.pages)


@situation("a grant takes the last page that could be had", "PAGE-5")
def _(m: Moment) -> bool:
    return m.exact_fit()


@situation("pages are refused", "PAGE-5 ATOM-1")
def _(m: Moment) -> bool:
    return isinstance(m.answer, Refused) and m.answer.short == "pages" and not m.past_the_row()


@situation("pages are refused to a request that would match", "PAGE-5 ATOM-1")
def _(m: Moment) -> bool:
    return isinstance(m.answer, Refused) and m.answer.short == "pages" and any(m.hits())


@situation("a batch is refused", "ATOM-1")
def _(m: Moment) -> bool:
    return isinstance(m.answer, Refused) and len(m.members) > 1


@situation("several positions share a page", "TAB-1")
def _(m: Moment) -> bool:
    size = m.ledger.world.page_size
    return m.granted and size > 1 and any(who.prefix % size or who.upto - who.prefix > 1 for who in m.members)


@situation("a partial page is filled", "TAB-1 PAGE-4")
def _(m: Moment) -> bool:
    return m.granted and any(who.prefix % m.ledger.world.page_size for who in m.members)


@situation("private pages come back", "PAGE-2 PAGE-6 REC-1")
def _(m: Moment) -> bool:
    return m.granted and m.private() > 0


@situation("a request ends that is half prefilled", "PAGE-2 PAGE-6")
def _(m: Moment) -> bool:
    return m.granted and m.leaver is not None and not m.ledger.caught_up(m.leaver)


@situation("every page is owned")
def _(m: Moment) -> bool:
    return m.ledger.free_page_count() == 0


@situation("pages of every kind stand side by side", "CONS-1")
def _(m: Moment) -> bool:
    ledger = m.ledger
    cached = bool(ledger.index) or not ledger.world.has("PREFIX_CACHE")
    return cached and bool(ledger.records) and ledger.free_page_count() > 0


# ---- the prefix cache


@situation("a start finds a prefix", "CACHE-1 CACHE-4 TAG-1")
def _(m: Moment) -> bool:
    return m.granted and any(m.hits())


@situation("a start finds two pages", "CACHE-1 CACHE-4")
def _(m: Moment) -> bool:
    return m.granted and any(who.prefix > m.ledger.world.page_size for who in m.hits())


@situation("more of a prompt is cached than a start may take", "CACHE-2")
def _(m: Moment) -> bool:
    ledger = m.ledger
    for who in m.seekers if m.granted else ():
        request = ledger.requests[who.req]
        most = ledger.publishable(ledger.match_cap(request))
        if most < ledger.publishable(len(request.tokens)) and ledger.key(request, most) in ledger.index:
            return True
    return False


@situation("the same tokens are cached in another namespace", "NS-1", needs="NAMESPACES")
def _(m: Moment) -> bool:
    ledger, block = m.ledger, m.ledger.world.page_size + m.ledger.world.declared.key_lag
    for who in m.seekers if m.granted else ():
        request = ledger.requests[who.req]
        if ledger.publishable(ledger.match_cap(request)) > 0:
            for root in ledger.names.roots:
                if root != request.root and ledger.names.known(root, request.tokens[:block]) in ledger.index:
                    return True
    return False


@situation("the pending token would fill a page that is published", "CACHE-3")
def _(m: Moment) -> bool:
    may = m.ledger.publishable
    return any(
        may(who.upto + 1) > may(who.upto) and m.may_publish(who.req) for who in m.publishers
    )


@situation("a request is barred from publishing", "CACHE-3", needs="BARRED")
def _(m: Moment) -> bool:
    return m.granted and any(not m.ledger.requests[who.req].publish for who in m.publishers)


@situation("pages are published")
def _(m: Moment) -> bool:
    return isinstance(m.answer, Granted) and bool(m.answer.published)


@situation("a duplicate is published while its request goes on", "CACHE-5 TAG-1")
def _(m: Moment) -> bool:
    return isinstance(m.act, (Checkpoint, Extend, Decode, Commit)) and m.duplicates()


@situation("a duplicate is published by a request that ends", "CACHE-5 PAGE-6")
def _(m: Moment) -> bool:
    return isinstance(m.act, (Finish, Abort)) and m.duplicates()


@situation("a key has two pages", needs="DUPLICATES")
def _(m: Moment) -> bool:
    return any(len(entry.pages) > 1 for entry in m.ledger.index.values())


@situation("keep lies below what is published", "PAGE-6")
def _(m: Moment) -> bool:
    return isinstance(m.act, Finish) and m.granted and m.act.keep < m.ledger.records[m.act.req].protected_len


@situation("the tree branches")
def _(m: Moment) -> bool:
    parents = [entry.parent for entry in m.ledger.index.values()]
    return len(set(parents)) < len(parents)


@situation("a request starts while a cached key's parent is gone", "CACHE-4")
def _(m: Moment) -> bool:
    index = m.ledger.index
    if not m.starters or m.ledger.world.has("LEAF_FIRST"):
        return False
    return any(entry.parent != entry.root and entry.parent not in index for entry in index.values())


# ---- locks and evictions


@situation("a start reads what another request reads", "LOCK-1")
def _(m: Moment) -> bool:
    pages = [page for path in m.answer.matched for page in path] if isinstance(m.answer, Granted) else []
    return any(m.ledger.page(page).locks > 0 for page in pages)


@situation("a request leaves what another still reads", "LOCK-1")
def _(m: Moment) -> bool:
    reads = m.ledger.locks.get(m.leaver, frozenset()) if m.leaver is not None and m.granted else frozenset()
    return any(m.ledger.pages[page].locks > 1 for page in reads)


@situation("a grant evicts", "EVICT-4")
def _(m: Moment) -> bool:
    return m.granted and bool(m.members) and m.evicts()


@situation("pages are evicted beside locked ones", "LOCK-2 EVICT-4")
def _(m: Moment) -> bool:
    return m.evicts() and any(m.ledger.locks.values())


@situation("an inner page could be evicted", "EVICT-1", needs="LEAF_FIRST")
def _(m: Moment) -> bool:
    return m.evicts() and any(
        entry.children and any(m.ledger.pages[page].locks == 0 for page in entry.pages)
        for entry in m.ledger.index.values()
    )


@situation("evict is called", "EVICT-2 EVICT-4", needs="EVICT")
def _(m: Moment) -> bool:
    return m.granted and isinstance(m.act, Evict)


@situation("a flush is refused", "LOCK-2")
def _(m: Moment) -> bool:
    return isinstance(m.act, Flush) and not m.granted and bool(in_the_way(m.ledger))


@situation("a flush empties the cache", "EVICT-2")
def _(m: Moment) -> bool:
    return isinstance(m.act, Flush) and m.granted and bool(m.ledger.index)


# ---- drafts


@situation("slots are reserved", "DRAFT-1 PAGE-4", needs="DRAFTS")
def _(m: Moment) -> bool:
    return m.granted and isinstance(m.act, Reserve)


@situation("more is reserved than the row has columns", "DRAFT-1", needs="DRAFTS")
def _(m: Moment) -> bool:
    return m.past_the_row()


@situation("drafts are rejected", "TAB-2 TAG-1", needs="DRAFTS")
def _(m: Moment) -> bool:
    if not isinstance(m.act, Commit):
        return False
    record = m.ledger.records[m.act.req]
    return record.committed_len + len(m.act.tokens) < record.allocated_len


@situation("drafts stand in a page that would be published", "DRAFT-2", needs="DRAFTS")
def _(m: Moment) -> bool:
    may, size = m.ledger.publishable, m.ledger.world.page_size
    for who in m.publishers:
        record = m.ledger.record(who.req)
        ahead = record.committed_len <= who.upto < record.allocated_len
        if ahead and m.may_publish(who.req):
            return may(pages_for(record.allocated_len, size) * size) > may(who.upto)
    return False


@situation("a request ends with drafts", "PAGE-2 PAGE-6", needs="DRAFTS")
def _(m: Moment) -> bool:
    return m.granted and m.leaver is not None and m.ledger.over_allocated(m.leaver)


# ---- sessions


@situation("a turn ends into its session", "SES-1", needs="SESSIONS")
def _(m: Moment) -> bool:
    return m.settles() and isinstance(m.act, Finish)


@situation("a turn is retracted", "SES-1", needs="SESSIONS")
def _(m: Moment) -> bool:
    return m.settles() and isinstance(m.act, Retract)


@situation("a turn goes on", "SES-2 ROW-3 TAG-1", needs="SESSIONS")
def _(m: Moment) -> bool:
    return m.granted and bool(m.going_on)


@situation("a turn goes on inside a page", "SES-2 TAB-1", needs="SESSIONS")
def _(m: Moment) -> bool:
    inside = any(cut.upto % m.ledger.world.page_size for cut in m.going_on)
    return m.granted and isinstance(m.act, Extend) and inside


@situation("a turn goes on before its session's end", "SES-2 PAGE-6", needs="SESSIONS")
def _(m: Moment) -> bool:
    return any(cut.upto < m.ledger.records[cut.holder].committed_len for cut in m.going_on)


@situation("a turn is refused", "ATOM-1 SES-2", needs="SESSIONS")
def _(m: Moment) -> bool:
    return not m.granted and bool(m.going_on)


@situation("a turn could publish what its session had", "CACHE-3", needs="SESSIONS")
def _(m: Moment) -> bool:
    settled = (who for who in m.publishers if m.ledger.requests[who.req].publish and not m.may_publish(who.req))
    return any(m.ledger.publishable(who.upto) * m.ledger.world.page_size > who.protected for who in settled)


@situation("a session is closed while a turn lives", "SES-3", needs="SESSIONS")
def _(m: Moment) -> bool:
    if not isinstance(m.act, Close):
        return False
    turn = m.ledger.sessions[m.act.session].turn
    return turn is not None and (m.act.session in m.ledger.records or turn in m.ledger.records)


@situation("a turn ends whose session is closing", "SES-3 PAGE-6", needs="SESSIONS")
def _(m: Moment) -> bool:
    if isinstance(m.act, Abort):  # of one that ran SES-4 says that nothing is left
        return m.closing() and m.turn in m.ledger.records
    return m.closing() and m.leaver is not None


@situation("an idle session is closed that holds KV", "SES-3 PAGE-2 PAGE-6", needs="SESSIONS")
def _(m: Moment) -> bool:
    if not isinstance(m.act, Close):
        return False
    return m.act.session in m.ledger.records and m.ledger.sessions[m.act.session].turn is None


@situation("a running turn is aborted", "SES-4", needs="SESSIONS")
def _(m: Moment) -> bool:
    return m.granted and isinstance(m.act, Abort) and m.turn is not None and m.leaver is not None


@situation("a waiting turn is aborted whose session holds KV", "SES-4", needs="SESSIONS")
def _(m: Moment) -> bool:
    return m.granted and isinstance(m.act, Abort) and m.turn in m.ledger.records and not m.closing()


@situation("a flush finds a session that holds KV", "PAGE-2 PAGE-6", needs="SESSIONS")
def _(m: Moment) -> bool:
    return isinstance(m.act, Flush) and m.granted and bool(m.ledger.records)


# ---- admission apart


@situation("a request is admitted", "CACHE-1 LOCK-1", needs="SPLIT_ADMIT")
def _(m: Moment) -> bool:
    return m.granted and isinstance(m.act, MATCHING) and any(m.hits())


@situation("an admitted request starts", "LOCK-1 LOCK-2 CACHE-4 TAG-1 REC-1", needs="SPLIT_ADMIT")
def _(m: Moment) -> bool:
    return m.granted and any(m.ledger.admitted.get(who.req) for who in m.starters)


@situation("an admitted request does not start", "LOCK-1", needs="SPLIT_ADMIT")
def _(m: Moment) -> bool:
    gone = isinstance(m.act, (Defer, Abort)) and bool(m.ledger.admitted.get(m.act.req))
    return gone or (not m.granted and any(m.ledger.admitted.get(who.req) for who in m.starters))


@situation("a flush is refused for the lock of an admission", "LOCK-2", needs="SPLIT_ADMIT")
def _(m: Moment) -> bool:
    return isinstance(m.act, Flush) and not m.granted and bool(m.ledger.admitted)
