"""What reads KV through the table of fast: over a random run of calls every row reads its own content, and attends to
its own K and V, while what nobody holds is NaN. And a table that is wrong in one entry is seen, where it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.attention import WrongContent, attention, check_content, gather
from kvledger.fast.ledger import Grant, Ledger
from kvledger.fast.pages import OutOfRoom
from kvledger.fast.plan import Plan
from kvledger.fast.tensors import Tensors
from kvledger.spec.world import World
from kvledger.tests.unit.test_fast_ledger import WAITING, operators, waits

SIZES = pytest.mark.parametrize("page_size", [1, 3, 4, 16])
DEVICES = pytest.mark.parametrize("device", ["cpu", *["cuda"] * torch.cuda.is_available()])
HEADS, DIM, WIDTH, ROWS = 2, 8, 40, 4
NOBODYS = -1  # what the witness has where nobody's content stands
# Outputs are averages of numbers around 1, in float32, whose steps there are 1.2e-7; a wrong entry moves them by 1e-2.
CLOSE, APART = 1e-5, 1e-3
_dice = torch.Generator().manual_seed(5)
KEYS, VALUES, QUERIES = torch.randn(3, 20_000, HEADS, DIM, generator=_dice)  # by content


def plain(content: Sequence[int], start: int) -> Any:
    """Attention of positions start.. over K and V that lie side by side, written out, in float64. [n, heads, dim]"""
    q, k, v = (each[list(content)].double() for each in (QUERIES, KEYS, VALUES))
    scores = torch.einsum("qhd,khd->hqk", q[start:], k) / DIM**0.5
    later = torch.arange(len(content)) > torch.arange(start, len(content)).unsqueeze(1)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(later, -torch.inf).softmax(-1), v).float()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Of tensors this small threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Engine:
    """Calls the ledger, writes K, V and the witness as a forward pass does, and keeps each request's content by itself.

    The content of a position stands for all tokens up to it, as K and V do: a number, which the witness holds.
    prompts: by row, all tokens; they have KV as far as committed_len says.
    """

    def __init__(self, page_size: int, device: str = "cpu", pages: int | None = None) -> None:
        pages = 3 * -(-WIDTH // page_size) - 1 if pages is None else pages  # of 4 rows not 3 can be full
        self.ledger = Ledger(World(ROWS, WIDTH, pages, page_size), device)
        slots = (pages + 1) * page_size
        self.witness = torch.full((slots,), NOBODYS, device=device)
        self.keys, self.values = torch.full((2, slots, HEADS, DIM), torch.nan, device=device)
        self.tokens: dict[int, list[int]] = {}
        self.drafts: dict[int, list[int]] = {}
        self.numbers: dict[tuple[int, int], int] = {}  # of contents, by the one before and a token

    @property
    def rows(self) -> list[int]:
        return list(self.tokens)

    def committed(self, row: int) -> int:
        return int(self.ledger.committed_len[row])

    def content(self, row: int) -> list[int]:
        """Of the positions of a row that have KV."""
        content, number = list[int](), -1
        for token in self.tokens[row][: self.committed(row)]:
            number = self.numbers.setdefault((number, token), len(self.numbers))
            content.append(number)
        return content

    def write(self, slots: Sequence[int], content: Sequence[int]) -> None:
        """What a forward pass does."""
        at = torch.tensor(slots, dtype=torch.int64, device=self.keys.device)
        what = torch.tensor(content, dtype=torch.int64)
        self.witness[at] = what.to(at.device)
        self.keys[at], self.values[at] = KEYS[what].to(at.device), VALUES[what].to(at.device)

    def granted(self, grant: Grant) -> None:
        for row, slots in zip(grant.rows.tolist(), grant.out_cache_loc.split(grant.counts.tolist()), strict=True):
            self.write(slots.tolist(), self.content(row)[-len(slots) :])

    # ---- calls

    def start(self, *prompts: list[int], upto: int = WIDTH) -> list[int]:
        """Together, of each prompt what its first chunk has: the positions below upto, and one behind its prefix."""
        prefixes = [self.ledger.admit(np.array(prompt[:-1], np.int32)) for prompt in prompts]
        behind = [len(prefix.pages) * self.ledger.plan.page_size for prefix in prefixes]
        ends = [min(len(prompt), max(upto, least + 1)) for prompt, least in zip(prompts, behind, strict=True)]
        try:
            grant = self.ledger.extend([0] * len(prompts), ends, prefixes)
        except OutOfRoom:
            self.ledger.defer(*prefixes)
            raise
        self.tokens |= dict(zip(grant.rows.tolist(), map(list, prompts), strict=True))
        self.granted(grant)
        return [int(row) for row in grant.rows]

    def extend(self, rows: list[int], uptos: list[int]) -> None:
        self.granted(self.ledger.extend(rows, uptos))

    def decode(self, rows: list[int], sampled: int) -> None:
        grant = self.ledger.decode(rows)
        for row in rows:
            self.tokens[row].append(sampled)
        self.granted(grant)

    def reserve(self, row: int, count: int) -> None:
        """The drafts' KV is written as they are verified: in commit."""
        grant = self.ledger.reserve([row], [count])
        self.drafts[row] = self.drafts.get(row, []) + grant.out_cache_loc.tolist()

    def commit(self, row: int, tokens: list[int]) -> None:
        self.ledger.commit([row], [len(tokens)])
        self.tokens[row] += tokens
        slots, self.drafts[row] = self.drafts[row][: len(tokens)], self.drafts[row][len(tokens) :]
        self.write(slots, self.content(row)[-len(slots) :])

    def checkpoint(self, row: int, upto: int) -> int:
        return len(self.ledger.checkpoint(row, np.array(self.tokens[row], np.int32), upto))

    def cut(self, row: int, length: int, tokens: list[int]) -> None:
        """As a session's next turn does: it goes on with these, which have no KV yet."""
        self.ledger.cut([row], [length])
        self.tokens[row], self.drafts[row] = self.tokens[row][:length] + tokens, []

    def release(self, rows: list[int]) -> None:
        self.ledger.release(rows)
        for row in rows:
            self.tokens.pop(row), self.drafts.pop(row, None)

    # ---- what is looked at

    def poison(self) -> None:
        """NaN wherever nobody's KV is, by the host's books: the padding page, free pages, what has no KV of a row."""
        ledger, plan = self.ledger, self.ledger.plan
        slots = [plan.slots_of(np.append(ledger.pages.free(), np.int32(0)))]
        for row in self.rows:
            line = row * plan.width
            pages = ledger.mirror[line : line + plan.pages_for(int(ledger.allocated_len[row]))]
            slots.append(plan.slots_of(pages)[self.committed(row) :])
        nobodys = torch.from_numpy(np.concatenate(slots)).to(self.keys.device)
        self.witness[nobodys] = NOBODYS
        self.keys[nobodys] = self.values[nobodys] = torch.nan

    def look(self) -> None:
        """Every row reads its own content. Raises WrongContent."""
        check_content(self.ledger.tensors, self.witness, self.rows, [self.content(row) for row in self.rows])

    def attend(self, *starts: int) -> Any:
        """What each row's positions from its start on see, one row behind the other; through the table."""
        queries = [QUERIES[self.content(row)[start:]] for row, start in zip(self.rows, starts, strict=True)]
        asked = torch.cat(queries).to(self.keys.device)
        stops = [self.committed(row) for row in self.rows]
        return attention(self.ledger.tensors, self.keys, self.values, asked, self.rows, starts, stops).cpu()

    def off(self, *starts: int) -> float:
        """How far that is from plain attention, at most; NaN, if some of it is."""
        told = [plain(self.content(row), start) for row, start in zip(self.rows, starts, strict=True)]
        return float((self.attend(*starts) - torch.cat(told)).abs().max()) if told else 0.0

    def decoded_off(self) -> float:
        return self.off(*(self.committed(row) - 1 for row in self.rows))


