"""The batched ledger: whole batches against the plain formulation, what it refuses, what it costs the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np
import numpy.typing as npt
from torch.utils._python_dispatch import TorchDispatchMode

from kvledger.fast.ledger import Grant, Ledger
from kvledger.fast.pages import DoubleFree, OutOfRoom
from kvledger.spec.world import World, WrongInput

SIZES = pytest.mark.parametrize("page_size", [1, 3, 4, 16])
WAITING = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__index__", "__float__", "nonzero", "unique")
SYNCHRONISE = {"_local_scalar_dense", "nonzero", "_unique2", "equal", "is_nonzero", "masked_select"}


def a_ledger(
    page_size: int = 4, rows: int = 4, context_len: int = 30, pages: int = 24, device: str = "cpu"
) -> Ledger:
    return Ledger(World(rows, context_len, pages, page_size), device)


def tokens(count: int, first: int = 0) -> npt.NDArray[np.int32]:
    return np.arange(first, first + count, dtype=np.int32)


def started(ledger: Ledger, *lengths: int) -> list[int]:
    """Requests of these lengths, with nothing cached; returns their rows."""
    prefixes = [ledger.admit(tokens(0)) for _ in lengths]
    return [int(row) for row in ledger.extend([0] * len(lengths), lengths, prefixes).rows]


def holds(ledger: Ledger) -> None:
    """Every page is free, in the cache or of one row; every page of a row is listed in whole; locks are counted."""
    size, lines = ledger.plan.page_size, ledger.tensors.lines.tolist()
    seen = ledger.pages.free().tolist() + [page for node in ledger.cache.nodes() for page in node.pages.tolist()]
    for row in range(1, ledger.world.rows + 1):
        if ledger.rows.taken(np.array([row]))[0]:
            first, count = row * ledger.plan.width, -(-int(ledger.allocated_len[row]) // size)
            listed = ledger.mirror[first : first + count].tolist()
            assert lines[first : first + count] == [list(range(page * size, page * size + size)) for page in listed]
            seen += listed[int(ledger.protected_len[row]) // size :]
    assert sorted(seen) == list(range(1, ledger.world.pages + 1))


# ---- what a batch gets


@SIZES
def test_a_batch_gets_what_its_members_would_get_one_by_one(page_size: int) -> None:
    """400 random calls on two ledgers, one with whole batches, one with a call a member: the same lengths, and as many
    pages; in either every page has one owner, and every slot stands in the table where it belongs."""
    draw = Random(page_size)
    whole, single = (a_ledger(page_size, context_len=30, pages=4 * -(-30 // page_size)) for _ in range(2))
    pairs: list[tuple[int, int]] = []  # of rows, in the one and in the other
    for _ in range(400):
        chosen = draw.sample(pairs, draw.randint(1, len(pairs))) if pairs else []
        kind = draw.choice(["start", "extend", "decode", "reserve", "commit", "cut", "release"])
        ours, theirs = ([pair[side] for pair in chosen] for side in (0, 1))
        has, end = whole.committed_len[ours].tolist(), whole.allocated_len[ours].tolist()
        if kind == "start":
            lengths = [draw.randint(1, 30) for _ in range(draw.randint(1, 4 - len(pairs)))] if len(pairs) < 4 else []
            pairs += zip(started(whole, *lengths), [started(single, each)[0] for each in lengths], strict=True)
        elif kind == "extend" and has == end and all(each < 30 for each in has):
            uptos = [draw.randint(each + 1, 30) for each in has]
            both(whole.extend, single.extend, ours, theirs, uptos)
        elif kind == "decode" and has == end and all(each < 30 for each in has):
            both(whole.decode, single.decode, ours, theirs)
        elif kind == "reserve":
            both(whole.reserve, single.reserve, ours, theirs, [draw.randint(1, 6) for _ in ours])
        elif kind == "commit" and all(one < other for one, other in zip(has, end, strict=True)):
            counts = [draw.randint(1, other - one) for one, other in zip(has, end, strict=True)]
            both(whole.commit, single.commit, ours, theirs, counts)
        elif kind == "cut":
            both(whole.cut, single.cut, ours, theirs, [draw.randint(1, each) for each in has])
        elif kind == "release":
            both(whole.release, single.release, ours, theirs)
            pairs = [pair for pair in pairs if pair not in chosen]
        for ledger in (whole, single):
            holds(ledger)
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        for name in ("committed_len", "allocated_len"):
            assert getattr(whole, name)[ours].tolist() == getattr(single, name)[theirs].tolist()
        assert whole.pages.available == single.pages.available


def both(whole: Any, single: Any, ours: list[int], theirs: list[int], *lengths: Sequence[int]) -> None:
    """One call of a batch, and a call for each of its members: as many slots for each, and those that its row lists."""
    answer = whole(ours, *lengths)
    answers = [single([row], *([each[i]] for each in lengths)) for i, row in enumerate(theirs)]
    if isinstance(answer, Grant):
        counts = answer.counts.tolist()
        assert counts == [int(each.counts[0]) for each in answers]
        for ledger, rows, grants in ((whole.__self__, ours, [answer]), (single.__self__, theirs, answers)):
            table, ends = ledger.tensors.req_to_token.tolist(), ledger.allocated_len[rows].tolist()
            members = zip(rows, ends, counts, strict=True)
            listed = [slot for row, end, count in members for slot in table[row][end - count : end]]
            assert listed == [slot for grant in grants for slot in grant.out_cache_loc.tolist()]


def test_slots_follow_each_other_inside_a_page() -> None:
    """Pages of 4: 6 tokens in pages 1 and 2, 3 in page 3. Then up to 9 and 4: 10, 11, a new page; and 15."""
    ledger = a_ledger()
    grant = ledger.extend([0, 0], [6, 3], [ledger.admit(tokens(0)), ledger.admit(tokens(0))])
    assert grant.out_cache_loc.tolist() == [4, 5, 6, 7, 8, 9, 12, 13, 14]
    assert (grant.rows.tolist(), grant.counts.tolist()) == ([1, 2], [6, 3])
    assert ledger.extend([2, 1], [4, 9]).out_cache_loc.tolist() == [15, 10, 11, 16]
    assert ledger.decode([1, 2]).out_cache_loc.tolist() == [17, 20]
    assert ledger.tensors.req_to_token[1, :10].tolist() == [*range(4, 12), 16, 17]


def test_a_start_goes_on_behind_what_is_cached() -> None:
    """8 of 10 tokens are published, in pages 1 and 2; another starts behind them, beside one that finds nothing."""
    ledger, prompt = a_ledger(), tokens(10)
    [row] = started(ledger, 10)
    assert ledger.checkpoint(row, prompt, 10).tolist() == []
    prefixes = [ledger.admit(prompt[:9]), ledger.admit(tokens(9, first=50))]
    grant = ledger.extend([0, 0], [10, 2], prefixes)
    assert grant.counts.tolist() == [2, 2] and grant.rows.tolist() == [2, 3]
    assert ledger.tensors.req_to_token[2, :10].tolist() == [*range(4, 12), *range(16, 18)]
    assert ledger.protected_len.tolist()[1:4] == [8, 8, 0]
    assert ledger.release([1, 2, 3]).tolist() == [3, 4, 5]  # what is private; pages 1 and 2 are the cache's
    assert (ledger.cache.evictable, ledger.cache.protected) == (2, 0)
    holds(ledger)


def test_a_duplicate_is_freed_and_the_row_lists_what_is_cached() -> None:
    """Two rows computed the same 9 tokens: pages 1, 2, 3 and 4, 5, 6."""
    ledger, prompt = a_ledger(), tokens(9)
    one, other = started(ledger, 9, 9)
    assert ledger.checkpoint(one, prompt, 9).tolist() == []
    assert ledger.checkpoint(other, prompt, 9).tolist() == [4, 5]
    assert ledger.tensors.req_to_token[other, :9].tolist() == [*range(4, 12), 24]
    assert ledger.checkpoint(other, prompt, 8).tolist() == []  # there is nothing new
    assert ledger.cache.protected == 2
    holds(ledger)


# ---- what it refuses, and that nothing has changed then


def everything(ledger: Ledger) -> list[Any]:
    books = (ledger.pages, ledger.rows)
    lengths = (ledger.protected_len, ledger.committed_len, ledger.allocated_len, ledger.mirror)
    tree = [(node.pages.tolist(), node.lock_ref) for node in ledger.cache.nodes()]
    return [
        *([book.free().tolist(), book.place.tolist()] for book in books),
        *(each.tolist() for each in lengths),
        ledger.tensors.columns.tolist(), list(ledger.locked), tree, ledger.cache.evictable, ledger.cache.protected,
    ]  # fmt: skip


def refused(ledger: Ledger, error: type[Exception], says: str, call: Callable[..., Any], *args: Any) -> None:
    before = everything(ledger)
    with pytest.raises(error, match=says):
        call(*args)
    assert everything(ledger) == before


def test_what_is_out_of_order_is_named() -> None:
    """Rows 1, 2 and 3 of 4 are held, with 6, 3 and 5 tokens; of row 3 four are the cache's, and 3 slots reserved."""
    ledger = a_ledger()
    started(ledger, 6, 3, 5)
    ledger.reserve([3], [2])
    ledger.checkpoint(3, tokens(5, first=90), 5)
    [row] = started(ledger, 8)
    ledger.checkpoint(row, tokens(8), 8)
    ledger.release([row])
    nothing, unlocked = ledger.admit(tokens(0)), ledger.match(tokens(8))
    wrong: list[tuple[Any, ...]] = [
        (ValueError, "row 4: expected a row that is held", ledger.decode, [1, 4]),
        (ValueError, "row -1: expected a row that is held", ledger.release, [-1]),
        (ValueError, "row 0: expected a row that is held", ledger.cut, [0], [0]),
        (ValueError, "row 5: expected a row that is held", ledger.extend, [5], [7]),
        (ValueError, r"rows \[1, 1\]: expected no row twice", ledger.release, [1, 1]),
        (ValueError, "row 2: expected a seq_len above what it has", ledger.extend, [1, 2], [8, 3]),
        (ValueError, "row 1: expected a seq_len above what it has, within its row", ledger.extend, [1], [31]),
        (ValueError, "row 0: expected a seq_len above what it has, within its row", ledger.extend, [0], [0], [nothing]),
        (ValueError, "row 0: expected a seq_len above", ledger.extend, [1, 0], [8, 31], [nothing]),
        (ValueError, "row 3: expected no slots reserved", ledger.extend, [3], [9]),
        (ValueError, "row 3: expected no slots reserved", ledger.decode, [3]),
        (ValueError, "0 prefixes: expected one for each of 1 rows 0", ledger.extend, [0], [3]),
        (ValueError, "1 prefixes: expected one for each of 2 rows 0", ledger.extend, [0, 0], [3, 3], [nothing]),
        (ValueError, "1 prefixes: expected one for each of 0 rows 0", ledger.extend, [1], [8], [nothing]),
        (ValueError, "a prefix that is not locked: expected one", ledger.extend, [0], [9], [unlocked]),
        (ValueError, "that was admitted, and used once", ledger.extend, [0, 0], [3, 3], [nothing, nothing]),
        (ValueError, "a prefix that is not locked: expected one", ledger.defer, unlocked),
        (ValueError, "expected one entry for each member", ledger.extend, [1, 2], [8]),
        (ValueError, "expected one entry for each member", ledger.decode, 1),
        (TypeError, "cannot be interpreted as an integer", ledger.extend, [1], [7.5]),
        (TypeError, "a batch of float64: expected integers", ledger.extend, [1, 2], [7.5, 4]),
        (TypeError, "a batch of bool: expected integers", ledger.release, np.array([True])),  # a mask is no row 1
        (TypeError, "something that is no prefix: expected what admit has", ledger.extend, [0], [3], nothing),
        (TypeError, "something that is no prefix: expected what admit has", ledger.defer, [nothing]),
        (ValueError, "row 1: expected at least one token", ledger.reserve, [1], [0]),
        (ValueError, "row 3: expected at least one token, and no more", ledger.commit, [3], [4]),
        (ValueError, "row 1: expected a length from protected_len", ledger.cut, [1], [7]),
        (ValueError, "row 3: expected a length from protected_len", ledger.cut, [3], [3]),
        (ValueError, "row 1: expected upto = 7 to lie within what has KV", ledger.checkpoint, 1, tokens(9), 7),
        (ValueError, "row 1: expected 6 tokens", ledger.checkpoint, 1, tokens(3), 6),
        (TypeError, "tokens of int64", ledger.checkpoint, 1, np.arange(9), 6),
        (TypeError, "tokens of int64", ledger.admit, np.arange(9)),
    ]
    for error, says, call, *args in wrong:
        refused(ledger, error, says, call, *args)


