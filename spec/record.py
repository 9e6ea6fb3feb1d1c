"""The life of one KV record: row, and three lengths. A few ints; settled by CrossHair, post by post.

    0 <= protected_len <= committed_len <= allocated_len <= context_len        (REC-2, while a row is held)

[0, protected_len) belongs to the prefix cache and is read under a lock. [0, committed_len) has valid KV.
[0, allocated_len) has slots. The record holds KV iff a row is registered, and nothing else says so.
A guard here raises SpecError: it accuses the law, never a backend.

SGLang: ReqKvInfo, and sglang#37167, which made release, row reuse and presence read it.
"""

from __future__ import annotations

from typing import NamedTuple

from kvledger.spec.page import SpecError


class Record(NamedTuple):
    """A KV record. Lengths in tokens. row None: released, and then only allocated_len = 0 means anything."""

    row: int | None
    protected_len: int
    committed_len: int
    allocated_len: int

    @property
    def holds_kv(self) -> bool:
        """Whether a row is registered: the only way anybody asks."""
        return self.row is not None


NO_RECORD = Record(None, 0, 0, 0)


def lawful(record: Record, page_size: int) -> bool:
    """What is true of every record, always: REC-1 and REC-2."""
    if record.row is None:
        return record.allocated_len == 0
    return (
        record.row >= 1
        and 0 <= record.protected_len <= record.committed_len <= record.allocated_len
        and record.allocated_len > 0
        and record.protected_len % page_size == 0
    )


def start(row: int, matched: int, upto: int, page_size: int) -> Record:
    """A request takes a row: it reads [0, matched) from the cache and gets slots and KV for [matched, upto).

    pre: row >= 1 and 0 <= matched < upto and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    pre: matched % page_size == 0
    post: lawful(_, page_size)
    post: _.holds_kv and _.protected_len == matched and _.committed_len == upto
    """
    if matched >= upto:
        raise SpecError("start of a record that would hold a row without KV")
    return Record(row, matched, upto, upto)


def grow(record: Record, upto: int, page_size: int) -> Record:
    """Slots and KV for [allocated, upto): a later chunk of a prompt, or one decoded column.

    pre: lawful(record, page_size) and record.holds_kv and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    pre: record.committed_len == record.allocated_len < upto
    post: lawful(_, page_size)
    post: _.row == record.row and _.protected_len == record.protected_len
    post: _.committed_len == upto and _.allocated_len == upto
    """
    if not record.holds_kv or record.committed_len != record.allocated_len or upto <= record.allocated_len:
        raise SpecError("growth of a record that holds nothing, is over-allocated, or would shrink")
    return Record(record.row, record.protected_len, upto, upto)


def reserve(record: Record, upto: int, page_size: int) -> Record:
    """Slots for [allocated, upto), for drafts: what is committed stays as it is.

    pre: lawful(record, page_size) and record.holds_kv and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    pre: upto >= record.allocated_len
    post: lawful(_, page_size)
    post: _.row == record.row and _.protected_len == record.protected_len
    post: _.committed_len == record.committed_len and _.allocated_len == upto
    """
    if not record.holds_kv or upto < record.allocated_len:
        raise SpecError("reservation for a record that holds nothing, or of less than it has")
    return Record(record.row, record.protected_len, record.committed_len, upto)


def commit(record: Record, upto: int, page_size: int) -> Record:
    """The drafts of [committed, upto) were accepted: they have KV, in slots that were reserved.

    pre: lawful(record, page_size) and record.holds_kv and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    pre: record.committed_len < upto <= record.allocated_len
    post: lawful(_, page_size)
    post: _.row == record.row and _.protected_len == record.protected_len
    post: _.committed_len == upto and _.allocated_len == record.allocated_len
    """
    if not record.holds_kv or not record.committed_len < upto <= record.allocated_len:
        raise SpecError("commitment of nothing, or of positions without slots")
    return Record(record.row, record.protected_len, upto, record.allocated_len)


def cut(record: Record, upto: int, page_size: int) -> Record:
    """What lies beyond upto is given up: a turn ends, or the next one goes on from here.

    pre: lawful(record, page_size) and record.holds_kv and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    pre: record.protected_len <= upto <= record.committed_len and upto >= 1
    post: lawful(_, page_size)
    post: _.row == record.row and _.protected_len == record.protected_len
    post: _.committed_len == upto and _.allocated_len == upto
    """
    if not record.holds_kv or not max(record.protected_len, 1) <= upto <= record.committed_len:
        raise SpecError("a cut of a record that holds nothing, below what is published, or above what has KV")
    return Record(record.row, record.protected_len, upto, upto)


def protect(record: Record, upto: int, page_size: int) -> Record:
    """[protected, upto) was published: it belongs to the prefix cache from now on.

    pre: lawful(record, page_size) and record.holds_kv and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    pre: record.protected_len <= upto <= record.committed_len and upto % page_size == 0
    post: lawful(_, page_size)
    post: _.row == record.row and _.protected_len == upto
    post: _.committed_len == record.committed_len and _.allocated_len == record.allocated_len
    """
    if not record.holds_kv or not record.protected_len <= upto <= record.committed_len or upto % page_size != 0:
        raise SpecError("protection of positions that are not committed, or of a part of a page, or without a row")
    return Record(record.row, upto, record.committed_len, record.allocated_len)


def release(record: Record, page_size: int) -> Record:
    """The row is given back. Only "no row, nothing allocated" is promised; the other lengths go stale.

    pre: lawful(record, page_size) and record.holds_kv and page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    post: lawful(_, page_size)
    post: not _.holds_kv and _.allocated_len == 0
    """
    if not record.holds_kv:
        raise SpecError("release of a record that holds nothing")
    return Record(None, record.protected_len, record.committed_len, 0)