# ---- right tables


@DEVICES
@SIZES
def test_every_row_reads_its_own_over_a_random_run(page_size: int, device: str) -> None:
    """400 calls at random, refusals among them. After each the witness is exact, and a prefill behind a random prefix
    and a decode, of all rows at once, are as plain attention over K and V kept by request; the rest is NaN."""
    draw, engine, done = Random(page_size), Engine(page_size, device), dict[str, int]()
    for _ in range(400):
        try:
            kind = one_call(engine, draw)
        except OutOfRoom:
            kind = "refused"
        done[kind] = done.get(kind, 0) + 1
        engine.poison()
        engine.look()
        assert engine.decoded_off() < CLOSE
        assert engine.off(*(draw.randrange(engine.committed(row)) for row in engine.rows)) < CLOSE
    assert set(done) == {*CALLS, "matched", "merged", "refused"}, done


CALLS = ("start", "extend", "decode", "checkpoint", "draft", "cut", "release", "evict")


def one_call(engine: Engine, draw: Random) -> str:
    """A call of the kind drawn, if one is in order, else a start. Its kind, or what is special about it."""
    ledger, kind = engine.ledger, draw.choice(CALLS)
    chosen = draw.sample(engine.rows, draw.randint(1, len(engine.rows))) if engine.rows else []
    first, has = next(iter(chosen), 0), {row: engine.committed(row) for row in chosen}
    behind = [row for row in chosen if has[row] < len(engine.tokens[row])]
    caught_up = [row for row in chosen if has[row] == len(engine.tokens[row]) == ledger.allocated_len[row] < WIDTH]
    if kind == "extend" and behind:
        engine.extend(behind, [draw.randint(has[row] + 1, len(engine.tokens[row])) for row in behind])
    elif kind == "decode" and caught_up:
        engine.decode(caught_up, draw.randrange(2))
    elif kind == "draft" and caught_up:
        engine.reserve(caught_up[0], draw.randint(1, 6))
        count = draw.randint(1, len(engine.drafts[caught_up[0]]))  # the others stay reserved until a cut
        engine.commit(caught_up[0], [draw.randrange(2) for _ in range(count)])
    elif kind == "checkpoint" and chosen:
        uptos = [draw.choice([engine.committed(row), draw.randint(1, engine.committed(row))]) for row in engine.rows]
        return "merged" if sum(map(engine.checkpoint, engine.rows, uptos)) else kind
    elif kind == "cut" and chosen:
        length = draw.randint(max(1, int(ledger.protected_len[first])), has[first])
        engine.cut(first, length, [draw.randrange(2)] * min(draw.choice([0, 1, 4]), WIDTH - length))
    elif kind == "release" and chosen:
        engine.release(chosen[:2])
    elif kind == "evict" and ledger.cache.evictable:
        ledger.evict(draw.randint(1, 2))
    else:
        size = ledger.plan.page_size
        lengths = draw.choices([5, 21, 33, size + 1, 2 * size, 2 * size + 1], k=draw.choice([1, 2, 2]))
        stem = draw.randrange(4)
        prompts = [[stem] * length for length in lengths]  # both begin alike: what they compute is a duplicate
        started = engine.start(*prompts, upto=draw.choice([5, WIDTH, WIDTH]))
        return "matched" if ledger.protected_len[started].any() else "start"
    return kind


