"""What a run may use, and whether every request fits into it: known before anything is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvledger.spec.page import pages_for
from kvledger.spec.world import World, WrongInput
from kvledger.tests.replay.request import TraceRequest


class Knobs(NamedTuple):
    """world: the sizes, with the backend's declaration. running: most requests that run at once. chunk: most new
    prompt tokens of one request in one round. batch: most members of one call; None: as many as the backend takes.
    drafts: tokens drafted for one that is known; 0: none, and each request decodes one token a round."""

    world: World
    running: int = 32
    chunk: int = 256
    batch: int | None = None
    drafts: int = 0


def check(requests: Sequence[TraceRequest], knobs: Knobs) -> None:
    """Raises WrongInput for a knob out of range, and for the first request that would not fit even alone."""
    world = knobs.world
    for name, value, least in (
        ("running", knobs.running, 1),
        ("chunk", knobs.chunk, 1),
        ("batch", 1 if knobs.batch is None else knobs.batch, 1),
        ("drafts", knobs.drafts, 0),
    ):
        if value < least:
            raise WrongInput(f"{name} = {value}: expected a whole number >= {least}")
    if knobs.drafts and not world.has("DRAFTS"):
        raise WrongInput(f"drafts = {knobs.drafts}: {world.declared.name} does not declare DRAFTS, expected 0")
    if world.has("ROWS") and knobs.running > world.rows:
        raise WrongInput(f"{knobs.running} running requests with {world.rows} rows: expected a row for each")
    for trace in requests:
        columns = trace.positions + knobs.drafts
        pages = pages_for(columns, world.page_size)
        drafts = f" and {knobs.drafts} drafts" * (knobs.drafts > 0)
        who = f"request {trace.req} cannot fit: {len(trace.prompt):,} + {trace.output_len:,} tokens{drafts}"
        if columns > world.context_len:
            raise WrongInput(f"{who} need {columns:,} columns, a row has {world.context_len:,}")
        if pages > world.pages:
            raise WrongInput(f"{who} need {pages:,} pages of {world.page_size:,}, the pool has {world.pages:,}")
