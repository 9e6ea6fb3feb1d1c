"""A small block manager as somebody else would write it: the engine that tests/README.md writes an adapter for.

No prefix cache, no rows: sequences, blocks, a free list. It knows nothing of kvledger.
"""

from __future__ import annotations


class NoBlocks(Exception):
    """There are not enough free blocks; nothing was taken."""


class Block:
    """One block; its index counts from 0."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Sequence:
    """length: tokens known. filled: tokens that have a place."""

    def __init__(self, seq_id: str, prompt_len: int) -> None:
        self.seq_id, self.length, self.filled = seq_id, prompt_len, 0
        self.blocks: list[Block] = []


class BlockManager:
    """block_size token places a block."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.pool = [Block(i) for i in range(num_blocks)]
        self.free = list(self.pool)
        self.sequences: dict[str, Sequence] = {}

    def add(self, seq_id: str, prompt_len: int) -> None:
        """A sequence waits."""
        self.sequences[seq_id] = Sequence(seq_id, prompt_len)

    def fill(self, seq_id: str, upto: int) -> list[tuple[int, int]]:
        """Makes places for tokens [filled, upto); returns (block index, offset) of each."""
        seq = self.sequences[seq_id]
        missing = self._missing(seq, upto)
        if missing > len(self.free):
            raise NoBlocks(seq_id)
        for _ in range(missing):
            seq.blocks.append(self.free.pop(0))
        size = self.block_size
        places = [(seq.blocks[at // size].index, at % size) for at in range(seq.filled, upto)]
        seq.filled = upto
        return places

    def append(self, seq_id: str) -> None:
        """One token more was sampled."""
        self.sequences[seq_id].length += 1

    def preempt(self, seq_id: str) -> list[int]:
        """Gives all blocks back; the sequence stays. Returns the blocks that went back."""
        seq = self.sequences[seq_id]
        given = [block.index for block in seq.blocks]
        self.free += seq.blocks
        seq.blocks, seq.filled = [], 0
        return given

    def remove(self, seq_id: str) -> list[int]:
        """The sequence has ended. Returns the blocks that went back."""
        given = self.preempt(seq_id)
        del self.sequences[seq_id]
        return given

    def _missing(self, seq: Sequence, upto: int) -> int:
        return -(-upto // self.block_size) - len(seq.blocks)
