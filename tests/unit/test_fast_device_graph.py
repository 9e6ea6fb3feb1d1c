"""The device in charge: what a CUDA graph can hold. Fixed shapes, no look at data, as many operators whatever the
batch; and a graph itself, where there is a device."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.proxy_tensor import make_fx

from kvledger.fast.device import DeviceLedger
from kvledger.fast.ledger import Ledger
from kvledger.tests.unit.test_fast_device import in_charge, ints, of_three
from kvledger.tests.unit.test_fast_ledger import (
    SIZES,
    SYNCHRONISE,
    WAITING,
    Operators,
    a_ledger,
    holds,
    started,
    waits,
)


@SIZES
def test_as_many_operators_whatever_the_batch_and_no_waiting(page_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a lane, 32 and 1,024."""
    for name in WAITING:
        monkeypatch.setattr(torch.Tensor, name, waits)
    seen = []
    for batch in (1, 32, 1_024):
        device = in_charge(a_ledger(page_size, 1_024, 48, 1_024 * 48))
        rows, full = torch.arange(1, batch + 1), torch.full((batch,), 47)
        with Operators() as counted:
            device.extend(rows, full, 47 * batch)
            device.decode(rows)
            device.cut(rows, full)
            device.release(rows)
        assert not SYNCHRONISE & set(counted.names)
        seen.append(counted.names)
    assert seen[0] == seen[1] == seen[2]


def without_data(call: Callable[..., Any], *given: Any) -> list[int]:
    """The shape of what comes back when no tensor has any data: whoever asks for some is stopped."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return list(call(*(mode.from_tensor(each) for each in given)).shape)


@SIZES
def test_no_shape_and_no_branch_depends_on_data(page_size: int) -> None:
    device = of_three(page_size, 60)
    rows = ints(1, 0, 2)
    assert without_data(device.decode, rows) == [3]
    assert without_data(lambda rows, stops: device.extend(rows, stops, 9), rows, rows) == [9]
    assert without_data(lambda rows, stops: device.cut(rows, stops, 7), rows, rows) == [7]
    assert without_data(lambda rows: device.release(rows, 7), rows) == [7]


@pytest.mark.parametrize(
    "asks", [lambda rows: rows[: int(rows.sum())], lambda rows: rows[rows > 1], torch.nonzero, torch.unique]
)
def test_what_asks_for_data_is_stopped(asks: Any) -> None:
    with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
        without_data(asks, ints(1, 2))


@SIZES
def test_a_trace_replayed_is_the_host_step_by_step(page_size: int) -> None:
    """What a CUDA graph does, with plain operators: they are noted once, of a call with dead lanes alone, and what was
    noted is run 200 times, with other rows each time. A number that the trace had kept would be an old one."""
    host, other = (filled(page_size) for _ in range(2))
    device, draw = in_charge(other), Random(page_size)
    replay = make_fx(lambda rows: device.decode(rows))(torch.zeros(8, dtype=torch.int64))
    for _ in range(200):
        batch = draw.sample(range(1, 9), draw.randint(1, 8))
        out = replay(ints(*batch, *[0] * (8 - len(batch))))
        assert out.tolist() == host.decode(batch).out_cache_loc.tolist() + [0] * (8 - len(batch))
    same_books(device, host)


def filled(page_size: int, device: str = "cpu") -> Ledger:
    """Eight rows of different lengths, with room for 200 more tokens each."""
    ledger = a_ledger(page_size, 8, 300, 8 * 300, device)
    started(ledger, 1, 2, 3, 4, 5, 16, 17, 30)
    return ledger


def same_books(device: DeviceLedger, host: Ledger) -> None:
    assert device.hand_back() == ()
    assert device.ledger.pages.free().tolist() == host.pages.free().tolist()
    assert device.ledger.committed_len.tolist() == host.committed_len.tolist()
    holds(device.ledger)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("route", ["torch", "triton"])
@SIZES
def test_a_cuda_graph_replayed_is_the_host_step_by_step(page_size: int, route: str) -> None:
    """Captured once, replayed 200 times, with other rows each time; CUDA's own check raises where the host waits."""
    if route == "triton":
        pytest.importorskip("triton", reason="the triton route needs triton: pip install triton")
    host, other = filled(page_size), filled(page_size, "cuda")
    device, rows, draw = in_charge(other, route), torch.zeros(8, dtype=torch.int64, device="cuda"), Random(page_size)
    device.decode(rows)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = device.decode(rows)
    for _ in range(200):
        batch = draw.sample(range(1, 9), draw.randint(1, 8))
        rows.copy_(ints(*batch, *[0] * (8 - len(batch))))
        torch.cuda.set_sync_debug_mode("error")
        graph.replay()
        torch.cuda.set_sync_debug_mode("default")
        assert out.tolist() == host.decode(batch).out_cache_loc.tolist() + [0] * (8 - len(batch))
    same_books(device, host)
