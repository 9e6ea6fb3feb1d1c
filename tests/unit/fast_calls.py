"""Random calls of a fast Ledger, lawful and not, with all that must be true asked after every one.

The caller knows what it was granted, slot by slot, and when there is room: by plain arithmetic, none of it fast's. What
is unlike that is an AssertionError, what is not consistent in itself an Inconsistent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import numpy as np

from kvledger.fast.ledger import Grant, Ledger
from kvledger.fast.pages import DoubleFree, OutOfRoom
from kvledger.fast.plan import Pages
from kvledger.fast.prefix_cache import Prefix
from kvledger.fast.selfcheck import selfcheck
from kvledger.spec.world import World

LETTERS = 2  # so few tokens that prompts share prefixes


class Caller:
    """tokens, slots: of each row that is held, those that have KV, and those up to allocated_len. waiting: who was
    admitted, and the tokens that it came with."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.ledger, self.draw = world, Ledger(world), Random(seed)
        self.tokens: dict[int, list[int]] = {}
        self.slots: dict[int, list[int]] = {}
        self.waiting: list[tuple[Prefix, list[int]]] = []
        self.kinds: list[Callable[[], None]] = [
            self.admit, self.admit, self.defer, self.extend, self.extend, self.extend, self.decode, self.decode,
            self.reserve, self.commit, self.commit, self.checkpoint, self.checkpoint, self.cut, self.release,
            self.evict, self.take_and_give, self.give_what_is_free, self.call_for_nobody,
        ]  # fmt: skip

    def call(self) -> None:
        """One call, and a look at everything."""
        self.draw.choice(self.kinds)()
        selfcheck(self.ledger)
        table = self.ledger.tensors.req_to_token.tolist()
        for row, slots in self.slots.items():
            _, committed, allocated = self.lengths(row)
            assert (committed, allocated) == (len(self.tokens[row]), len(slots)), f"lengths of row {row}"
            assert table[row][:allocated] == slots, f"row {row} lists other slots than it was granted"
        assert sorted(self.slots) == np.flatnonzero(self.ledger.rows.taken(np.arange(self.world.rows + 1))).tolist()

    # ---- who, and how much

    def lengths(self, row: int) -> list[int]:
        """protected, committed and allocated."""
        ledger = self.ledger
        return [int(each[row]) for each in (ledger.protected_len, ledger.committed_len, ledger.allocated_len)]

    def some(self, rows: Sequence[int]) -> list[int]:
        """A batch of these, in any order."""
        return self.draw.sample(rows, self.draw.randint(0, len(rows)))

    def whole(self) -> list[int]:
        """The rows with nothing reserved, and with a column that is free."""
        most = self.world.context_len
        return [row for row, slots in self.slots.items() if len(slots) == len(self.tokens[row]) < most]

    def letters(self, count: int) -> list[int]:
        """So many tokens; often all the same."""
        return self.draw.choices(range(LETTERS), k=count) if self.draw.random() < 0.5 else [0] * count

    def new(self, begin: int, stop: int) -> int:
        """How many pages [begin, stop) needs that [0, begin) has not."""
        size = self.world.page_size
        return len({at // size for at in range(stop)} - {at // size for at in range(begin)})

    def granted(self, starts: int, pages: int, call: Callable[[], Grant]) -> Grant | None:
        """What the call gives; None, if it needs more rows or pages than there are, which it must then say."""
        free, evictable = self.ledger.pages.available, self.ledger.cache.evictable
        short = "rows" if starts > self.ledger.rows.available else "pages" if pages > free + evictable else None
        try:
            grant = call()
        except OutOfRoom as refused:
            assert refused.short == short, f"not enough {refused.short}: there were enough"
            assert str(refused) == f"not enough {short}"
            return None
        assert short is None, f"granted without enough {short}"
        assert (len(grant.evicted) >= pages - free) and (len(grant.evicted) == 0 or pages > free), "evicted"
        return grant

    def keep(self, grant: Grant, begins: list[int], stops: list[int]) -> None:
        """The new slots of each member follow those that it has."""
        assert grant.counts.tolist() == [stop - begin for begin, stop in zip(begins, stops, strict=True)]
        parts = [part.tolist() for part in grant.out_cache_loc.split(grant.counts.tolist())]
        for row, begin, new in zip(grant.rows.tolist(), begins, parts, strict=True):
            assert len(self.slots[row]) == begin
            for at, slot in enumerate(new, begin):
                goes_on = at % self.world.page_size > 0
                law = self.slots[row][-1] + 1 if goes_on else slot - slot % self.world.page_size
                assert slot == law and slot >= self.world.page_size, f"slot {slot} of row {row} at {at}"
                self.slots[row].append(slot)

    # ---- the calls

    def admit(self) -> None:
        """Somebody comes; what it finds is as long as the tree says, which selfcheck goes over."""
        tokens = self.letters(self.draw.randint(1, self.world.context_len))
        self.waiting.append((self.ledger.admit(np.array(tokens[:-1], np.int32)), tokens))

    def defer(self) -> None:
        """Somebody goes again."""
        if self.waiting:
            self.ledger.defer(self.waiting.pop(self.draw.randrange(len(self.waiting)))[0])

    def extend(self) -> None:
        """Some start, some grow, in any order."""
        chosen = self.draw.sample(self.waiting, min(len(self.waiting), self.draw.randint(0, 2)))
        rows = self.some(self.whole()) + [0] * len(chosen)
        self.draw.shuffle(rows)
        ahead, size = iter(chosen), self.world.page_size
        founds = [next(ahead) if row == 0 else None for row in rows]
        begins = [len(found[0].pages) * size if found else len(self.tokens[row])
                  for row, found in zip(rows, founds, strict=True)]  # fmt: skip
        most = [len(found[1]) if found else self.world.context_len for found in founds]
        stops = [self.draw.randint(begin + 1, end) for begin, end in zip(begins, most, strict=True)]
        pages = sum(map(self.new, begins, stops))
        prefixes = [prefix for prefix, _ in chosen]
        grant = self.granted(len(chosen), pages, lambda: self.ledger.extend(rows, stops, prefixes))
        if grant is None:
            return
        for row, found, begin, stop in zip(grant.rows.tolist(), founds, begins, stops, strict=True):
            if found is not None:
                self.waiting = [each for each in self.waiting if each is not found]
                self.slots[row] = [page * size + at for page in found[0].pages.tolist() for at in range(size)]
                self.tokens[row] = found[1][:begin]
            self.tokens[row] += found[1][begin:stop] if found else self.letters(stop - begin)
        self.keep(grant, begins, stops)

    def decode(self) -> None:
        """One more position each, several times, in the same order or another, until one is full. Whoever has a grant
        may not spoil with it what comes next."""
        rows = self.some(self.whole())
        for _ in range(self.draw.randint(1, 4)):
            if self.draw.random() < 1 / 4:
                self.draw.shuffle(rows)
            begins = [len(self.tokens[row]) for row in rows]
            stops = [begin + 1 for begin in begins]
            batch = np.array(rows, np.int64)
            if max(stops, default=0) > self.world.context_len:
                refused(ValueError, self.ledger.decode, batch)
                return
            grant = self.granted(0, sum(map(self.new, begins, stops)), partial(self.ledger.decode, batch))
            if grant is not None:
                assert grant.rows.tolist() == rows, f"of {grant.rows}, not of {rows}"
                for row in rows:
                    self.tokens[row] += self.letters(1)
                self.keep(grant, begins, stops)
                for numbers in (batch, grant.rows, grant.counts):
                    with suppress(ValueError):
                        numbers[:] = 0

    def reserve(self) -> None:
        """Slots ahead: to a page's end, not past the row, and never fewer than there are."""
        rows = self.some(list(self.slots))
        counts = [self.draw.randint(1, 2 * self.world.page_size) for _ in rows]
        begins = [len(self.slots[row]) for row in rows]
        reach = [len(self.tokens[row]) + count for row, count in zip(rows, counts, strict=True)]
        reach = [upto + -upto % self.world.page_size for upto in reach]
        stops = [min(max(pair), self.world.context_len) for pair in zip(begins, reach, strict=True)]
        pages = sum(map(self.new, begins, stops))
        grant = self.granted(0, pages, lambda: self.ledger.reserve(rows, counts))
        if grant is not None:
            self.keep(grant, begins, stops)

    def commit(self) -> None:
        """Some of what is reserved."""
        spare = {row: len(slots) - len(self.tokens[row]) for row, slots in self.slots.items()}
        rows = self.some([row for row, count in spare.items() if count])
        counts = [self.draw.randint(1, spare[row]) for row in rows]
        self.ledger.commit(rows, counts)
        for row, count in zip(rows, counts, strict=True):
            self.tokens[row] += self.letters(count)

    def checkpoint(self) -> None:
        """One shares what it has; what it then lists is what the cache has of it."""
        if not self.slots:
            return
        row, size = self.draw.choice(list(self.slots)), self.world.page_size
        tokens, before = np.array(self.tokens[row], np.int32), self.lengths(row)[0]
        upto = self.draw.randint(0, len(tokens))
        held = self.slots[row][::size]
        freed: Pages = self.ledger.checkpoint(row, tokens, upto)
        end = max(before, upto - upto % size)
        cached = self.ledger.match(tokens[:end]).pages.tolist()
        assert self.lengths(row)[0] == end == len(cached) * size, f"row {row} has shared another length"
        listed = [slot // size for slot in held[: len(cached)]]
        assert freed.tolist() == [page for page, stays in zip(listed, cached, strict=True) if page != stays]
        self.slots[row][:end] = [page * size + at for page in cached for at in range(size)]

    def cut(self) -> None:
        """Less of some rows stays."""
        rows = self.some(list(self.slots))
        lengths = [self.draw.randint(self.lengths(row)[0], len(self.tokens[row])) for row in rows]
        self.gone(self.ledger.cut(rows, lengths), rows, lengths)
        for row, length in zip(rows, lengths, strict=True):
            del self.slots[row][length:], self.tokens[row][length:]

    def release(self) -> None:
        """Some rows go."""
        rows = self.some(list(self.slots))[:2]
        lengths = [self.lengths(row)[0] for row in rows]
        self.gone(self.ledger.release(rows), rows, lengths)
        for row in rows:
            del self.slots[row], self.tokens[row]

    def gone(self, pages: Pages, rows: list[int], lengths: list[int]) -> None:
        """What goes back of these rows are the pages behind these lengths."""
        size = self.world.page_size
        law = [slot // size for row, length in zip(rows, lengths, strict=True)
               for slot in self.slots[row][length + -length % size :: size]]  # fmt: skip
        assert pages.tolist() == law, f"of rows {rows} other pages went back"

    def evict(self) -> None:
        """Some of the cache."""
        count, there = self.draw.randint(0, 4), self.ledger.cache.evictable
        assert min(count, there) <= len(self.ledger.evict(count)) <= there * min(count, 1)

    def take_and_give(self) -> None:
        """Some go and come back, the last one first: what was handed out stays what it was."""
        for book in (self.ledger.pages, self.ledger.rows):
            numbers = book.take(min(book.available, 3))
            said = numbers.tolist()
            book.give(numbers[::-1].copy())
            assert numbers.tolist() == said, f"{book.what}s that were handed out are others now"

    # ---- the wrong ones

    def give_what_is_free(self) -> None:
        """One that is free, or none at all, or one twice: nothing has changed then."""
        for book in (self.ledger.pages, self.ledger.rows):
            taken = np.flatnonzero(book.taken(np.arange(len(book.stack) + 1))).tolist()
            wrong = [[0], [-1], [len(book.stack) + 1], book.free()[:1].tolist(), book.free()[-1:].tolist()]
            wrong += [[*taken, one] for one in self.some(taken)[:1]] + [[*taken, 0]]
            for numbers in filter(None, wrong):
                refused(DoubleFree, book.give, np.array(numbers))
            refused(OutOfRoom, book.take, book.available + 1)

    def call_for_nobody(self) -> None:
        """A row that nobody holds, and one that stands there twice."""
        for row in (0, -1, self.world.rows + 1, *self.ledger.rows.free()[:1].tolist()):
            for call in (self.ledger.release, self.ledger.decode):
                refused(ValueError, call, [*self.slots, row])
        for row in self.some(list(self.slots))[:1]:
            refused(ValueError, self.ledger.release, [row, row])


def refused(error: type[Exception], call: Callable[..., Any], *args: Any) -> None:
    """The call raises that."""
    try:
        call(*args)
    except error:
        return
    raise AssertionError(f"{call.__name__}{args}: expected {error.__name__}")


def long_rows() -> None:
    """Two rows of 1,500 tokens in pages of one: more numbers in a call than any plan begins with, twice."""
    ledger = Ledger(World(2, 3_000, 6_000, 1))
    for stop in (1_500, 3_000):
        prefixes = [ledger.admit(np.empty(0, np.int32)) for _ in range(2 * (stop == 1_500))]
        grant = ledger.extend([0, 0] if prefixes else [1, 2], [stop, stop], prefixes)
        law = list(range(2 * stop - 2_999, 2 * stop + 1))
        assert grant.out_cache_loc.tolist() == law, "slots of long rows"
        selfcheck(ledger)


def endless_drafts() -> None:
    """More than any number holds beyond the 9 tokens of a row of 30 columns: 21 slots, to the row's end."""
    ledger = Ledger(World(1, 30, 8, 4))
    ledger.extend([0], [9], [ledger.admit(np.empty(0, np.int32))])
    assert ledger.reserve([1], [2**63 - 1]).counts.tolist() == [21], "slots of endless drafts"
    selfcheck(ledger)


def run(world: World, seed: int, calls: int) -> Caller:
    """So many of them."""
    caller = Caller(world, seed)
    for _ in range(calls):
        caller.call()
    return caller
