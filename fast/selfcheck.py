"""Everything that must be true of a Ledger between two calls, gone over at once: for audits and tests, not for serving.

    selfcheck(ledger)       # nothing, or Inconsistent, whose text names the page and the row

The arithmetic is written out again here, for a check that asks plan would agree with whatever plan says. It costs a few
vector operations over the pages in use, a walk over the tree, and on CUDA one copy of the table's lines to the host.
Laws, in this order; each may rely on those before it:

    free      stack, head and place of a FreeStack say the same; 0 is not free and not held
    lengths   of a held row: 0 <= protected <= committed <= allocated <= context_len, protected in whole pages
    tree      whole pages on every edge, each child under its own first page, the namespace of its parent
    owners    a page is free, or one row's own, or in the cache: exactly one of these
    shared    below protected_len a row lists the pages of the path that it reads; a free row reads none
    table     a line on the device lists all slots of the page that the mirror says
    locks     a node is read by as many rows and admitted prefixes as have locked it or a node below; sums add up
    queue     every unlocked leaf is queued, no node twice, by a use that is not later than its last
    batch     what a batch that decodes counts on: its rows' next slots and lines, and who of them is at an edge
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch

from kvledger.fast.ledger import Ledger
from kvledger.fast.pages import TAKEN, FreeStack
from kvledger.fast.plan import Ints, Pages
from kvledger.fast.prefix_cache import NO_PAGES, Node


class Inconsistent(Exception):
    """The books do not agree. page, row: about which; None where there is none. The text says them, what was expected
    and what was found."""

    def __init__(self, page: int | None, row: int | None, expected: str, found: str) -> None:
        self.page, self.row = page, row
        about = ", ".join(f"no {what}" if number is None else f"{what} {number}"
                          for what, number in (("page", page), ("row", row)))  # fmt: skip
        super().__init__(f"{about}: expected {expected}, found {found}")


def selfcheck(ledger: Ledger) -> None:
    """Raises Inconsistent for the first law that does not hold; ValueError while the device is in charge."""
    if ledger.lent:
        raise ValueError("the device is in charge of the rows: expected that it had handed back")
    for inconsistent in _Check(ledger).laws():
        raise inconsistent


class _Check:
    """One look. held: the rows, int64. Of every line that these list: lines its number, rows whose it is, ordinals
    its place there, pages its page. nodes: of the tree."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.size, self.width = ledger.world.page_size, -(-ledger.world.context_len // ledger.world.page_size)
        self.held: Ints = np.flatnonzero(ledger.rows.place[1:-1] == TAKEN) + 1

    def laws(self) -> Iterator[Inconsistent]:
        """All that is wrong. Only the first is sure to be: the others may follow from it."""
        yield from self.of_stack(self.ledger.rows, lambda row: (self.page_at(row, 0), row))
        yield from self.of_lengths()
        self.list_pages()
        yield from self.of_stack(self.ledger.pages, lambda page: (page, self.row_with(page)))
        yield from self.of_listed()
        yield from self.of_tree()
        yield from self.of_owners()
        yield from self.of_shared()
        yield from self.of_table()
        yield from self.of_locks()
        yield from self.of_queue()
        yield from self.of_batch()

    # ---- who is named

    def page_at(self, row: int, position: int) -> int | None:
        """The page that a row lists for a position, or for the last one that it has a line for."""
        if not 0 < row <= self.ledger.world.rows:
            return None
        return int(self.ledger.mirror[row * self.width + min(max(position, 0) // self.size, self.width - 1)])

    def row_with(self, page: int) -> int | None:
        """The first row that lists a page."""
        return next(iter(self.rows[self.pages == page].tolist()), None)

    def named(self, node: Node) -> tuple[int | None, int | None]:
        """A node's first page, and the first row that lists it."""
        page = next(iter(node.pages.tolist()), None)
        return page, None if page is None else self.row_with(page)

    # ---- the laws

    def of_stack(
        self, book: FreeStack, named: Callable[[int], tuple[int | None, int | None]]
    ) -> Iterator[Inconsistent]:
        """Free. named: the page and the row to name for one of its numbers."""
        count, what = len(book.stack), book.what
        if not 0 <= book.head <= count:
            yield Inconsistent(None, None, f"the head of free {what}s in 0..{count}", str(book.head))
        free = book.stack[book.head :]
        for number in _first(free, (free < 1) | (free > count)):
            yield Inconsistent(*named(number), f"no free {what} but 1..{count}", f"{what} {number} free")
        place = np.full(count + 2, TAKEN, book.place.dtype)
        place[free] = there = np.arange(book.head, count)
        for number in _first(free, place[free] != there):
            yield Inconsistent(*named(number), f"{what} {number} free once", "free more than once")
        for number in _first(np.arange(1, count + 1), book.place[1:-1] != place[1:-1]):
            says = [f"free at {at}" if at != TAKEN else "taken" for at in (place[number], book.place[number])]
            yield Inconsistent(*named(number), f"{what} {number} {says[0]}, as the stack says", says[1])
        for number in _first(np.array([0, count + 1]), book.place[[0, -1]] == TAKEN):
            yield Inconsistent(*named(number), f"{what} {number} never held", "held")

    def of_lengths(self) -> Iterator[Inconsistent]:
        """Lengths."""
        protected, committed, allocated = self.lengths()
        ladder = (protected >= 0) & (protected <= committed) & (committed <= allocated)
        wrong = ~ladder | (allocated > self.ledger.world.context_len) | (protected % self.size != 0)
        for row in _first(self.held, wrong):
            three = [int(each[self.held == row][0]) for each in (protected, committed, allocated)]
            most = self.ledger.world.context_len
            yield Inconsistent(
                self.page_at(row, three[1]), row,
                f"0 <= protected <= committed <= allocated <= {most}, protected in pages of {self.size}",
                "{}, {}, {}".format(*three),
            )  # fmt: skip

    def lengths(self) -> tuple[Ints, Ints, Ints]:
        """protected_len, committed_len, allocated_len of the rows that are held."""
        ledger = self.ledger
        return ledger.protected_len[self.held], ledger.committed_len[self.held], ledger.allocated_len[self.held]

    def list_pages(self) -> None:
        """What the held rows list."""
        _, _, allocated = self.lengths()
        counts = -(-allocated // self.size)
        self.rows = np.repeat(self.held, counts)
        self.ordinals = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        self.lines = self.rows * self.width + self.ordinals
        self.pages: Pages = self.ledger.mirror[self.lines]

    def of_listed(self) -> Iterator[Inconsistent]:
        """No row lists what is no page; row 0 lists nothing."""
        count = self.ledger.world.pages
        for at in _first(np.arange(len(self.pages)), (self.pages < 1) | (self.pages > count)):
            page, row, ordinal = int(self.pages[at]), int(self.rows[at]), int(self.ordinals[at])
            yield Inconsistent(page, row, f"a page of 1..{count} at line {ordinal} of the row", f"page {page}")
        for page in _first(self.ledger.mirror[: self.width], self.ledger.mirror[: self.width] != 0):
            yield Inconsistent(page, 0, "row 0 never held", f"it lists page {page}")

    def of_tree(self) -> Iterator[Inconsistent]:
        """Tree."""
        cache, count = self.ledger.cache, self.ledger.world.pages
        self.nodes: list[Node] = []
        self.root, ahead = cache.root, [cache.root]
        if len(self.root.pages) or self.root.lock_ref != 1 or self.root.parent is not None:
            yield Inconsistent(*self.named(self.root), "a root with no pages, one lock and no parent", "another one")
        while ahead:
            parent = ahead.pop()
            for (namespace, first), node in parent.children.items():
                length, size = len(node.key), cache.page_bytes
                if node.parent is not parent:
                    yield Inconsistent(*self.named(node), "a node that knows its parent", "another one")
                if length != len(node.pages) * size or not length:
                    pages = len(node.pages)
                    yield Inconsistent(*self.named(node), f"a key of {pages} pages, one at least", f"{length} bytes")
                if (namespace, first) != (node.namespace, node.key[:size]):
                    yield Inconsistent(*self.named(node), "a child under its own first page", "under another one")
                if parent is not self.root and node.namespace != parent.namespace:
                    yield Inconsistent(*self.named(node), "the namespace of its parent", repr(node.namespace))
                self.nodes.append(node)
                ahead.append(node)
        self.cached = np.concatenate([NO_PAGES, *(node.pages for node in self.nodes)])
        for page in _first(self.cached, (self.cached < 1) | (self.cached > count)):
            yield Inconsistent(page, self.row_with(page), f"a cached page of 1..{count}", f"page {page}")

    def of_owners(self) -> Iterator[Inconsistent]:
        """Owners."""
        ledger = self.ledger
        own = self.ordinals >= ledger.protected_len[self.rows] // self.size
        owning, free, count = self.pages[own], ledger.pages.stack[ledger.pages.head :], ledger.world.pages + 1
        owners = np.bincount(np.concatenate([owning, free, self.cached]), minlength=count)
        for page in _first(np.arange(1, count), owners[1:] != 1):
            rows = self.rows[own][owning == page].tolist()
            found = ["free"] * int((free == page).sum()) + ["in the cache"] * int((self.cached == page).sum())
            found += [f"row {row}'s own" for row in rows]
            row = rows[0] if rows else self.row_with(page)
            expected = "free, one row's own, or in the cache: one of these"
            yield Inconsistent(page, row, expected, " and ".join(found) or "nobody's")

    def of_shared(self) -> Iterator[Inconsistent]:
        """Shared."""
        held = set(self.held.tolist())
        for row, node in enumerate(self.ledger.locked):
            if row not in held:
                if node is not self.root:
                    yield Inconsistent(self.named(node)[0], row, "no lock of a row that is free", "one")
                continue
            path = [NO_PAGES, *(each.pages for each in reversed(list(_path(node))))]
            law, length = np.concatenate(path), int(self.ledger.protected_len[row])
            if len(law) * self.size != length:
                page, tokens = self.page_at(row, length - 1), len(law) * self.size
                yield Inconsistent(page, row, f"a lock on {length} tokens, its protected_len", f"on {tokens}")
            listed = self.ledger.mirror[row * self.width : row * self.width + len(law)]
            for ordinal in _first(np.arange(len(law)), listed != law):
                page = int(listed[ordinal])
                yield Inconsistent(page, row, f"page {law[ordinal]} of the path that it reads, at line {ordinal}",
                                   f"page {page}")  # fmt: skip

    def of_table(self) -> Iterator[Inconsistent]:
        """Table."""
        device = self.ledger.tensors.lines
        there = device.index_select(0, torch.from_numpy(self.lines).to(device.device)).cpu().numpy()
        law = self.pages[:, None] * self.size + np.arange(self.size, dtype=np.int32)
        for at in _first(np.arange(len(law)), (there != law).any(axis=1)):
            column = int((there[at] != law[at]).argmax())
            where = f"slot {law[at, column]} in column {self.ordinals[at] * self.size + column} of the table"
            yield Inconsistent(int(self.pages[at]), int(self.rows[at]), where, f"slot {there[at, column]}")

    def of_locks(self) -> Iterator[Inconsistent]:
        """Locks."""
        cache, readers, reader = self.ledger.cache, Counter[Node](), dict[Node, int]()
        for row in self.held.tolist():
            for node in _path(self.ledger.locked[row]):
                readers[node] += 1
                reader.setdefault(node, row)
        for waited_for, count in self.ledger.waiting.items():
            readers.update(dict.fromkeys(_path(waited_for), count))
        inside = set(self.nodes)
        for node in readers:
            if node not in inside:
                page = self.named(node)[0]
                yield Inconsistent(page, reader.get(node), "a lock on a node of the tree", "one that left it")
        for node in self.nodes:
            page, row = int(node.pages[0]), reader.get(node)
            locks, law = node.lock_ref, readers[node]
            if locks != law:
                yield Inconsistent(page, row, f"{law} locks, for as many read it", f"{locks} locks")
            if node.parent is not self.root and node.parent is not None and node.parent.lock_ref < locks:
                above = node.parent.lock_ref
                yield Inconsistent(page, row, f"{locks} locks of its parent at least", f"{above} locks")
        sums = [sum(len(node.pages) for node in self.nodes if (node.lock_ref == 0) is free) for free in (True, False)]
        if sums != [cache.evictable, cache.protected]:
            expected, found = ("{} evictable, {} protected".format(*each)
                               for each in (sums, (cache.evictable, cache.protected)))  # fmt: skip
            last = self.nodes[-1] if self.nodes else self.root
            yield Inconsistent(*self.named(last), expected, found)

    def of_queue(self) -> Iterator[Inconsistent]:
        """Queue."""
        queued = Counter(node for _, node in self.ledger.cache.queue)
        inside = set(self.nodes)
        for node in queued:
            if node not in inside:
                yield Inconsistent(*self.named(node), "a queue of nodes of the tree", "one that left it")
        for node in self.nodes:
            times, leaf = queued[node], not node.children and node.lock_ref == 0
            if times > 1 or node.queued is not (times == 1) or (leaf and not times):
                expected = "an unlocked leaf in the queue once" if leaf else "a node in the queue if it says so"
                yield Inconsistent(*self.named(node), expected, f"{times} times, and queued is {node.queued}")
        for at, (tick, node) in enumerate(self.ledger.cache.queue):
            above = self.ledger.cache.queue[(at - 1) // 2][0] if at else tick
            if tick > node.tick or above > tick:
                yield Inconsistent(*self.named(node), "a heap, by a use no later than the last", f"tick {tick}")


    def of_batch(self) -> Iterator[Inconsistent]:
        """Batch."""
        ledger, stride, size = self.ledger, self.ledger.stride, self.size
        if stride is None or not len(stride.rows):
            return
        rows, begins = stride.rows, ledger.committed_len[stride.rows]
        last = ledger.mirror[rows * self.width + np.maximum(begins - 1, 0) // size]
        at_edge, lines = begins % size == 0, rows * self.width - -begins // size
        slots = last * np.int64(size) + begins % size
        full = ledger.world.context_len - begins
        edges, says = np.zeros_like(at_edge), stride.edges()
        edges[says] = True
        for what, wrong, law, found in (
            ("committed_len", begins != ledger.allocated_len[rows], begins, ledger.allocated_len[rows]),
            ("slot", ~at_edge & (stride.slots != slots), slots, stride.slots),
            ("next line", stride.lines != lines, lines, stride.lines),
            ("edge", at_edge != edges, at_edge, edges),
            ("steps", (full == full.min()) & (full != stride.steps), full, np.full(len(rows), stride.steps)),
            ("row held", ~np.isin(rows, self.held), np.ones_like(at_edge), np.zeros_like(at_edge)),
        ):
            for at in _first(np.arange(len(rows)), wrong):
                page, row = int(last[at]), int(rows[at])
                yield Inconsistent(page, row, f"{what} {law[at]} of a batch that decodes", str(found[at]))


def _path(node: Node) -> Iterator[Node]:
    """From a node up to the root, without it."""
    while node.parent is not None:
        yield node
        node = node.parent


def _first(numbers: Ints | Pages, wrong: npt.NDArray[np.bool_]) -> list[int]:
    """The first of these numbers of which that is true."""
    return numbers[wrong][:1].tolist() if wrong.any() else []
