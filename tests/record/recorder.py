"""Writes a run as it happens, a line an action: what an engine's developer puts beside live pools.

    with Recorder("run.jsonl", world, backend="mine") as recorder:
        ...
        blocks = pool.allocate(...)                                       # your engine, as it is
        recorder.note(Extend((("A", 5, token),)), Reply(matched=[[]], slots=[slots]))

Nothing is judged here, and nothing is asked of the engine: `kvledger audit run.jsonl` does that, elsewhere and later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kvledger.spec.actions import Action
from kvledger.spec.answer import Refused, Reply
from kvledger.spec.backend import View
from kvledger.spec.recording import header, line
from kvledger.spec.snapshot import Snapshot
from kvledger.spec.trace import Step
from kvledger.spec.world import Holder, World, WrongInput


class Recorder:
    """One recording. Each line is written out at once: a process that dies has lost nothing of it.

    world: the sizes of the pools, with the engine's declaration. opening: what is true now, if not everything is free.
    Raises WrongInput for a file that exists or cannot be written, and for an opening that cannot be.
    """

    def __init__(
        self, path: str | Path, world: World, *, backend: str = "", opening: Snapshot | None = None
    ) -> None:
        self.world, head = world, header(world, backend, opening)
        try:
            self._file = open(path, "x", encoding="utf-8", buffering=1, newline="\n")  # noqa: SIM115  # until close
        except FileExistsError:
            raise WrongInput(f"{path}: this file exists, expected a new name to record to") from None
        except (OSError, ValueError) as error:
            raise WrongInput(f"{path}: {getattr(error, 'strerror', error)}, expected a name to record to") from None
        self._file.write(head + "\n")

    def note(
        self,
        act: Action,
        answer: Reply | Refused,
        *,
        view: View | None = None,
        read: Mapping[Holder, Sequence[int]] | None = None,
    ) -> None:
        """One action and what the engine made of it; view: its books after it. Raises WrongInput for what cannot be
        written, and then nothing of it is."""
        self._file.write(line(Step(act, answer, False, view, read)) + "\n")

    def close(self) -> None:
        """The recording ends."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
