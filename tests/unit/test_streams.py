"""Whoever starts us may have closed what we print to: the exit code says the same."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
@pytest.mark.parametrize(("words", "code"), [("rules", 0), ("explore TINY_B", 0), ("rules NOPE", 2)])
def test_a_closed_stream_changes_no_exit_code(words: str, code: int, closed: str) -> None:
    command = f"{sys.executable} -m kvledger {words} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
