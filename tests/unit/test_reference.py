"""The reference, a request's life and the cache: numbers counted by hand, and numbers observed on SGLang."""

from __future__ import annotations

from kvledger.reference.backend import Backend, make, make_chunk_cache
from kvledger.spec.actions import Abort, Checkpoint, Decode, Evict, Extend, Finish, Flush, Retract, Submit
from kvledger.spec.backend import Freed, RecordView, Refused, Totals
from kvledger.spec.world import World
from kvledger.tests.unit.by_hand import ok, start


def tokens_of(backend: Backend) -> tuple[int, ...]:
    """Totals in tokens: available, evictable, protected, private."""
    totals = backend.view().totals
    assert totals is not None
    return tuple(pages * backend.world.page_size for pages in totals)


def test_lifecycle_as_observed_on_sglang() -> None:
    """Every number was read off SGLang 0.5.23 (radix cache, 256 slots in pages of 4, 4 rows), step by step."""
    backend = make(World(rows=4, context_len=32, pages=64, page_size=4))
    prompt = "abcdefghijklmn"
    ok(backend, Submit("r1", tuple(prompt), "n"))
    first = ok(backend, Extend((("r1", 8, None),)))
    assert (first.rows, first.slots) == ([4], [list(range(4, 12))])
    assert tokens_of(backend) == (248, 0, 0, 8)
    ok(backend, Checkpoint("r1", 8))
    assert tokens_of(backend) == (248, 0, 8, 0)
    ok(backend, Extend((("r1", 14, "o"),)))
    assert tokens_of(backend) == (240, 0, 8, 8)
    ok(backend, Checkpoint("r1", 14))
    assert tokens_of(backend) == (240, 0, 12, 4)
    for token in "pqr":
        ok(backend, Decode((("r1", token),)))
    assert tokens_of(backend) == (236, 0, 12, 8)
    assert backend.view().records == {"r1": RecordView(4, 12, 17, 17)}
    assert backend.view().table == {"r1": list(range(4, 21))}
    done = ok(backend, Finish("r1", 17, True))
    assert (done.published, done.freed) == ({"r1": 16}, Freed(pages=(5,), rows=(4,)))
    assert tokens_of(backend) == (240, 16, 0, 0)

    shared = start(backend, "r2", prompt + "xyz")
    assert shared.matched == [list(range(4, 16))]
    assert tokens_of(backend) == (232, 4, 12, 8)
    assert backend.view().table == {"r2": [*range(4, 16), *range(20, 25)]}
    ok(backend, Retract("r2"))
    assert tokens_of(backend) == (240, 16, 0, 0)

    for twin in ("d1", "d2"):
        ok(backend, Submit(twin, tuple("AABBCCDD"), "n"))
    ok(backend, Extend((("d1", 8, "z"), ("d2", 8, "z"))))
    assert tokens_of(backend) == (224, 16, 0, 16)
    ok(backend, Finish("d1", 8, True))
    assert tokens_of(backend) == (224, 24, 0, 8)
    assert backend.view().table == {"d2": list(range(28, 36))}
    merged = ok(backend, Checkpoint("d2", 8))
    assert tokens_of(backend) == (232, 16, 8, 0)
    assert backend.view().table == {"d2": list(range(20, 28))}
    assert (merged.slots, merged.freed) == ([list(range(20, 28))], Freed(pages=(7, 8)))


def test_lifecycle_in_pages_of_one() -> None:
    """Slots come off the front of 1, 2, 3, ... and go to the end; rows come off the tail."""
    backend = make(World(rows=2, context_len=8, pages=6, page_size=1))
    answer = start(backend, "a", "ABC")
    assert (answer.rows, answer.matched, answer.slots) == ([2], [[]], [[1, 2, 3]])
    assert ok(backend, Decode((("a", "y"),))).slots == [[4]]
    done = ok(backend, Finish("a", 3, True))  # of four positions three are kept; free are now 5, 6, 4
    assert (done.published, done.freed) == ({"a": 3}, Freed(pages=(4,), rows=(2,)))
    answer = start(backend, "b", "ABC")  # one token is left to compute
    assert (answer.matched, answer.slots) == ([[1, 2]], [[5]])


