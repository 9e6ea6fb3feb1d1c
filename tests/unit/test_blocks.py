"""The backend of vLLM's shape, step by step. Every number is worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kvledger.spec.actions import Abort, Action, Checkpoint, Decode, Evict, Extend, Finish, Flush, Retract, Submit
from kvledger.spec.backend import Backend, Freed, KeepsContent, RecordView, Refused, Reply, Scrambles, Totals
from kvledger.spec.world import Token, World
from kvledger.tests.engines.blocks import DECLARED, Blocks, make

NO = Refused()
NO_PAGES = Refused(short="pages")


def blocks(pages: int = 6, page_size: int = 2, context_len: int = 12) -> Blocks:
    return make(World(1, context_len, pages, page_size, DECLARED))


def start(backend: Backend, req: str, tokens: Sequence[Token], token: Token = "z", namespace: str = "n") -> Reply:
    """Submits a request and extends it to its end."""
    assert backend.do(Submit(req, tuple(tokens), namespace)) == Reply()
    reply = backend.do(Extend(((req, len(tokens), token),)))
    assert isinstance(reply, Reply)
    return reply


def free_and_cached(backend: Blocks) -> tuple[list[int], dict[int, int]]:
    """The free pages as listed, and each cached page with its locks."""
    view = backend.view()
    assert view.free_pages is not None and view.cached is not None
    return list(view.free_pages), {page: cached.locks for page, cached in view.cached.items()}


def test_it_is_a_backend_with_content_and_nothing_to_scramble() -> None:
    backend: Backend = blocks()
    assert isinstance(backend, KeepsContent)
    assert not isinstance(backend, Scrambles)
    assert backend.declare() is DECLARED


def test_a_prompt_publishes_its_whole_pages_in_the_extend_itself() -> None:
    backend = blocks()
    reply = start(backend, "r", "abcde")
    assert reply == Reply(matched=[[]], slots=[[2, 3, 4, 5, 6]], published={"r": 4}, freed=Freed())
    view = backend.view()
    assert view.free_rows is None
    assert view.free_pages == [4, 5, 6]
    assert view.records == {"r": RecordView(None, 4, 5, 5)}
    assert view.table == {"r": [2, 3, 4, 5, 6]}
    assert view.totals == Totals(available=3, evictable=0, protected=2, private=1)
    assert free_and_cached(backend) == ([4, 5, 6], {1: 1, 2: 1})


def test_a_decode_publishes_when_it_fills_a_page_and_takes_one_when_it_opens_one() -> None:
    backend = blocks()
    start(backend, "r", "abc")  # pages 1, 2; position 3 is free in page 2
    filled = backend.do(Decode((("r", "y"),)))
    assert filled == Reply(slots=[[5]], published={"r": 4}, freed=Freed())
    opened = backend.do(Decode((("r", "x"),)))
    assert opened == Reply(slots=[[6]], freed=Freed())
    start(backend, "s", "abczy")  # the sampled tokens are part of the prefix: pages 1 and 2 are matched
    assert free_and_cached(backend) == ([5, 6], {1: 2, 2: 2})


def test_a_prompt_extends_in_parts() -> None:
    backend = blocks()
    backend.do(Submit("r", tuple("abcde"), "n"))
    assert backend.do(Extend((("r", 1, None),))) == Reply(matched=[[]], slots=[[2]], freed=Freed())
    assert backend.do(Extend((("r", 4, None),))) == Reply(slots=[[3, 4, 5]], published={"r": 4}, freed=Freed())
    assert backend.do(Extend((("r", 5, "f"),))) == Reply(slots=[[6]], freed=Freed())


def test_a_match_leaves_a_token_and_keeps_the_duplicate() -> None:
    backend = blocks()
    start(backend, "r", "abcd")  # pages 1, 2
    reply = start(backend, "s", "abcd")  # may take 3 tokens, so one page; the other is computed again in page 3
    assert reply == Reply(matched=[[2, 3]], slots=[[6, 7]], published={"s": 4}, freed=Freed())
    view = backend.view()
    assert view.cached is not None
    assert view.cached[2].key == view.cached[3].key != view.cached[1].key
    assert free_and_cached(backend) == ([4, 5, 6], {1: 2, 2: 1, 3: 1})


def test_of_duplicates_the_oldest_that_is_still_cached_is_matched() -> None:
    backend = blocks()
    start(backend, "r", "abcd")  # pages 1, 2
    start(backend, "s", "abcd")  # pages 1, 3
    assert start(backend, "t", "abcde").matched == [[2, 3, 4, 5]]  # pages 1, 2
    backend.do(Abort("t"))
    backend.do(Abort("r"))  # page 2 is unlocked, 1 and 3 are not
    assert backend.do(Evict(3)) == Reply(evicted=frozenset({2}))
    assert start(backend, "u", "abcde").matched == [[2, 3, 6, 7]]  # pages 1, 3


def test_a_match_stops_at_the_first_missing_page() -> None:
    backend = blocks()
    start(backend, "r", "abcd")  # pages 1, 2
    backend.do(Finish("r", 4, True))  # queue: 3 4 5 6 | 2 1
    assert backend.do(Evict(1)) == Reply(evicted=frozenset({2}))
    assert start(backend, "s", "abcde").matched == [[2, 3]]


def test_a_page_whose_parent_went_is_found_again_when_the_parent_is_back() -> None:
    backend = blocks()
    start(backend, "r", "abcd")  # pages 1, 2
    backend.do(Finish("r", 4, True))
    backend.free_queue.move_to_end(2)  # tail first never lets a parent go before its child, so: head first
    assert backend.do(Evict(1)) == Reply(evicted=frozenset({1}))
    assert start(backend, "s", "ab").matched == [[]]  # page 1 again, from the front of the queue
    assert start(backend, "t", "abcde").matched == [[2, 3, 4, 5]]


def test_namespaces_share_nothing() -> None:
    backend = blocks()
    start(backend, "r", "abc", namespace="n")
    assert start(backend, "s", "abc", namespace="m").matched == [[]]
    assert start(backend, "t", "abc", namespace="n").matched == [[2, 3]]


@pytest.mark.parametrize(("limit", "matched"), [(None, [2, 3, 4, 5]), (3, [2, 3]), (1, []), (0, [])])
def test_a_match_limit_is_kept_in_whole_pages(limit: int | None, matched: list[int]) -> None:
    backend = blocks()
    start(backend, "r", "abcde")
    backend.do(Submit("s", tuple("abcde"), "n", match_limit=limit))
    reply = backend.do(Extend((("s", 5, "f"),)))
    assert isinstance(reply, Reply) and reply.matched == [matched]


def test_a_request_barred_from_publishing_still_matches() -> None:
    backend = blocks()
    start(backend, "r", "abc")  # page 1 is cached, page 2 is private
    backend.do(Submit("s", tuple("abcde"), "n", publish=False))
    assert backend.do(Extend((("s", 5, "f"),))) == Reply(matched=[[2, 3]], slots=[[6, 7, 8]], freed=Freed())
    view = backend.view()
    assert view.records is not None and view.records["s"] == RecordView(None, 2, 5, 5)
    assert view.totals == Totals(available=2, evictable=0, protected=1, private=3)
    assert backend.do(Finish("s", 5, True)) == Reply(freed=Freed(pages=(3, 4)))


def test_an_end_frees_private_pages_and_keeps_the_cached_ones() -> None:
    backend = blocks()
    start(backend, "r", "abcde")  # pages 1, 2 cached, 3 private
    assert backend.do(Finish("r", 6, True)) == NO
    assert backend.do(Finish("r", 0, False)) == Reply(freed=Freed(pages=(3,)))
    assert free_and_cached(backend) == ([3, 4, 5, 6], {1: 0, 2: 0})
    view = backend.view()
    assert view.records == {} and view.table == {}
    assert view.totals == Totals(available=4, evictable=2, protected=0, private=0)
    assert backend.do(Finish("r", 0, False)) == NO


def test_a_retracted_request_finds_its_own_pages_again() -> None:
    backend = blocks()
    start(backend, "r", "abc")
    backend.do(Decode((("r", "y"),)))  # tokens a b c z y, pages 1 and 2 cached
    assert backend.do(Retract("r")) == Reply(freed=Freed())
    assert backend.do(Retract("r")) == NO
    assert backend.do(Decode((("r", "x"),))) == NO
    assert backend.do(Extend((("r", 5, "x"),))) == Reply(matched=[[2, 3, 4, 5]], slots=[[6]], freed=Freed())
    assert backend.do(Evict(1)) == NO  # what was matched left the queue
    assert backend.view().totals == Totals(available=3, evictable=0, protected=2, private=1)


def test_an_abort_takes_a_waiting_request_too() -> None:
    backend = blocks()
    backend.do(Submit("r", ("a",), "n"))
    assert backend.do(Abort("r")) == Reply(freed=Freed())
    assert backend.do(Abort("r")) == NO
    start(backend, "r", "abc")
    assert backend.do(Abort("r")) == Reply(freed=Freed(pages=(2,)))


def test_an_allocation_takes_free_pages_first_and_then_evicts_the_longest_unread() -> None:
    backend = blocks(pages=4)
    start(backend, "r", "abcd")  # pages 1, 2
    backend.do(Finish("r", 4, True))  # queue: 3 4 | 2 1
    reply = start(backend, "s", "vwxyz")
    assert reply == Reply(
        matched=[[]], slots=[[6, 7, 8, 9, 4]], published={"s": 4}, evicted=frozenset({2}), freed=Freed()
    )
    assert free_and_cached(backend) == ([], {1: 0, 3: 1, 4: 1})


def test_a_refused_start_leaves_no_trace() -> None:
    backend = blocks(pages=4)
    start(backend, "r", "abcd")
    backend.do(Finish("r", 4, True))  # queue: 3 4 | 2 1
    backend.do(Submit("s", tuple("abcdefghi"), "n"))  # matches pages 1, 2 and needs 3 more: only 3, 4 are left
    before, queue = backend.view(), list(backend.free_queue)
    assert backend.do(Extend((("s", 9, "j"),))) == NO_PAGES
    assert (backend.view(), list(backend.free_queue)) == (before, queue)
    assert backend.do(Extend((("s", 8, None),))) == Reply(
        matched=[[2, 3, 4, 5]], slots=[[6, 7, 8, 9]], published={"s": 8}, freed=Freed()
    )


def test_a_refused_decode_leaves_no_trace() -> None:
    backend = blocks(pages=2)
    start(backend, "r", "abcd")
    before = backend.view()
    assert backend.do(Decode((("r", "y"),))) == NO_PAGES
    assert backend.view() == before
    assert backend.do(Retract("r")) == Reply(freed=Freed())
    backend.do(Evict(1))
    assert backend.do(Extend((("r", 4, None),))) == Reply(
        matched=[[2, 3]], slots=[[4, 5]], published={"r": 4}, freed=Freed()
    )


def test_evict_takes_what_nobody_reads_and_no_more_than_asked() -> None:
    backend = blocks()
    start(backend, "r", "abcd")  # pages 1, 2
    assert backend.do(Evict(1)) == NO
    start(backend, "s", "vwxy")  # pages 3, 4
    backend.do(Finish("r", 4, True))  # queue: 5 6 | 2 1
    assert backend.do(Evict(0)) == NO
    assert backend.do(Evict(1)) == Reply(evicted=frozenset({2}))
    assert free_and_cached(backend) == ([2, 5, 6], {1: 0, 3: 1, 4: 1})
    assert backend.do(Evict(9)) == Reply(evicted=frozenset({1}))
    assert free_and_cached(backend) == ([1, 2, 5, 6], {3: 1, 4: 1})


def test_flush_waits_until_nobody_holds_a_block() -> None:
    backend = blocks()
    assert backend.do(Flush()) == Reply()
    start(backend, "r", "abcde")
    assert backend.do(Flush()) == NO
    backend.do(Retract("r"))
    assert backend.do(Flush()) == Reply(evicted=frozenset({1, 2}))
    view = backend.view()
    assert view.cached == {} and sorted(view.free_pages or ()) == [1, 2, 3, 4, 5, 6]
    assert backend.do(Extend((("r", 2, None),))) == Reply(
        matched=[[]], slots=[[6, 7]], published={"r": 2}, freed=Freed()
    )


def test_the_null_block_is_never_handed_out() -> None:
    backend = blocks(pages=2)
    assert start(backend, "r", "abcd").slots == [[2, 3, 4, 5]]
    backend.do(Submit("s", ("v",), "n"))
    assert backend.do(Extend((("s", 1, "w"),))) == NO_PAGES


def test_content_is_read_through_the_blocks_of_the_request() -> None:
    backend = blocks()
    backend.write(start(backend, "r", "abc").slots[0], [11, 12, 13])
    reply = start(backend, "s", "abc")
    backend.write(reply.slots[0], [23])
    assert backend.read("r") == [11, 12, 13]
    assert backend.read("s") == [11, 12, 23]
    backend.do(Retract("s"))
    assert backend.read("s") == []


@pytest.mark.parametrize(
    "call",
    [
        Submit("r", ("a",), "n"),  # lives already
        Submit("s", (), "n"),
        Submit("s", ("a", None), "n"),
        Extend(()),
        Extend((("w", 1, None), ("r", 4, "d"))),  # two members
        Extend((("s", 1, "b"),)),  # not live
        Extend((("w", 0, None),)),  # nothing to do
        Extend((("w", 3, "d"),)),  # beyond its tokens
        Extend((("w", 2, None),)),  # at the end, and no token
        Extend((("w", 1, "c"),)),  # a token, and not at the end
        Extend((("r", 3, None),)),  # committed already
        Extend((("long", 5, None),)),  # wider than a row may be
        Decode((("w", "c"),)),  # waits
        Decode((("r", None),)),
        Decode((("half", "c"),)),  # not caught up
        Decode((("r", "d"), ("half", "c"))),
        Checkpoint("r", 2),
        Finish("w", 0, True),
        Finish("r", 4, True),
        Finish("r", -1, True),
        Retract("w"),
        Abort("s"),
        Evict(1),
        Flush(),
    ],
)
def test_a_forbidden_call_is_refused_and_leaves_no_trace(call: Action) -> None:
    backend = blocks(context_len=4)
    start(backend, "r", "abc")
    backend.do(Submit("w", ("a", "b"), "n"))
    backend.do(Submit("half", tuple("abcd"), "m"))
    backend.do(Extend((("half", 1, None),)))
    backend.do(Submit("long", tuple("vwxyz"), "n"))
    before, queue, requests = backend.view(), list(backend.free_queue), repr(backend.requests)
    assert backend.do(call) == NO
    assert (backend.view(), list(backend.free_queue), repr(backend.requests)) == (before, queue, requests)


def test_a_full_row_decodes_no_further() -> None:
    backend = blocks(context_len=4)
    start(backend, "r", "abc")
    assert backend.do(Decode((("r", "y"),))) == Reply(slots=[[5]], published={"r": 4}, freed=Freed())
    assert backend.do(Decode((("r", "x"),))) == NO
