"""A file is written whole or not at all, wherever it fails: no half, nothing beside it, and what was there stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kvledger.spec import whole_file
from kvledger.spec.actions import Flush
from kvledger.spec.answer import Reply
from kvledger.spec.trace import Step, Trace
from kvledger.spec.trace import write as write_trace
from kvledger.spec.whole_file import write_whole
from kvledger.spec.world import World, WrongInput
from kvledger.tests.replay.synthetic import write as write_synthetic
from kvledger.tests.report.json_file import write as write_json

ROOT = Path(__file__).parents[2]
TRACE = Trace(World(1, 1, 1, 1), (Step(Flush(), Reply()),))
WRITERS: dict[str, Callable[[str], None]] = {
    "trace": lambda path: write_trace(TRACE, path),
    "json": lambda path: write_json(path, [1, 2, 3]),
    "synthetic": lambda path: write_synthetic(path, 3, 0),
}


def full(*_: object, **__: object) -> NoReturn:
    """As on a full disk."""
    raise OSError(28, "No space left on device")


def held(folder: Path) -> dict[str, str]:
    """File name -> content."""
    return {path.name: path.read_text() for path in folder.iterdir()}


class Full:
    """A file that takes some text, and then no more."""

    def __init__(self, path: Path, *words: object, **options: object) -> None:
        self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def writelines(self, parts: Iterator[str]) -> None:
        """Some of it."""
        self.file.write("half of ")
        full()


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("fails", ["open", "write", "replace", "link"])
def test_what_fails_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, fails: str
) -> None:
    """At each point where it can fail."""
    wanted = {"open": full, "write": Full}.get(fails)
    before = {} if writer == "synthetic" else {"it": "as it was"}
    for name, content in before.items():
        (tmp_path / name).write_text(content)
    if wanted:
        monkeypatch.setattr(whole_file, "open", wanted, raising=False)
    else:
        for name in ("replace", "link"):
            monkeypatch.setattr(os, name, full)
    with pytest.raises(WrongInput, match="No space left on device"):
        WRITERS[writer](str(tmp_path / "it"))
    assert held(tmp_path) == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_cannot_be_made_leaves_no_trace(tmp_path: Path, error: type[BaseException]) -> None:
    """A part that raises, or somebody who has waited long enough."""

    def parts() -> Iterator[str]:
        yield "half"
        raise error

    for new in (False, True):
        with pytest.raises(error):
            write_whole(tmp_path / "it", parts(), new=new)
        assert held(tmp_path) == {}


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """In a process that may write 2,000 bytes: the system's own error, and no half of a file."""
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000)); "
        "from kvledger.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    for words, name in (
        (["replay", "--synthetic", "t.jsonl", "--requests", "500"], "t.jsonl"),
        (["check", "reference", "--profile", "quick", "--json", "out.json", "--quiet"], "out.json"),
    ):
        done = subprocess.run([sys.executable, "-B", "-c", limited, *words], cwd=tmp_path, capture_output=True,
                              text=True, env={"PYTHONPATH": str(ROOT / ".src")})  # fmt: skip
        assert done.returncode == 2 and f"{name}: File too large, expected" in done.stderr
        assert done.stderr.count("\n") == 1 and not list(tmp_path.glob(f"{name}*"))


def test_what_is_there(tmp_path: Path) -> None:
    """It is replaced whole, through a link, too; with new it is left alone, a link to nowhere as well."""
    real, link, nowhere = tmp_path / "real", tmp_path / "link", tmp_path / "nowhere"
    real.write_text("a longer text than what comes")
    link.symlink_to(real)
    nowhere.symlink_to(tmp_path / "missing")
    write_whole(link, ["short\n"])
    assert link.is_symlink() and real.read_text() == "short\n"
    for path in (real, link, nowhere):
        with pytest.raises(FileExistsError):
            write_whole(path, ["mine"], new=True)
    assert real.read_text() == "short\n" and not (tmp_path / "missing").exists()
    write_whole(nowhere, ["found"])
    assert (tmp_path / "missing").read_text() == "found"


def test_somebody_is_faster(tmp_path: Path) -> None:
    """Made while the parts were made: theirs stays."""

    def parts() -> Iterator[str]:
        (tmp_path / "it").write_text("theirs")
        yield "mine"

    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "it", parts(), new=True)
    assert held(tmp_path) == {"it": "theirs"}


def test_what_is_no_file_is_written_as_it_is(tmp_path: Path) -> None:
    """A pipe and a device are not replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, ["through"])
    assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    os.close(reader)
    write_whole(os.devnull, ["away"])
    assert Path(os.devnull).is_char_device()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, ["never"])


def test_what_is_written_may_be_read_by_others(tmp_path: Path) -> None:
    """With the permissions that any new file gets."""
    (tmp_path / "plain").write_text("")
    write_whole(tmp_path / "it", [""])
    modes: Any = {(tmp_path / name).stat().st_mode for name in ("plain", "it")}
    assert len(modes) == 1
