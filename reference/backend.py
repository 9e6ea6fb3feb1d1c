"""The reference as a backend: one method an action, and the books as they are.

Every method first asks what its action requires; a call that it forbids is refused and leaves no trace. What it then
does is written in allocation, release and sessions. What it says was evicted or freed is what went through the free
lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvledger.reference import allocation, release
from kvledger.reference.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from kvledger.reference.books import Books
from kvledger.reference.radix_cache import MatchResult, RadixCache
from kvledger.reference.request import KvHolder, Req
from kvledger.reference.rows import OutOfRoom, ReqToTokenPool
from kvledger.reference.sessions import StreamingSession
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
from kvledger.spec.backend import Action, Declaration, Freed, Refused, Reply, View, World
from kvledger.spec.world import Holder, PageId, ReqId, SessionId, Slot

CACHE_WORDS = frozenset({"PREFIX_CACHE", "LEAF_FIRST", "EVICT", "CHECKPOINT"})
CALL_WORDS = frozenset({"CHUNKED", "DRAFTS", "SESSIONS", "SPLIT_ADMIT"})
RADIX = Declaration(
    name="reference",
    version="1",
    capabilities=CACHE_WORDS | CALL_WORDS | {"ROWS", "PAGED", "GUARDED", "CONTENT", "VIEW", "SCRAMBLE"},
    publishes_on=frozenset({"checkpoint", "finish"}),
)
NO_CACHE = replace(RADIX, capabilities=RADIX.capabilities - CACHE_WORDS)
FORBIDDEN = Refused()
STALE = -999_999_937  # no length: whoever reads it goes wrong at once


class Backend:
    """The requests, the sessions, the three pools, and one tag a slot where an engine keeps K and V. Any page size."""

    # named here so that each can be replaced alone: a faulty backend of tests/zoo is this one but for one of them
    match_kv_cache = staticmethod(allocation.match_kv_cache)
    alloc_for_extend = staticmethod(allocation.alloc_for_extend)
    alloc_for_decode = staticmethod(allocation.alloc_for_decode)
    alloc_for_spec_decode = staticmethod(allocation.alloc_for_spec_decode)
    checkpoint_kv_cache = staticmethod(release.checkpoint_kv_cache)
    release_kv_cache = staticmethod(release.release_kv_cache)
    row_pool: type[ReqToTokenPool] = ReqToTokenPool
    token_allocator: type[TokenToKVPoolAllocator] = TokenToKVPoolAllocator
    paged_allocator: type[PagedTokenToKVPoolAllocator] = PagedTokenToKVPoolAllocator
    prefix_cache: type[RadixCache] = RadixCache
    streaming_session: type[StreamingSession] = StreamingSession

    def __init__(self, world: World, disable: bool = False) -> None:
        allocator = self.token_allocator if world.page_size == 1 else self.paged_allocator
        self.world = world
        self.reqs: dict[ReqId, Req] = {}
        self.sessions: dict[SessionId, StreamingSession] = {}
        self.req_to_token_pool = self.row_pool(world.rows, world.context_len)
        self.allocator = allocator(world.pages * world.page_size, world.page_size)
        self.tree_cache = self.prefix_cache(self.req_to_token_pool, self.allocator, world.page_size, disable)
        self.kv_buffer = [0] * (world.pages + 1) * world.page_size
        self.books = Books(self.tree_cache)

    def declare(self) -> Declaration:
        """SGLang's shape: merges duplicates, evicts leaves first, publishes on checkpoint and finish."""
        return NO_CACHE if self.tree_cache.disable else RADIX

    def do(self, action: Action, /) -> Reply | Refused:
        """Perform the action; Refused() if it is forbidden now."""
        self.allocator.freed.clear()
        self.req_to_token_pool.freed.clear()
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
        root = self.tree_cache.root_node
        if act.session is not None:
            if not self.may_take_turn(act, act.session):
                return FORBIDDEN
            fresh = self.streaming_session(tokens=[], extra_key=act.namespace, last_node=root)
            self.sessions.setdefault(act.session, fresh).turn = act.req
        self.reqs[act.req] = Req(
            rid=act.req,
            tokens=list(act.tokens),
            extra_key=act.namespace,
            last_node=root,
            match_limit=act.match_limit,
            publish=act.publish,
            session=act.session,
        )
        return Reply()

    def may_take_turn(self, act: Submit, session_id: SessionId) -> bool:
        """Whether this may be the session's next turn: no other lives, and it goes on from what the session has."""
        if session_id == act.req or session_id in self.reqs or act.match_limit is not None:
            return False
        session = self.sessions.get(session_id)
        if session is None:
            return True
        if session.turn is not None or session.extra_key != act.namespace:
            return False
        if not session.kv.holds_kv:
            return True
        length = min(session.kv.kv_committed_len, len(act.tokens) - 1)
        agree = list(act.tokens[:length]) == session.tokens[:length]
        return agree and length >= max(session.kv.cache_protected_len, 1)

    def admit(self, act: Admit) -> Reply | Refused:
        """What it will start from is locked; of a later turn it is its session's record, which is trimmed to it."""
        req = self.waiting(act.req)
        if req is None:
            return FORBIDDEN
        req.match = self.match(req)
        session = self.lender(req)
        if session is not None:
            session.trim(len(req.match.device_indices), self.tree_cache)
            return Reply(freed=self.freed())
        req.move_lock(req.match.last_node, self.tree_cache)
        return Reply(matched=[req.match.device_indices])

    def defer(self, act: Defer) -> Reply | Refused:
        """It waits again, without its lock. What a later turn had trimmed stays trimmed."""
        req = self.reqs.get(act.req)
        if req is None or req.match is None:
            return FORBIDDEN
        req.match = None
        req.move_lock(self.tree_cache.root_node, self.tree_cache)
        return Reply()

    def match_prefix(self, act: MatchPrefix) -> Reply | Refused:
        """What it would start from now, if it is the cache that it starts from."""
        req = self.waiting(act.req)
        if req is None or self.lender(req) is not None:
            return FORBIDDEN
        return Reply(matched=[self.match(req).device_indices])

    # ---- it grows

    def extend(self, act: Extend) -> Reply | Refused:
        """Who starts matches first, all before anybody takes anything, and locks what it matched.

        A later turn takes its session's record, trimmed to where it goes on: no row, and nothing of the cache.
        """
        reqs = self.members([rid for rid, _, _ in act.batch])
        if not reqs or any(req.kv.over_allocated for req in reqs):
            return FORBIDDEN
        for req, (_, upto, token) in zip(reqs, act.batch, strict=True):
            reaches_end = upto == len(req.tokens)
            if upto > min(len(req.tokens), self.world.context_len) or (token is not None) != reaches_end:
                return FORBIDDEN
        coming = [req for req in reqs if not req.kv.holds_kv]
        matches = {req.rid: self.match(req) for req in coming}
        prefixes = [matches[req.rid].device_indices if req.rid in matches else self.indices(req) for req in reqs]
        if any(upto <= len(prefix) for prefix, (_, upto, _) in zip(prefixes, act.batch, strict=True)):
            return FORBIDDEN

        turns = {req.rid: session for req in coming if (session := self.lender(req)) is not None}
        starting = [req for req in coming if req.rid not in turns]
        for rid, session in turns.items():
            session.trim(len(matches[rid].device_indices), self.tree_cache)
            session.take(self.reqs[rid], self.tree_cache)
        trimmed = self.freed() if turns else None
        self.allocator.freed.clear()
        for req in starting:
            req.move_lock(matches[req.rid].last_node, self.tree_cache)
        try:
            slots = self.alloc_for_extend(reqs, prefixes, [upto for _, upto, _ in act.batch], self.tree_cache)
        except OutOfRoom as refusal:
            for rid, session in turns.items():
                session.restore(self.reqs[rid], len(matches[rid].device_indices), self.tree_cache)
            for req in starting:
                if req.match is None:
                    req.move_lock(self.tree_cache.root_node, self.tree_cache)
            return Refused(refusal.short, evicted=self.evicted(), freed=trimmed)
        for req, (_, _, token) in zip(reqs, act.batch, strict=True):
            req.match = None
            if token is not None:
                req.tokens.append(token)
        rows = [req.kv.row for req in starting]
        matched = [matches[req.rid].device_indices for req in starting]
        return Reply(rows=rows, matched=matched, slots=slots, evicted=self.evicted(), freed=trimmed)

    def decode(self, act: Decode) -> Reply | Refused:
        """KV for each pending token; the sampled one is pending next."""
        reqs = self.members([rid for rid, _ in act.batch])
        if not reqs or any(token is None for _, token in act.batch):
            return FORBIDDEN
        if any(not req.caught_up() or req.kv.over_allocated for req in reqs):
            return FORBIDDEN
        if any(req.kv.kv_committed_len >= self.world.context_len for req in reqs):
            return FORBIDDEN
        try:
            slots = self.alloc_for_decode(reqs, self.tree_cache)
        except OutOfRoom as refusal:
            return Refused(refusal.short, evicted=self.evicted())
        for req, (_, token) in zip(reqs, act.batch, strict=True):
            req.tokens.append(token)
        return Reply(slots=[[slot] for slot in slots], evicted=self.evicted())

    def reserve(self, act: Reserve) -> Reply | Refused:
        """Slots for drafts; near the end of the row there may be fewer than was asked for."""
        req = self.reqs.get(act.req)
        if req is None or not req.caught_up() or act.n < 1:
            return FORBIDDEN
        try:
            slots = self.alloc_for_spec_decode(req, act.n, self.tree_cache)
        except OutOfRoom as refusal:
            return Refused(refusal.short, evicted=self.evicted())
        return Reply(slots=[slots], evicted=self.evicted())

    def commit(self, act: Commit) -> Reply | Refused:
        """The drafts were verified: all but the last of these tokens have KV, and so has what was pending."""
        req = self.reqs.get(act.req)
        if req is None or not req.caught_up() or not act.tokens or any(token is None for token in act.tokens):
            return FORBIDDEN
        committed = req.kv.kv_committed_len + len(act.tokens)
        if committed > req.kv.kv_allocated_len:
            return FORBIDDEN
        req.kv.kv_committed_len = committed
        req.tokens += act.tokens
        return Reply()

    def checkpoint(self, act: Checkpoint) -> Reply | Refused:
        """A running request's prefix becomes shareable; it goes on reading it. Not if it was in a session before."""
        req = self.running(act.req)
        if req is None or not req.publish or self.tree_cache.disable:
            return FORBIDDEN
        start = req.kv.cache_protected_len
        if not (start <= self.tree_cache.page_floor(act.upto) and act.upto <= req.kv.kv_committed_len):
            return FORBIDDEN
        up_to = 0 if req.kv.from_session else act.upto
        end = self.checkpoint_kv_cache(req, up_to, self.tree_cache)
        return Reply(slots=[self.indices(req)[start:end]], published={act.req: end}, freed=self.freed())

    # ---- it ends: three ways, one release; a turn leaves its record to its session

    def finish(self, act: Finish) -> Reply | Refused:
        """Forgotten; [0, keep) may stay in the cache. keep below what the cache has already takes nothing from it.

        Of a turn [0, keep) stays with its session, which takes row and lock as well.
        """
        req = self.running(act.req)
        if req is None or not 0 <= act.keep <= req.kv.kv_committed_len:
            return FORBIDDEN
        start, session = req.kv.cache_protected_len, self.session_of(req)
        if session is not None:
            if act.publish or act.keep < max(start, 1):
                return FORBIDDEN
            session.restore(req, act.keep, self.tree_cache)
            self.forget(req)
            return Reply(freed=self.freed())
        keep = act.keep if act.publish and req.publish else 0
        end = self.release_kv_cache(req, self.tree_cache, checkpoint=keep)
        self.forget(req)
        return Reply(published={act.req: end} if end > start else {}, freed=self.freed())

    def retract(self, act: Retract) -> Reply | Refused:
        """It waits again, with all its tokens, the pending one too; from its record nothing is read any more.

        A turn's record waits with its session.
        """
        req = self.running(act.req)
        if req is None:
            return FORBIDDEN
        session = self.session_of(req)
        if session is not None:
            session.restore(req, req.kv.kv_committed_len, self.tree_cache)
        else:
            self.release_kv_cache(req, self.tree_cache)
        return Reply(freed=self.freed())

    def abort(self, act: Abort) -> Reply | Refused:
        """Forgotten, wherever it was. A turn that runs leaves its session nothing, one that waits all there is."""
        req = self.reqs.get(act.req)
        if req is None:
            return FORBIDDEN
        if req.kv.holds_kv:
            self.release_kv_cache(req, self.tree_cache)
        req.move_lock(self.tree_cache.root_node, self.tree_cache)
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
        self.release_session(act.session)
        return Reply(freed=self.freed())

    # ---- the cache

    def evict(self, act: Evict) -> Reply | Refused:
        """At least n pages leave the cache, or all that may."""
        if act.n < 1 or self.tree_cache.evictable_size == 0:
            return FORBIDDEN
        self.tree_cache.evict(act.n * self.world.page_size)
        return Reply(evicted=self.evicted())

    def flush(self, act: Flush) -> Reply | Refused:
        """The whole cache goes, and what idle sessions hold; not while anybody runs or is admitted."""
        busy = any(req.kv.holds_kv or req.match is not None for req in self.reqs.values())
        if self.tree_cache.disable or busy:
            return FORBIDDEN
        for session in self.sessions.values():
            if session.kv.holds_kv:
                self.release_kv_cache(session, self.tree_cache)
        freed = self.freed()
        self.allocator.freed.clear()
        self.tree_cache.evict(self.tree_cache.evictable_size)
        return Reply(evicted=self.evicted(), freed=freed)

    # ---- what the methods share

    def members(self, rids: Sequence[ReqId]) -> list[Req]:
        """The requests of a batch, in order; none if one is not live or stands there twice."""
        if len(set(rids)) != len(rids) or not self.reqs.keys() >= set(rids):
            return []
        return [self.reqs[rid] for rid in rids]

    def waiting(self, rid: ReqId) -> Req | None:
        """The request, if it holds no row and is not admitted."""
        req = self.reqs.get(rid)
        return req if req is not None and not req.kv.holds_kv and req.match is None else None

    def running(self, rid: ReqId) -> Req | None:
        """The request, if it holds a row."""
        req = self.reqs.get(rid)
        return req if req is not None and req.kv.holds_kv else None

    def session_of(self, req: Req) -> StreamingSession | None:
        """The session whose turn the request is."""
        return None if req.session is None else self.sessions[req.session]

    def lender(self, req: Req) -> StreamingSession | None:
        """The session whose record a waiting turn goes on with; None: it starts like any request."""
        session = self.session_of(req)
        return session if session is not None and session.kv.holds_kv else None

    def match(self, req: Req) -> MatchResult:
        """What a request that holds no row starts from: what it was admitted with, its session's record, the cache."""
        if req.match is not None:
            return req.match
        session = self.lender(req)
        if session is not None:
            return session.match_prefix(req, self.tree_cache)
        return self.match_kv_cache(req, self.tree_cache)

    def forget(self, req: Req) -> None:
        """It has ended. A session that was closed meanwhile ends with its turn."""
        del self.reqs[req.rid]
        if req.session is not None:
            session = self.sessions[req.session]
            session.turn = None
            if session.closing:
                self.release_session(req.session)

    def release_session(self, session_id: SessionId) -> None:
        """The session is over, and what it holds goes back."""
        session = self.sessions.pop(session_id)
        if session.kv.holds_kv:
            self.release_kv_cache(session, self.tree_cache)

    def holders(self) -> Mapping[Holder, KvHolder]:
        """Whoever may hold a record, by id: the live requests and the sessions."""
        return {**self.reqs, **self.sessions}

    def indices(self, req: KvHolder) -> list[Slot]:
        """The slots of [0, committed), as its row lists them."""
        return self.req_to_token_pool.req_to_token[req.kv.row][: req.kv.kv_committed_len]

    def evicted(self) -> frozenset[PageId]:
        """What this action let go through the allocator's free, in an action that makes room."""
        return frozenset(self.allocator.freed)

    def freed(self) -> Freed:
        """What this action let go through both pools' free, in an action that gives back."""
        return Freed(tuple(sorted(self.allocator.freed)), tuple(sorted(self.req_to_token_pool.freed)))

    # ---- what is shown: the books, and the content

    def view(self) -> View:
        """The books as they are."""
        return self.books.view(self.holders())

    def write(self, slots: Sequence[Slot], tags: Sequence[int], /) -> None:
        """As a forward pass would: slots[i] now holds tags[i]."""
        for slot, tag in zip(slots, tags, strict=True):
            self.kv_buffer[slot] = tag

    def read(self, req: Holder, /) -> list[int]:
        """The tags of [0, committed) of whoever holds a record, through the table; none of who holds no row."""
        holder = self.holders().get(req)
        return [self.kv_buffer[slot] for slot in self.indices(holder)] if holder and holder.kv.holds_kv else []

    def scramble(self) -> None:
        """Spoil the stale lengths of every record that holds nothing."""
        for holder in self.holders().values():
            if not holder.kv.holds_kv:
                holder.kv.cache_protected_len = holder.kv.kv_committed_len = STALE


def make(world: World) -> Backend:
    """The reference with its prefix cache."""
    return Backend(world)


def make_chunk_cache(world: World) -> Backend:
    """The reference without one: every request computes all of its prompt (ChunkCache)."""
    return Backend(world, disable=True)