def test_a_checkpoint_under_other_tokens_is_refused() -> None:
    """Of either row 8 tokens are cached, in a namespace of its own. Under any other key their pages would be cached
    twice, or the row would read pages whose lock is on another path."""
    ledger = a_ledger()
    one, other = started(ledger, 13, 13)
    ledger.checkpoint(one, tokens(8), 8, "lora")
    ledger.checkpoint(other, tokens(8, first=50), 8)
    wrong: list[tuple[int, npt.NDArray[np.int32], str | None]] = [
        (one, tokens(13), None),  # the namespace forgotten
        (one, tokens(13, first=1), "lora"),
        (one, tokens(13, first=50), None),  # as long, and cached, but the other row's
        (other, tokens(13), "lora"),
    ]
    for row, given, namespace in wrong:
        says = f"row {row}: expected the tokens and the namespace that its first 8 are cached by"
        refused(ledger, ValueError, says, ledger.checkpoint, row, given, 13, namespace)
    ledger.checkpoint(one, tokens(13), 13, "lora")
    assert ledger.protected_len[one] == 12
    holds(ledger)


def test_drafts_beyond_all_numbers_are_to_the_end_of_the_row() -> None:
    """A row of 30 columns with 9 tokens: 21 more, however many are asked for."""
    for asked in (21, 2**31, 2**63 - 1):
        ledger = a_ledger()
        assert ledger.reserve(started(ledger, 9), [asked]).counts.tolist() == [21]


