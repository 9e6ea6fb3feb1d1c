"""The free KV slots, in pages. Page 0 is padding: never handed out. Who uses a slot is not known here.

Page p holds slots p * page_size .. p * page_size + page_size - 1, and position i of a row lies at offset
i mod page_size of its page. So an extend first fills the rest of the page that holds last_loc, the slot before it.

SGLang: TokenToKVPoolAllocator, PagedTokenToKVPoolAllocator (mem_cache/allocator/).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from kvledger.reference.rows import OutOfRoom
from kvledger.spec.world import PageId, Slot


class TokenToKVPoolAllocator:
    """Slots 1..size, one a page: taken from the front of the free list, given back to its end.

    freed: every page given back, in order, with repetitions, until the reader clears it.
    """

    def __init__(self, size: int, page_size: int = 1) -> None:
        self.page_size = page_size
        num_pages = size // page_size
        self.free_pages: deque[PageId] = deque(range(1, num_pages + 1))
        self.is_free = [False] + [True] * num_pages
        self.freed: list[PageId] = []

    def available_size(self) -> int:
        """How many tokens the free pages hold."""
        return len(self.free_pages) * self.page_size

    def get_num_new_pages(self, prefix_lens: Iterable[int], seq_lens: Iterable[int]) -> int:
        """How many pages positions [prefix, seq) need, over all requests, that [0, prefix) has not."""
        page = self.page_size
        return sum(-(-seq // page) - -(-prefix // page) for prefix, seq in zip(prefix_lens, seq_lens, strict=True))

    def alloc(self, num_pages: int) -> list[PageId]:
        """So many pages off the front of the free list. OutOfRoom if there are fewer."""
        if num_pages > len(self.free_pages):
            raise OutOfRoom("pages")
        pages = [self.free_pages.popleft() for _ in range(num_pages)]
        for page in pages:
            self.is_free[page] = False
        return pages

    def alloc_extend(
        self, prefix_lens: Sequence[int], seq_lens: Sequence[int], last_loc: Sequence[Slot]
    ) -> list[list[Slot]]:
        """The slots of positions [prefix, seq) of each request. OutOfRoom if pages lack. Here a page is a slot."""
        slots = iter(self.alloc(self.get_num_new_pages(prefix_lens, seq_lens)))
        return [[next(slots) for _ in range(prefix, seq)] for prefix, seq in zip(prefix_lens, seq_lens, strict=True)]

    def alloc_decode(self, seq_lens: Sequence[int], last_loc: Sequence[Slot]) -> list[Slot]:
        """The slot of position seq - 1 of each request (seq: the length after). OutOfRoom if pages lack."""
        return self.alloc(len(seq_lens))

    def free(self, slots: Sequence[Slot]) -> None:
        """Whole pages go back. slots: of consecutive positions, from a page's first; the last page may be in part."""
        assert not slots or slots[0] % self.page_size == 0, f"slot {slots[0]} is not the first of its page"
        pages = [slot // self.page_size for slot in slots[:: self.page_size]]
        for page in pages:
            assert page > 0 and not self.is_free[page], f"page {page} is padding or already free"
            self.is_free[page] = True
        self.freed += pages
        self.put_back(pages)

    def put_back(self, pages: Sequence[PageId]) -> None:
        """First in, first out."""
        self.free_pages.extend(pages)


class PagedTokenToKVPoolAllocator(TokenToKVPoolAllocator):
    """Slots in pages of page_size: taken from the front of the free list, given back to its front."""

    def alloc_extend(
        self, prefix_lens: Sequence[int], seq_lens: Sequence[int], last_loc: Sequence[Slot]
    ) -> list[list[Slot]]:
        """In three parts: the rest of the page of last_loc (-1: there is none), whole pages, a page in part."""
        page_size = self.page_size
        pages = iter(self.alloc(self.get_num_new_pages(prefix_lens, seq_lens)))
        out: list[list[Slot]] = []
        for prefix, seq, last in zip(prefix_lens, seq_lens, last_loc, strict=True):
            assert (last + 1 - prefix) % page_size == 0, f"position {prefix} cannot follow slot {last}"
            rest = min(-prefix % page_size, seq - prefix)
            slots = list(range(last + 1, last + 1 + rest))
            while len(slots) < seq - prefix:
                first = next(pages) * page_size
                slots += range(first, first + min(page_size, seq - prefix - len(slots)))
            out.append(slots)
        return out

    def alloc_decode(self, seq_lens: Sequence[int], last_loc: Sequence[Slot]) -> list[Slot]:
        """The slot after last_loc, or the first of a new page where last_loc ends one."""
        prefix_lens = [seq - 1 for seq in seq_lens]
        return [slots[0] for slots in self.alloc_extend(prefix_lens, seq_lens, last_loc)]

    def put_back(self, pages: Sequence[PageId]) -> None:
        """Last in, first out: what was just freed is warm."""
        self.free_pages.extendleft(reversed(pages))