# ---- wrong tables: what must be seen, and what a decode cannot see


def two_rows(page_size: int, device: str) -> Engine:
    """Row 1 has 20 different tokens, row 2 30 others; nothing is shared."""
    engine = Engine(page_size, device, pages=64)
    assert engine.start(list(range(20)), list(range(50, 80))) == [1, 2]
    engine.poison()
    engine.look()
    assert engine.off(0, 0) < CLOSE
    return engine


@DEVICES
@SIZES
def test_a_foreign_entry_is_seen(page_size: int, device: str) -> None:
    """Row 1 lists at position 7 what row 2 has at 11: the witness names it, prefill and decode are far off."""
    engine = two_rows(page_size, device)
    table = engine.ledger.tensors.req_to_token
    slot = int(table[2, 11])
    table[1, 7] = slot
    with pytest.raises(WrongContent) as raised:
        engine.look()
    found = raised.value
    assert (found.row, found.position, found.slot, found.page) == (1, 7, slot, slot // page_size)
    assert (found.found, found.expected) == (engine.content(2)[11], engine.content(1)[7])
    page = slot // page_size
    says = f"row 1, position 7: slot {slot} of page {page} holds {found.found}, expected {found.expected}"
    assert str(found) == says
    assert engine.off(0, 0) > APART and engine.decoded_off() > APART


@DEVICES
@SIZES
def test_two_swapped_entries_are_seen_but_not_by_a_decode(page_size: int, device: str) -> None:
    """Positions 3 and 9 of row 2 change places. A decode adds up all of a row, in whatever order it is listed: where a
    position is, is inside K. It cannot see this; the witness does, and so does a prefill, whose positions 3 to 8 look
    at what comes after them. That is why the witness is what always runs."""
    engine = two_rows(page_size, device)
    row = engine.ledger.tensors.req_to_token[2]
    row[[3, 9]] = row[[9, 3]]
    with pytest.raises(WrongContent, match="row 2, position 3: slot"):
        engine.look()
    assert engine.off(0, 0) > APART
    assert engine.decoded_off() < CLOSE


@DEVICES
@SIZES
def test_an_entry_that_is_nobodys_is_seen(page_size: int, device: str) -> None:
    """What nobody holds is NaN: a free page's slot, the padding slot 0, a slot behind the row's own length."""
    for slot in (60 * page_size, 0):
        engine = two_rows(page_size, device)
        engine.ledger.tensors.req_to_token[1, 7] = slot
        with pytest.raises(WrongContent, match=f"row 1, position 7: slot {slot} of .* holds {NOBODYS}, expected "):
            engine.look()
        assert np.isnan(engine.off(0, 0)) and np.isnan(engine.decoded_off())
        right = plain(engine.content(2), 29)
        assert (engine.attend(19, 29)[1:] - right).abs().max() < CLOSE  # row 2, in one batch with it, is as it was


@DEVICES
@SIZES
@pytest.mark.parametrize("slot", [-5, 2**31 - 1])
def test_a_slot_that_is_none_is_named(page_size: int, device: str, slot: int) -> None:
    """Below the pool, where an index of torch would count from its end, and beyond it. On a CPU attention refuses the
    one beyond; asked of CUDA that would stop the process."""
    engine = two_rows(page_size, device)
    engine.ledger.tensors.req_to_token[1, 7] = slot
    with pytest.raises(WrongContent, match=f"row 1, position 7: slot {slot} of page .* holds nothing: the pool ends"):
        engine.look()


@DEVICES
@SIZES
def test_what_stands_behind_a_row_is_not_followed(page_size: int, device: str) -> None:
    """Rows of 20 and of 30 in one batch; behind their lengths the table lists what no pool has, and slot 0 is NaN."""
    engine = two_rows(page_size, device)
    table = engine.ledger.tensors.req_to_token
    table[1, 20:] = 2**31 - 1
    table[2, 30:] = -7
    assert engine.keys[0].isnan().all() and engine.values[0].isnan().all()
    engine.look()
    assert engine.off(0, 0) < CLOSE and engine.off(3, 29) < CLOSE and engine.decoded_off() < CLOSE
    read = gather(engine.ledger.tensors, engine.witness, [2, 1], [30, 20]).tolist()
    assert read == [engine.content(2), engine.content(1) + [0] * 10]


# ---- use


def test_a_token_is_seen_where_it_stands() -> None:
    """By hand, one head of one number: V is 1, 2, 3, 4 in slots 1 to 4 and all K are alike, so each sees the mean of
    what is before it and itself: 1, 1.5, 2, 2.5."""
    ledger = Ledger(World(2, 4, 4, 1))
    grant = ledger.extend([0], [4], [ledger.admit(np.zeros(0, np.int32))])
    assert grant.out_cache_loc.tolist() == [1, 2, 3, 4]
    keys, values = torch.ones(5, 1, 1), torch.arange(5.0).view(5, 1, 1)
    out = attention(ledger.tensors, keys, values, torch.ones(4, 1, 1), [1], [0], [4])
    assert out.flatten().tolist() == pytest.approx([1, 1.5, 2, 2.5])
    behind = attention(ledger.tensors, keys, values, torch.ones(2, 1, 1), [1], [2], [4])
    assert behind.flatten().tolist() == pytest.approx([2, 2.5])
    check_content(ledger.tensors, torch.arange(5), [1], [[1, 2, 3, 4]])


def test_grouped_queries_share_keys_and_values() -> None:
    """Six heads ask two of K and V: the first three what the first of two would, the others what the second would."""
    engine = two_rows(4, "cpu")
    content = engine.content(1)[:20]
    asked = torch.randn(20, 6, DIM, generator=_dice)
    out = attention(engine.ledger.tensors, engine.keys, engine.values, asked, [1], [0], [20])
    scores = torch.einsum("qhd,khd->hqk", asked.double(), KEYS[content].double().repeat_interleave(3, 1)) / DIM**0.5
    weights = scores.masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf).softmax(-1)
    wanted = torch.einsum("hqk,khd->qhd", weights, VALUES[content].double().repeat_interleave(3, 1))
    assert (out - wanted).abs().max() < CLOSE


