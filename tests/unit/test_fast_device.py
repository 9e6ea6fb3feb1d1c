"""The device in charge: the same pages in the same order as the host gives, nothing from a refused call but the flag,
fixed shapes, and no look at the device from the host."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.backend import make
from kvledger.fast.device import DeviceLedger
from kvledger.fast.device_state import Fault
from kvledger.fast.ledger import Grant, Ledger
from kvledger.fast.prefix_cache import NO_PAGES
from kvledger.spec.world import World, WrongInput
from kvledger.tests.kit.generate import POOLS
from kvledger.tests.kit.lockstep import Grade
from kvledger.tests.kit.search import search
from kvledger.tests.unit.test_fast_ledger import (
    SIZES,
    a_ledger,
    holds,
    started,
    tokens,
)

CONTEXT_LEN, LANES = 40, 6


def ints(*numbers: int) -> Any:
    return torch.tensor(numbers, dtype=torch.int64)


def in_charge(ledger: Ledger, route: str = "torch") -> DeviceLedger:
    device = DeviceLedger(ledger, route)
    device.take_over()
    return device


def of_three(page_size: int = 4, pages: int = 24) -> DeviceLedger:
    """Rows 1, 2 and 3 of 4 hold 6, 3 and 30 tokens of 30, in pages 1 and 2, 3, and 4 to 11; page 1 is cached."""
    ledger = a_ledger(page_size, 4, 30, pages)
    started(ledger, 6, 3, 30)
    ledger.checkpoint(1, tokens(6), 6)
    return in_charge(ledger)


def everything(device: DeviceLedger) -> list[Any]:
    """All that a call might change but the flags: dead lanes and padding too."""
    state = device.state
    held = state.stack, state.head, state.live, state.seq_lens, state.protected_lens, state.tensors.columns
    return [tensor.tolist() for tensor in held]


# ---- beside the host


class Pair:
    """Two ledgers with the same rows, of the first of which the host is in charge, of the other a device."""

    def __init__(self, page_size: int, draw: Random) -> None:
        self.draw = draw
        pages = 3 * -(-CONTEXT_LEN // page_size)
        self.host, other = (a_ledger(page_size, 6, CONTEXT_LEN, pages) for _ in range(2))
        for ledger in (self.host, other):  # two rows read what the cache has, whole and in part; a third has its own
            [first] = started(ledger, 2 * page_size)
            ledger.checkpoint(first, tokens(2 * page_size), 2 * page_size)
            prefixes = [ledger.admit(tokens(2 * page_size)), ledger.admit(tokens(page_size)), ledger.admit(tokens(0))]
            ledger.extend([0, 0, 0], [2 * page_size + 3, page_size + 1, 1], prefixes)
            ledger.release([first])
        self.device = in_charge(other)
        self.rows, self.refused = [2, 3, 4], 0

    def padded(self, rows: list[int], *columns: list[int]) -> list[Any]:
        """The batch in LANES lanes, the dead ones anywhere between; their lengths are anything."""
        lanes = sorted(self.draw.sample(range(LANES), len(rows)))
        padded = []
        for index, column in enumerate((rows, *columns)):
            numbers = [0 if index == 0 else self.draw.randint(-50, 50) for _ in range(LANES)]
            for lane, number in zip(lanes, column, strict=True):
                numbers[lane] = number
            padded.append(ints(*numbers))
        return [*padded, lanes]

    def has(self, rows: list[int]) -> list[int]:
        return [int(length) for length in self.host.committed_len[rows]]

    def fits(self, has: list[int], stops: list[int]) -> bool:
        needed = self.host.plan.new_pages(np.array(has), np.array(stops)).sum()
        return bool(needed <= self.host.pages.available)

    def decode(self, rows: list[int]) -> None:
        lanes, where = self.padded(rows)
        before = everything(self.device)
        out = self.device.decode(lanes).tolist()
        has = self.has(rows)
        if self.fits(has, [length + 1 for length in has]):
            expected = [0] * LANES
            for lane, slot in zip(where, self.host.decode(rows).out_cache_loc.tolist(), strict=True):
                expected[lane] = slot
            assert out == expected
        else:
            self.was_refused(before, out)

    def extend(self, rows: list[int], stops: list[int], starting: list[int]) -> None:
        """starting: of so many tokens more requests, which find nothing in the cache."""
        free = [int(row) for row in self.host.rows.free()[: len(starting)]]
        has = self.has(rows) + [0] * len(free)
        lanes, lengths, _ = self.padded(rows + free, stops + starting)
        count = sum(stops + starting) - sum(has)
        size = count + self.draw.randint(0, 9)
        before = everything(self.device)
        out = self.device.extend(lanes, lengths, size).tolist()
        if self.fits(has, stops + starting):
            prefixes = [self.host.admit(tokens(0)) for _ in free]
            grant = self.host.extend(rows + [0] * len(free), stops + starting, prefixes)
            assert grant.rows.tolist() == rows + free
            assert out == grant.out_cache_loc.tolist() + [0] * (size - count)
            self.rows += free
        else:
            self.was_refused(before, out)

    def goes_back(self, rows: list[int], lengths: list[int] | None) -> None:
        """A cut, or without lengths a release; with a bound of its own, or without."""
        lanes, *rest, _ = self.padded(rows, *([lengths] if lengths else []))
        pages = self.host.cut(rows, lengths) if lengths else self.host.release(rows)
        bound = self.draw.choice([None, len(pages) + 1])
        call: Callable[..., Any] = self.device.cut if lengths else self.device.release
        out = call(lanes, *rest, bound).tolist()
        self.rows = [row for row in self.rows if lengths or row not in rows]
        most = min(LANES * self.host.plan.width, self.host.world.pages) if bound is None else bound
        assert out == pages.tolist() + [0] * (most - len(pages))

    def was_refused(self, before: list[Any], out: list[int]) -> None:
        """The pool was short, and nothing has changed."""
        self.refused += 1
        assert not any(out) and everything(self.device) == before
        assert self.device.hand_back() == (Fault.OUT_OF_PAGES,)
        self.same_ledger()
        self.device.take_over()

    def same(self) -> None:
        state, host = self.device.state, self.host
        assert state.stack[int(state.head) :].tolist() == host.pages.free().tolist()
        assert state.live[1:].tolist() == host.pages.taken(np.arange(1, host.world.pages + 1)).tolist()
        lengths = [0] * (host.world.rows + 1)
        for row in self.rows:
            lengths[row] = int(host.allocated_len[row])
            table, ours = state.tensors.req_to_token[row], host.tensors.req_to_token[row]
            assert table[: lengths[row]].tolist() == ours[: lengths[row]].tolist()
        assert state.seq_lens.tolist() == lengths
        assert not state.stack[0] and not state.live[0] and not state.protected_lens[0] and not state.err.any()
        assert state.tensors.lines[: host.plan.width].any(1).sum() <= 1  # row 0 lists page 0, and nothing else

    def same_ledger(self) -> None:
        """After a hand_back: the ledger's books are the host's."""
        ours, theirs = self.device.ledger, self.host
        holds(ours)
        for name in ("protected_len", "committed_len", "allocated_len"):
            assert getattr(ours, name)[self.rows].tolist() == getattr(theirs, name)[self.rows].tolist()
        assert ours.pages.free().tolist() == theirs.pages.free().tolist()
        assert sorted(ours.rows.free()) == sorted(theirs.rows.free())
        assert (ours.cache.evictable, ours.cache.protected) == (theirs.cache.evictable, theirs.cache.protected)


@SIZES
def test_the_device_gives_what_the_host_gives(page_size: int) -> None:
    """400 random calls beside the host's, dead lanes anywhere, in a pool that is short; handed back now and then."""
    draw = Random(page_size)
    pair = Pair(page_size, draw)
    for _ in range(400):
        chosen = draw.sample(pair.rows, draw.randint(1, len(pair.rows))) if pair.rows else []
        has, kind = pair.has(chosen), draw.choice(["decode", "decode", "extend", "cut", "release", "back"])
        if kind == "decode" and chosen and max(has) < CONTEXT_LEN:
            pair.decode(chosen)
        elif kind == "extend" and max(has, default=0) < CONTEXT_LEN:
            starting = [draw.randint(1, CONTEXT_LEN) for _ in range(draw.randint(not chosen, 6 - len(pair.rows)))]
            pair.extend(chosen, [draw.randint(length + 1, CONTEXT_LEN) for length in has], starting)
        elif kind == "cut" and chosen:
            least = pair.host.protected_len[chosen].tolist()
            pair.goes_back(chosen, [draw.randint(max(one, 1), end) for one, end in zip(least, has, strict=True)])
        elif kind == "release" and chosen and draw.random() < 0.5:
            pair.goes_back(chosen, None)
        elif kind == "back":
            assert pair.device.hand_back() == ()
            pair.same_ledger()
            pair.device.take_over()
        pair.same()
    assert pair.device.hand_back() == ()
    pair.same_ledger()
    assert pair.refused > 5


