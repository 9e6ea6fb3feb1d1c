"""The random search: Hypothesis draws moves, the generator gives them a meaning, the lockstep judges.

Hypothesis' own shrinking is not used: dropping a draw shifts the meaning of all that follow. The concrete actions
are recorded, and tests/kit/shrink.py shrinks those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from random import Random

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from kvledger.spec.actions import Action
from kvledger.spec.answer import Refused
from kvledger.spec.backend import Make
from kvledger.spec.trace import Step
from kvledger.spec.world import World
from kvledger.tests.kit.deviations import Deviation
from kvledger.tests.kit.generate import POOLS, PROFILES, WIDTH, Draw, Pool, Traffic, Way, next_action, worlds
from kvledger.tests.kit.load import build
from kvledger.tests.kit.lockstep import Finding, Grade, Lockstep
from kvledger.tests.kit.shrink import confirmed

BUDGETS = {"quick": 1_000, "ci": 20_000, "deep": 100_000}  # actions
MOVES = 80  # moves of one example


@dataclass
class Outcome:
    """What a search saw. actions counts every call, probes and drain included. probed: each reason to forbid a call."""

    world: World
    seed: int
    actions: int = 0
    examples: int = 0
    armed: Counter[str] = field(default_factory=Counter)
    undone: Counter[str] = field(default_factory=Counter)
    probed: Counter[Way] = field(default_factory=Counter)
    evidence: set[str] = field(default_factory=set)
    finding: Finding | None = None
    deviated: Counter[Deviation] = field(default_factory=Counter)  # known ones, and how often a run ended in them
    steps: list[Step] = field(default_factory=list)
    draining_since: int | None = None  # the steps before the drain probe, if the finding came up in it

    @property
    def drained(self) -> bool:
        """Whether the finding came up in the drain probe."""
        return self.draining_since is not None


def search(
    make: Make,
    *,
    name: str,
    budget: int,
    seed_number: int,
    grade: Grade,
    sizes: tuple[Pool, ...] = POOLS,
    known: tuple[Deviation, ...] = (),
    progress: Callable[[int], None] = lambda actions: None,
) -> Outcome:
    """Run until a finding or until so many actions are done. The same seed gives the same actions. known: deviations
    that end a run and are no finding."""
    pools = possible(make, worlds(sizes), name, grade.limit_s)
    outcome = Outcome(pools[0], seed_number)
    number = st.integers(0, WIDTH - 1)
    move = st.tuples(number, number, number, number)
    # Hypothesis begins with its simplest draws, and they would all mean one dull program: turn every draw by the seed.
    dice = Random(seed_number)
    turns = [tuple(dice.randrange(WIDTH) for _ in range(4)) for _ in range(MOVES)]
    settings_in_turn = list(product(pools, PROFILES, (True, False)))  # every pool meets every kind of traffic

    @settings(
        max_examples=max(1, budget // 4),
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @seed(seed_number)
    @given(st.lists(move, min_size=MOVES, max_size=MOVES))
    def examples(moves: list[Draw]) -> None:
        world, profile, alike = settings_in_turn[outcome.examples % len(settings_in_turn)]
        try:
            turned = [_turned(move, turn) for move, turn in zip(moves, turns, strict=True)]
            _example(make, world, Traffic.of(profile, alike, outcome.probed), turned, name, grade, outcome, known)
        except Exception as error:
            raise _Enough(error) from None
        progress(outcome.actions)
        if outcome.finding is not None or outcome.actions >= budget:
            raise _Enough(None)

    try:
        examples()
    except _Enough as enough:
        if enough.error is not None:
            raise enough.error from None
    return outcome


def _turned(move: Draw, turn: tuple[int, ...]) -> Draw:
    kind, i, j, k = ((number + more) % WIDTH for number, more in zip(move, turn, strict=True))
    return kind, i, j, k


class _Enough(BaseException):
    """A finding, a wrong input, or the budget is spent. Not an Exception: Hypothesis would run the example again."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error


def possible(make: Make, pools: list[World], name: str, limit_s: float) -> list[World]:
    """The worlds that this backend can live in: page_size 1 only, without PAGED. Raises WrongInput if it can live in
    none of them: the one with the smallest pages is built to hear what it declares."""
    _, learned = build(make, min(pools, key=lambda world: world.page_size), name, limit_s)
    return [world for world in pools if world.page_size == 1 or learned.has("PAGED")]


def _example(
    make: Make, world: World, traffic: Traffic, moves: list[Draw], name: str, grade: Grade, outcome: Outcome,
    known: tuple[Deviation, ...],
) -> None:  # fmt: skip
    lockstep = Lockstep(make, world, grade=grade, name=name)
    refused: Action | None = None
    outcome.examples += 1
    outcome.world = lockstep.world
    try:
        for draw in moves:
            chosen = next_action(lockstep.ledger, traffic, draw, refused)
            if chosen is None:
                continue
            act, probe = chosen
            if probe:
                lockstep.probe(act)
            elif isinstance(answer := lockstep.do(act), Refused) and answer.short:
                refused = act
        lockstep.drain()
    except Finding as finding:
        deviation = next((each for each in known if each.explains(finding, lockstep.world, lockstep.steps)), None)
        if deviation is not None:
            outcome.deviated[deviation] += 1
        else:
            outcome.finding, outcome.steps = confirmed(make, lockstep, finding, name=name), lockstep.steps
            outcome.draining_since = lockstep.draining_since
    outcome.actions += len(lockstep.steps)
    outcome.armed += lockstep.armed
    outcome.undone += lockstep.monitor.undone
    outcome.evidence |= lockstep.evidence
