"""The device in charge: each fault is told, and of a call that is refused nothing else is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")

from kvledger.fast.device import DeviceLedger
from kvledger.fast.device_state import Fault
from kvledger.tests.unit.test_fast_device import everything, in_charge, ints, of_three
from kvledger.tests.unit.test_fast_ledger import (
    SIZES,
    a_ledger,
    started,
)


def test_each_fault_is_told_and_nothing_else_is_left() -> None:
    """13 of 24 pages of 4 are free. Each call beside a row, first or last, that might have been served."""
    calls: list[tuple[Fault, str, list[Any]]] = [
        (Fault.OUT_OF_PAGES, "extend", [ints(2, 4), ints(30, 25), 99]),
        (Fault.WRONG_ROW, "decode", [ints(2, 5)]),
        (Fault.WRONG_ROW, "decode", [ints(-1, 2)]),
        (Fault.WRONG_ROW, "decode", [ints(2, 0, 2)]),
        (Fault.WRONG_ROW, "decode", [ints(2, 4)]),
        (Fault.WRONG_ROW, "decode", [ints(2, 2**40)]),
        (Fault.WRONG_ROW, "extend", [ints(2, 5), ints(4, 4), 9]),
        (Fault.WRONG_ROW, "extend", [ints(2, 2), ints(4, 5), 9]),
        (Fault.WRONG_ROW, "extend", [ints(2, 2), ints(4, 4), 1]),
        (Fault.WRONG_ROW, "extend", [ints(-7, 2), ints(4, 5), 9]),
        (Fault.WRONG_ROW, "cut", [ints(2, 4), ints(1, 1)]),
        (Fault.WRONG_ROW, "cut", [ints(2, 2), ints(1, 1)]),
        (Fault.WRONG_ROW, "release", [ints(2, 4)]),
        (Fault.WRONG_ROW, "release", [ints(1, 2, 1)]),
        (Fault.WRONG_ROW, "release", [ints(1, 5)]),
        (Fault.WRONG_LENGTH, "decode", [ints(2, 3)]),
        (Fault.WRONG_LENGTH, "extend", [ints(2, 1), ints(4, 31), 99]),
        (Fault.WRONG_LENGTH, "extend", [ints(2, 1), ints(4, 2**62), 99]),
        (Fault.WRONG_LENGTH, "extend", [ints(1, 2), ints(9, 3), 99]),
        (Fault.WRONG_LENGTH, "extend", [ints(1, 2), ints(9, -1), 99]),
        (Fault.WRONG_LENGTH, "cut", [ints(2, 1), ints(1, 3)]),
        (Fault.WRONG_LENGTH, "cut", [ints(2, 1), ints(0, 5)]),
        (Fault.WRONG_LENGTH, "cut", [ints(2, 1), ints(4, 5)]),
        (Fault.TOO_MANY, "extend", [ints(1, 2), ints(9, 5), 4]),
        (Fault.TOO_MANY, "release", [ints(2, 3), 8]),
        (Fault.TOO_MANY, "cut", [ints(2, 3), ints(1, 1), 6]),
    ]
    for fault, name, given in calls:
        device = of_three()
        refused(device, (fault,), getattr(device, name), *given)


def refused(device: DeviceLedger, faults: tuple[Fault, ...], call: Callable[..., Any], *given: Any) -> None:
    """It is, for this; so is what comes after it, till the host has looked. Then all goes on."""
    before = everything(device)
    for again in (call, device.release, device.decode):  # the last two for a row that might
        assert not again(*(given if again == call else [ints(2)])).any()
        assert everything(device) == before and device.errors() == faults, (faults, given)
    assert not device.release(ints(9)).any() and device.errors() == faults  # and adds nothing to the flags
    assert device.hand_back() == faults
    device.take_over()
    assert everything(device) == before and device.errors() == ()
    assert device.decode(ints(2)).tolist() == [15]


def test_two_faults_of_one_call_are_both_told() -> None:
    device = of_three()
    refused(device, (Fault.WRONG_ROW, Fault.WRONG_LENGTH), device.extend, ints(9, 3), ints(1, 31), 5)


def test_a_decode_without_a_page_is_of_nobody() -> None:
    """12 pages of 4: one is free, and two rows stand at a page's edge; the third could go on without."""
    device = of_three(pages=12)
    device.extend(ints(1, 2), ints(8, 4), 3)
    before = everything(device)
    assert device.decode(ints(1, 2)).tolist() == [0, 0] and everything(device) == before
    assert device.hand_back() == (Fault.OUT_OF_PAGES,)
    device.take_over()
    assert device.decode(ints(2)).tolist() == [48]


