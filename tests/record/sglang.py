"""Records live pools of SGLang 0.5.23. Calls are watched, and nothing else is changed or asked.

    from kvledger.tests.record.sglang import record

    with record("run.jsonl", tree_cache):        # the scheduler's tree, which knows the rows and the allocator
        ...                                      # serve

Watched are the five functions through which all KV is given and taken (extend, decode, speculative decode, checkpoint,
release), the tree's match, lock, unlock, evict, reset and finish, its sessions' release, and the pools' own free. What
is freed belongs to the action inside which it happens; if it happens in none, to the action before it. So a page that
is freed by hand is judged where that was done.

A close is recorded when it takes effect: one that SGLang puts off, and then forgets, is not seen. Of drafts of several
requests that are refused together nothing can be judged, for the law asks for one request's at a time.

A token is sampled after its slot is allocated, so a line waits until its tokens are known. The overlap scheduler may
drop a token when it retracts: the one that is sampled in its place is recorded.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, TypeAlias

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
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.world import Declaration, Namespace, PageId, ReqId, Row, SessionId, Slot, Token, World, WrongInput
from kvledger.tests.record.recorder import Recorder
from kvledger.tests.record.watch import Watch

# isort: split
from sglang.srt.managers.schedule_batch import FINISH_ABORT
from sglang.srt.mem_cache import allocation, common
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.version import __version__

CAPABILITIES = frozenset(
    {"ROWS", "PAGED", "PREFIX_CACHE", "LEAF_FIRST", "EVICT", "CHECKPOINT", "CHUNKED", "DRAFTS"}
    | {"SESSIONS", "SPLIT_ADMIT"}
)
PUBLISHES_ON = frozenset({"checkpoint", "finish", "abort"})
SAMPLED = object()  # stands where a token will that is not sampled yet
NEVER = "never"  # stands where none was, for the call was refused
Call: TypeAlias = Callable[..., Any]  # the call that was meant
POOLS = (ReqToTokenPool, TokenToKVPoolAllocator, PagedTokenToKVPoolAllocator)


@dataclass
class Wanted:
    """A token that an action names: the place among all tokens of a request, and, once it is sampled, which it is."""

    req: Any
    place: int
    token: Token | None = None

    def look(self) -> bool:
        """Whether it is known."""
        at = self.place - len(self.req.origin_input_ids)
        if self.token is None and at < len(self.req.output_ids):
            self.token = self.req.output_ids[at]
        return self.token is not None


@dataclass
class Entry:
    """An action that happened. wants: the tokens that stand for SAMPLED in it, in order."""

    act: Action
    answer: Reply | Refused
    wants: list[Wanted] = field(default_factory=list)


@dataclass
class Taken:
    """What went back to the pools during one action. evicted: by the tree, to make room."""

    pages: list[PageId] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    evicted: list[PageId] = field(default_factory=list)

    @property
    def freed(self) -> Freed:
        return Freed(tuple(sorted(self.pages)), tuple(sorted(self.rows)))


@dataclass
class Known:
    """What has been recorded of a live request. tokens: how many, those not sampled yet included. committed: how far it
    has KV, while it runs. admitted: it waits with a match, under these locks, or with its session's record."""

    req: Any
    rid: ReqId
    tokens: int
    committed: int = 0
    runs: bool = False
    admitted: bool = False
    locks: list[Any] = field(default_factory=list)

    def next_token(self) -> Wanted:
        """One more is sampled."""
        self.tokens += 1
        return Wanted(self.req, self.tokens - 1)


@contextmanager
def record(path: str | Path, tree: Any) -> Iterator[None]:
    """Record to a new file from here on. tree: UnifiedRadixCache with full attention alone, or RadixCache; with rows
    and pages all free. Raises WrongInput for pools of other kinds, or that are in use, and for a file that exists.
    Whatever goes wrong later ends the recording with a line on standard error, and the engine goes on."""
    world = world_of(tree)

    def failed(error: BaseException) -> None:
        print(f"kvledger: {path} ends here: {error!r}", file=sys.stderr)

    with Recorder(path, world, backend="sglang") as recorder:
        tape, watch = Tape(recorder, tree), Watch(failed)
        tape.watched_by(watch)
        try:
            yield
        finally:
            watch.close()
            try:
                tape.close()
            except Exception as error:
                failed(error)