def test_an_extend_first_fills_the_page_it_ended_in() -> None:
    """Position 2 stands at offset 2 of page 1 (slot 6); positions 4 to 6 need page 2 (slots 8 to 10)."""
    backend = make(World(rows=1, context_len=8, pages=4, page_size=4))
    ok(backend, Submit("a", tuple("ABCDEFG"), "n"))
    assert ok(backend, Extend((("a", 2, None),))).slots == [[4, 5]]
    assert ok(backend, Extend((("a", 7, "z"),))).slots == [[6, 7, 8, 9, 10]]
    assert ok(backend, Extend((("a", 8, "y"),))).slots == [[11]]  # caught up: the same as a decode
    assert backend.view().records == {"a": RecordView(1, 0, 8, 8)}


def test_checkpoint_frees_only_the_duplicates() -> None:
    """The cache has AB as page 1; b computed ABCD into pages 3 and 4. Page 3 goes, page 4 enters under page 1."""
    backend = make(World(rows=2, context_len=8, pages=6, page_size=2))
    start(backend, "a", "ABX")
    start(backend, "b", "ABCDE", match_limit=0)
    ok(backend, Checkpoint("a", 3))
    merged = ok(backend, Checkpoint("b", 5))
    assert (merged.slots, merged.published, merged.freed) == ([[2, 3, 8, 9]], {"b": 4}, Freed(pages=(3,)))
    view = backend.view()
    assert view.table is not None and view.table["b"] == [2, 3, 8, 9, 10]
    assert view.cached is not None and {page: cached.locks for page, cached in view.cached.items()} == {1: 2, 4: 1}


def test_finish_below_protected_takes_nothing_from_the_cache() -> None:
    """Pages 1 and 2 are the cache's when a ends with keep = 1: only page 3, still private, goes back."""
    backend = make(World(rows=1, context_len=8, pages=4, page_size=2))
    start(backend, "a", "ABCDE")
    ok(backend, Checkpoint("a", 5))
    done = ok(backend, Finish("a", 1, True))
    assert (done.published, done.freed) == ({}, Freed(pages=(3,), rows=(1,)))
    assert backend.view().totals == Totals(available=2, evictable=2, protected=0, private=0)


def test_finish_frees_its_own_duplicates() -> None:
    """Twins own pages 1, 2 and 3, 4. The first publishes page 1 and frees 2; the second frees both of its own."""
    backend = make(World(rows=2, context_len=8, pages=4, page_size=2))
    for twin in ("a", "b"):
        ok(backend, Submit(twin, tuple("ABC"), "n"))
    ok(backend, Extend((("a", 3, "z"), ("b", 3, "z"))))
    assert ok(backend, Finish("a", 3, True)).freed == Freed(pages=(2,), rows=(1,))
    assert ok(backend, Finish("b", 3, True)).freed == Freed(pages=(3, 4), rows=(2,))


def test_nothing_is_published_when_barred() -> None:
    """publish=False at submit or at finish, retract and abort: every page goes back."""
    backend = make(World(rows=1, context_len=4, pages=2, page_size=2))
    start(backend, "a", "ABC", publish=False)
    assert backend.do(Checkpoint("a", 2)) == Refused()
    assert ok(backend, Finish("a", 3, True)).freed == Freed(pages=(1, 2), rows=(1,))
    for end in (Finish("b", 3, False), Retract("b"), Abort("b")):
        if "b" in backend.reqs:
            ok(backend, Abort("b"))
        start(backend, "b", "ABC")
        answer = ok(backend, end)
        assert (answer.published, answer.freed) == ({}, Freed(pages=(1, 2), rows=(1,)))
    assert ok(backend, Flush()).evicted == frozenset()


