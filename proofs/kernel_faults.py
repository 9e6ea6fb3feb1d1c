"""Faults seeded in the two kernels: each changes a few words of one function, and a proof must refute it, by name.

Written before the proofs that find them. test_proofs_faults.py loads each kernel with one fault in it.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import NamedTuple

from kvledger.spec import page, record

KERNELS = {"page": page, "record": record}


class Fault(NamedTuple):
    """In `function` of a kernel, `old` (which stands there once, below the docstring) reads `new`.

    sentence: what an engine with this fault does. law: the one that a proof must name, with a counterexample.
    """

    kernel: str
    function: str
    old: str
    new: str
    sentence: str
    law: str


FAULTS: dict[str, Fault] = {
    "evicts what is read": Fault(
        "page", "evict", "page.kind != CACHED or page.locks != 0", "page.kind != CACHED",
        "evict takes a page that somebody reads", "LOCK-2 locked-stays",
    ),
    "anybody gives back": Fault(
        "page", "give_back", "page.kind != PRIVATE or page.owner != row", "page.kind != PRIVATE",
        "a row gives back another row's page", "PAGE-1 one-owner",
    ),
    "gives back a cached page": Fault(
        "page", "give_back", "page.kind != PRIVATE or page.owner", "page.kind == FREE or page.owner",
        "a row whose number is a key's gives back the cached page", "LOCK-2 locked-stays",
    ),
    "takes a cached page": Fault(
        "page", "grant", "page.kind != FREE", "page.kind == PRIVATE",
        "a page that is cached is handed out", "LOCK-2 locked-stays",
    ),
    "unlocks nothing": Fault(
        "page", "unlock", "page.locks - 1", "page.locks",
        "an unlock leaves the count as it was", "LOCK-1 locks-counted",
    ),
    "publishes under its row": Fault(
        "page", "publish", "(CACHED, key,", "(CACHED, page.owner,",
        "a published page names its row, not its key", "PAGE-2 no-page-lost, in the cache",
    ),
    "gives back to nobody": Fault(
        "page", "give_back", "return FREE_PAGE", "return page",
        "a page that is given back stays private", "PAGE-2 no-page-lost",
    ),
    "keeps what was allocated": Fault(
        "record", "release", "committed_len, 0)", "committed_len, record.allocated_len)",
        "a released record still says that it has slots", "REC-1 held-means-allocated",
    ),
    "cuts into the cache": Fault(
        "record", "cut", "not max(record.protected_len, 1) <= upto", "not 1 <= upto",
        "a turn is cut below what its row reads from the cache", "REC-2 ladder",
    ),
    "commits what it reserves": Fault(
        "record", "reserve", "record.committed_len, upto)", "upto, upto)",
        "drafts count as committed when they are reserved", "DRAFT-1 reserve-moves-allocated-only",
    ),
    "protects a part of a page": Fault(
        "record", "protect", " or upto % page_size != 0", "",
        "a page is protected in part", "REC-2 ladder",
    ),
    "grows over drafts": Fault(
        "record", "grow", " or record.committed_len != record.allocated_len", "",
        "positions of drafts that nobody accepted become committed", "authority",
    ),
}  # fmt: skip


def with_fault(fault: Fault) -> tuple[ModuleType, ModuleType]:
    """The two kernels, one of them a copy with this fault in it."""
    kernel = KERNELS[fault.kernel]
    whole, text = inspect.getsource(kernel), inspect.getsource(getattr(kernel, fault.function))
    head, quotes, body = text.rpartition('"""')
    if whole.count(text) != 1 or body.count(fault.old) != 1:
        raise ValueError(f"{fault.old!r} stands {body.count(fault.old)} times in {fault.kernel}.{fault.function}")
    copy = ModuleType(kernel.__name__)
    spoiled = whole.replace(text, head + quotes + body.replace(fault.old, fault.new))
    exec(compile(spoiled, str(kernel.__file__), "exec", dont_inherit=True), copy.__dict__)
    data = {name: value for name, value in vars(kernel).items() if isinstance(value, type | tuple)}
    copy.__dict__.update(data)  # one Page, one Record, one SpecError: those that everybody knows
    return (copy, record) if fault.kernel == "page" else (page, copy)
