"""How things come back, for every action that gives any back: judged here once, with what the answer says it freed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple, cast

from kvledger.spec.answer import Freed
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import pages_for
from kvledger.spec.rules import need
from kvledger.spec.world import Holder, PageId


class Cut(NamedTuple):
    """A holder keeps its row and [0, upto), and gives back the pages beyond. rule: what is broken if more goes."""

    holder: Holder
    upto: int
    rule: str


class Back(NamedTuple):
    """What an action gives back. leaving: those who give back all that is private, and their row. cut: those who keep
    a part. rule: what is broken if those who leave keep anything."""

    leaving: tuple[Holder, ...] = ()
    cut: tuple[Cut, ...] = ()
    rule: str = "PAGE-6"


NOTHING = Back()


def beyond(ledger: Ledger, cut: Cut) -> tuple[PageId, ...]:
    """The pages that a cut frees."""
    return ledger.tables[cut.holder][pages_for(cut.upto, ledger.world.page_size) :]


def unlocked_by(ledger: Ledger, leaving: Collection[Holder]) -> set[PageId]:
    """The cached pages that nobody else reads."""
    reading = Counter(page for holder in set(leaving) for page in ledger.locks.get(holder, ()))
    return {page for page, times in reading.items() if ledger.pages[page].locks == times}


def given_back(ledger: Ledger, back: Back, published: Collection[PageId] = ()) -> Freed:
    """What the law frees. published: private pages of theirs that pass to the cache in the same call."""
    pages = [page for cut in back.cut for page in beyond(ledger, cut)]
    rows = []
    for holder in back.leaving:
        first = ledger.records[holder].protected_len // ledger.world.page_size
        pages += [page for page in ledger.tables[holder][first:] if page not in published]
        rows += [cast(int, ledger.records[holder].row)] if ledger.world.has("ROWS") else []
    return Freed(tuple(sorted(pages)), tuple(sorted(rows)))


def judge_freed(ledger: Ledger, freed: Freed, back: Back, law: Freed) -> None:
    """What an answer says it freed is what the law frees, as often; and what a session keeps is named by the session's
    own rules."""
    for holder, upto, rule in back.cut:
        kept = set(ledger.tables[holder][: pages_for(upto, ledger.world.page_size)]).intersection(freed.pages)
        row = ledger.records[holder].row
        need(not kept and row not in freed.rows, rule, holder=holder, freed=freed, law=law)
    lacks = Counter(law.rows) - Counter(freed.rows) or Counter(law.pages) - Counter(freed.pages)
    need(back.rule == "PAGE-6" or not lacks, back.rule, holder="".join(back.leaving), freed=freed, law=law)
    need(freed == law, "PAGE-6", freed=freed, law=law)
