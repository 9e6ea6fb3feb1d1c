"""What lives on the device: the token table, allocated once; and how indices get there, in one copy and unawaited."""

from __future__ import annotations

import numpy as np
import torch

from kvledger.fast.plan import Ints, Pages, Plan

DTYPE = {np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64}


class Tensors:
    """The token table, seen in three ways that share their memory, and the offsets inside a page. All int32.

    req_to_token: [rows + 1, context_len], the observable: row, position -> slot; row 0 is padding.
    lines: [(rows + 1) * width, page_size]: a page's slots are one line. columns: [all]: flat.
    """

    def __init__(self, rows: int, plan: Plan, device: torch.device | str) -> None:
        self.plan, self.device = plan, torch.device(device)
        self.is_host = self.device.type == "cpu"
        self.lines = torch.zeros(((rows + 1) * plan.width, plan.page_size), dtype=torch.int32, device=self.device)
        self.columns = self.lines.view(-1)
        self.req_to_token = self.lines.view(rows + 1, -1)[:, : plan.context_len]
        self.offsets = torch.arange(plan.page_size, dtype=torch.int32, device=self.device)

    def upload(self, *parts: Ints | Pages) -> list[torch.Tensor]:
        """The same arrays there: one copy from pinned memory, for which the host does not wait; on a CPU none.

        The pinned block is the caching allocator's, which gives it to nobody before the copy has been done.
        """
        if self.is_host:
            return [torch.from_numpy(part) for part in parts]
        flat = np.concatenate([part.ravel() for part in parts], dtype=np.int64)
        packed = torch.from_numpy(flat).pin_memory().to(self.device, non_blocking=True)
        there = packed.split([part.size for part in parts])
        return [new.view(old.shape).to(DTYPE[old.dtype]) for new, old in zip(there, parts, strict=True)]