def test_a_row_that_is_full_is_not_decoded() -> None:
    """A row of 6 columns in pages of 4: its second page has two more slots, which are nobody's."""
    ledger = a_ledger(context_len=6)
    started(ledger, 5, 6)
    refused(ledger, ValueError, "row 2: expected a column that is free", ledger.decode, [1, 2])
    assert ledger.decode([1]).out_cache_loc.tolist() == [9]
    refused(ledger, ValueError, "row 1: expected a column that is free", ledger.decode, [1])
    assert ledger.reserve([2], [3]).out_cache_loc.tolist() == []


def test_out_of_room_is_all_or_nothing() -> None:
    """Of 6 pages of 4 two are cached and read, two more are free: three are too many, for whoever asks."""
    ledger = a_ledger(pages=6, rows=3)
    one, other = started(ledger, 8, 8)
    ledger.checkpoint(one, tokens(8), 8)
    prefix = ledger.admit(tokens(8))
    refused(ledger, OutOfRoom, "not enough pages", ledger.extend, [0, one], [13, 12], [prefix])
    refused(ledger, OutOfRoom, "not enough pages", ledger.reserve, [one], [12])
    again = ledger.admit(tokens(8))
    refused(ledger, OutOfRoom, "not enough rows", ledger.extend, [0, 0], [9, 9], [prefix, again])
    ledger.defer(again)
    ledger.extend([0, one], [9, 12], [prefix])
    refused(ledger, OutOfRoom, "not enough pages", ledger.decode, [other])
    ledger.release([other])
    assert ledger.decode([one]).counts.tolist() == [1]