def spoilt(line: int, page: int) -> DeviceLedger:
    """Line `line` of row 2's lists another page, as if somebody had written over the table."""
    device = of_three()
    device.extend(ints(2), ints(8), 5)
    lines = device.state.tensors.lines
    lines[2 * device.plan.width + line] = page * 4 + torch.arange(4, dtype=torch.int32)
    return device


@pytest.mark.parametrize(("page", "fault"), [
    (0, Fault.NO_SUCH_PAGE), (-3, Fault.NO_SUCH_PAGE), (25, Fault.NO_SUCH_PAGE), (2**28, Fault.NO_SUCH_PAGE),
    (3, Fault.DOUBLE_FREE), (2, Fault.DOUBLE_FREE), (13, Fault.DOUBLE_FREE), (24, Fault.DOUBLE_FREE),
])  # fmt: skip
def test_what_cannot_go_back_is_found_in_the_call(page: int, fault: Fault) -> None:
    """Row 2 has pages 3 and 12; for 12 it lists: the padding page, one that is none, its own 3 again, row 1's 2, two
    that are free. Rows 1 and 2 are released together."""
    device = spoilt(1, page)
    before = everything(device)
    for call, given in ((device.release, ints(1, 2)), (device.decode, ints(1)), (device.release, ints(1))):
        assert not call(given).any() and everything(device) == before
    assert device.errors() == (fault,)


def test_a_page_freed_twice_is_flagged_though_it_was_handed_out_again() -> None:
    """Row 2 lists page 2, row 1's. Row 1 goes; then row 2, and two that start would be handed page 2: its counter
    would be as if nothing had been. The flag is from the call, and the two get nothing."""
    device = spoilt(1, 2)
    assert device.release(ints(1)).tolist()[:2] == [2, 0]
    assert not device.release(ints(2)).any()
    for row in (1, 4):
        assert not device.extend(ints(row), ints(8), 8).any()
    assert int(device.state.live[2]) == 0
    assert device.hand_back() == (Fault.DOUBLE_FREE,)


def test_a_page_that_goes_back_300_times_in_one_call_is_found() -> None:
    """300 rows list one page: more than a counter of 8 bits could count."""
    ledger = a_ledger(4, 300, 4, 300)
    started(ledger, *[4] * 300)
    device = in_charge(ledger)
    ledger.tensors.lines[1:] = ledger.tensors.lines[1].clone()
    before = everything(device)
    assert not device.release(torch.arange(1, 301)).any() and everything(device) == before
    assert device.errors() == (Fault.DOUBLE_FREE,)


@SIZES
def test_dead_lanes_change_nothing_at_all(page_size: int) -> None:
    device = of_three(page_size, 60)
    before = everything(device)
    dead = ints(0, 0, 0)
    assert device.decode(dead).tolist() == [0, 0, 0] and device.extend(dead, ints(5, 99, -1), 7).tolist() == [0] * 7
    assert not device.cut(dead, ints(5, 99, -1)).any() and not device.release(dead).any()
    assert everything(device) == before and device.errors() == ()


def test_another_does_not_take_over_meanwhile() -> None:
    """All rows are held, so the books alone would let it: it would have the same rows, and no free page."""
    ledger = a_ledger(rows=2)
    started(ledger, 6, 3)
    device, other = in_charge(ledger), DeviceLedger(ledger)
    before = everything(device)
    with pytest.raises(ValueError, match="the device is in charge: expected that it had handed back"):
        other.take_over()
    assert everything(device) == before and not other.in_charge
    assert device.hand_back() == ()
    other.take_over()
    assert other.decode(ints(1)).tolist() == [10] and other.hand_back() == ()


def test_the_host_leaves_the_rows_alone_meanwhile() -> None:
    """Whatever it is asked of a row raises, and works again once the device has handed back."""
    device = of_three()
    before = everything(device)
    for call, *args in ((device.ledger.decode, [1]), (device.ledger.release, [1]), (device.ledger.cut, [1], [1])):
        with pytest.raises(ValueError, match="the device is in charge of the rows"):
            call(*args)
    assert everything(device) == before
    device.hand_back()
    assert len(device.ledger.decode([1]).counts) == 1
