"""Backends and files that are written for one test; and the command line, called and caught, here or in a process."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from kvledger.__main__ import main
from kvledger.spec.actions import Flush
from kvledger.spec.answer import Reply
from kvledger.spec.trace import Step, Trace, text
from kvledger.spec.world import World

HEAD = """
from dataclasses import replace
from kvledger.reference.backend import Backend
from kvledger.spec.actions import Decode, Evict, Extend, Finish, Retract, Submit
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.backend import CachedView, Declaration, RecordView, Totals, View

make = lambda world: Odd(world)
"""
GOOD = text(Trace(World(1, 1, 1, 1), (Step(Flush(), Reply()),)))  # a stored run: one flush of an empty cache
NUMBER = count(1)
ROOT = Path(__file__).resolve().parents[2]  # resolved: the folders are linked into .src


def python(
    *words: str, cwd: Path | None = None, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """What `python WORDS` does in a process of its own, which finds this kvledger and whatever is installed."""
    env = {"PYTHONPATH": str(ROOT / ".src")}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True)


class Bench:
    """A folder that is the current one and on the path, and what the command line does there."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def backend(self, source: str, head: str = HEAD) -> str:
        """Write a module; the target that names its make."""
        name = f"written_{next(NUMBER)}"
        (self.folder / f"{name}.py").write_text(head + source)
        importlib.invalidate_caches()
        return f"{name}:make"

    def file(self, name: str, text: str) -> str:
        """Write a file; its name."""
        (self.folder / name).write_text(text)
        return name

    def call(self, *words: str) -> tuple[int | str | None, str, str]:
        """Exit code, standard output and standard error of `kvledger WORDS`."""
        self.capsys.readouterr()
        try:
            code: int | str | None = main(words)
        except SystemExit as leaving:  # argparse does not return
            code = leaving.code
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err

    def complaint(self, *words: str) -> str:
        """What a wrong input costs: exit 2 and this one line, nothing else."""
        code, out, err = self.call(*words)
        assert (code, out) == (2, ""), (code, out, err)
        assert err.count("\n") == 1 and err.endswith("\n") and "Traceback" not in err, err
        return err

    def check(self, target: str, words: Sequence[str] = ()) -> tuple[int | str | None, str]:
        """Exit code and screen of a check: a short one, but for a fault of the zoo, which may come up late."""
        profile = "ci" if ".zoo." in target else "quick"
        code, out, err = self.call("check", target, "--profile", profile, *words)
        assert err == ""
        return code, out


def odd(method: str, body: str) -> str:
    """The source of a reference in which one method is another. body: its lines; `theirs()` is what it was."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"""
class Odd(Backend):
    def {method}(self, *args):
        theirs = lambda: super(Odd, self).{method}(*args)
{lines}
"""
