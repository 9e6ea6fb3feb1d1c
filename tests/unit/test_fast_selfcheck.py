"""The selfcheck of fast: silent over random runs, and loud, with the page and the row, for each law broken by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
import numpy as np

from kvledger.fast.backend import make
from kvledger.fast.device import DeviceLedger
from kvledger.fast.ledger import Ledger
from kvledger.fast.pages import TAKEN
from kvledger.fast.prefix_cache import Node
from kvledger.fast.selfcheck import Inconsistent, selfcheck
from kvledger.spec.actions import Admit, Checkpoint, Extend, Submit
from kvledger.spec.world import World
from kvledger.tests.unit.fast_calls import run

WORLDS = {1: World(4, 9, 20, 1), 3: World(4, 10, 12, 3), 4: World(4, 30, 24, 4), 16: World(4, 40, 9, 16)}


@pytest.mark.parametrize("page_size", WORLDS)
def test_nothing_is_wrong_in_random_runs(page_size: int) -> None:
    """400 calls each, lawful and not: all is asked after every one, and once without the prefixes that wait."""
    for seed in range(4):
        selfcheck(run(WORLDS[page_size], seed, 400).ledger)


def busy() -> Ledger:
    """Pages of 4, 8 in all, 3 rows of 5 lines (18 columns). Row 1 has pages 1, 2, 3; 1 and 2 are cached, as one node,
    and row 2 reads them before its own 4. Row 3 is free, and so are pages 5, 6, 7, 8."""
    ledger, prompt = Ledger(World(rows=3, context_len=18, pages=8, page_size=4)), np.arange(12, dtype=np.int32)
    ledger.extend([0], [10], [ledger.admit(prompt[:0])])
    ledger.checkpoint(1, prompt[:10], 10)
    ledger.extend([0], [11], [ledger.admit(prompt[:10])])
    return ledger


def node_of(ledger: Ledger) -> Node:
    return next(ledger.cache.nodes())


def leaf_of(ledger: Ledger) -> Node:
    """A second node, page 5, that nobody reads: its key goes on behind that of the first."""
    tokens = np.arange(12, dtype=np.int32)
    ledger.cache.insert(tokens.tobytes(), None, np.array([1, 2, *ledger.pages.take(1)], np.int32))
    return list(ledger.cache.nodes())[1]


def put(name: str, row: int, value: int) -> Callable[[Ledger], object]:
    """A length of a row."""
    return lambda ledger: getattr(ledger, name).__setitem__(row, value)


def rename(node: Node) -> None:
    assert node.parent is not None
    [(namespace, first)] = node.parent.children
    del node.parent.children[namespace, first]
    node.parent.children[namespace, first[::-1]] = node


def twin(ledger: Ledger) -> Node:
    """The node is replaced by another one that says the same; who held on to the first still does."""
    node = node_of(ledger)
    [key] = ledger.cache.root.children
    ledger.cache.root.children[key] = replace(node)
    return ledger.cache.root.children[key]


def locked_twin(ledger: Ledger) -> None:
    """The rows have the new one, the queue the old one."""
    ledger.locked[1] = ledger.locked[2] = twin(ledger)


def other_namespace(ledger: Ledger) -> None:
    leaf = leaf_of(ledger)
    assert leaf.parent is not None
    leaf.parent.children = {("other", key): child for (_, key), child in leaf.parent.children.items()}
    leaf.namespace = "other"


def elsewhere(ledger: Ledger) -> None:
    leaf = leaf_of(ledger)
    leaf.parent = ledger.cache.root


def unqueue(ledger: Ledger) -> None:
    leaf = leaf_of(ledger)
    ledger.cache.queue = [entry for entry in ledger.cache.queue if entry[1] is not leaf]
    leaf.queued = False


def lock_below(ledger: Ledger) -> None:
    """The leaf has 3 locks, its parent the 2 of the rows."""
    leaf_of(ledger).lock_ref = 3
    ledger.cache.evictable, ledger.cache.protected = 0, 3


def keep_a_lock(ledger: Ledger) -> None:
    """A lock of a row that was released in another way."""
    ledger.locked[3] = node_of(ledger)


def queue_again(ledger: Ledger) -> None:
    leaf = leaf_of(ledger)
    ledger.cache.queue.append((leaf.tick, leaf))


def counting(ledger: Ledger) -> Any:
    """Rows 1 and 2 have decoded: 11 and 12 tokens. Row 2 is at an edge."""
    ledger.decode(np.array([1, 2]))
    return ledger


def free_of(ledger: Ledger, row: int) -> None:
    """The row is released, and the batch of before is there again."""
    stride = ledger.stride
    ledger.release([row])
    ledger.stride = stride
    assert stride is not None
    stride.taken = 0


SPOILT: dict[str, tuple[Callable[[Ledger], object], str]] = {
    "head out of range": (lambda led: setattr(led.pages, "head", 9),
        "no page, no row: expected the head of free pages in 0..8, found 9"),
    "page 0 free": (lambda led: led.pages.stack.__setitem__(5, 0), "page 0, no row: expected no free page but 1..8"),
    "page past the end free": (lambda led: led.pages.stack.__setitem__(5, 9),
        "page 9, no row: expected no free page but"),
    "page free twice": (lambda led: led.pages.stack.__setitem__(5, 5),
        "page 5, no row: expected page 5 free once, found"),
    "row's page free": (lambda led: led.pages.stack.__setitem__(5, 3),
        "page 3, row 1: expected page 3 free at 5, as the stack says, found taken"),
    "place wrong": (lambda led: led.pages.place.__setitem__(7, 4), "page 7, no row: expected page 7 free at 6"),
    "place taken": (lambda led: led.pages.place.__setitem__(8, TAKEN), "page 8, no row: expected page 8 free at 7"),
    "place free": (lambda led: led.pages.place.__setitem__(4, 3),
        "page 4, row 2: expected page 4 taken, as the stack says, found free at 3"),
    "row 0 free": (lambda led: led.rows.stack.__setitem__(2, 0), "no page, row 0: expected no free row but 1..3"),
    "held row free": (lambda led: led.rows.stack.__setitem__(2, 2), "page 1, row 2: expected row 2 free at 2"),
    "protected in part": (put("protected_len", 1, 7),
        "page 3, row 1: expected 0 <= protected <= committed <= allocated <= 18, protected in pages of 4, "
        "found 7, 10, 10"),
    "protected below 0": (put("protected_len", 1, -4), "page 3, row 1: expected 0 <= protected"),
    "committed below protected": (put("committed_len", 2, 5), "page 2, row 2: expected 0 <= protected"),
    "allocated below committed": (put("allocated_len", 2, 9), "page 4, row 2: expected 0 <= protected"),
    "past the row": (put("allocated_len", 1, 19), "page 3, row 1: expected 0 <= protected"),
    "page 0 listed": (lambda led: led.mirror.__setitem__(12, 0),
        "page 0, row 2: expected a page of 1..8 at line 2 of the row"),
    "row 0 lists": (lambda led: led.mirror.__setitem__(1, 6), "page 6, row 0: expected row 0 never held"),
    "lost": (lambda led: led.pages.take(1),
        "page 5, no row: expected free, one row's own, or in the cache: one of these, found nobody's"),
    "own twice": (lambda led: led.mirror.__setitem__(12, 3),
        "page 3, row 1: expected free, one row's own, or in the cache: one of these, found row 1's own and "
        "row 2's own"),
    "own and cached": (lambda led: led.mirror.__setitem__(7, 2),
        "page 2, row 1: expected free, one row's own, or in the cache: one of these, found in the cache and "
        "row 1's own"),
    "line lost": (put("allocated_len", 1, 13), "page 0, row 1: expected a page of 1..8 at line 3"),
    "other prefix": (lambda led: led.mirror.__setitem__(11, 1),
        "page 1, row 2: expected page 2 of the path that it reads, at line 1, found page 1"),
    "table": (lambda led: led.tensors.req_to_token.__setitem__((2, 9), 6),
        "page 4, row 2: expected slot 17 in column 9 of the table, found slot 6"),
    "line not complete": (lambda led: led.tensors.req_to_token.__setitem__((2, 11), 0),
        "page 4, row 2: expected slot 19 in column 11"),
    "no key": (lambda led: setattr(node_of(led), "key", b""),
        "page 1, row 1: expected a key of 2 pages, one at least, found 0 bytes"),
    "short key": (lambda led: setattr(node_of(led), "key", node_of(led).key[:-4]),
        "page 1, row 1: expected a key of 2 pages"),
    "child key": (lambda led: rename(node_of(led)), "page 1, row 1: expected a child under its own first page"),
    "namespace": (other_namespace, "page 5, no row: expected the namespace of its parent, found 'other'"),
    "parent": (elsewhere, "page 5, no row: expected a node that knows its parent"),
    "root locked": (lambda led: setattr(led.cache.root, "lock_ref", 2),
        "no page, no row: expected a root with no pages, one lock"),
    "page 0 cached": (lambda led: leaf_of(led).pages.__setitem__(0, 0),
        "page 0, no row: expected a cached page of 1..8"),
    "lock count": (lambda led: setattr(node_of(led), "lock_ref", 1),
        "page 1, row 1: expected 2 locks, for as many read it, found 1 locks"),
    "a lock too many": (lambda led: setattr(node_of(led), "lock_ref", 3),
        "page 1, row 1: expected 2 locks, for as many read it, found 3 locks"),
    "locks below": (lock_below, "page 5, no row: expected 0 locks, for as many read it, found 3 locks"),
    "lock of a free row": (keep_a_lock, "page 1, row 3: expected no lock of a row that is free"),
    "no lock": (lambda led: led.locked.__setitem__(2, led.cache.root),
        "page 2, row 2: expected a lock on 8 tokens, its protected_len, found on 0"),
    "lock on what left": (twin, "page 1, row 1: expected a lock on a node of the tree, found one that left it"),
    "queue of what left": (locked_twin, "page 1, row 1: expected a queue of nodes of the tree, found one that left it"),
    "evictable": (lambda led: setattr(led.cache, "evictable", 2),
        "page 1, row 1: expected 0 evictable, 2 protected, found 2 evictable, 2 protected"),
    "protected": (lambda led: setattr(led.cache, "protected", 3),
        "page 1, row 1: expected 0 evictable, 2 protected, found 0"),
    "not queued": (unqueue, "page 5, no row: expected an unlocked leaf in the queue once, found 0 times"),
    "queued says no": (lambda led: setattr(leaf_of(led), "queued", False),
        "page 5, no row: expected an unlocked leaf in the queue once"),
    "queued says no, inside": (lambda led: setattr(node_of(led), "queued", False),
        "page 1, row 1: expected a node in the queue if it says so"),
    "queued twice": (queue_again, "page 5, no row: expected an unlocked leaf in the queue once, found 2 times"),
    "page past the end held": (lambda led: led.pages.place.__setitem__(9, TAKEN),
        "page 9, no row: expected page 9 never held, found held"),
    "batch with drafts": (lambda led: counting(led).allocated_len.__setitem__(1, 12),
        "page 3, row 1: expected committed_len 11 of a batch that decodes, found 12"),
    "batch's slot": (lambda led: counting(led).stride.slots.__setitem__(0, 5),
        "page 3, row 1: expected slot 15 of a batch that decodes, found 5"),
    "batch's line": (lambda led: counting(led).stride.lines.__setitem__(0, 9),
        "page 3, row 1: expected next line 8 of a batch that decodes, found 9"),
    "batch's edge": (lambda led: setattr(counting(led).stride, "phase", 2),
        "page 3, row 1: expected edge False of a batch that decodes, found True"),
    "batch's steps": (lambda led: setattr(counting(led).stride, "steps", 7),
        "page 4, row 2: expected steps 6 of a batch that decodes, found 7"),
    "batch's rows": (lambda led: free_of(counting(led), 1),
        "row 1: expected row held True of a batch that decodes, found False"),
    "queued too late": (lambda led: setattr(leaf_of(led), "tick", 0),
        "page 5, no row: expected a heap, by a use no later than the last"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_each_law_is_missed_when_it_is_broken(name: str) -> None:
    """The text says the page and the row, what was expected, and what was found."""
    ledger = busy()
    selfcheck(ledger)
    spoil, says = SPOILT[name]
    spoil(ledger)
    with pytest.raises(Inconsistent) as raised:
        selfcheck(ledger)
    assert says in str(raised.value)


def test_a_lock_that_no_row_has_is_that_of_who_was_admitted() -> None:
    """Once deferred it may not be there any more."""
    ledger = busy()
    waits = ledger.admit(np.arange(9, dtype=np.int32))
    selfcheck(ledger)
    ledger.waiting.clear()
    with pytest.raises(Inconsistent, match="page 1, row 1: expected 2 locks, for as many read it, found 3 locks"):
        selfcheck(ledger)
    ledger.waiting[waits.node] = 1
    ledger.defer(waits)
    selfcheck(ledger)


def test_there_is_nothing_to_look_at_while_the_device_is_in_charge() -> None:
    """What is free is on the device then: the ledger's own books say that it is nobody's."""
    ledger = busy()
    device = DeviceLedger(ledger)
    device.take_over()
    with pytest.raises(ValueError, match="the device is in charge of the rows"):
        selfcheck(ledger)
    device.hand_back()
    selfcheck(ledger)


def test_a_view_is_shown_of_consistent_books_only() -> None:
    """Of three requests one runs, one is admitted, one waits; then page 3 is lost."""
    backend = make(World(rows=3, context_len=18, pages=8, page_size=4))
    for req in "abc":
        backend.do(Submit(req, tuple(range(9)), 0))
    backend.do(Extend((("a", 9, 1),)))
    backend.do(Checkpoint("a", 9))
    backend.do(Admit("b"))
    assert sorted(backend.view().cached or ()) == [1, 2]
    backend.ledger.mirror[backend.ledger.plan.width + 2] = 4
    with pytest.raises(Inconsistent, match=r"page 3, no row: .* found nobody's"):
        backend.view()
