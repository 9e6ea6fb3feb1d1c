"""From small integers to actions: a weighted ring of kinds, and for each kind its enabled candidates.

A move is four small integers. The first picks a place on the ring; the walk from there ends at the first kind
that is ENABLED in the ledger, so no move is lost; the others pick the candidate. Prompts come in stems that fork
at and around page edges, tokens and namespaces in look-alikes. Whatever meaning a move gets, the concrete action
is what is recorded and shrunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import gcd
from typing import NamedTuple, TypeAlias

from kvledger.spec.action import file_of, members_of
from kvledger.spec.actions import (
    Abort,
    Action,
    Admit,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Defer,
    Evict,
    Extend,
    Finish,
    Flush,
    MatchPrefix,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.actions.taking import demand, obtainable
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import ReqId, SessionId, Token, World
from kvledger.tests.kit.probes import forbidden

Draw: TypeAlias = tuple[int, int, int, int]  # each in [0, WIDTH)
Way: TypeAlias = tuple[str, bool]  # why a call is forbidden, and whether somebody else in its batch is right
Pool: TypeAlias = tuple[int, int, int, int]  # page_size, rows, pages, context_len
WIDTH = 66
REQUESTS = ("A", "B", "C", "D", "E")
SESSIONS = ("S", "T")
NAMESPACES = (0, "0", 1, "")  # two look alike, and are not the same; two are true, and two are not
LOOKALIKES: tuple[Token, ...] = ("0", 1, (0,))
STEMS: tuple[tuple[Token, ...], ...] = ((0,) * 48, (0, 1) * 24)
# page_size, rows, pages, context_len. In each a row is narrower than the pool, so that requests reach the edge.
POOLS = (
    (1, 4, 8, 7),  # small: refusals come up
    (2, 4, 10, 11),  # small, and a row ends inside a page
    (4, 3, 5, 10),  # smaller still
    (2, 4, 24, 23),  # roomy: what needs several pages comes up
    (1, 4, 24, 11),  # roomy, in pages of one
    (3, 4, 8, 13),  # pages of no power of two
    (16, 3, 5, 39),  # pages as wide as engines have them
)
# Besides, where a check is of some page sizes alone. In the pools above that these sizes have, requests seldom come to
# compute the same whole pages side by side, so that CACHE-5 would not be reached.
ROOMY = (
    (3, 4, 16, 20),
    (4, 4, 16, 23),
    (16, 4, 12, 71),
)
STRIDE = 7  # of the walk on the ring, to every place of it: the next neighbour would starve what is seldom enabled

KINDS = ("submit", "extend", "decode", "checkpoint", "finish", "retract", "abort", "evict", "flush", "again", "probe",
         "reserve", "commit", "admit", "defer", "match_prefix", "close")  # fmt: skip
PROFILES = {  # how many of the WIDTH places of the ring each kind has
    "even": (8, 7, 7, 4, 4, 3, 4, 2, 1, 8, 4, 4, 4, 3, 1, 1, 1),
    "sharing": (14, 9, 3, 7, 6, 2, 2, 1, 1, 7, 2, 3, 3, 3, 1, 1, 1),
    "pressure": (11, 8, 7, 3, 2, 3, 3, 1, 1, 9, 4, 4, 4, 3, 1, 1, 1),
}
assert all(sum(places) == WIDTH for places in PROFILES.values()) and gcd(STRIDE, WIDTH) == 1


class Traffic(NamedTuple):
    """How one example behaves. alike: all requests sample the same tokens, so that duplicates form while decoding;
    else each its own, so that aliasing shows. narrow: few different prompts, so that much is shared. probed: how
    often each reason to forbid a call was probed, in this search. prompts: how many tokens each request came with."""

    ring: tuple[str, ...]
    alike: bool
    narrow: bool
    probed: Counter[Way]
    prompts: dict[ReqId, int]

    @classmethod
    def of(cls, profile: str, alike: bool, probed: Counter[Way]) -> Traffic:
        """The ring of a profile: equal kinds side by side."""
        ring = tuple(kind for kind, places in zip(KINDS, PROFILES[profile], strict=True) for _ in range(places))
        return cls(ring, alike, profile == "sharing", probed, {})


def next_action(
    ledger: Ledger, traffic: Traffic, draw: Draw, refused: Action | None
) -> tuple[Action, bool] | None:
    """The action that a move means here, and whether it is a probe. refused: the call that was refused last."""
    place = draw[0]
    tried: set[str] = set()
    for _ in traffic.ring:
        kind = traffic.ring[place]
        if kind not in tried:
            tried.add(kind)
            act = _again(ledger, refused) if kind == "again" else CANDIDATES[kind](ledger, traffic, draw)
            if act is not None and (file_of(act).requires(ledger, act) is None) != (kind == "probe"):
                return act, kind == "probe"
        place = (place + STRIDE) % WIDTH
    return None


def sampled(traffic: Traffic, req: ReqId, number: int) -> Token:
    """Token `number` that this request samples: a fixed function of both."""
    return 0 if traffic.alike else (req, number)


def worlds(pools: tuple[Pool, ...] = POOLS) -> list[World]:
    """The pools that a check runs in."""
    return [World(rows, width, pages, size) for size, rows, pages, width in pools]


# ---- candidates: None where the kind is not enabled


def _again(ledger: Ledger, refused: Action | None) -> Action | None:
    """What was refused for want of room, as soon as there is room."""
    if not isinstance(refused, Extend | Decode | Reserve) or file_of(refused).requires(ledger, refused) is not None:
        return None
    members = members_of(ledger, refused)
    starting = sum(member.starts for member in members)
    rows = starting <= ledger.free_row_count() or not ledger.world.has("ROWS")
    return refused if rows and sum(demand(ledger, members)) <= obtainable(ledger, members) else None


def _submit(ledger: Ledger, traffic: Traffic, draw: Draw) -> Action | None:
    _, i, j, k = draw
    idle = [req for req in REQUESTS if req not in ledger.requests]
    if not idle:
        return None
    size = ledger.world.page_size
    width = ledger.world.context_len
    lengths = (2 * size, size + 1, 2 * size + 1, width, size, 5, 1, 3 * size, width + 1)
    length = min(lengths[(0, 0, 1, 3, 0, 2, 3, 0)[i % 8] if traffic.narrow else i % 9], width + 1)
    tokens = STEMS[0 if traffic.narrow else i // 9 % 2][:length]
    if j % 4 == 0 and not traffic.narrow:
        other = (LOOKALIKES[j // 4 % 3],)
        tokens = (*other, *tokens[1:]) if j // 12 % 2 else (*tokens[:-1], *other)
    session = _session(ledger, traffic, draw) if ledger.world.has("SESSIONS") else None
    if session is not None:
        known = ledger.sessions.get(session)
        tokens = tokens if known is None else _next_turn(ledger, session, tokens, draw)
        namespace = NAMESPACES[0] if known is None else known.namespace
        traffic.prompts[idle[0]] = len(tokens)
        return Submit(idle[0], tokens, namespace, None, k % 8 != 5 or not ledger.world.has("BARRED"), session)
    limits = (0, size, 2 * size, 1, size + 1, 2 * size - 1)
    limit = limits[k // 4 % 6] if k % 4 == 3 and ledger.world.has("MATCH_LIMIT") else None
    namespace = NAMESPACES[(1, 2, 3, 0, 0, 0)[j % 6] if ledger.world.has("NAMESPACES") else 0]
    traffic.prompts[idle[0]] = len(tokens)
    return Submit(idle[0], tokens, namespace, limit, k % 8 != 5 or not ledger.world.has("BARRED"))


def _session(ledger: Ledger, traffic: Traffic, draw: Draw) -> SessionId | None:
    """One in three submits is a turn, one in six where much is to be shared: of the first session that has none."""
    _, i, j, k = draw
    idle = [name for name in SESSIONS if name not in ledger.sessions or ledger.sessions[name].turn is None]
    idle.sort(key=lambda name: name not in ledger.records)  # who holds KV goes on first
    return idle[j % len(idle)] if idle and (i + k) % (6 if traffic.narrow else 3) == 0 else None


def _next_turn(ledger: Ledger, session: SessionId, other: tuple[Token, ...], draw: Draw) -> tuple[Token, ...]:
    """What a session has, and a few tokens more; or less of it, as far as it may be; or, where it holds nothing, what
    any request brings."""
    _, i, j, k = draw
    known, least = ledger.sessions[session].tokens, ledger.least_kept(session)
    if not known:
        return other
    if k % 3 == 2:
        known = known[: max(least, len(known) - i % 3)]
    more = (1, 2, ledger.world.page_size, ledger.world.page_size + 1, ledger.world.context_len)[(i + j) % 5]
    return (*known, *STEMS[j % 2][:more])[: max(ledger.world.context_len, least) + 1]


def _extend(ledger: Ledger, traffic: Traffic, draw: Draw) -> Action | None:
    _, i, j, k = draw
    able = [req for req in ledger.requests if not ledger.caught_up(req) and _room(ledger, req) > ledger.prefix(req)]
    if k % 8 and ledger.world.has("ROWS"):  # else more may start than there are rows
        starting = [req for req in able if ledger.behind(req) not in ledger.records]
        able = [req for req in able if req not in starting[ledger.free_row_count() :]]
    if not able:
        return None
    together = j % 2 or traffic.narrow
    return Extend(tuple(_member(ledger, traffic, req, k) for req in _batch(ledger, able, i, together)))


def _batch(ledger: Ledger, able: list[ReqId], i: int, together: bool | int) -> list[ReqId]:
    """One of these requests, or as many as a batch may have, that one first."""
    first = able[i % len(able)]
    most = ledger.world.declared.max_batch or len(able)
    return [first, *(req for req in able if req != first)][:most] if together else [first]


def _member(ledger: Ledger, traffic: Traffic, req: ReqId, k: int) -> tuple[ReqId, int, Token | None]:
    end, upto = len(ledger.requests[req].tokens), _room(ledger, req)
    if k % 4 == 3 and ledger.world.has("CHUNKED"):
        upto = min(upto, ledger.prefix(req) + 1 + k // 4 % 2)
    return req, upto, sampled(traffic, req, end) if upto == end else None


def _room(ledger: Ledger, req: ReqId) -> int:
    return min(len(ledger.requests[req].tokens), ledger.world.context_len)


def _decode(ledger: Ledger, traffic: Traffic, draw: Draw) -> Action | None:
    _, i, j, _ = draw
    width = ledger.world.context_len
    able = [req for req in _caught_up(ledger) if ledger.records[req].allocated_len < width]
    able = [req for req in able if not ledger.over_allocated(req)]
    if not able:
        return None
    batch = _batch(ledger, able, i, j % 2)
    return Decode(tuple((req, sampled(traffic, req, len(ledger.requests[req].tokens))) for req in batch))


def _caught_up(ledger: Ledger) -> list[ReqId]:
    return [req for req in ledger.requests if ledger.caught_up(req)]


def _reserve(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    able, size = _caught_up(ledger) if ledger.world.has("DRAFTS") else [], ledger.world.page_size
    if not able:
        return None
    return Reserve(able[draw[1] % len(able)], (1, 2, size, size + 1, 3, 2 * size + 1)[draw[2] % 6])


def _commit(ledger: Ledger, traffic: Traffic, draw: Draw) -> Action | None:
    able = [req for req in _caught_up(ledger) if ledger.over_allocated(req)]
    if not able:
        return None
    req = able[draw[1] % len(able)]
    record, end = ledger.records[req], len(ledger.requests[req].tokens)
    accepted = 1 + draw[2] % (record.allocated_len - record.committed_len)
    return Commit(req, tuple(sampled(traffic, req, end + nth) for nth in range(accepted)))


def _waiting(ledger: Ledger, i: int) -> ReqId | None:
    waiting = [req for req in ledger.requests if not ledger.holds_row(req) and req not in ledger.admitted]
    return waiting[i % len(waiting)] if waiting and ledger.world.has("SPLIT_ADMIT") else None


def _admit(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    req = _waiting(ledger, draw[1])
    return None if req is None else Admit(req)


def _match_prefix(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    req = _waiting(ledger, draw[1])
    return None if req is None else MatchPrefix(req)


def _defer(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    admitted = list(ledger.admitted)
    return Defer(admitted[draw[1] % len(admitted)]) if admitted else None


def _close(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    sessions = [name for name, session in ledger.sessions.items() if not session.closing]
    return Close(sessions[draw[1] % len(sessions)]) if sessions else None


def _holder(ledger: Ledger, i: int) -> ReqId | None:
    held = [req for req in ledger.requests if ledger.holds_row(req)]
    return held[i % len(held)] if held else None


def _checkpoint(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    """Of a first turn, if there is one, each second time: what its session goes on with is the cache's then."""
    req = _holder(ledger, draw[1])
    if req is None:
        return None
    held = (each for each in ledger.requests if ledger.holds_row(each) and ledger.may_publish(each, "checkpoint"))
    first = next((each for each in held if ledger.requests[each].session is not None), None)
    req = first if first is not None and draw[3] % 2 else req
    record = ledger.records[req]
    gap = draw[2] % 3 if draw[3] % 4 == 0 else 0
    return Checkpoint(req, max(record.committed_len - gap, record.protected_len))


