"""The sizes of a world, and what the backend that lives in it declares about itself.

Nothing here moves. A world with its declaration stands in the header of every trace, so a judge always sees it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields
from typing import TypeAlias

ReqId: TypeAlias = str
SessionId: TypeAlias = str  # never the id of a live request at the same time
Holder: TypeAlias = str  # whom a record or a lock belongs to: a request or a session; later a transfer or pin
Row: TypeAlias = int  # 0 is the padding row
PageId: TypeAlias = int  # 0 is the padding page
Slot: TypeAlias = int  # page * page_size + offset
Token: TypeAlias = Hashable  # two are one iff they are equal; 0 is a token, None is not
Namespace: TypeAlias = Hashable  # what must also match before KV may be shared: LoRA, cache salt, ...

CAPABILITIES = {
    "ROWS": "a bounded table of request rows (ReqToTokenPool); without: block lists (vLLM)",
    "PAGED": "page_size may exceed 1 (PagedTokenToKVPoolAllocator)",
    "PREFIX_CACHE": "pages can be shared by prefix; without: ChunkCache behaviour",
    "DUPLICATES": "two pages may be cached under one key (vLLM's hash cache)",
    "LEAF_FIRST": "a cached key's parent is cached: eviction takes leaves first (RadixCache)",
    "EVICT": "evict(n) may be called from outside",
    "CHECKPOINT": "a running request's prefix may be published (cache_unfinished_req)",
    "CHUNKED": "a prompt may be extended in parts",
    "DRAFTS": "slots are reserved ahead for drafted tokens, and the accepted ones committed (speculative decoding)",
    "SESSIONS": "a conversation's record outlives its turns (SessionAwareCache, StreamingSession)",
    "SPLIT_ADMIT": "a request may match and lock before it takes a row (schedulers that match first)",
    "GUARDED": "a call outside what an action requires is answered with a refusal",
    "CONTENT": "write(slots, tags) and read(req) -> tags, through the backend's own table",
    "VIEW": "view() shows the backend's own books",
    "SCRAMBLE": "scramble() overwrites the stale lengths of records that hold nothing",
}
UNCOMMON = frozenset({"DUPLICATES", "DRAFTS", "SESSIONS", "SPLIT_ADMIT"})  # declared only where said
# What a submit may carry, and an engine may decline to know.
OPTIONS = {
    "NAMESPACES": "several namespaces",
    "MATCH_LIMIT": "a match_limit",
    "BARRED": "publish = False",
}
MOST = 2**31 - 1  # of rows, columns, pages, slots: what a table of int32 can address
PUBLISHING = ("extend", "decode", "commit", "checkpoint", "finish", "abort")


class WrongInput(ValueError):
    """A mistake of the person who runs us. One line: the input, what was expected, where it stood. Exit 2."""


@dataclass(frozen=True)
class Declaration:
    """How a backend works where good engines differ. The law asks it; nothing in it excuses a lost page.

    publishes_on: the actions that publish pages (SGLang: checkpoint, finish; vLLM: extend, decode, commit).
    max_batch: how many members one call may have; a refusal is of the whole batch. None: any number.
    headroom: pages kept back when a request starts (vLLM's watermark). Unit: pages.
    match_backoff: pages dropped from the longest match (EAGLE: 1).
    key_lag: tokens beyond its page that a key needs (bigram keys: 1).
    exact_lengths: a view's lengths are exact to the token; False: allocated is shown rounded up to its page.
    declines: the options of a submit that the backend does not know (OPTIONS).
    """

    name: str = "unnamed"
    version: str = ""
    capabilities: frozenset[str] = frozenset(CAPABILITIES) - UNCOMMON
    publishes_on: frozenset[str] = frozenset({"checkpoint", "finish"})
    max_batch: int | None = None
    headroom: int = 0
    match_backoff: int = 0
    key_lag: int = 0
    exact_lengths: bool = True
    declines: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not all(isinstance(word, str) and word.isprintable() for word in (self.name, self.version)):
            raise WrongInput(f"a declaration with name {self.name!r}, version {self.version!r}: expected one line each")
        known_words = {"capabilities": CAPABILITIES, "publishes_on": PUBLISHING, "declines": OPTIONS}
        for field, known in known_words.items():
            given = getattr(self, field)
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise WrongInput(f"{self.name} declares {field}={given!r}: expected a set of words")
            given = tuple(given)  # once: it may be an iterator
            if not all(isinstance(word, str) for word in given):
                raise WrongInput(f"{self.name} declares {field}={given!r}: expected a set of words")
            object.__setattr__(self, field, frozenset(given))
            for word in sorted(set(given) - set(known)):
                raise WrongInput(f"{self.name} declares {field} {word!r}: expected some of {', '.join(known)}")
        for field, least in (("headroom", 0), ("match_backoff", 0), ("key_lag", 0), ("max_batch", 1)):
            value = getattr(self, field)
            if value is not None and (type(value) is not int or value < least):
                raise WrongInput(f"{self.name} declares {field} = {value!r}: expected a whole number >= {least}")
        if self.key_lag > 1:
            raise WrongInput(f"{self.name} declares key_lag = {self.key_lag}: expected 0 or 1")
        for word in ("DUPLICATES", "LEAF_FIRST", "EVICT", "CHECKPOINT"):
            if word in self.capabilities and "PREFIX_CACHE" not in self.capabilities:
                raise WrongInput(f"{self.name} declares {word} without PREFIX_CACHE")
        if "CHECKPOINT" in self.capabilities and "checkpoint" not in self.publishes_on:
            raise WrongInput(f"{self.name} declares CHECKPOINT, which publishes, but publishes_on has no checkpoint")
        if "PREFIX_CACHE" not in self.capabilities:
            object.__setattr__(self, "publishes_on", frozenset())

    @property
    def title(self) -> str:
        """Name and version, for people."""
        return f"{self.name} {self.version}".strip()

    def has(self, capability: str) -> bool:
        """Whether the backend declares this capability, or knows this option."""
        return capability in self.capabilities or (capability in OPTIONS and capability not in self.declines)


@dataclass(frozen=True)
class World:
    """Sizes, in rows, columns, pages and slots a page; and the declaration of the backend that lives in it.

    rows: usable rows 1..rows (the padding row 0 comes on top). context_len: columns of a row, so the most KV a
    request may have. pages: usable pages 1..pages (the padding page 0 comes on top). page_size: slots a page.
    """

    rows: int
    context_len: int
    pages: int
    page_size: int
    declared: Declaration = Declaration()

    def __post_init__(self) -> None:
        for field in reversed(fields(self)):  # page_size first: who has a context_len made up rounds it up to that
            value = getattr(self, field.name)
            if field.name != "declared" and (type(value) is not int or not 1 <= value <= MOST):
                raise WrongInput(f"world with {field.name} = {value!r:.40}: expected a whole number from 1 to 2^31 - 1")
        if (self.pages + 1) * self.page_size > MOST + 1:
            raise WrongInput(f"world with {self.pages} pages of {self.page_size} slots: expected less than 2^31 in all")
        if self.page_size > 1 and not self.declared.has("PAGED"):
            raise WrongInput(
                f"world with page_size = {self.page_size}: {self.declared.name} does not declare PAGED, expected 1"
            )

    def has(self, capability: str) -> bool:
        """Whether the backend that lives here declares this capability, or knows this option."""
        return self.declared.has(capability)