def test_without_a_row_nothing_is_evicted() -> None:
    """Page 1 of 2 is cached, and would have to go: but the only row is held."""
    ledger = a_ledger(pages=2, rows=1)
    [row] = started(ledger, 4)
    ledger.checkpoint(row, tokens(4), 4)
    ledger.release([row])
    started(ledger, 1)
    refused(ledger, OutOfRoom, "not enough rows", ledger.extend, [0], [1], [ledger.admit(tokens(0))])


def test_what_a_call_matched_is_not_evicted_for_it() -> None:
    """Pages 1 and 2 of 4 are cached under A, 3 under B; a start behind A that needs two pages takes 4, and B's."""
    ledger = a_ledger(pages=4)
    for count, first in ((8, 0), (4, 90)):
        [row] = started(ledger, count)
        ledger.checkpoint(row, tokens(count, first), count)
        ledger.release([row])
    ledger.match(tokens(4, 90))  # B was used last
    grant = ledger.extend([0], [16], [ledger.admit(tokens(8))])
    assert grant.evicted.tolist() == [3]
    holds(ledger)


def test_a_double_free_is_named_and_changes_nothing() -> None:
    """A page is given back behind the ledger's back, as a hand-written release does: by then the row still lists it."""
    ledger = a_ledger()
    one, other = started(ledger, 6, 6)
    ledger.pages.give(np.array([2]))
    refused(ledger, DoubleFree, "page 2 is given back, but was not taken", ledger.release, [other, one])
    refused(ledger, DoubleFree, "page 2 ", ledger.cut, [one], [3])
    ledger.pages.take(1)
    ledger.decode([one])
    ledger.extend([one], [8])
    ledger.pages.give(np.array([1]))
    refused(ledger, DoubleFree, "page 1 ", ledger.checkpoint, one, tokens(8), 8)


