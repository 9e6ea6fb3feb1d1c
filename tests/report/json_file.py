"""--json FILE: the verdict for machines. - is standard output.

Whether it can be written is asked before the work begins, which may take minutes.
"""

from __future__ import annotations

import json
from pathlib import Path

from kvledger.spec.whole_file import write_whole
from kvledger.spec.world import WrongInput

STDOUT = "-"


def ask(path: str | None) -> None:
    """Raises WrongInput if nothing can be written there."""
    if path in (None, STDOUT):
        return
    where = Path(str(path)).resolve()
    if not where.parent.is_dir():
        raise WrongInput(f"--json {path}: the folder does not exist")
    if where.is_dir():
        raise WrongInput(f"--json {path}: this is a folder, expected a file")


def write(path: str, content: object) -> None:
    """Write it, whole or not at all. Raises WrongInput if that fails after all."""
    text = json.dumps(content, indent=2)
    if path == STDOUT:
        print(text)
        return
    try:
        write_whole(path, [text, "\n"])
    except OSError as error:
        raise WrongInput(f"--json {path}: {error.strerror}, expected a name that can be written") from None
