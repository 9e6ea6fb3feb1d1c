"""The fast ledger as a backend: kvledger's actions, one by one, turned into calls of whole batches.

Tokens, which may be any hashable, are numbered here; everything that a request or a session holds is its row's, in the
ledger. Every method first asks what its action requires; a call that it forbids is refused and leaves no trace.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import torch

from kvledger.fast.attention import gather
from kvledger.fast.ledger import Grant, Ledger
from kvledger.fast.pages import OutOfRoom
from kvledger.fast.plan import Pages
from kvledger.fast.prefix_cache import Node, Prefix
from kvledger.fast.request import KvHolder, Req, Session
from kvledger.fast.selfcheck import selfcheck
from kvledger.spec.actions import (
    Abort,
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
from kvledger.spec.backend import (
    Action,
    CachedView,
    Declaration,
    Freed,
    RecordView,
    Refused,
    Reply,
    Totals,
    View,
    World,
)
from kvledger.spec.world import Holder, PageId, ReqId, SessionId, Slot, Token

DECLARED = Declaration(
    name="fast",
    version="1",
    capabilities=frozenset(
        {"ROWS", "PAGED", "PREFIX_CACHE", "LEAF_FIRST", "EVICT", "CHECKPOINT", "CHUNKED", "DRAFTS", "SESSIONS"}
        | {"SPLIT_ADMIT", "GUARDED", "CONTENT", "VIEW", "SCRAMBLE"}
    ),
    publishes_on=frozenset({"checkpoint", "finish"}),
)
FORBIDDEN = Refused()
STALE = -999_999_937  # no length: whoever reads it goes wrong at once


class Backend:
    """Requests and sessions over a ledger, and one tag a slot where an engine keeps K and V. Any page size."""

    def __init__(self, world: World, device: str = "cpu") -> None:
        self.world = world
        self.ledger = Ledger(world, device)
        self.reqs: dict[ReqId, Req] = {}
        self.sessions: dict[SessionId, Session] = {}
        self.numbers: dict[Token, int] = {}  # of tokens: equal ones have one
        self.names: dict[tuple[Hashable, bytes], int] = {}  # of cache keys, by the key before and a page's tokens
        self.kv_buffer = torch.zeros((world.pages + 1) * world.page_size, dtype=torch.int64, device=device)
        self.freed_pages: list[PageId] = []
        self.freed_rows: list[int] = []

    def declare(self) -> Declaration:
        """SGLang's shape: merges duplicates, evicts leaves first, publishes on checkpoint and finish."""
        return DECLARED

    def do(self, action: Action, /) -> Reply | Refused:
        """Perform the action; Refused() if it is forbidden now."""
        self.freed_pages, self.freed_rows = [], []
        match action:
            case Submit():
                return self.submit(action)
            case Admit():
                return self.admit(action)
            case Defer():
                return self.defer(action)
            case MatchPrefix():
                return self.match_prefix(action)
            case Extend():
                return self.extend(action)
            case Decode():
                return self.decode(action)
            case Reserve():
                return self.reserve(action)
            case Commit():
                return self.commit(action)
            case Checkpoint():
                return self.checkpoint(action)
            case Finish():
                return self.finish(action)
            case Retract():
                return self.retract(action)
            case Abort():
                return self.abort(action)
            case Close():
                return self.close(action)
            case Evict():
                return self.evict(action)
            case Flush():
                return self.flush(action)

    # ---- a request comes, and may be admitted

    def submit(self, act: Submit) -> Reply | Refused:
        """It waits, and holds nothing. A session comes into being with its first turn."""
        if act.req in self.reqs or act.req in self.sessions or not act.tokens or any(tok is None for tok in act.tokens):
            return FORBIDDEN
        if act.match_limit is not None and act.match_limit < 0:
            return FORBIDDEN
        tokens = self.numbered(act.tokens)
        if act.session is not None:
            if not self.may_take_turn(act, act.session, tokens):
                return FORBIDDEN
            fresh = Session(tokens=array("i"), namespace=act.namespace)
            self.sessions.setdefault(act.session, fresh).turn = act.req
        self.reqs[act.req] = Req(
            rid=act.req,
            tokens=tokens,
            namespace=act.namespace,
            match_limit=act.match_limit,
            publish=act.publish,
            session=act.session,
        )
        return Reply()

    def may_take_turn(self, act: Submit, session_id: SessionId, tokens: array[int]) -> bool:
        """Whether this may be the session's next turn: no other lives, and it goes on from what the session has."""
        if session_id == act.req or session_id in self.reqs or act.match_limit is not None:
            return False
        session = self.sessions.get(session_id)
        if session is None:
            return True
        if session.turn is not None or session.namespace != act.namespace:
            return False
        if not session.holds_kv:
            return True
        length = min(self.committed(session), len(tokens) - 1)
        return tokens[:length] == session.tokens[:length] and length >= max(self.protected(session), 1)

    def admit(self, act: Admit) -> Reply | Refused:
        """What it will start from is locked; of a later turn it is its session's record, which is trimmed to it."""
        req = self.waiting(act.req)
        if req is None:
            return FORBIDDEN
        req.admitted = True
        session = self.lender(req)
        if session is not None:
            self.cut(session, self.goes_on_at(req, session))
            return Reply(freed=self.freed())
        req.prefix = self.ledger.admit(req.may_match(), req.namespace)
        return Reply(matched=[self.slots_of(req.prefix.pages)])

    def defer(self, act: Defer) -> Reply | Refused:
        """It waits again, without its lock. What a later turn had trimmed stays trimmed."""
        req = self.reqs.get(act.req)
        if req is None or not req.admitted:
            return FORBIDDEN
        self.let_go(req)
        return Reply()

    def match_prefix(self, act: MatchPrefix) -> Reply | Refused:
        """What it would start from now, if it is the cache that it starts from."""
        req = self.waiting(act.req)
        if req is None or self.lender(req) is not None:
            return FORBIDDEN
        return Reply(matched=[self.slots_of(self.ledger.match(req.may_match(), req.namespace).pages)])

    # ---- it grows

    def extend(self, act: Extend) -> Reply | Refused:
        """Who starts is admitted first, if it is not yet, all before anybody takes anything; a refusal undoes that.

        A later turn takes its session's row, cut to where it goes on: no new row, and nothing of the cache.
        """
        reqs = self.members([rid for rid, _, _ in act.batch])
        uptos = [upto for _, upto, _ in act.batch]
        if not reqs or any(self.over_allocated(req) for req in reqs):
            return FORBIDDEN
        for req, (_, upto, token) in zip(reqs, act.batch, strict=True):
            reaches_end = upto == len(req.tokens)
            if upto > min(len(req.tokens), self.world.context_len) or (token is not None) != reaches_end:
                return FORBIDDEN
        lenders = {req.rid: session for req in reqs if (session := self.lender(req)) is not None}
        starting = [req for req in reqs if not req.holds_kv and req.rid not in lenders]
        prefixes = {req.rid: req.prefix or self.ledger.admit(req.may_match(), req.namespace) for req in starting}
        not_yet = [prefixes[req.rid] for req in starting if not req.admitted]
        if any(upto <= self.begins(req, prefixes.get(req.rid)) for req, upto in zip(reqs, uptos, strict=True)):
            self.ledger.defer(*not_yet)
            return FORBIDDEN
        for rid, session in lenders.items():
            self.cut(session, self.goes_on_at(self.reqs[rid], session))
        trimmed = self.freed() if lenders else None
        rows = [lenders.get(req.rid, req).row for req in reqs]
        try:
            grant = self.ledger.extend(rows, uptos, list(prefixes.values()))
        except OutOfRoom as refusal:
            self.ledger.defer(*not_yet)
            return Refused(refusal.short, freed=trimmed)
        for rid, session in lenders.items():
            session.row = 0
            self.reqs[rid].resumed = True
        for req in starting:
            req.resumed = False
        for req, row, (_, _, token) in zip(reqs, grant.rows.tolist(), act.batch, strict=True):
            req.row, req.admitted, req.prefix = row, False, None
            req.tokens += self.numbered([token] if token is not None else [])
        return Reply(
            rows=[req.row for req in starting],
            matched=[self.slots_of(prefix.pages) for prefix in prefixes.values()],
            slots=by_member(grant),
            evicted=frozenset(grant.evicted.tolist()),
            freed=trimmed,
        )

    def begins(self, req: Req, prefix: Prefix | None) -> int:
        """Behind how many tokens an extend of this request goes on."""
        if prefix is not None:
            return len(prefix.pages) * self.world.page_size
        session = self.lender(req)
        return self.committed(req) if session is None else self.goes_on_at(req, session)

    def decode(self, act: Decode) -> Reply | Refused:
        """KV for each pending token; the sampled one is pending next."""
        reqs = self.members([rid for rid, _ in act.batch])
        if not reqs or any(token is None for _, token in act.batch):
            return FORBIDDEN
        if any(not self.caught_up(req) or self.over_allocated(req) for req in reqs):
            return FORBIDDEN
        if any(self.committed(req) >= self.world.context_len for req in reqs):
            return FORBIDDEN
        try:
            grant = self.ledger.decode([req.row for req in reqs])
        except OutOfRoom as refusal:
            return Refused(refusal.short)
        for req, (_, token) in zip(reqs, act.batch, strict=True):
            req.tokens += self.numbered([token])
        return Reply(slots=by_member(grant), evicted=frozenset(grant.evicted.tolist()))

    def reserve(self, act: Reserve) -> Reply | Refused:
        """Slots for drafts; near the end of the row there may be fewer than was asked for."""
        req = self.running(act.req)
        if req is None or not self.caught_up(req) or act.n < 1:
            return FORBIDDEN
        try:
            grant = self.ledger.reserve([req.row], [act.n])
        except OutOfRoom as refusal:
            return Refused(refusal.short)
        return Reply(slots=by_member(grant), evicted=frozenset(grant.evicted.tolist()))

    def commit(self, act: Commit) -> Reply | Refused:
        """The drafts were verified: all but the last of these tokens have KV, and so has what was pending."""
        req = self.running(act.req)
        if req is None or not self.caught_up(req) or not act.tokens or any(token is None for token in act.tokens):
            return FORBIDDEN
        if self.committed(req) + len(act.tokens) > self.allocated(req):
            return FORBIDDEN
        self.ledger.commit([req.row], [len(act.tokens)])
        req.tokens += self.numbered(act.tokens)
        return Reply()

    def checkpoint(self, act: Checkpoint) -> Reply | Refused:
        """A running request's prefix becomes shareable; it goes on reading it. Not if it was in a session before."""
        req = self.running(act.req)
        if req is None or not req.publish:
            return FORBIDDEN
        start = self.protected(req)
        if not (start <= act.upto - act.upto % self.world.page_size and act.upto <= self.committed(req)):
            return FORBIDDEN
        self.share(req, act.upto)
        end = self.protected(req)
        return Reply(slots=[self.table(req, start)[: end - start]], published={act.req: end}, freed=self.freed())

    # ---- it ends: three ways, one release; a turn leaves its row to its session

    def finish(self, act: Finish) -> Reply | Refused:
        """Forgotten; [0, keep) may stay in the cache. keep below what the cache has already takes nothing from it.

        Of a turn [0, keep) stays with its session, which takes row and lock as well.
        """
        req = self.running(act.req)
        if req is None or not 0 <= act.keep <= self.committed(req):
            return FORBIDDEN
        start, session = self.protected(req), self.session_of(req)
        if session is not None:
            if act.publish or act.keep < max(start, 1):
                return FORBIDDEN
            self.hand_over(req, session, act.keep)
            self.forget(req)
            return Reply(freed=self.freed())
        if act.publish and req.publish:
            self.share(req, act.keep)
        end = self.protected(req)
        self.release(req)
        self.forget(req)
        return Reply(published={act.req: end} if end > start else {}, freed=self.freed())

    def retract(self, act: Retract) -> Reply | Refused:
        """It waits again, with all its tokens, the pending one too. A turn's record waits with its session."""
        req = self.running(act.req)
        if req is None:
            return FORBIDDEN
        session = self.session_of(req)
        if session is not None:
            self.hand_over(req, session, self.committed(req))
        else:
            self.release(req)
        return Reply(freed=self.freed())

    def abort(self, act: Abort) -> Reply | Refused:
        """Forgotten, wherever it was. A turn that runs leaves its session nothing, one that waits all there is."""
        req = self.reqs.get(act.req)
        if req is None:
            return FORBIDDEN
        if req.holds_kv:
            self.release(req)
        self.let_go(req)
        self.forget(req)
        return Reply(freed=self.freed())

    def close(self, act: Close) -> Reply | Refused:
        """The session gives everything back; while a turn lives, when that ends."""
        session = self.sessions.get(act.session)
        if session is None or session.closing:
            return FORBIDDEN
        session.closing = True
        if session.turn is not None:
            return Reply()
        self.end_session(act.session)
        return Reply(freed=self.freed())

    # ---- the cache

    def evict(self, act: Evict) -> Reply | Refused:
        """At least n pages leave the cache, or all that may."""
        if act.n < 1 or self.ledger.cache.evictable == 0:
            return FORBIDDEN
        return Reply(evicted=frozenset(self.ledger.evict(act.n).tolist()))

    def flush(self, act: Flush) -> Reply | Refused:
        """The whole cache goes, and what idle sessions hold; not while anybody runs or is admitted."""
        if any(req.holds_kv or req.admitted for req in self.reqs.values()):
            return FORBIDDEN
        for session in self.sessions.values():
            if session.holds_kv:
                self.release(session)
        evicted = self.ledger.evict(self.ledger.cache.evictable)
        return Reply(evicted=frozenset(evicted.tolist()), freed=self.freed())

    # ---- what the methods share: who

    def members(self, rids: Sequence[ReqId]) -> list[Req]:
        """The requests of a batch, in order; none if one is not live or stands there twice."""
        if len(set(rids)) != len(rids) or not self.reqs.keys() >= set(rids):
            return []
        return [self.reqs[rid] for rid in rids]

    def waiting(self, rid: ReqId) -> Req | None:
        """The request, if it holds no row and is not admitted."""
        req = self.reqs.get(rid)
        return req if req is not None and not req.holds_kv and not req.admitted else None

    def running(self, rid: ReqId) -> Req | None:
        """The request, if it holds a row."""
        req = self.reqs.get(rid)
        return req if req is not None and req.holds_kv else None

    def session_of(self, req: Req) -> Session | None:
        """The session whose turn the request is."""
        return None if req.session is None else self.sessions[req.session]

    def lender(self, req: Req) -> Session | None:
        """The session whose row a waiting turn goes on with; None: it starts like any request, or runs."""
        session = self.session_of(req)
        return session if session is not None and session.holds_kv else None

    def holders(self) -> Mapping[Holder, KvHolder]:
        """Whoever holds a row, by id."""
        return {name: holder for name, holder in {**self.reqs, **self.sessions}.items() if holder.holds_kv}

    # ---- how far

    def protected(self, holder: KvHolder) -> int:
        """How much of what it holds the cache has."""
        return int(self.ledger.protected_len[holder.row])

    def committed(self, holder: KvHolder) -> int:
        """How much of what it holds has KV."""
        return int(self.ledger.committed_len[holder.row])

    def allocated(self, holder: KvHolder) -> int:
        """How far its slots reach."""
        return int(self.ledger.allocated_len[holder.row])

    def over_allocated(self, req: Req) -> bool:
        """Whether a row is held, with more slots than KV."""
        return req.holds_kv and self.allocated(req) > self.committed(req)

    def caught_up(self, req: Req) -> bool:
        """Whether it holds a row and only the pending token has no KV."""
        return req.holds_kv and self.committed(req) == len(req.tokens) - 1

    def goes_on_at(self, req: Req, session: Session) -> int:
        """Behind how many tokens a later turn goes on: all that have KV; but one token is left to compute."""
        return min(self.committed(session), len(req.tokens) - 1)

    # ---- what moves

    def share(self, req: Req, upto: int) -> None:
        """The whole pages of [0, upto) go to the cache, unless the record was in a session before."""
        if not req.resumed:
            self.freed_pages += self.ledger.checkpoint(req.row, req.tokens, upto, req.namespace).tolist()

    def cut(self, holder: KvHolder, length: int) -> None:
        """Of what it holds [0, length) stays."""
        self.freed_pages += self.ledger.cut([holder.row], [length]).tolist()

    def release(self, holder: KvHolder) -> None:
        """It gives up all that it holds."""
        self.freed_pages += self.ledger.release([holder.row]).tolist()
        self.freed_rows.append(holder.row)
        holder.row = 0

    def hand_over(self, req: Req, session: Session, keep: int) -> None:
        """The turn leaves [0, keep) behind, row and lock with it, and holds nothing any more."""
        session.row, req.row = req.row, 0
        session.tokens = req.tokens[:keep]
        self.cut(session, keep)

    def let_go(self, req: Req) -> None:
        """It is not admitted any more."""
        if req.prefix is not None:
            self.ledger.defer(req.prefix)
        req.admitted, req.prefix = False, None

    def forget(self, req: Req) -> None:
        """It has ended. A session that was closed meanwhile ends with its turn."""
        del self.reqs[req.rid]
        if req.session is not None:
            session = self.sessions[req.session]
            session.turn = None
            if session.closing:
                self.end_session(req.session)

    def end_session(self, session_id: SessionId) -> None:
        """The session is over, and what it holds goes back."""
        session = self.sessions.pop(session_id)
        if session.holds_kv:
            self.release(session)

    # ---- what is said

    def numbered(self, tokens: Sequence[Token]) -> array[int]:
        """One number a token, the same for equal ones."""
        return array("i", [self.numbers.setdefault(token, len(self.numbers)) for token in tokens])

    def slots_of(self, pages: Pages) -> list[Slot]:
        """All slots of these pages, in order."""
        size = self.world.page_size
        slots: list[Slot] = np.add.outer(pages * size, np.arange(size)).ravel().tolist()
        return slots

    def table(self, holder: KvHolder, start: int = 0) -> list[Slot]:
        """The slots of [start, allocated), as its row on the device lists them."""
        return listed(self.ledger.tensors.req_to_token[holder.row, start : self.allocated(holder)])

    def freed(self) -> Freed:
        """What this action gave back."""
        return Freed(tuple(sorted(self.freed_pages)), tuple(sorted(self.freed_rows)))

    def view(self) -> View:
        """The ledger's own books, which agree with each other: else Inconsistent. A record is shown once, under who
        holds its row."""
        ledger, holders = self.ledger, self.holders()
        selfcheck(ledger)
        records = {
            name: RecordView(holder.row, self.protected(holder), self.committed(holder), self.allocated(holder))
            for name, holder in holders.items()
        }
        rows = np.array([holder.row for holder in holders.values()], np.int64)
        private = ledger.plan.new_pages(ledger.protected_len[rows], ledger.allocated_len[rows])
        return View(
            free_rows=ledger.rows.free().tolist(),
            free_pages=ledger.pages.free().tolist(),
            records=records,
            table={name: self.table(holder) for name, holder in holders.items()},
            cached=self.cached(),
            totals=Totals(
                available=ledger.pages.available,
                evictable=ledger.cache.evictable,
                protected=ledger.cache.protected,
                private=int(private.sum()),
            ),
        )

    def cached(self) -> dict[PageId, CachedView]:
        """Every page of the tree. Two keys are equal iff the namespace and all tokens up to the page's end are."""
        cache, shown = self.ledger.cache, dict[PageId, CachedView]()
        last: dict[Node | None, Hashable] = {}
        for node in cache.nodes():
            key = last.get(node.parent, ("namespace", node.namespace))
            for index, page in enumerate(node.pages.tolist()):
                tokens = node.key[index * cache.page_bytes : (index + 1) * cache.page_bytes]
                key = self.names.setdefault((key, tokens), len(self.names))
                shown[page] = CachedView(key, node.lock_ref)
            last[node] = key
        return shown

    def write(self, slots: Sequence[Slot], tags: Sequence[int], /) -> None:
        """As a forward pass would: slots[i] now holds tags[i]."""
        where, what = torch.tensor([slots, tags], dtype=torch.int64, device=self.kv_buffer.device)
        self.kv_buffer[where] = what

    def read(self, holder: Holder, /) -> list[int]:
        """The tags of [0, committed) of whoever holds a record, through the table; none of who holds no row."""
        held = self.holders().get(holder)
        if held is None:
            return []
        [tags] = gather(self.ledger.tensors, self.kv_buffer, [held.row], [self.committed(held)])
        return listed(tags)

    def scramble(self) -> None:
        """Spoil the stale lengths of every row that nobody holds."""
        ledger, free = self.ledger, self.ledger.rows.free()
        ledger.protected_len[free] = ledger.committed_len[free] = ledger.allocated_len[free] = STALE


def by_member(grant: Grant) -> list[list[Slot]]:
    """The new slots of each member of a batch."""
    slots, ends = listed(grant.out_cache_loc), np.cumsum(grant.counts).tolist()
    return [slots[end - count : end] for end, count in zip(ends, grant.counts.tolist(), strict=True)]


def listed(tensor: torch.Tensor) -> list[int]:
    """The numbers of a tensor [n]; by way of numpy, for a tensor's own tolist takes several times as long."""
    numbers: list[int] = tensor.cpu().numpy().tolist()
    return numbers


def make(world: World) -> Backend:
    """On the CPU."""
    return Backend(world)


def make_cuda(world: World) -> Backend:
    """On the current CUDA device."""
    return Backend(world, "cuda")
