"""--json FILE: the verdict for machines. - is standard output."""

from __future__ import annotations

import json

from kvledger.spec.whole_file import write_whole
from kvledger.spec.world import WrongInput
from kvledger.tests.report.named_file import may_be_written

STDOUT = "-"


def ask(path: str | None) -> None:
    """Raises WrongInput if nothing can be written there."""
    if path is not None and path != STDOUT:
        may_be_written("--json", path)


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
