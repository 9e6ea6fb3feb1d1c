"""Where the recorded traces lie, for the tests that want one: a folder beside the repository, never part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "traces"


def shared_trace(name: str) -> str:
    """The path of a recorded trace; skips the test where there is none."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"{name} is not in shared/traces beside the repository")
    return str(path)
