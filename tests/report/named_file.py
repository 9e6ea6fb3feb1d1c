"""A file that a command is to write: whether it can be is asked before the work begins, which may take minutes."""

from __future__ import annotations

import os
from pathlib import Path

from kvledger.spec.world import WrongInput


def may_be_written(option: str, path: str) -> None:
    """Raises WrongInput if nothing can be written there. option: that named it, for the complaint."""
    where = Path(path).resolve()
    if not where.parent.is_dir():
        raise WrongInput(f"{option} {path}: the folder does not exist")
    if where.is_dir():
        raise WrongInput(f"{option} {path}: this is a folder, expected a file")
    if not os.access(where if where.exists() else where.parent, os.W_OK):
        raise WrongInput(f"{option} {path}: this may not be written, expected a name that can be")