def test_nothing_is_asked_of_nobody() -> None:
    tensors, pool = Tensors(1, Plan(2, 4), "cpu"), torch.zeros(4, HEADS, DIM)
    assert attention(tensors, pool, pool, pool[:0], [], [], []).shape == (0, HEADS, DIM)
    assert gather(tensors, pool, [], []).shape == (0, 0, HEADS, DIM)
    assert gather(tensors, pool, [1], [0]).shape == (1, 0, HEADS, DIM)
    check_content(tensors, torch.zeros(4, dtype=torch.int64), [], [])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t, p: gather(t, p, [0], [1]), "row 0: expected one from 1 to 2"),
        (lambda t, p: gather(t, p, [3], [1]), "row 3: expected one from 1 to 2"),
        (lambda t, p: gather(t, p, [2], [5]), "row 2: expected a length from 0 to 4, not 5"),
        (lambda t, p: gather(t, p, [2], [-1]), "row 2: expected a length from 0 to 4, not -1"),
        (lambda t, p: gather(t, p, [1, 2], [1]), "expected a length for each row"),
        (lambda t, p: check_content(t, p, [1], [[0] * 5]), "row 1: expected a length from 0 to 4, not 5"),
        (lambda t, p: check_content(t, p, [1, 2], [[0]]), "expected a length for each row"),
        (lambda t, p: attention(t, p, p, p[:1], [1], [2], [2]), r"starts \[2\]: expected one for each row, from 0, b"),
        (lambda t, p: attention(t, p, p, p[:1], [1], [-1], [2]), r"starts \[-1\]: expected one for each row"),
        (lambda t, p: attention(t, p, p, p[:1], [1], [0, 1], [2]), r"starts \[0, 1\]: expected one for each row"),
        (lambda t, p: attention(t, p, p, p[:1], [1], [0], [2]), "1 queries: expected 2, one for each position"),
        (lambda t, p: attention(t, p.half(), p, p[:1], [1], [0], [1]), "of torch.float16, torch.float32, torch"),
        (lambda t, p: attention(t, p.int(), p.int(), p[:1].int(), [1], [0], [1]), "expected one of floats"),
        (lambda t, p: attention(t, p, p[:2], p[:1], [1], [0], [1]), r"of shapes \[\(4, 2, 8\), \(2, 2, 8\), "),
        (lambda t, p: attention(t, p, p, p[0], [1], [0], [1]), "twice, 3 dimensions"),
        (lambda t, p: attention(t, p, p, p[:1, :, :4], [1], [0], [1]), "queries of 2 heads of 4: expected 8 wide"),
        (lambda t, p: attention(t, p, p, p[:1, :1], [1], [0], [1]), "queries of 1 heads of 8: .* of 2 heads"),
    ],
)
def test_what_is_out_of_order_is_named(call: Callable[..., Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call(Tensors(2, Plan(2, 4), "cpu"), torch.zeros(4, HEADS, DIM))


def test_lengths_are_whole_numbers() -> None:
    with pytest.raises(TypeError, match="Cannot cast"):
        gather(Tensors(2, Plan(2, 4), "cpu"), torch.zeros(4), [1], [1.5])


def test_attention_does_not_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = two_rows(4, "cpu")
    asked = QUERIES[[*engine.content(1), engine.content(2)[29]]]
    for name in WAITING:
        monkeypatch.setattr(torch.Tensor, name, waits)
    operators(attention, engine.ledger.tensors, engine.keys, engine.values, asked, [1, 2], [0, 29], [20, 30])
