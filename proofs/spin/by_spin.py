"""The three worlds counted by Spin: the model is built, run, and what Spin prints is read."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from kvledger.proofs.spin.by_law import Count

MODEL = Path(__file__).resolve().parent / "ledger.pml"
DEEPEST = 200_000  # steps of the longest path that Spin may hold; world C needs 126,000
SECONDS = 120


class NotCounted(Exception):
    """Spin did not visit every state, or a law fails in one: its words."""


def compiler() -> str | None:
    """A C compiler, which Spin needs."""
    return shutil.which("gcc") or shutil.which("cc")


def there() -> bool:
    """Whether Spin and a C compiler are installed."""
    return shutil.which("spin") is not None and compiler() is not None


def count(name: str, model: str | None = None) -> Count:
    """Visit every state of a world. model: its text; ledger.pml, unless told. Raises NotCounted."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "model.pml").write_text(model or MODEL.read_text(encoding="utf-8"), encoding="utf-8")
        _run(folder, "spin", "-a", f"-DWORLD_{name}", "model.pml")
        _run(folder, compiler() or "cc", "-O0", "-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c")
        return read(_run(folder, str(Path(folder) / "pan"), "-E", f"-m{DEEPEST}", "-w18"))


def read(said: str) -> Count:
    """What Spin's report counts. The initial state is no move's target, but a transition to Spin. Raises NotCounted."""
    states, transitions = (re.search(rf"(\d+) {words}", said) for words in ("states, stored", "transitions"))
    whole = "errors: 0" in said and "not completed" not in said and "too small" not in said
    if states is None or transitions is None or not whole:
        told = (line for line in said.splitlines() if line.startswith(("pan:", "error:", "Warning:")))
        raise NotCounted("; ".join(told) or said.strip()[-200:])
    return Count(int(states[1]), int(transitions[1]) - 1)


def _run(folder: str, *command: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotCounted(f"{Path(command[0]).name} took more than {SECONDS} s") from None
    if done.returncode:
        raise NotCounted(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-200:]}")
    return done.stdout
