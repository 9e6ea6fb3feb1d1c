"""What stands under the keys after an answer. It says how far each request published; here that becomes pages.

A page whose key is cached already merges (or, with DUPLICATES, is kept). Two requests of one call may publish one key:
then one keeps its page and the other merges with it, and who comes first is the backend's affair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from kvledger.spec.actions.giving import Publisher
from kvledger.spec.answer import Published
from kvledger.spec.ledger import Ledger, Tag
from kvledger.spec.world import PageId, ReqId


def staying(
    ledger: Ledger,
    publishers: Sequence[Publisher],
    lengths: Mapping[ReqId, int],
    listed: Mapping[ReqId, tuple[PageId, ...]],
    gone: Collection[PageId],
    evicted: Collection[PageId],
) -> Published:
    """For each request that published: the pages of [protected, k) under their keys. Who merges stands after whom it
    merges with.

    lengths: request -> k, whole pages. listed: the pages that the answer lists. Without: a request's own, or, if that
    is gone (freed) or another one is there and only one may be, the lowest that is there.
    """
    size, duplicates = ledger.world.page_size, ledger.world.has("DUPLICATES")
    there: dict[Tag, set[PageId]] = {}
    stays: dict[ReqId, list[PageId]] = {}
    merging: list[tuple[ReqId, int, Tag]] = []
    keeper: dict[PageId, ReqId] = {}
    for req, protected, upto, table, request in sorted(publishers, key=lambda who: who.req not in listed):
        if req not in lengths:
            continue
        first, own = protected // size, table[protected // size : lengths[req] // size]
        stays[req] = list(listed.get(req, own))
        for at in range(min(len(own), ledger.publishable(upto) - first)):
            key = ledger.key(request, first + at)
            if key not in there:
                there[key] = set(ledger.index[key].pages.difference(evicted)) if key in ledger.index else set()
            if req not in listed and (own[at] in gone or (there[key] and not duplicates)):
                merging.append((req, at, key))
            elif stays[req][at] == own[at]:
                there[key].add(own[at])
                keeper[own[at]] = req
    for req, at, key in merging:
        stays[req][at] = min(there[key], default=stays[req][at])
    order = _in_turn([who.req for who in publishers if who.req in stays], stays, keeper)
    return tuple((req, tuple(stays[req])) for req in order if stays[req])


def _in_turn(
    reqs: list[ReqId], stays: Mapping[ReqId, Sequence[PageId]], keeper: Mapping[PageId, ReqId]
) -> list[ReqId]:
    """Batch order, but nobody before those whose pages it merges with; where that goes round, batch order."""
    after: dict[ReqId, set[ReqId]] = defaultdict(set)
    for req in reqs:
        after[req] |= {keeper[page] for page in stays[req] if page in keeper} - {req}
    if not any(after.values()):
        return reqs
    order: list[ReqId] = []
    while len(order) < len(reqs):
        rest = [req for req in reqs if req not in order]
        order.append(next((req for req in rest if after[req].issubset(order)), rest[0]))
    return order
