"""What a run may use, and whether every request fits into it: known before anything is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvledger.spec.page import pages_for
from kvledger.spec.world import World, WrongInput
from kvledger.tests.replay.mooncake import TraceRequest


class Knobs(NamedTuple):
    """world: the sizes, with the backend's declaration. running: most requests that run at once. chunk: most new
    prompt tokens of one request in one round."""

    world: World
    running: int = 32
    chunk: int = 256


def positions(trace: TraceRequest) -> int:
    """How many positions need KV before the request ends: all but that of the token sampled last."""
    return len(trace.prompt) + max(1, trace.output_len) - 1


def check(requests: Sequence[TraceRequest], knobs: Knobs) -> None:
    """Raises WrongInput for a knob out of range, and for the first request that would not fit even alone."""
    world = knobs.world
    for name, value in (("running", knobs.running), ("chunk", knobs.chunk)):
        if value < 1:
            raise WrongInput(f"{name} = {value}: expected a whole number >= 1")
    if world.has("ROWS") and knobs.running > world.rows:
        raise WrongInput(f"{knobs.running} running requests with {world.rows} rows: expected a row for each")
    for trace in requests:
        columns = positions(trace)
        pages = pages_for(columns, world.page_size)
        who = f"request {trace.req} cannot fit: {len(trace.prompt):,} + {trace.output_len:,} tokens"
        if columns > world.context_len:
            raise WrongInput(f"{who} need {columns:,} columns, a row has {world.context_len:,}")
        if pages > world.pages:
            raise WrongInput(f"{who} need {pages:,} pages of {world.page_size:,}, the pool has {world.pages:,}")
