"""The life of one page, and the arithmetic of pages. A few ints; settled by CrossHair, post by post.

    FREE --grant--> PRIVATE --publish--> CACHED --evict--> FREE
                       |                lock, unlock
                       +----give_back----> FREE

A page knows its owner as a number: a private page belongs to one place of one row (row, ordinal), a cached page
to one key. Because a page says where it stands, "every place lists its own page" needs no counting.
A guard here raises SpecError: it accuses the law, never a backend.

SGLang: TokenToKVPoolAllocator, PagedTokenToKVPoolAllocator, TreeNode.lock_ref. vLLM: KVCacheBlock.
"""

from __future__ import annotations

from typing import NamedTuple

FREE, PRIVATE, CACHED = 0, 1, 2


class SpecError(Exception):
    """A guard of the law itself failed: the law is wrong, no backend is."""


class Page(NamedTuple):
    """One page. owner: a private page's row, a cached page's key, else 0. ordinal: which page of its row."""

    kind: int
    owner: int
    ordinal: int
    locks: int


FREE_PAGE = Page(FREE, 0, 0, 0)


def lawful(page: Page) -> bool:
    """What is true of every page, always: who has no owner has no lock, and only a cached page is locked."""
    if page.kind == FREE:
        return page == FREE_PAGE
    if page.kind == PRIVATE:
        return page.owner >= 1 and page.ordinal >= 0 and page.locks == 0
    return page.kind == CACHED and page.ordinal == 0 and page.locks >= 0


def grant(page: Page, row: int, ordinal: int) -> Page:
    """A free page is handed to place `ordinal` of `row`.

    pre: lawful(page) and page.kind == FREE and row >= 1 and ordinal >= 0
    post: lawful(_)
    post: _.kind == PRIVATE and _.owner == row and _.ordinal == ordinal
    """
    if page.kind != FREE:
        raise SpecError("grant of a page that is not free")
    return Page(PRIVATE, row, ordinal, 0)


def publish(page: Page, key: int) -> Page:
    """A private page changes owner: from its row to `key` of the prefix cache.

    pre: lawful(page) and page.kind == PRIVATE
    post: lawful(_)
    post: _.kind == CACHED and _.owner == key and _.locks == 0
    """
    if page.kind != PRIVATE:
        raise SpecError("publish of a page that is not private")
    return Page(CACHED, key, 0, 0)


def lock(page: Page) -> Page:
    """One more holder reads this cached page; while anybody does, it stays.

    pre: lawful(page) and page.kind == CACHED
    post: lawful(_)
    post: _.kind == CACHED and _.owner == page.owner and _.locks == page.locks + 1
    """
    if page.kind != CACHED:
        raise SpecError("lock of a page that is not cached")
    return Page(CACHED, page.owner, 0, page.locks + 1)


def unlock(page: Page) -> Page:
    """One holder less reads this cached page.

    pre: lawful(page) and page.kind == CACHED and page.locks > 0
    post: lawful(_)
    post: _.kind == CACHED and _.owner == page.owner and _.locks == page.locks - 1
    """
    if page.kind != CACHED or page.locks <= 0:
        raise SpecError("unlock of a page that is not locked")
    return Page(CACHED, page.owner, 0, page.locks - 1)


def give_back(page: Page, row: int) -> Page:
    """A private page of `row` becomes free; nobody else can give it back, and nobody twice.

    pre: lawful(page) and page.kind == PRIVATE and page.owner == row
    post: _ == FREE_PAGE
    """
    if page.kind != PRIVATE or page.owner != row:
        raise SpecError("give_back of a page by a row that does not own it")
    return FREE_PAGE


def evict(page: Page) -> Page:
    """A cached page that nobody reads becomes free.

    pre: lawful(page) and page.kind == CACHED and page.locks == 0
    post: _ == FREE_PAGE
    """
    if page.kind != CACHED or page.locks != 0:
        raise SpecError("evict of a page that is locked or not cached")
    return FREE_PAGE


def pages_for(length: int, page_size: int) -> int:
    """How many pages hold `length` tokens, the last one perhaps in part.

    pre: length >= 0 and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    post: _ * page_size >= length
    post: (_ - 1) * page_size < length
    """
    return (length + page_size - 1) // page_size


def whole_pages(length: int, page_size: int) -> int:
    """How many pages `length` tokens fill to the end.

    pre: length >= 0 and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    post: _ * page_size <= length
    post: (_ + 1) * page_size > length
    """
    return length // page_size


def new_pages(prefix: int, upto: int, page_size: int) -> int:
    """How many pages positions [prefix, upto) need that [0, prefix) has not.

    pre: 0 <= prefix <= upto and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    post: _ >= 0
    post: pages_for(prefix, page_size) + _ == pages_for(upto, page_size)
    post: _ > 0 or upto <= pages_for(prefix, page_size) * page_size
    """
    return pages_for(upto, page_size) - pages_for(prefix, page_size)


def slot_of(page: int, position: int, page_size: int) -> int:
    """The slot where `position` of a row stands, if its page is `page`.

    pre: page >= 0 and position >= 0 and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    post: _ // page_size == page
    post: _ % page_size == position % page_size
    """
    return page * page_size + position % page_size


def page_of(slot: int, page_size: int) -> int:
    """The page that a slot lies in.

    pre: slot >= 0 and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    post: _ * page_size <= slot
    post: slot < _ * page_size + page_size
    """
    return slot // page_size
