"""A file is written whole or not at all: whatever fails half way leaves everything as it was."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write_whole(path: str | Path, parts: Iterable[str], *, new: bool = False) -> None:
    """Write these parts, one after the other, in UTF-8. new: never over a file that exists.

    Raises OSError, FileExistsError if new, and whatever making the parts raises.
    """
    target = Path(path)
    if new and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if target.exists() and not target.is_file():  # a pipe or a device takes what comes; a folder says what it is
        _write(target, parts)
        return
    target = target.resolve()  # a link is followed, not replaced
    beside = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        _write(beside, parts)
        if new:
            os.link(beside, target)  # fails where somebody else was faster
        else:
            os.replace(beside, target)
    finally:
        with suppress(OSError):
            beside.unlink()


def _write(path: Path, parts: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(parts)
