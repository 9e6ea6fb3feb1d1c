"""`kvledger replay --plot FILE`: whose the pages of the pool are, over a run, as stacked areas.

Counted from the ledger's records and locks, never page by page, at two thousand calls at most. A step is one call of
the backend. matplotlib is an optional extra: it is asked for, and so is the file, before the run begins.
"""

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path
from typing import NamedTuple

from kvledger.spec.actions import Action, Retract
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import pages_for
from kvledger.spec.world import World, WrongInput
from kvledger.tests.engines.venvs import ENGINES
from kvledger.tests.report.named_file import may_be_written

MOST = 2_000  # samples
FORMATS = (".svg", ".png")
# Bottom to top, in Okabe and Ito's colours, which the colour-blind can tell apart; what is free is what is left.
AREAS = {
    "private": ("private to requests", "#0072B2"),
    "idle": ("held by idle sessions", "#CC79A7"),
    "locked": ("cached, locked (protected)", "#D55E00"),
    "evictable": ("cached, evictable", "#F0E442"),
    "free": ("free", "#E8E8E8"),
}
MARKS = {"refused": ("refused", "#000000", "v"), "retracted": ("retracted", "#009E73", "o")}


class Sample(NamedTuple):
    """Pages by owner after a step; together they are all pages."""

    step: int
    private: int
    idle: int
    locked: int
    evictable: int
    free: int


def sample(ledger: Ledger, step: int) -> Sample:
    """Whose the pages are. What is cached is what is owned and private to nobody; locked is what any holder reads."""
    size, owned = ledger.world.page_size, len(ledger.pages)
    private = idle = 0
    for holder, record in ledger.records.items():
        pages = pages_for(record.allocated_len, size) - record.protected_len // size
        if holder in ledger.sessions:
            idle += pages
        else:
            private += pages
    locked = len(frozenset[int]().union(*ledger.locks.values()))
    return Sample(step, private, idle, locked, owned - private - idle - locked, ledger.world.pages - owned)


class Occupancy:
    """One run. samples: of every call at first; of every second one once there are too many, and so on."""

    def __init__(self, ledger: Ledger) -> None:
        self.samples = [sample(ledger, 0)]
        self.marks: dict[str, list[int]] = {name: [] for name in MARKS}
        self.steps, self.every = 0, 1

    def note(self, ledger: Ledger, action: Action, answer: Granted | Refused) -> None:
        """One call that was judged. ledger: after it."""
        self.steps += 1
        if isinstance(answer, Refused):
            self.marks["refused"].append(self.steps)
        elif isinstance(action, Retract):
            self.marks["retracted"].append(self.steps)
        if self.steps % self.every == 0:
            self.samples.append(sample(ledger, self.steps))
        if len(self.samples) > MOST:
            self.samples, self.every = self.samples[::2], 2 * self.every

    def draw(self, path: str, world: World, broken: str | None = None) -> None:
        """Write the plot, as its name's ending says. broken: the rule that ended the run. Raises WrongInput if that
        fails after all."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 5), layout="constrained")
        axes = figure.add_subplot()
        areas = [[getattr(each, name) for each in self.samples] for name in AREAS]
        words, colours = zip(*AREAS.values(), strict=True)
        axes.stackplot([each.step for each in self.samples], areas, labels=words, colors=colours, step="post")
        for height, (name, (word, colour, marker)) in enumerate(MARKS.items(), 1):
            steps = sorted({step - step % self.every for step in self.marks[name]})  # no denser than what is drawn
            label, level = f"{word}, {len(self.marks[name]):,} times", world.pages * (1 + height / 40)
            axes.plot(steps, [level] * len(steps), marker, color=colour, markersize=4, label=label)
        if broken is not None:
            axes.axvline(self.steps + 1, color="black", linestyle="--", label=f"{broken} breaks")
        axes.set_title(f"{world.declared.title}: {world.rows:,} rows, {world.pages:,} pages of {world.page_size:,}")
        axes.set_xlabel("calls of the backend")
        axes.set_ylabel("pages")
        axes.set_xlim(0, self.steps + 1)
        axes.set_ylim(0, world.pages * (1 + (len(MARKS) + 1) / 40))
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True, frameon=False)
        image = io.BytesIO()
        ending = Path(path).suffix[1:].lower()
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "kvledger"}):  # text as text, equal runs alike
            figure.savefig(image, format=ending, dpi=150, metadata={"Date": None} if ending == "svg" else None)
        try:
            Path(path).write_bytes(image.getvalue())
        except OSError as error:
            raise WrongInput(f"--plot {path}: {error.strerror}, expected a name that can be written") from None


def ask(path: str | None) -> None:
    """Raises WrongInput if no plot can be written there, or none at all."""
    if path is None:
        return
    if Path(path).suffix.lower() not in FORMATS:
        raise WrongInput(f"--plot {path}: expected a name that ends in {' or '.join(FORMATS)}")
    may_be_written("--plot", path)
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        inside = any(engine.runs_here for engine in ENGINES.values())  # which has an environment of its own
        how = f"{sys.executable} -m pip install matplotlib" if inside else "pip install 'kvledger[plot]'"
        raise WrongInput(f"--plot {path}: needs matplotlib: {how}") from None
