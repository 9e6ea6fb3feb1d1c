"""What the device knows when it decides itself: what is free, how long each row is, and what went wrong.

Allocated once, and never moved, for a CUDA graph has learnt where it stands. Everything has a place for the lanes of a
batch that are dead: row 0, page 0 and the stack's place 0 are padding, and what is written there stands there already.
"""

from __future__ import annotations

from enum import IntEnum

import torch

from kvledger.fast.tensors import Tensors
from kvledger.spec.world import World


class Fault(IntEnum):
    """Why a call was refused. The number is the place in err."""

    DOUBLE_FREE = 0  # a page would go back that is not taken, or goes back twice in this call
    NO_SUCH_PAGE = 1  # page 0 would go back, or one that does not exist: the table was overwritten
    OUT_OF_PAGES = 2  # more pages are needed than are free
    WRONG_ROW = 3  # a row that does not exist, that stands there twice, or has no tokens and should
    WRONG_LENGTH = 4  # beyond the row, or not above what it has; a cut below what the cache has, or above the row's
    TOO_MANY = 5  # more tokens than tokens_max, or more pages than pages_max


class DeviceState:
    """All on the device of the table. Row 0 of the table lists page 0, for the dead lanes.

    stack: int32 [pages + 1]; stack[head:] are the free pages, the next to go first; stack[0] is the padding page.
    head: int64 [], from 1 to pages + 1. live: int32 [pages + 1], 1 for a page that is taken, else 0; live[0] is 0.
    seq_lens: int64 [rows + 1], the tokens of each row; 0: nobody holds it. protected_lens: int64 [rows + 1], how many
    of them the cache has. err: int32 [len(Fault)], 1 where a call was refused. lanes: int64 [rows + 1], scratch.
    """

    def __init__(self, world: World, tensors: Tensors) -> None:
        self.world = world
        self.tensors = tensors
        device = tensors.device
        self.stack = torch.zeros(world.pages + 1, dtype=torch.int32, device=device)
        self.live = torch.zeros(world.pages + 1, dtype=torch.int32, device=device)
        self.head = torch.zeros((), dtype=torch.int64, device=device)
        self.seq_lens = torch.zeros(world.rows + 1, dtype=torch.int64, device=device)
        self.protected_lens = torch.zeros(world.rows + 1, dtype=torch.int64, device=device)
        self.err = torch.zeros(len(Fault), dtype=torch.int32, device=device)
        self.lanes = torch.zeros(world.rows + 1, dtype=torch.int64, device=device)
        self.never = torch.zeros((), dtype=torch.bool, device=device)
        tensors.lines[0] = tensors.offsets
        self.close()

    def close(self) -> None:
        """Nobody has tokens and nothing is free: a graph that is replayed now is refused."""
        self.head.fill_(len(self.stack))
        self.seq_lens.zero_()