def _finish(ledger: Ledger, traffic: Traffic, draw: Draw) -> Action | None:
    req = _holder(ledger, draw[1])
    if req is None:
        return None
    committed = ledger.records[req].committed_len
    prompt = min(traffic.prompts.get(req, committed), committed)  # what is left when the thinking is stripped
    keep = (committed, committed, prompt, committed - 1, committed, committed // 2, prompt, 0)[draw[2] % 8]
    if ledger.requests[req].session is not None:
        return Finish(req, max(keep, ledger.least_kept(req)), False)
    return Finish(req, keep, draw[3] % 8 != 0)


def _retract(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    req = _holder(ledger, draw[1])
    return None if req is None else Retract(req)


def _abort(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    live = list(ledger.requests)
    turns = [req for req in live if ledger.requests[req].session is not None]
    live = turns if turns and draw[2] % 4 else live  # what comes back then is a session's, too
    return Abort(live[draw[1] % len(live)]) if live else None


def _evict(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    return Evict(1 + draw[1] % 3)


def _flush(ledger: Ledger, _: Traffic, draw: Draw) -> Action | None:
    return Flush() if ledger.index or ledger.records else None


def _probe(ledger: Ledger, traffic: Traffic, draw: Draw) -> Action | None:
    """A call that the law forbids, for the reason that came up least so far; as a reason of its own counts what it is
    where somebody else in the batch is right."""
    if not ledger.world.has("GUARDED") or not ledger.requests:
        return None
    idle = next((req for req in REQUESTS if req not in ledger.requests), "F")
    reasons = forbidden(ledger, idle, NAMESPACES[0])
    beside = {(reason, True): [act for act in acts if _has_company(act)] for reason, acts in reasons.items()}
    ways = {(reason, False): acts for reason, acts in reasons.items()}
    ways |= {way: acts for way, acts in beside.items() if acts}
    way = min(sorted(ways), key=traffic.probed.__getitem__)
    traffic.probed[way] += 1
    return ways[way][draw[1] % len(ways[way])]


def _has_company(act: Action) -> bool:
    return isinstance(act, Extend | Decode) and len(act.batch) > 1


CANDIDATES: dict[str, Callable[[Ledger, Traffic, Draw], Action | None]] = {
    "submit": _submit,
    "extend": _extend,
    "decode": _decode,
    "reserve": _reserve,
    "commit": _commit,
    "admit": _admit,
    "defer": _defer,
    "match_prefix": _match_prefix,
    "close": _close,
    "checkpoint": _checkpoint,
    "finish": _finish,
    "retract": _retract,
    "abort": _abort,
    "evict": _evict,
    "flush": _flush,
    "probe": _probe,
}
