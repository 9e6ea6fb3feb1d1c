"""Each mutant, in a copy of the tree of its own: the ci profile must end with the rule that was written down.

With more seeds than one: what is found by luck is not found.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvledger.tests.unit.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
SEEDS = ("0", "1")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed, to be spoilt."""
    folder = tmp_path_factory.mktemp("tree")
    left_out = shutil.ignore_patterns("__pycache__", "unit")
    for room in ("spec", "reference", "tests", ".src"):
        shutil.copytree(ROOT / room, folder / room, symlinks=True, ignore=left_out)
    return folder


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{Path(mutant.file).stem}: {mutant.new[:40]}")
def test_the_check_names_its_rule(copy: Path, tmp_path: Path, mutant: Mutant) -> None:
    """In another process, for the modules have the same names."""
    path = copy / mutant.file
    sound = path.read_text()
    assert sound.count(mutant.old) == 1, "the mutant does not fit its file any more"
    path.write_text(sound.replace(mutant.old, mutant.new))
    try:
        for seed in SEEDS:
            command = [sys.executable, "-B", "-m", "kvledger", "check", mutant.backend, "--seed", seed, "--quiet"]
            env = {"PYTHONPATH": str(copy / ".src")}
            done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
            assert done.returncode == 1, done.stdout + done.stderr
            broken = [f"BROKEN  {rule}".replace("RAISES", "the backend raises") for rule in mutant.rules.split()]
            assert any(words in done.stdout for words in broken), done.stdout
    finally:
        path.write_text(sound)
