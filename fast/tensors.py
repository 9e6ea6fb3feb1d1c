"""What lives on the device: the token table, allocated once; and how indices get there, in one copy and unawaited."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvledger.fast.plan import Plan


class Tensors:
    """The token table, seen in three ways that share their memory, and the offsets inside a page. All int32.

    req_to_token: [rows + 1, context_len], the observable: row, position -> slot; row 0 is padding.
    lines: [(rows + 1) * width, page_size]: a page's slots are one line. columns: [all]: flat.
    """

    def __init__(self, rows: int, plan: Plan, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.lines = torch.zeros(((rows + 1) * plan.width, plan.page_size), dtype=torch.int32, device=self.device)
        self.columns = self.lines.view(-1)
        self.req_to_token = self.lines.view(rows + 1, -1)[:, : plan.context_len]
        self.offsets = torch.arange(plan.page_size, dtype=torch.int32, device=self.device)

    def upload(self, *parts: npt.NDArray[Any]) -> tuple[torch.Tensor, ...]:
        """The same numbers there, int64: one copy from pinned memory, for which the host does not wait; on a CPU none.

        The pinned block is the caching allocator's, which gives it to nobody before the copy has been done.
        """
        packed = torch.from_numpy(np.concatenate(parts, dtype=np.int64))
        if self.device.type != "cpu":
            packed = packed.pin_memory().to(self.device, non_blocking=True)
        return tuple(packed.split([len(part) for part in parts]))