@pytest.mark.parametrize(("pages", "page_size"), [(2**31, 1), (2**31 - 1, 2), (2**27, 16), (1, 2**31)])
def test_a_pool_beyond_int32_is_refused_before_anything_is_allocated(pages: int, page_size: int) -> None:
    with pytest.raises(WrongInput, match=r"^world with .*: expected .* 2\^31"):
        Ledger(World(rows=1, context_len=1, pages=pages, page_size=page_size))


def test_an_empty_batch_is_nothing() -> None:
    ledger = a_ledger()
    before = everything(ledger)
    assert len(ledger.extend([], []).out_cache_loc) == len(ledger.decode([]).out_cache_loc) == 0
    assert ledger.release([]).tolist() == [] and everything(ledger) == before


# ---- what it costs the device


class Operators(TorchDispatchMode):  # type: ignore[misc]
    """The names of all operators that are dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note it, and go on."""
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def operators(call: Callable[..., Any], *args: Any) -> list[str]:
    with Operators() as counted:
        call(*args)
    names: list[str] = counted.names
    assert not SYNCHRONISE & set(names), names
    return names


def waits(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("the host waits for the device")


@SIZES
def test_the_same_operators_whatever_the_batch_and_no_waiting(page_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start, go on, decode at an edge and inside a page, reserve, cut, release: for 2 rows, 32, 1,024; 1 needs less."""
    for name in WAITING:
        monkeypatch.setattr(torch.Tensor, name, waits)
    seen: list[list[list[str]]] = []
    for batch in (1, 2, 32, 1_024):
        ledger = a_ledger(page_size, rows=1_024, context_len=80, pages=1_024 * 80)
        rows, edge = np.arange(1, batch + 1), np.full(batch, 48)
        prefixes = [ledger.admit(tokens(0)) for _ in rows]
        counts = [operators(ledger.extend, rows * 0, edge - 1, prefixes), operators(ledger.extend, rows, edge)]
        counts += [operators(ledger.decode, rows), operators(ledger.decode, rows)]
        counts += [operators(ledger.reserve, rows, rows * 0 + 20), operators(ledger.cut, rows, edge)]
        counts += [operators(ledger.release, rows)]
        seen.append(counts)
    assert seen[1] == seen[2] == seen[3]
    for counts in seen[:2]:
        start, extend, at_edge, inside, reserve, cut, release = map(len, counts)
        assert max(start, extend, reserve) <= 8 and max(at_edge, inside) <= 6 and cut == release == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@SIZES
def test_a_cuda_device_is_not_waited_for_and_has_the_same_table(page_size: int) -> None:
    """CUDA's own check, which raises where the host waits; and the table that the same calls write on a CPU."""
    there, here = (a_ledger(page_size, rows=64, context_len=80, pages=5_120, device=name) for name in ("cuda", "cpu"))
    rows, prompt = np.arange(1, 65), tokens(48)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for ledger in (there, here):
            ledger.extend(rows * 0, rows, [ledger.admit(tokens(0)) for _ in rows])
            ledger.decode(rows)
            ledger.extend(rows[:40], np.full(40, 48))
            for row in (7, 9):
                ledger.checkpoint(row, prompt, 48)
            ledger.reserve(rows, rows % 5 + 1)
            ledger.cut(rows, ledger.committed_len[rows])
            ledger.release(rows[20:])
            ledger.extend([0], [70], [ledger.admit(prompt)])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert there.tensors.req_to_token.tolist() == here.tensors.req_to_token.tolist()


def test_the_counter_sees_what_waits() -> None:
    """An item() is one of the operators it looks for."""
    with pytest.raises(AssertionError, match="_local_scalar_dense"):
        operators(torch.ones(1).item)
