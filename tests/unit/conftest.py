"""What several tests start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvledger.tests.unit.written import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """An empty folder, which is the current one and on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Bench(tmp_path, capsys)