def world_of(tree: Any) -> World:
    """The sizes of its pools. Raises WrongInput."""
    rows, slots = tree.req_to_token_pool, tree.token_to_kv_pool_allocator
    for pool in (rows, slots):
        if type(pool) not in POOLS:
            raise WrongInput(f"{type(pool).__name__}: expected one of {', '.join(each.__name__ for each in POOLS)}")
    pages = slots.size // slots.page_size
    if rows.available_size() < rows.size or slots.available_size() < pages * slots.page_size:
        raise WrongInput("the pools are in use: expected to record from their start, or after a flush")
    lacks = {"SESSIONS"} if getattr(tree, "session", None) is None else set()
    bigrams = getattr(getattr(tree, "tree_core", tree), "is_eagle", False)
    declared = Declaration("sglang", __version__, CAPABILITIES - lacks, PUBLISHES_ON, key_lag=int(bigrams))
    return World(rows.size, rows.max_context_len, pages, slots.page_size, declared)


class Tape:
    """What is recorded, and what is known for it. entries: those not written yet, the last one always among them."""

    def __init__(self, recorder: Recorder, tree: Any) -> None:
        self.recorder, self.tree = recorder, tree
        self.rows, self.slots, self.size = tree.req_to_token_pool, tree.token_to_kv_pool_allocator, tree.page_size
        self.entries: deque[Entry] = deque()
        self.known: dict[ReqId, Known] = {}
        self.sessions: dict[SessionId, Namespace] = {}
        self.cached: set[PageId] = set()
        self.taken: Taken | None = None  # of the action that is going on
        self.matched: Any = None  # the request that was matched last
        self.evicting = False
        self.group: set[PageId] | None = None  # freed in the allocator's open group, where a page counts once
        self.noted = False  # whether a free is part of one that has been noted

    def watched_by(self, watch: Watch) -> None:
        """Everything through which KV is given or taken."""
        for function, around in (
            (allocation.alloc_for_extend, self.extend),
            (allocation.alloc_for_decode, self.decode),
            (allocation.alloc_for_spec_decode, self.reserve),
            (common.checkpoint_kv_cache, self.checkpoint),
            (common.release_kv_cache, self.release),
        ):
            watch.function(function, self.ours(around))
        watch.method(self.tree, "match_prefix", self.match)
        watch.method(self.tree, "lock", self.lock)
        watch.method(self.tree, "unlock", self.unlock)
        watch.method(self.tree, "evict", self.evict)
        watch.method(self.tree, "evict_for_alloc", self.evict)
        watch.method(self.tree, "finish", self.dropped)
        watch.method(self.tree, "reset", self.flush)
        if self.recorder.world.has("SESSIONS"):
            watch.method(self.tree.session, "release_session", self.close_session)
        watch.method(self.rows, "free_rows", self.free_rows)
        watch.method(self.slots, "free", self.free)
        watch.method(self.slots, "free_page_ids", self.free_pages)
        watch.method(self.slots, "free_group_begin", self.begin_group)
        watch.method(self.slots, "free_group_end", self.end_group)

    def ours(self, around: Call) -> Call:
        """A watcher of a function that serves every tree of the process: only this one is recorded. The tree is an
        argument of its own, or the batch knows it."""

        def call(meant: Call, *args: Any, **kwargs: Any) -> None:
            named = (*args, *kwargs.values())
            if any(self.tree in (each, getattr(each, "tree_cache", None)) for each in named):
                around(meant, *args, **kwargs)
            else:
                meant(*args, **kwargs)

        return call

    # ---- KV is given

    def extend(self, call: Call, batch: Any) -> None:
        """alloc_for_extend: each member that holds nothing starts; who reaches the end of its tokens samples one."""
        members = [self.met(req) for req in batch.reqs]
        ends, prefixes = batch.seq_lens_cpu.tolist(), list(batch.prefix_lens)
        fresh = [not req.kv.holds_kv for req in batch.reqs]
        samples = [upto == member.tokens for member, upto in zip(members, ends, strict=True)]
        act = Extend(tuple(
            (member.rid, upto, SAMPLED if sample else None)
            for member, upto, sample in zip(members, ends, samples, strict=True)
        ))  # fmt: skip
        short = "rows" if sum(fresh) > self.rows.available_size() else "pages"
        granted, result, taken = self.asked(partial(call, batch))
        if not granted:
            self.add(act, Refused(short, taken.evicted, taken.freed))
            return
        out_cache_loc, *_ = result
        self.add(
            act,
            Reply(
                rows=[member.req.kv.req_pool_idx for member in compress(members, fresh)],
                matched=[
                    self.row(member.req.kv, 0, prefix)
                    for member, prefix, starts in zip(members, prefixes, fresh, strict=True)
                    if starts
                ],
                slots=[part.tolist() for part in out_cache_loc.split(batch.extend_lens)],
                evicted=taken.evicted,
                freed=taken.freed,
            ),
            [member.next_token() for member in compress(members, samples)],
        )
        for member, upto in zip(members, ends, strict=True):
            member.committed, member.runs = upto, True
            member.locks.clear()  # the record has its lock now, and moves it

    def decode(self, call: Call, batch: Any, token_per_req: int) -> None:
        """alloc_for_decode: a column for each, and a token sampled."""
        if token_per_req != 1:
            raise WrongInput(f"decode with {token_per_req} tokens a request: expected 1, for drafts are reserved")
        members = [self.met(req) for req in batch.reqs]
        act = Decode(tuple((member.rid, SAMPLED) for member in members))
        granted, slots, taken = self.asked(partial(call, batch, token_per_req))
        if not granted:
            self.add(act, Refused("pages", taken.evicted, taken.freed))
            return
        answer = Reply(slots=slots[:, None].tolist(), evicted=taken.evicted, freed=taken.freed)
        self.add(act, answer, [member.next_token() for member in members])
        for member in members:
            member.committed += 1

    def reserve(self, call: Call, *args: Any, reqs: Sequence[Any], **kwargs: Any) -> None:
        """alloc_for_spec_decode: slots for drafts, request by request. What was evicted stands with the first."""
        members = [self.met(req) for req in reqs]
        before, after = (kwargs[name].tolist() for name in ("cur_kv_lens_cpu", "nxt_kv_lens_cpu"))
        grown = [(member, now, upto) for member, now, upto in zip(members, before, after, strict=True) if upto > now]
        granted, _, taken = self.asked(partial(call, *args, reqs=reqs, **kwargs))
        if not granted and len(grown) == 1:
            [(member, _, upto)] = grown
            self.add(Reserve(member.rid, upto - member.committed), Refused("pages", taken.evicted, taken.freed))
        elif not granted and taken.evicted:
            self.add(Evict(len(taken.evicted)), Reply(evicted=taken.evicted))
        for member, now, upto in grown if granted else ():
            slots = self.row(member.req.kv, now, upto)
            self.add(Reserve(member.rid, upto - member.committed), Reply(slots=[slots], evicted=taken.evicted))
            taken = Taken()

    def asked(self, call: Callable[[], Any]) -> tuple[bool, Any, Taken]:
        """A call that may run out of memory: whether it was granted, what it gave, and what went back meanwhile."""
        with self.acting() as taken:
            try:
                return True, call(), taken
            except RuntimeError as error:
                if "out of memory" not in str(error).lower():
                    raise
                return False, None, taken

    # ---- who it is for

    def met(self, req: Any) -> Known:
        """What is known of a request: submitted when it is seen first, and with the drafts that were accepted since."""
        rid, session = str(req.rid), session_of(req)
        if rid not in self.known:
            tokens = (*req.origin_input_ids, *req.output_ids)
            namespace: Namespace = 0 if req.extra_key is req.cache_salt is None else (req.extra_key, req.cache_salt)
            if session is not None:  # whatever a later turn says of its own
                namespace = self.sessions.setdefault(session, namespace)
            limit = most_matched(req) if session is None else None
            self.add(Submit(rid, tokens, namespace, limit, not req.skip_radix_cache_insert, session), Reply())
            self.known[rid] = Known(req, rid, len(tokens))
        member = self.known[rid]
        accepted = req.kv.kv_committed_len - member.committed
        if member.runs and accepted > 0:
            self.add(Commit(rid, (SAMPLED,) * accepted), Reply(), [member.next_token() for _ in range(accepted)])
            member.committed += accepted
        return member

    def match(self, call: Call, params: Any) -> None:
        """match_prefix: a turn whose session has a record borrows that, cut to where it goes on."""
        req = self.matched = params.req
        if not self.recorder.world.has("SESSIONS") or not self.tree.session.will_lend_record(req):
            call(params)
            return
        member = self.known.get(str(req.rid)) or self.met(req)
        with self.acting() as taken:
            call(params)
        if not member.runs and not member.admitted:
            self.add(Admit(member.rid), Reply(freed=taken.freed))
            member.admitted = True

    def lock(self, call: Call, node: Any, **components: Any) -> None:
        """lock: of the node that a waiting request has matched, it is admitted."""
        lock, req = call(node, **components), self.matched
        if self.taken is None and req is not None and req.last_node is node and not req.kv.holds_kv:
            member = self.met(req)
            matched: list[Slot] = self.tree.prefix_device_indices(req).tolist() if req.prefix_len else []
            member.locks.append(lock)  # the scheduler holds another one while it reckons
            if not member.admitted:
                member.admitted = True
                self.add(Admit(member.rid), Reply(matched=[matched]))

    def unlock(self, call: Call, lock: Any) -> None:
        """unlock: of what was locked at admission, it waits again."""
        call(lock)
        for member in self.known.values() if self.taken is None and lock is not None else ():
            left = [each for each in member.locks if each is not lock]
            if member.locks and not left and member.admitted and not member.runs:
                member.admitted = False
                self.add(Defer(member.rid), Reply())
            member.locks = left

    def checkpoint(self, call: Call, req: Any, tree_cache: Any) -> None:
        """checkpoint_kv_cache: a prefix of a running request is published. One that publishes nothing is none."""
        member, kv, start = self.met(req), req.kv, req.kv.cache_protected_len
        with self.acting() as taken:
            call(req, tree_cache)
        end = kv.cache_protected_len
        if end > start or taken.pages:
            slots = self.row(kv, start, end)
            self.cached.update(slot // self.size for slot in slots)
            self.add(Checkpoint(member.rid, req.extend_end), Reply(slots=[slots], published={member.rid: end},
                                                                   freed=taken.freed))  # fmt: skip

    # ---- KV goes back

    def release(self, call: Call, req: Any, tree_cache: Any, *, checkpoint: bool) -> None:
        """release_kv_cache: a request finishes, is aborted, or is retracted and stays."""
        if not req.kv.holds_kv:
            call(req, tree_cache, checkpoint=checkpoint)
            return
        member, kv, start, row = self.met(req), req.kv, req.kv.cache_protected_len, req.kv.req_pool_idx
        publishes = checkpoint and not req.skip_radix_cache_insert and session_of(req) is None
        act: Action = Retract(member.rid)
        if isinstance(req.finished_reason, FINISH_ABORT):
            act = Abort(member.rid)
        elif req.finished():
            act = Finish(member.rid, req.owned_kv_len(), publishes)
        with self.acting() as taken:
            call(req, tree_cache, checkpoint=checkpoint)
        end = kv.cache_protected_len
        self.cached.update((self.rows.req_to_token[row, start : end : self.size] // self.size).tolist())
        self.add(act, Reply(published={member.rid: end} if end > start else {}, freed=taken.freed))
        member.runs = member.admitted = False
        if not isinstance(act, Retract):
            del self.known[member.rid]
            for want in (want for entry in self.entries for want in entry.wants if want.req is req):
                want.look()  # a later turn of its session goes on in the same lists of tokens

    def dropped(self, call: Call, handle: Any, outcome: Any) -> None:
        """finish: who is recorded still ends here without having run, or run again."""
        with self.acting() as taken:
            call(handle, outcome)
        member = self.known.get(str(handle.rid))
        if member is not None and not member.runs:
            del self.known[member.rid]
            self.add(Abort(member.rid), Reply(freed=taken.freed))

    def close_session(self, call: Call, session: SessionId) -> None:
        """release_session: it is closed, and no turn of it lives."""
        with self.acting() as taken:
            call(session)
        if session in self.sessions:
            del self.sessions[session]
            self.add(Close(session), Reply(freed=taken.freed))

    def evict(self, call: Call, *args: Any, **kwargs: Any) -> None:
        """The tree gives pages up: for the action that asks for room, or by itself."""
        if self.taken is not None:
            outer, self.evicting = self.evicting, True
            try:
                call(*args, **kwargs)
            finally:
                self.evicting = outer
            return
        with self.acting() as taken:
            self.evict(call, *args, **kwargs)
        if taken.evicted:
            self.add(Evict(len(taken.evicted)), Reply(evicted=taken.evicted))

    def flush(self, call: Call) -> None:
        """reset: the cache is emptied, and idle sessions with it; the scheduler then clears both pools."""
        call()
        self.add(Flush(), Reply(evicted=sorted(self.cached)))
        self.cached.clear()

    # ---- what the pools are given

    def free_rows(self, call: Call, indices: Sequence[Row]) -> None:
        """ReqToTokenPool.free_rows."""
        call(indices)
        self.give(rows=indices)

    def free(self, call: Call, index: Any) -> None:
        """The allocator's free. Pages of several slots count once, and in an open group once for all of it."""
        pages: list[PageId] = (index // self.size).tolist()
        if self.size > 1:
            pages = sorted(set(pages).difference(self.group or ()))
        if self.group is not None:
            self.group.update(pages)
        self.freeing(partial(call, index), pages)

    def free_pages(self, call: Call, page_ids: Any) -> None:
        """The allocator's free_page_ids: as often as they stand there."""
        self.freeing(partial(call, page_ids), page_ids.tolist())

    def begin_group(self, call: Call) -> None:
        """Frees are put off from here on; they are noted as they come."""
        call()
        self.group = set()

    def end_group(self, call: Call) -> None:
        """What was put off is done."""
        self.group = None
        self.freeing(call, [])

    def freeing(self, call: Callable[[], Any], pages: Sequence[PageId]) -> None:
        """One free, however many more it makes of it."""
        outer, self.noted = self.noted, True
        try:
            call()
        finally:
            self.noted = outer
        if not outer:
            self.give(pages=pages)

    def give(self, pages: Sequence[PageId] = (), rows: Sequence[Row] = ()) -> None:
        """What goes back belongs to the action that is going on, or else to the last one."""
        if self.taken is None and self.entries:
            last = self.entries[-1].answer
            freed = last.freed or Freed()
            more = Freed(tuple(sorted((*freed.pages, *pages))), tuple(sorted((*freed.rows, *rows))))
            self.entries[-1].answer = replace(last, freed=more)
        elif self.taken is not None and self.evicting:
            self.taken.evicted.extend(pages)
            self.cached.difference_update(pages)
        elif self.taken is not None:
            self.taken.pages.extend(pages)
            self.taken.rows.extend(rows)

    @contextmanager
    def acting(self) -> Iterator[Taken]:
        """One action, and what goes back in it."""
        self.taken = taken = Taken()
        try:
            yield taken
        finally:
            self.taken = None

    # ---- what is written

    def add(self, act: Action, answer: Reply | Refused, wants: Sequence[Wanted] = ()) -> None:
        """One more action; and those before it are written whose tokens are known."""
        self.entries.append(Entry(act, answer, list(wants)))
        while len(self.entries) > 1 and all(want.look() for want in self.entries[0].wants):
            self.write(self.entries.popleft())

    def write(self, entry: Entry) -> None:
        """One action with its tokens; one that was never sampled is like no other."""
        tokens = iter([want.token if want.look() else f"unknown {want.req.rid} {want.place}" for want in entry.wants])
        try:
            self.recorder.note(with_tokens(entry.act, tokens), entry.answer)
        except Exception:
            self.entries.clear()  # what follows would stand behind a gap
            raise

    def close(self) -> None:
        """The rest."""
        while self.entries:
            self.write(self.entries.popleft())

    def row(self, kv: Any, start: int, upto: int) -> list[Slot]:
        """Columns of a record's row."""
        columns: list[Slot] = self.rows.req_to_token[kv.req_pool_idx, start:upto].tolist()
        return columns


def session_of(req: Any) -> SessionId | None:
    """Whose turn it is: only a streaming session keeps a record."""
    return str(req.session.session_id) if req.session is not None and req.session.streaming else None


def most_matched(req: Any) -> int | None:
    """How many tokens may come from the cache, where that is less than all but one."""
    if req.positional_embed_overrides is not None:
        return 0
    return req.logprob_start_len if req.return_logprob and req.logprob_start_len >= 0 else None


def with_tokens(act: Action, tokens: Iterator[Token]) -> Action:
    """The action with these tokens, one after the other, in place of SAMPLED."""
    match act:
        case Extend(batch):
            return Extend(tuple((rid, upto, next(tokens, NEVER) if token is SAMPLED else token)
                                for rid, upto, token in batch))  # fmt: skip
        case Decode(batch):
            return Decode(tuple((rid, next(tokens, NEVER)) for rid, _ in batch))
        case Commit(rid, sampled):
            return Commit(rid, tuple(next(tokens) for _ in sampled))
    return act