class ThroughDevice(Ledger):
    """A ledger whose calls are done by the device, one stretch each, where that can be; else by the host."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.device, self.done = DeviceLedger(self), 0

    def there(self, call: Callable[[], Any]) -> Any:
        try:
            self.device.take_over()
        except ValueError:  # drafts are reserved somewhere
            return None
        out = call()
        faults = self.device.hand_back()
        assert faults in ((), (Fault.OUT_OF_PAGES,))
        self.done += not faults
        return None if faults else out

    def decode(self, rows: Any) -> Grant:
        out = self.there(lambda: self.device.decode(ints(*rows)))
        return super().decode(rows) if out is None else Grant(np.array(rows), out, np.ones_like(rows), NO_PAGES)

    def extend(self, rows: Any, seq_lens: Any, prefixes: Any = ()) -> Grant:
        counts, out = np.array(seq_lens) - self.committed_len[rows], None
        if not prefixes and min(counts) > 0:
            size = int(counts.sum())
            out = self.there(lambda: self.device.extend(ints(*rows), ints(*seq_lens), size))
        return super().extend(rows, seq_lens, prefixes) if out is None else Grant(np.array(rows), out, counts, NO_PAGES)

    def cut(self, rows: Any, lengths: Any) -> Any:
        out = self.there(lambda: self.device.cut(ints(*rows), ints(*lengths))) if all(lengths) else None
        return super().cut(rows, lengths) if out is None else out[out > 0].numpy()

    def release(self, rows: Any) -> Any:
        out = self.there(lambda: self.device.release(ints(*rows)))
        return super().release(rows) if out is None else out[out > 0].numpy()


@pytest.mark.parametrize("sizes", [pool for pool in POOLS if pool[0] in (1, 4)], ids=str)
def test_a_backend_whose_calls_the_device_does_is_not_accused(sizes: Any) -> None:
    """By the law itself: 600 actions, prefixes, sessions and drafts with them, and the drain probe."""
    ledgers: list[ThroughDevice] = []

    def through(world: World) -> Any:
        backend = make(world)
        backend.ledger = ThroughDevice(world)
        ledgers.append(backend.ledger)
        return backend

    outcome = search(through, name="device", budget=600, seed_number=3, grade=Grade(), sizes=(sizes,))
    assert outcome.finding is None, (outcome.finding.rule, outcome.finding.facts)
    assert sum(ledger.done for ledger in ledgers) > 50


# ---- who is in charge


def test_the_host_says_at_once_what_it_can_see() -> None:
    device = of_three()
    before = everything(device)
    wrong: list[tuple[type[Exception], str, Callable[..., Any], list[Any]]] = [
        (TypeError, "a batch of torch.int32: expected int64", device.decode, [ints(1).int()]),
        (TypeError, "a batch of torch.bool: expected int64", device.cut, [ints(1), ints(1).bool()]),
        (TypeError, "a batch of ndarray: expected int64, in a tensor", device.decode, [np.array([1])]),
        (TypeError, "a batch of list: expected int64, in a tensor", device.cut, [ints(1), [1]]),
        (ValueError, r"shapes \[\[1\], \[2\]\]: expected one entry", device.extend, [ints(1), ints(7, 8), 2]),
        (ValueError, r"shapes \[\[0\], \[0\]\]: expected one entry", device.release, [ints()]),
        (ValueError, r"shapes \[\[\], \[\]\]: expected one entry", device.decode, [ints(1)[0]]),
        (ValueError, "a batch on meta: expected cpu", device.decode, [ints(1).to("meta")]),
        (ValueError, "tokens_max = 0: expected a whole number from 1", device.extend, [ints(1), ints(7), 0]),
        (ValueError, "pages_max = 1.5: expected a whole number", device.release, [ints(1), 1.5]),
        (ValueError, "the device is in charge", device.take_over, []),
    ]
    for error, says, call, given in wrong:
        with pytest.raises(error, match=says):
            call(*given)
    assert everything(device) == before and device.errors() == ()
    device.hand_back()
    for call in (device.hand_back, lambda: device.decode(ints(1))):
        with pytest.raises(ValueError, match="the host is in charge"):
            call()


def test_what_the_device_has_is_not_the_hosts_meanwhile() -> None:
    """Nothing is free on the host; what is evicted there is free after the hand-over, behind what the device has."""
    ledger = a_ledger(pages=6)
    started(ledger, 8)
    ledger.checkpoint(1, tokens(8), 8)
    ledger.release([1])
    device = in_charge(ledger)
    assert (ledger.pages.available, ledger.rows.available) == (0, 0) and device.free_rows.tolist() == [1, 2, 3, 4]
    assert ledger.evict(1).tolist() == [1, 2]
    assert device.extend(ints(2), ints(5), 5).tolist() == [12, 13, 14, 15, 16]
    device.hand_back()
    assert ledger.pages.free().tolist() == [5, 6, 1, 2] and ledger.rows.free().tolist() == [1, 3, 4]
    holds(ledger)


def test_a_row_that_ended_there_and_starts_again_reads_nothing_of_the_cache() -> None:
    """Row 1 read page 1 under a lock. When what follows it in row 1 goes, page 1 is not let go once more."""
    device = of_three()
    ledger = device.ledger
    device.release(ints(1))
    device.extend(ints(1), ints(2), 2)
    device.hand_back()
    assert (ledger.cache.evictable, ledger.cache.protected, int(ledger.protected_len[1])) == (1, 0, 0)
    assert ledger.release([1]).tolist() == [2] and ledger.cache.evictable == 1
    holds(ledger)


def test_a_graph_that_is_replayed_after_the_hand_over_is_refused() -> None:
    """The operators themselves, which a captured graph would run: of the table nothing is overwritten."""
    device = of_three()
    device.hand_back()
    table = device.state.tensors.columns.tolist()
    assert not device.operators.decode(device.state, device.plan, ints(2)).any()
    assert device.errors() == (Fault.WRONG_ROW,)
    device.state.err.zero_()
    assert not device.operators.extend(device.state, device.plan, ints(4), ints(3), 3).any()
    assert device.errors() == (Fault.OUT_OF_PAGES,) and device.state.tensors.columns.tolist() == table


def test_reserved_slots_do_not_go_over() -> None:
    ledger = a_ledger()
    started(ledger, 3, 3)
    ledger.reserve([2], [4])
    device, free = DeviceLedger(ledger), ledger.pages.free().tolist()
    with pytest.raises(ValueError, match="row 2: expected tokens, and no slots reserved"):
        device.take_over()
    assert ledger.pages.free().tolist() == free and ledger.rows.free().tolist() == [3, 4]
    ledger.cut([2], [0])
    with pytest.raises(ValueError, match="row 2: expected tokens"):
        device.take_over()
    ledger.extend([2], [1])
    device.take_over()


def test_routes_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongInput, match=r"^route 'numba': expected 'torch' or 'triton'$"):
        DeviceLedger(a_ledger(), "numba")
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "kvledger.fast.device_triton", raising=False)
    with pytest.raises(WrongInput, match=r"^route 'triton': needs triton: pip install triton$"):
        DeviceLedger(a_ledger(), "triton")
