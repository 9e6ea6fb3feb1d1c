"""Which rule, broken by which action, makes one of SGLang's sums too large or too small.

SGLang adds up who has what: available + evictable + protected + session_held + uncached slots, free rows + rows of
sessions. Too much: something counts twice. Too little: something is nobody's. The likeliest cause stands first, going
by the reports that the zoo's files cite. That each of these rules does it, by each of these actions, and that no other
rule is known to, is worked out by a test (tests/unit/test_leak_causes.py).
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from kvledger.tests.report.leak_line import ROWS, SLOTS

SESSIONS = frozenset({"SES-1", "SES-2", "SES-3", "SES-4"})


class Cause(NamedTuple):
    """A rule that may be broken, the actions to suspect, and what they then do."""

    rule: str
    suspects: str
    what: str


CAUSES: dict[tuple[str, int], tuple[Cause, ...]] = {
    (SLOTS, +1): (
        Cause("PAGE-6", "finish retract abort", "two ranges that go back meet inside a page: it goes back twice"),
        Cause("PAGE-1", "finish retract abort", "a page goes back that somebody has, or that is free already"),
        Cause("CONS-1", "extend", "a record that is lent to a turn counts twice, or a count is wrong"),
        Cause("SES-3", "close", "a session is closed twice, or while a turn still has its record"),
        Cause("SES-1", "finish retract", "the release of a turn frees what its session has taken over"),
        Cause("SES-2", "extend", "the next turn frees more than what lies behind the point where it goes on"),
        Cause("SES-4", "abort", "the pages of an aborted turn go back, and its session keeps the record"),
        Cause("PAGE-2", "evict finish", "a page goes back and stays in the tree"),
        Cause("CACHE-3", "checkpoint finish", "a page goes to the tree and stays private, too"),
        Cause("REC-1", "retract finish", "a record that was released still counts what it had"),
        Cause("REC-2", "extend checkpoint", "a record says more than it has, or less of it is the cache's"),
        Cause("LOCK-2", "extend", "an eviction takes pages that somebody reads"),
        Cause("DRAFT-1", "reserve", "allocated_len moves on further than slots were given"),
        Cause("ATOM-1", "extend reserve", "a refused call gives back what it was not given"),
        Cause("PAGE-3", "finish", "page 0 goes back: an index of 0 passes for a slot"),
    ),
    (SLOTS, -1): (
        Cause("PAGE-6", "retract finish", "drafts behind what is committed do not go back, or a part of a page"),
        Cause("PAGE-2", "finish retract abort", "the last who had a page ends, and it does not go back"),
        Cause("CACHE-5", "checkpoint", "of two pages with one key one leaves its row, and does not go back"),
        Cause("SES-2", "extend", "the next turn writes over columns whose pages do not go back"),
        Cause("SES-4", "abort", "an aborted turn leaves the session its short record for the long one"),
        Cause("SES-1", "finish retract", "drafts of a turn do not go back when its session takes over"),
        Cause("SES-3", "close", "a session ends, and not all it has goes back"),
        Cause("ATOM-1", "extend", "a refused start keeps pages that it had been given"),
        Cause("CACHE-4", "evict", "a page leaves the tree and does not go back"),
        Cause("REC-1", "extend finish", "a record loses its row, and its pages with it"),
        Cause("REC-2", "extend checkpoint", "a record says less than it has, or more of it is the cache's"),
        Cause("DRAFT-1", "reserve", "slots are given and allocated_len does not move on"),
    ),
    (ROWS, +1): (
        Cause("ROW-1", "finish retract abort", "a row goes back twice, or while somebody holds it"),
        Cause("REC-1", "extend retract", "a released record passes for one that holds a row"),
        Cause("SES-3", "close", "a session is closed twice, or while a turn still has its row"),
        Cause("PAGE-6", "finish retract", "a row goes back with the pages of a request, and once more"),
        Cause("SES-1", "finish retract", "the release of a turn frees the row that its session has taken over"),
        Cause("SES-4", "abort", "the row of an aborted turn goes back, and its session keeps the record"),
        Cause("SES-2", "extend", "the next turn goes on with a row that is free as well"),
        Cause("ATOM-1", "extend", "a refused start gives back a row that it had not been given"),
        Cause("ROW-2", "finish", "row 0, the padding row, goes back"),
    ),
    (ROWS, -1): (
        Cause("ROW-1", "finish retract abort", "who held a row ends, and it does not go back"),
        Cause("PAGE-6", "finish retract", "the pages of a request go back, and its row does not"),
        Cause("ATOM-1", "extend", "a start that is refused for want of pages keeps its row"),
        Cause("SES-1", "finish retract", "a turn ends, and neither it nor its session has the row"),
        Cause("SES-3", "close", "a session ends and its row does not go back"),
        Cause("SES-4", "abort", "an aborted turn ends, and its row does not go back"),
        Cause("SES-2", "extend", "the next turn takes another row, and its session's does not go back"),
        Cause("REC-1", "extend finish", "a record forgets its row"),
    ),
}


def causes(unit: str, off: int, hinted: Container[str] = (), *, sessions: bool = True) -> list[Cause]:
    """Causes of a sum that is off by so many slots or rows, the likeliest first. hinted: rules that the parts of the
    sum speak for. sessions: whether any holds KV."""

    def likely(cause: Cause) -> tuple[bool, bool]:
        return cause.rule not in hinted, cause.rule in SESSIONS and not sessions

    return sorted(CAUSES[unit, 1 if off > 0 else -1], key=likely)
