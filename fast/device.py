"""The ledger for a while on the device: it hands pages out and takes them back itself, and the host is not asked.

    device = DeviceLedger(ledger)                          # once: it allocates, on the device of the ledger's table
    device.take_over()                                     # the ledger's state goes there
    rows = torch.zeros(256, dtype=torch.int64, device="cuda")          # of a fixed length; 0 is a lane without request
    device.decode(rows)                                    # warms up; dead lanes change nothing
    with torch.cuda.graph(graph):
        out_cache_loc = device.decode(rows)
    ...                                                    # rows.copy_(...); graph.replay(), as often as one likes
    faults = device.hand_back()                            # what came of it goes to the ledger; what was refused

On a CPU the same without the graph: rows there, and a device.decode(rows) for each step.

When to use which: by itself the Ledger decides on the host, which knows every length before the step begins; that is
the one to use. This one is for a stretch in which the host does not know them, or is not asked: a decode that was
captured as a CUDA graph and is replayed, or drafts of which only the device knows how many were accepted (extend by all
of them, then cut). It gives the same pages in the same order. Taking over and handing back copy all the state, and
wait; between them only errors() does. state.seq_lens is how long the rows are, there.

Between the two the ledger has no free row and no free page, and its lengths are not true: of its methods only match,
admit, defer and evict may be called (the others raise), and what is evicted is for after the stretch. The device
neither evicts nor publishes, so make room first; what the cache has stays there. A request may start in any row without
tokens, such as
one of free_rows, and behind no cached prefix.

All tensors are on the table's device, rows and lengths int64 [batch]. A lane with row 0 is dead: it gets slot 0, and
changes nothing. TypeError or ValueError, at once, for another dtype, shape or device: this is all that the host sees.
The rest is a Fault, in err, and the call has changed nothing else, for no row of the batch; what it returns is all 0.
Every call after it is refused as well, so the state is the one before the first that was refused, until the host has
handed back; of those after the first nothing is noted.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import numpy as np
import torch

from kvledger.fast import device_torch
from kvledger.fast.device_state import DeviceState, Fault
from kvledger.fast.ledger import Ledger
from kvledger.fast.plan import Pages
from kvledger.spec.world import WrongInput


class DeviceLedger:
    """Beside a ledger, with its table. state: what the device knows. free_rows: those that were free at take_over, the
    next to go first. route: "torch", or "triton" for a CUDA device, or with TRITON_INTERPRET=1 any; the same results.
    WrongInput if the route cannot be had."""

    def __init__(self, ledger: Ledger, route: str = "torch") -> None:
        self.ledger = ledger
        self.plan = ledger.plan
        self.operators = _operators(route, ledger.tensors.device)
        self.state = DeviceState(ledger.world, ledger.tensors)
        self.in_charge = False
        self.free_rows: Pages = np.empty(0, np.int32)

    # ---- from the host, and back

    def take_over(self) -> None:
        """The ledger's state goes to the device, and all that is free with it; err is clear. The host waits.

        ValueError, and nothing has changed, if a row that is held has slots reserved, or no tokens: commit or cut it;
        or if this DeviceLedger, or another beside the same ledger, has taken over already.
        """
        if self.ledger.lent:
            raise ValueError("the device is in charge: expected that it had handed back")
        ledger, state = self.ledger, self.state
        held = ledger.rows.taken(np.arange(len(ledger.committed_len)))
        lengths, protected = np.where(held, (ledger.committed_len, ledger.protected_len), 0)
        odd = held & ((lengths != ledger.allocated_len) | (lengths == 0))
        if odd.any():
            raise ValueError(f"row {odd.argmax()}: expected tokens, and no slots reserved")
        ledger.forget_batch()
        ledger.lent = True
        self.free_rows = ledger.rows.take(ledger.rows.available)
        free = ledger.pages.take(ledger.pages.available)
        stack, live = np.zeros(len(state.stack), np.int32), np.ones(len(state.live), np.int32)
        head = len(stack) - len(free)
        stack[head:] = free
        live[free] = live[0] = 0
        state.stack.copy_(torch.from_numpy(stack))
        state.live.copy_(torch.from_numpy(live))
        state.head.fill_(head)
        state.seq_lens.copy_(torch.from_numpy(lengths))
        state.protected_lens.copy_(torch.from_numpy(protected))
        state.err.zero_()
        self.in_charge = True

    def hand_back(self) -> tuple[Fault, ...]:
        """What the device has done is the ledger's state; what it refused is returned, and stays in errors(). It waits.

        The rows that ended are the next to be taken, the lowest first; then those that were free before.
        """
        self._ask_in_charge()
        ledger, state = self.ledger, self.state
        head, stack = int(state.head.item()), state.stack.cpu().numpy()
        lengths, protected = state.seq_lens.cpu().numpy(), state.protected_lens.cpu().numpy()
        listed = state.tensors.lines[:, 0].cpu().numpy() // self.plan.page_size
        held = lengths > 0
        was_held = np.ones_like(held)
        was_held[self.free_rows] = was_held[0] = False
        for row in np.flatnonzero(was_held & (protected != ledger.protected_len)):
            ledger.cache.unlock(ledger.locked[row])  # what has no more a part of the cache has ended
            ledger.locked[row] = ledger.cache.root
        ledger.rows.give(np.concatenate([np.flatnonzero(was_held & ~held), self.free_rows[~held[self.free_rows]]]))
        ledger.pages.give(stack[head:])
        ledger.lent = False
        ledger.protected_len[:] = protected
        ledger.committed_len[:] = ledger.allocated_len[:] = lengths
        ledger.mirror[:] = listed
        state.close()
        self.in_charge = False
        return self.errors()

    def errors(self) -> tuple[Fault, ...]:
        """What the first call was refused for that was refused since take_over; nothing, if none was. It waits."""
        return tuple(fault for fault, flag in zip(Fault, self.state.err.tolist(), strict=True) if flag)

    # ---- what can be captured

    def decode(self, rows: torch.Tensor) -> torch.Tensor:
        """One more position for each row, which must have tokens. Returns its slot: int64 [batch]"""
        self._ask(rows, rows)
        return self.operators.decode(self.state, self.plan, rows)

    def extend(self, rows: torch.Tensor, seq_lens: torch.Tensor, tokens_max: int) -> torch.Tensor:
        """All positions of each row below seq_len that it has not. A row without tokens starts, and is held.

        Returns their slots, member by member, then 0: int64 [tokens_max]. There must be no more than that.
        """
        self._ask(rows, seq_lens)
        return self.operators.extend(self.state, self.plan, rows, seq_lens, _at_least_one("tokens_max", tokens_max))

    def cut(self, rows: torch.Tensor, seq_lens: torch.Tensor, pages_max: int | None = None) -> torch.Tensor:
        """Only [0, seq_len) of each row stays: at least one token, and what the cache has. Whole pages beyond go back.

        Returns them, then 0: int32 [pages_max]. There must be no more; None: as many as there can be.
        """
        self._ask(rows, seq_lens)
        return device_torch.cut(self.state, self.plan, rows, seq_lens, self._pages_max(rows, pages_max))

    def release(self, rows: torch.Tensor, pages_max: int | None = None) -> torch.Tensor:
        """Everything that these rows hold is given up, and they are held no more. What is the cache's stays there.

        Returns the private pages, which went back, then 0: int32 [pages_max]. There must be no more; None: as in cut.
        """
        self._ask(rows, rows)
        return device_torch.release(self.state, self.plan, rows, self._pages_max(rows, pages_max))

    # ---- what the methods share

    def _pages_max(self, rows: torch.Tensor, given: int | None) -> int:
        every = min(len(rows) * self.plan.width, self.ledger.world.pages)
        return every if given is None else _at_least_one("pages_max", given)

    def _ask_in_charge(self) -> None:
        if not self.in_charge:
            raise ValueError("the host is in charge: expected that the device had taken over")

    def _ask(self, *columns: torch.Tensor) -> None:
        self._ask_in_charge()
        for column in columns:
            if not isinstance(column, torch.Tensor) or column.dtype != torch.int64:
                given = column.dtype if isinstance(column, torch.Tensor) else type(column).__name__
                raise TypeError(f"a batch of {given}: expected int64, in a tensor")
            if column.ndim != 1 or not len(column) or len(column) != len(columns[0]):
                shapes = [list(each.shape) for each in columns]
                raise ValueError(f"a batch of shapes {shapes}: expected one entry for each member, and at least one")
            if column.device.type != self.state.err.device.type:
                raise ValueError(f"a batch on {column.device}: expected {self.state.err.device}, where the table is")


def _operators(route: str, device: torch.device) -> ModuleType:
    """The module that has decode and extend."""
    if route == "torch":
        return device_torch
    if route != "triton":
        raise WrongInput(f"route {route!r:.40}: expected 'torch' or 'triton'")
    try:
        module = import_module("kvledger.fast.device_triton")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise WrongInput("route 'triton': needs triton: pip install triton") from None
    if device.type != "cuda" and not module.INTERPRETED:
        raise WrongInput(f"route 'triton' on {device}: expected a CUDA device, or TRITON_INTERPRET=1 to be set")
    return module


def _at_least_one(name: str, given: int) -> int:
    if type(given) is not int or given < 1:
        raise ValueError(f"{name} = {given!r:.40}: expected a whole number from 1")
    return given
