"""The ledger as an engine calls it: one call for a whole batch, rows for names, slots on the device.

    tokens = np.arange(100, 150, dtype=np.int32)           # int32, never a list
    ledger = Ledger(World(rows=256, context_len=32_768, pages=100_000, page_size=16))        # device="cuda" on a GPU
    prefix = ledger.admit(tokens[:-1])                     # match and lock
    grant = ledger.extend([0], [len(tokens)], [prefix])    # row 0: a request that starts
    row = grant.rows[0]
    ...                                                    # a forward pass writes K and V to grant.out_cache_loc
    grant = ledger.decode([row])
    ledger.checkpoint(row, tokens, len(tokens))            # what is whole of them is shared from now on
    ledger.release([row])

A record is a row: row, protected_len, committed_len and allocated_len of a request stand at the row's index, on the
host. The device has the token table alone, tensors.req_to_token, int32 [rows + 1, context_len], which attention reads;
no call reads it back, so none waits for the device. Where only the device knows how long the rows are, as in a decode
that a CUDA graph replays, a DeviceLedger (device.py) takes over for that while.

Rows and lengths are sequences of integers or integer arrays [batch], no row twice. Whatever raises has changed nothing,
but for recency and what it had evicted by then:

    OutOfRoom    rows or pages do not suffice, evictable ones counted in; its short says which
    DoubleFree   a page or a row would go back that is not taken; its text names it
    ValueError   a row that is not held or stands there twice, a length out of order, a prefix that nobody has locked;
                 its text says what was expected
    TypeError    tokens that are not int32, for cut off they would meet in the cache; rows or lengths that are no
                 integers, prefixes that are none
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from kvledger.fast import table_torch
from kvledger.fast.pages import FreeStack, OutOfRoom
from kvledger.fast.plan import Ints, Pages, Plan
from kvledger.fast.prefix_cache import NO_PAGES, Node, Prefix, PrefixCache, key_of
from kvledger.fast.stride import Stride
from kvledger.fast.tensors import Tensors
from kvledger.spec.world import World

NONE: Ints = np.empty(0, np.int64)
UNRESERVED = "no slots reserved"
ABOVE = "a seq_len above what it has, within its row"


class Grant(NamedTuple):
    """What a batch was given. rows: int64 [batch], on the host. out_cache_loc: the new positions' slots, member by
    member, int64 on the device. counts: how many of them are each member's, int64 [batch]. evicted: pages that left
    the cache for it, int32."""

    rows: Ints
    out_cache_loc: torch.Tensor
    counts: Ints
    evicted: Pages


class Ledger:
    """Rows 1..world.rows, pages 1..world.pages, the prefix cache, and the table. WrongInput, from the world, if int32
    cannot number its slots.

    protected_len, committed_len, allocated_len: int64 [rows + 1], by row; true of rows that are held only, and until
    the next call. mirror: the page that each line of the table lists, int32 [(rows + 1) * width], the authority for
    what goes back. locked: by row, the node it reads under a lock. waiting: how many prefixes that end at a node
    are admitted. lent: rows are the device's business now, see device. stride: the batch that decoded last, if nothing
    else has happened to its rows.
    """

    def __init__(self, world: World, device: torch.device | str = "cpu") -> None:
        self.world = world
        self.plan = Plan(world.page_size, world.context_len)
        self.rows = FreeStack(world.rows, "row")
        self.pages = FreeStack(world.pages, "page")
        self.cache = PrefixCache(world.page_size)
        self.tensors = Tensors(world.rows, self.plan, device)
        self.mirror: Pages = np.zeros((world.rows + 1) * self.plan.width, np.int32)
        self.protected_len, self._committed_len, self._allocated_len = np.zeros((3, world.rows + 1), np.int64)
        self.locked: list[Node] = [self.cache.root] * (world.rows + 1)
        self.waiting: dict[Node, int] = {}
        self.lent = False
        self.stride: Stride | None = None

    @property
    def committed_len(self) -> Ints:
        """Positions [0, committed_len) of a row have KV."""
        self._settle()
        return self._committed_len

    @property
    def allocated_len(self) -> Ints:
        """Positions [0, allocated_len) of a row have slots."""
        self._settle()
        return self._allocated_len

    # ---- a request comes

    def match(self, tokens: npt.ArrayLike, namespace: Hashable = None) -> Prefix:
        """The longest cached prefix of the tokens, int32 [n], in whole pages. Locks nothing: the next call may take it.

        Something must be computed: an engine leaves the last token of a prompt out.
        """
        return self.cache.match(key_of(tokens), namespace)

    def admit(self, tokens: npt.ArrayLike, namespace: Hashable = None) -> Prefix:
        """As match, and locked: until an extend has taken it over, or a defer lets it go."""
        prefix = self.match(tokens, namespace)
        self.cache.lock(prefix.node)
        self.waiting[prefix.node] = self.waiting.get(prefix.node, 0) + 1
        return prefix

    def defer(self, *prefixes: Prefix) -> None:
        """What was admitted is not going to start now."""
        self._ask_admitted(prefixes)
        self._wait_no_more(prefixes)
        for prefix in prefixes:
            self.cache.unlock(prefix.node)

    # ---- it grows

    def extend(self, rows: Any, seq_lens: Any, prefixes: Sequence[Prefix] = ()) -> Grant:
        """KV for all positions of each row below seq_len that have none; committed_len and allocated_len are seq_len.

        rows: 0 is a request that starts, behind the next of the admitted prefixes, whose lock its row then has. Where
        slots are reserved nothing is extended. If this raises, the prefixes are still the caller's, locked.
        """
        self._ask_admitted(prefixes)
        if len(rows) == len(seq_lens) == 1:
            return self._extend_one(index(rows[0]), index(seq_lens[0]), prefixes)
        rows, stops = _batch(rows, seq_lens)
        starting = rows == 0
        _ask_prefixes(prefixes, np.count_nonzero(starting))
        if len(prefixes) < len(rows):
            going = rows[~starting]
            self._ask_held(going)
            _ask(self.allocated_len[going] == self.committed_len[going], going, UNRESERVED)
        begins = self.committed_len[rows]
        found = [prefix.pages for prefix in prefixes]
        matched = np.array(list(map(len, found)), np.int64)
        begins[starting] = matched * self.plan.page_size
        _ask((begins < stops) & (stops <= self.plan.context_len), rows, ABOVE)
        if not prefixes:
            grant = self._grow(rows, begins, stops)
        else:
            rows[starting] = self.rows.take(len(prefixes))
            fresh = rows[starting]
            grant = self._grow(rows, begins, stops, fresh, matched, found)
            self.protected_len[fresh] = begins[starting]
            for row, prefix in zip(fresh.tolist(), prefixes, strict=True):
                self.locked[row] = prefix.node
            self._wait_no_more(prefixes)
        self.committed_len[rows] = stops
        return grant

    def _extend_one(self, row: int, stop: int, prefixes: Sequence[Prefix]) -> Grant:
        """The same of one row, as most prefills are: in plain integers, and its lines follow each other."""
        _ask_prefixes(prefixes, row == 0)
        if prefixes:
            found = prefixes[0].pages
            begin = len(found) * self.plan.page_size
        else:
            self._ask_held(np.array([row]))
            begin, found = int(self.committed_len[row]), NO_PAGES
            if self.allocated_len[row] > begin:
                raise ValueError(f"row {row}: expected {UNRESERVED}")
        if not begin < stop <= self.plan.context_len:
            raise ValueError(f"row {row}: expected {ABOVE}")

        first, last = self.plan.pages_for(begin), self.plan.pages_for(stop)
        if prefixes and not self.rows.available:
            raise OutOfRoom("rows")
        evicted = self._make_room(last - first)
        if prefixes:
            row = int(self.rows.take(1)[0])
        line = row * self.plan.width
        self.mirror[line : line + len(found)] = found
        self.mirror[line + first : line + last] = self.pages.take(last - first)
        at = begin // self.plan.page_size
        if prefixes:
            self.locked[row], self.protected_len[row] = prefixes[0].node, begin
            self._wait_no_more(prefixes)
            at = 0
        self.committed_len[row] = self.allocated_len[row] = stop
        slots = table_torch.run(self.tensors, line + at, self.plan.slots_of(self.mirror[line + at : line + last]))
        out = slots[begin - at * self.plan.page_size : stop - at * self.plan.page_size]
        return Grant(np.array([row]), out, np.array([stop - begin]), evicted)

    def decode(self, rows: Any) -> Grant:
        """One more position for each row. Where slots are reserved none is decoded."""
        stride = self.stride
        if stride is None or not stride.goes_on(rows):
            stride = self._new_stride(rows)
        edges = stride.edges()
        if not len(edges):
            [out] = self.tensors.upload(stride.step())
            return Grant(stride.rows, out, stride.counts, NO_PAGES)
        evicted = self._make_room(len(edges))
        pages = self.pages.take(len(edges))
        lines = stride.turn(edges, pages)
        self.mirror[lines] = pages
        return Grant(
            stride.rows, table_torch.grow(self.tensors, lines, pages, stride.step()), stride.counts, evicted
        )

    def reserve(self, rows: Any, tokens: Any) -> Grant:
        """Slots for drafts: at least `tokens` [batch] positions beyond committed_len have some, to a page's end, or to
        the row's. Only allocated_len moves."""
        rows, tokens = _batch(rows, tokens)
        self._ask_held(rows)
        _ask(tokens > 0, rows, "at least one token")
        begins = self.allocated_len[rows]
        stops = self.plan.reserved(self.committed_len[rows], begins, tokens)
        more = begins < stops
        out = self._grow(rows[more], begins[more], stops[more])
        return Grant(rows, out.out_cache_loc, stops - begins, out.evicted)

    def commit(self, rows: Any, tokens: Any) -> None:
        """The first `tokens` [batch] of each row's reserved positions have KV now."""
        rows, tokens = _batch(rows, tokens)
        self._ask_held(rows)
        spare = self.allocated_len[rows] - self.committed_len[rows]
        _ask((tokens > 0) & (tokens <= spare), rows, "at least one token, and no more than are reserved")
        self.committed_len[rows] += tokens

    # ---- it is shared, cut, released

    def checkpoint(self, row: int, tokens: npt.ArrayLike, upto: int, namespace: Hashable = None) -> Pages:
        """The whole pages of [0, upto) pass from the row to the cache; it reads them from there, under its lock.

        tokens: those of the row, int32, at least `upto` of them; ValueError if the cache has its first protected_len
        under other ones, or in another namespace. Where the cache has a prefix already its pages are the
        ones that stay: the row's own are freed, and returned, and the row lists the cache's. protected_len is upto
        without a page in part; it never shrinks.
        """
        rows, ends = _batch([row], [upto])
        row, upto = int(rows[0]), int(ends[0])
        self._ask_held(rows)
        _ask((ends >= 0) & (ends <= self.committed_len[rows]), rows, f"upto = {upto} to lie within what has KV")
        key = key_of(tokens)[: upto // self.plan.page_size * self.cache.page_bytes]
        begin, end = int(self.protected_len[row]) // self.plan.page_size, len(key) // self.cache.page_bytes
        _ask(ends // self.plan.page_size == end, rows, f"{upto} tokens")
        if end <= begin:
            return NO_PAGES
        line = row * self.plan.width
        own = self.mirror[line : line + end].copy()
        self.pages.check(own[begin:])
        found = self.cache.match(key, namespace)
        if not np.array_equal(found.pages[:begin], own[:begin]):
            known = begin * self.plan.page_size
            raise ValueError(f"row {row}: expected the tokens and the namespace that its first {known} are cached by")
        there, node = self.cache.insert_behind(found, key, namespace, own)
        duplicates, kept = own[begin : len(there)], there[begin:]
        if len(duplicates):
            self.pages.give(duplicates)
            self.mirror[line + begin : line + len(there)] = kept
            table_torch.run(self.tensors, line + begin, self.plan.slots_of(kept))
        self._move_lock(row, node)
        self.protected_len[row] = end * self.plan.page_size
        return duplicates

    def cut(self, rows: Any, lengths: Any) -> Pages:
        """Only [0, length) of each row stays: whole pages beyond go back, drafts too, and are returned.

        lengths [batch]: protected_len to committed_len; committed_len and allocated_len from now on.
        """
        rows, lengths = _batch(rows, lengths)
        self._ask_held(rows)
        inside = (self.protected_len[rows] <= lengths) & (lengths <= self.committed_len[rows])
        _ask(inside, rows, "a length from protected_len to committed_len")
        pages = self._listed(rows, lengths)
        self.pages.give(pages)
        self.committed_len[rows] = self.allocated_len[rows] = lengths
        return pages

    def release(self, rows: Any) -> Pages:
        """Everything that these rows hold is given up, and they are free: private pages go back, and are returned; what
        is the cache's stays there, unlocked."""
        [rows] = _batch(rows)
        self._ask_held(rows)
        pages = self._listed(rows, self.protected_len[rows])
        self.pages.give(pages)
        for row in rows.tolist():
            self._move_lock(row, self.cache.root)
        self.rows.give(rows)
        return pages

    def evict(self, num_pages: int) -> Pages:
        """At least so many pages leave the cache, least recently used first, or all that nobody reads. Returns them."""
        pages = self.cache.evict(num_pages)
        self.pages.give(pages)
        return pages

    def forget_batch(self) -> None:
        """For whoever writes to its arrays: the batch that decoded last is asked for anew, should it decode again."""
        self._settle()
        self.stride = None

    # ---- what the methods share

    def _make_room(self, num_pages: int) -> Pages:
        """So many pages are free; only what is missing is evicted, and returned. OutOfRoom, before that."""
        missing = num_pages - self.pages.available
        if missing > self.cache.evictable:
            raise OutOfRoom("pages")
        return self.evict(missing) if missing > 0 else NO_PAGES

    def _listed(self, rows: Ints, begins: Ints) -> Pages:
        """The pages that positions [begin, allocated) of each row have and [0, begin) have not."""
        first, last = self.plan.pages_for(begins), self.plan.pages_for(self.allocated_len[rows])
        if len(rows) == 1:
            line = int(rows[0]) * self.plan.width
            return self.mirror[line + int(first[0]) : line + int(last[0])].copy()
        return self.mirror[self.plan.lines(rows, first, last)]

    def _grow(
        self, rows: Ints, begins: Ints, stops: Ints, fresh: Ints = NONE, matched: Ints = NONE, found: Any = ()
    ) -> Grant:
        """Positions [begin, stop) of each row get slots; no such range is empty. OutOfRoom.

        fresh: rows that start, and have been taken; if it raises they are given back. matched: how many pages each has
        found, which its row lists too.
        """
        last = self.plan.pages_for(stops)
        lines = self.plan.lines(rows, self.plan.pages_for(begins), last)
        try:
            evicted = self._make_room(len(lines))
        except OutOfRoom:
            self.rows.give(fresh)
            raise
        touched = pages = self.pages.take(len(lines))
        if np.count_nonzero(matched):
            lines = np.concatenate([self.plan.ragged(fresh * self.plan.width, matched), lines])
            pages = np.concatenate([*found, pages])
        self.mirror[lines] = pages
        self.allocated_len[rows] = stops
        if np.count_nonzero(begins % self.plan.page_size):  # a page that was there goes on
            touched = self.mirror[self.plan.lines(rows, begins // self.plan.page_size, last)]
        out = table_torch.grow(self.tensors, lines, pages, self.plan.slots(touched, begins, stops))
        return Grant(rows, out, stops - begins, evicted)

    def _settle(self) -> None:
        """What a batch has decoded since somebody last asked is written down."""
        stride = self.stride
        if stride is not None and stride.taken:
            lengths = self._committed_len[stride.rows] + stride.taken
            self._committed_len[stride.rows] = self._allocated_len[stride.rows] = lengths
            stride.taken = 0

    def _new_stride(self, rows: Any) -> Stride:
        """These rows may decode, at least once."""
        [rows] = _batch(rows)
        self._ask_held(rows)
        begins = self.committed_len[rows]
        _ask(self.allocated_len[rows] == begins, rows, UNRESERVED)
        _ask(begins < self.plan.context_len, rows, "a column that is free")
        self.stride = stride = Stride(self.plan, rows, begins, self.mirror)
        return stride

    def _move_lock(self, row: int, node: Node) -> None:
        """Lock the new path before the old one is let go: what they share is never free to evict."""
        self.cache.lock(node)
        self.cache.unlock(self.locked[row])
        self.locked[row] = node

    def _ask_admitted(self, prefixes: Sequence[Prefix]) -> None:
        try:
            counts = Counter(prefix.node for prefix in prefixes)
        except AttributeError:
            raise TypeError("something that is no prefix: expected what admit has returned, each by itself") from None
        for node, count in counts.items():
            if self.waiting.get(node, 0) < count:
                raise ValueError("a prefix that is not locked: expected one that was admitted, and used once")

    def _wait_no_more(self, prefixes: Sequence[Prefix]) -> None:
        for prefix in prefixes:
            left = self.waiting.pop(prefix.node) - 1
            if left:
                self.waiting[prefix.node] = left

    def _ask_held(self, rows: Ints) -> None:
        """They are, and something else than a decode is about to happen to them, or to one of them first."""
        if self.lent:
            raise ValueError("the device is in charge of the rows: expected that it had handed back")
        self.forget_batch()
        _ask(self.rows.taken(rows), rows, "a row that is held")
        if len(self.rows.repeated(rows)):
            raise ValueError(f"rows {rows.tolist()}: expected no row twice")


def _batch(*columns: Any) -> list[Ints]:
    """Copies, int64 [batch] each."""
    given = [np.asarray(column) for column in columns]
    if any(column.ndim != 1 or len(column) != len(given[0]) for column in given):
        raise ValueError(f"a batch of shapes {[column.shape for column in given]}: expected one entry for each member")
    for column in given:
        if len(column) and column.dtype.kind not in "iu":
            raise TypeError(f"a batch of {column.dtype}: expected integers")
    return [column.astype(np.int64) for column in given]


def _ask_prefixes(prefixes: Sequence[Prefix], starting: Any) -> None:
    if len(prefixes) != starting:
        raise ValueError(f"{len(prefixes)} prefixes: expected one for each of {int(starting)} rows 0")


def _ask(fine: npt.NDArray[np.bool_], rows: Ints, expected: str) -> None:
    if np.count_nonzero(fine) < len(fine):
        raise ValueError(f"row {rows[~fine][0]}: expected {expected}")
