"""Values of the kernels in words: what a counterexample shows."""

from __future__ import annotations

from kvledger.spec.page import CACHED, FREE, FREE_PAGE, PRIVATE, Page
from kvledger.spec.record import Record


def said_of_page(page: Page) -> str:
    """ "private to row 2, place 0"; "cached under key 7, 1 lock". """
    kind, owner, ordinal, locks = page
    counted = f"{locks} lock{'' if locks == 1 else 's'}"
    if page == FREE_PAGE:
        return "free"
    if kind == FREE:
        return f"free, with owner {owner}, place {ordinal} and {counted}"
    if kind == PRIVATE:
        return f"private to row {owner}, place {ordinal}" + (f", with {counted}" if locks else "")
    if kind == CACHED:
        return f"cached under key {owner}, {counted}" + (f", at place {ordinal}" if ordinal else "")
    return f"of kind {kind}, which there is not"


def said_of_record(record: Record) -> str:
    """ "row 1: protected 0, committed 5, allocated 8". """
    row = f"row {record.row}" if record.holds_kv else "no row"
    protected, committed, allocated = record[1:]
    return f"{row}: protected {protected}, committed {committed}, allocated {allocated}"