def test_only_what_is_missing_is_evicted() -> None:
    """Pages 1, 2 to 3 and 4 to 5 are leaves, page 6 is free, and the call needs two: page 1, the oldest, suffices."""
    backend = make(World(rows=1, context_len=8, pages=6, page_size=2))
    for req, tokens in (("a", "AB"), ("b", "CDEF"), ("c", "GHIJ")):
        start(backend, req, tokens)
        ok(backend, Finish(req, len(tokens), True))
    assert start(backend, "d", "XYZ").evicted == {1}


def test_what_a_call_matches_it_does_not_evict() -> None:
    """The call needs two pages and page 4 is free. The older leaf is what it matches: the younger goes, and whole."""
    backend = make(World(rows=1, context_len=8, pages=4, page_size=2))
    for req, tokens in (("a", "AB"), ("b", "CDEF")):
        start(backend, req, tokens)
        ok(backend, Finish(req, len(tokens), True))
    answer = start(backend, "c", "ABXYZ")
    assert answer.matched == [[2, 3]]
    assert answer.evicted == {2, 3}


def test_evict_takes_whole_nodes_and_at_least_n() -> None:
    """The one leaf has two pages: asked for one, both go; then there is nothing to evict."""
    backend = make(World(rows=1, context_len=8, pages=4, page_size=2))
    start(backend, "a", "ABCDE")
    ok(backend, Finish("a", 5, True))
    assert backend.do(Evict(0)) == Refused()
    assert ok(backend, Evict(1)).evicted == {1, 2}
    assert backend.do(Evict(1)) == Refused()


def test_namespaces_share_nothing() -> None:
    """The same tokens under "m" find nothing of "n", also deep in the tree; two keys, two pages."""
    backend = make(World(rows=1, context_len=8, pages=8, page_size=2))
    start(backend, "a", "ABCDE")
    ok(backend, Finish("a", 5, True))
    assert start(backend, "b", "ABCDE", namespace="m").matched == [[]]
    ok(backend, Finish("b", 5, True))
    cached = backend.view().cached
    assert cached is not None and len({shown.key for shown in cached.values()}) == len(cached) == 4
    assert start(backend, "c", "ABCDE").matched == [[2, 3, 4, 5]]


def test_flush_waits_for_who_runs() -> None:
    """Page 1 is a's prefix, page 2 its rest; when a has ended, page 1 is cached and goes."""
    backend = make(World(rows=1, context_len=8, pages=4, page_size=2))
    start(backend, "a", "ABC")
    ok(backend, Checkpoint("a", 3))
    assert backend.do(Flush()) == Refused()
    ok(backend, Finish("a", 3, True))
    assert ok(backend, Flush()).evicted == {1}
    assert backend.view().totals == Totals(4, 0, 0, 0)


def test_chunk_cache_matches_and_keeps_nothing() -> None:
    """Without a tree the second of two equal requests computes everything again."""
    backend = make_chunk_cache(World(rows=1, context_len=8, pages=4, page_size=2))
    assert not backend.declare().has("PREFIX_CACHE")
    for req in ("a", "b"):
        answer = start(backend, req, "ABC")
        assert (answer.matched, answer.slots) == ([[]], [[2, 3, 4]])
        assert backend.do(Checkpoint(req, 2)) == Refused()
        done = ok(backend, Finish(req, 3, True))
        assert (done.published, done.freed) == ({}, Freed(pages=(1, 2), rows=(1,)))
    assert backend.do(Evict(1)) == backend.do(Flush()) == Refused()


def test_content_is_read_through_the_table() -> None:
    """b reads what a wrote for the shared page, and its own for the rest; a waiting request has no content."""
    backend = make(World(rows=2, context_len=8, pages=6, page_size=2))
    backend.write(start(backend, "a", "ABC").slots[0], [11, 12, 13])
    ok(backend, Checkpoint("a", 3))
    ok(backend, Submit("b", tuple("ABX"), "n"))
    assert backend.read("b") == []
    backend.write(ok(backend, Extend((("b", 3, "z"),))).slots[0], [23])
    assert backend.read("a") == [11, 12, 13]
    assert backend.read("b") == [11, 12, 23]
