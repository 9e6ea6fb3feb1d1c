"""Making an engine's environment: a fresh one, what the engine needs, the engine, and at the very end the mark.

Of a guest it is the wheel alone; its host's is made first.

Whatever interrupts this leaves nothing that looks installed: what has no mark counts as absent, is removed when the
making of it fails, and is removed before it is made anew.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

from kvledger.spec.world import WrongInput
from kvledger.tests.engines.venvs import READY, Engine


def install(engine: Engine, say: Callable[[str], None]) -> None:
    """Make the engine's environment, unless it is there. say: is told each step as it begins, and how long it took.

    Raises WrongInput in one line if a step fails.
    """
    if engine.host:
        install(engine.host, say)
    with _alone(engine):
        if engine.is_set_up:
            return
        shutil.rmtree(engine.place, ignore_errors=True)
        try:
            for says, step in _steps(engine):
                say(f"  {says} ...")
                began = time.monotonic()
                step()
                say(f" {time.monotonic() - began:.0f} s\n")
            (engine.place / READY).write_text(engine.recipe)
        except BaseException:  # whoever interrupts it, too
            say("\n")
            shutil.rmtree(engine.place, ignore_errors=True)
            raise


@contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    """Two at once would remove what the other has begun. The lock goes with the process, however that ends."""
    engine.place.parent.mkdir(parents=True, exist_ok=True)
    with open(engine.place.with_name(f"{engine.place.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise WrongInput(f"{engine.title} is being set up by somebody else: expected to be alone") from None
        yield


def _steps(engine: Engine) -> Iterator[tuple[str, Callable[[], None]]]:
    def pip(*words: str) -> None:
        _run(engine, str(engine.python), "-m", "pip", *words)

    if engine.host is None:
        yield "an environment", lambda: _run(engine, sys.executable, "-m", "venv", str(engine.place))
    for needs in engine.needs:
        more = f" and {len(needs) - 3} more" if len(needs) > 3 else ""
        yield ", ".join(needs[:3]) + more, lambda needs=needs: pip("install", "--quiet", *needs)  # type: ignore[misc]
    if engine.wheel_only or engine.host:
        files = f", its {', '.join(engine.wheel_only)} files" if engine.wheel_only else ""
        yield f"{engine.title}{files}", lambda: _unpack(engine, pip)
    else:
        yield engine.title, lambda: pip("install", "--quiet", "--no-deps", f"{engine.package}=={engine.version}")


def _unpack(engine: Engine, pip: Callable[..., None]) -> None:
    """The engine's wheel; or that without what is compiled in it, which is most of its size and is never called."""
    engine.place.mkdir(exist_ok=True)
    packages = engine.place if engine.host else next((engine.place / "lib").glob("python3*/site-packages"))
    with tempfile.TemporaryDirectory(dir=engine.place) as folder:
        pip("download", "--quiet", "--no-deps", "--dest", folder, f"{engine.package}=={engine.version}")
        with ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            wheel.extractall(packages, [name for name in wheel.namelist() if name.endswith(engine.wheel_only or "")])


def _run(engine: Engine, *words: str) -> None:
    """One program to its end. Raises WrongInput with the last thing it complained of."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        said = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no word")
        what = " ".join(word for word in words[2:] if not word.startswith(("-", "/")))
        raise WrongInput(f"{engine.title}: {what} failed: {said}")
