"""What test_fast_triton.py asks of the Triton route, in an interpreter of its own: whether kernels are interpreted is
settled when triton is loaded. `lockstep` runs them beside the torch route, on a CPU; `compile` builds them for a GPU.
It prints one JSON object of what it did."""

from __future__ import annotations

import json
import sys
from random import Random
from typing import Any

import torch
import triton

from kvledger.fast import device_torch, device_triton
from kvledger.fast.device import DeviceLedger
from kvledger.fast.ledger import Ledger
from kvledger.spec.world import World

LANES, CONTEXT_LEN = 5, 300
SIZES = {  # by kernel: constants, and the arguments that may be 1, which Triton compiles as a case of their own
    "_decode": ({"LANES": 256, "FAULTS": 8}, {"batch", "width", "page_size"}),
    "_book": ({"LANES": 256, "FAULTS": 8}, {"batch", "page_size", "tokens_max"}),
    "_fill": ({"BLOCK": 256}, {"batch", "width", "page_size"}),
}


class Both:
    """One ledger for each route, and the same calls to both."""

    def __init__(self, page_size: int, draw: Random) -> None:
        self.draw = draw
        pages = max(12, 2 * CONTEXT_LEN // page_size)  # short now and then
        self.world = World(rows=6, context_len=CONTEXT_LEN, pages=pages, page_size=page_size)
        self.devices = [DeviceLedger(Ledger(self.world), route) for route in ("torch", "triton")]
        assert [each.operators for each in self.devices] == [device_torch, device_triton]
        for device in self.devices:
            device.take_over()
        self.calls, self.faults = 0, list[str]()

    def edges(self) -> None:
        """The end of a row, and one beyond; and a last page that is in another block of positions than its tokens."""
        one = torch.tensor([1, 0])
        for length, bound in ((10, 10), (260, 250), (CONTEXT_LEN, CONTEXT_LEN), (CONTEXT_LEN + 1, CONTEXT_LEN)):
            self.same("extend", one, torch.tensor([length, 7]), bound)
        self.same("decode", one)
        self.same("release", one)

    def call(self) -> None:
        """A decode or an extend of some rows, now and then a wrong one, and after it everything is the same."""
        draw, state = self.draw, self.devices[0].state
        held = [row for row in range(1, self.world.rows + 1) if state.seq_lens[row] > 0]
        if not self.same("decode", self.lanes(held)):
            chosen = self.lanes(range(1, self.world.rows + 1))
            begins = [int(state.seq_lens[row]) if 0 < row <= self.world.rows else 0 for row in chosen.tolist()]
            steps = [draw.choice([1, 1, 2, 5, 17, 64, 130]) * draw.choice([1] * 30 + [0, -1]) for _ in begins]
            stops = self.laid([begin + step for begin, step in zip(begins, steps, strict=True)])
            self.same("extend", chosen, stops, max(1, int((stops - torch.tensor(begins)).sum()) + draw.randint(-1, 40)))
        if draw.random() < 0.3 and held:
            self.same("release", torch.tensor(draw.sample(held, draw.randint(1, len(held)))))

    def going_on(self) -> torch.Tensor:
        """Rows that have tokens, and might be decoded."""
        lengths = self.devices[0].state.seq_lens
        return torch.where((lengths > 0) & (lengths < CONTEXT_LEN), torch.arange(len(lengths)), 0)

    def lanes(self, rows: Any) -> torch.Tensor:
        """Some of the rows in LANES lanes, others dead; seldom one is no row, or stands there twice."""
        chosen = self.draw.sample(list(rows), min(len(rows), self.draw.randint(1, LANES)))
        lanes = chosen + [0] * (LANES - len(chosen))
        if self.draw.random() < 0.05:
            lanes[0] = self.draw.choice([-1, self.world.rows + 1, 2**40, *chosen])
        self.draw.shuffle(lanes)
        return self.laid(lanes)

    def laid(self, numbers: list[int]) -> torch.Tensor:
        """These numbers, one behind the other in memory, or with others between them."""
        return torch.tensor(numbers).repeat_interleave(2)[::2] if self.draw.random() < 0.5 else torch.tensor(numbers)

    def same(self, name: str, *given: Any) -> bool:
        """Whether the call was refused; on both routes the same came back, and stands in every tensor of the state."""
        outs = [getattr(device, name)(*given) for device in self.devices]
        assert outs[0].dtype == outs[1].dtype and outs[0].tolist() == outs[1].tolist(), (name, given, outs)
        ours, theirs = (device.state for device in self.devices)
        for tensor in ("stack", "head", "live", "seq_lens", "protected_lens", "err"):
            one, other = getattr(ours, tensor), getattr(theirs, tensor)
            assert one.dtype == other.dtype and torch.equal(one, other), (tensor, name, given, one, other)
        assert torch.equal(ours.tensors.lines, theirs.tensors.lines), (name, given)
        self.calls += 1
        faults = self.devices[0].errors()
        if faults:
            self.faults += [fault.name for fault in faults]
            for device in self.devices:
                assert not device.decode(self.going_on()).any()  # nothing more is done till the host has looked
                assert not device.extend(torch.tensor([9, 1]), torch.tensor([1, 999]), 1).any()
                assert device.hand_back() == faults
                device.take_over()
        return bool(faults)


def lockstep() -> dict[str, tuple[int, list[str]]]:
    """By page size: how many calls, and the faults for which some of them were refused."""
    done = {}
    for page_size in (1, 3, 16, 64):
        both = Both(page_size, Random(page_size))
        both.edges()
        for _ in range(40):
            both.call()
        done[str(page_size)] = both.calls, both.faults
    return done


def compiled() -> dict[str, int]:
    """By kernel and case, bytes of code for compute capability 9.0; no GPU is needed for that."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = dict.fromkeys(("rows", "stops", "out", "head", "seq_lens", "lanes_of", "members"), "*i64")
    types |= dict.fromkeys(("stack", "live", "err", "columns"), "*i32")
    done = {}
    for name, (constants, may_be_1) in SIZES.items():
        kernel = getattr(device_triton, name)
        for ones in (set(), may_be_1):
            constant = constants | dict.fromkeys(ones, 1)
            given = {each: "constexpr" if each in constant else types.get(each, "i32") for each in kernel.arg_names}
            built = triton.compile(ASTSource(kernel, given, constant), target=GPUTarget("cuda", 90, 32))
            done[f"{name} {len(ones)}"] = len(built.asm["cubin"])
    return done


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"lockstep": lockstep, "compile": compiled}[sys.argv[1]]()))
