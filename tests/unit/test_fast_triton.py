"""The Triton route of the device: interpreted on a CPU it does what the torch route does, bit for bit; and it compiles
for a GPU. No GPU is needed for either. Skipped where triton is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
from kvledger.fast.device import DeviceLedger
from kvledger.fast.ledger import Ledger
from kvledger.spec.world import World, WrongInput
from kvledger.tests.unit.written import ROOT

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="the triton route needs triton: pip install triton")


def inside(what: str, cache: Path, **env: str) -> Any:
    """What triton_inside says of it."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    full = plain | env | {"PYTHONPATH": str(ROOT / ".src"), "TRITON_CACHE_DIR": str(cache)}
    words = [sys.executable, "-m", "kvledger.tests.unit.triton_inside", what]
    done = subprocess.run(words, env=full, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_interpreted_it_does_what_the_torch_route_does(tmp_path: Path) -> None:
    """Random decodes and extends, wrong ones among them, at page sizes 1, 3, 16 and 64: the same comes back, and every
    tensor of the state is the same after each."""
    done = inside("lockstep", tmp_path, TRITON_INTERPRET="1")
    assert list(done) == ["1", "3", "16", "64"]
    assert all(calls - len(faults) >= 60 for calls, faults in done.values())
    assert {name for _, faults in done.values() for name in faults} == {
        "OUT_OF_PAGES", "WRONG_ROW", "WRONG_LENGTH", "TOO_MANY"
    }  # fmt: skip


def test_it_compiles_for_a_gpu(tmp_path: Path) -> None:
    """Each kernel, and again for a page size, a batch and so on of 1."""
    done = inside("compile", tmp_path)
    assert len(done) == 6 and all(done.values())


def test_on_a_cpu_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(WrongInput, match=r"^route 'triton' on cpu: expected a CUDA device, or TRITON_INTERPRET=1"):
        DeviceLedger(Ledger(World(1, 4, 1, 4)), "triton")
