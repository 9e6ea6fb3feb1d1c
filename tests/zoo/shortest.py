"""The shortest program that trips a faulty backend, by breadth-first search over its real answers.

It measures the shrinker: over the same world and the same scope (requests, prompts, namespaces and options of the
shrunk program) nothing shorter than what this finds exists.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kvledger.spec.action import file_of
from kvledger.spec.actions import Action, Commit, Decode, Extend, Reserve, Submit
from kvledger.spec.backend import Make, View
from kvledger.spec.canon import canon
from kvledger.spec.explore import moves
from kvledger.spec.trace import Step
from kvledger.spec.world import Token, World
from kvledger.spec.worlds import Scope
from kvledger.tests.kit.lockstep import Finding, Grade, Lockstep


def scope_of(steps: Sequence[Step], world: World) -> Scope:
    """Everything that a program submits and samples."""
    submits = [step.act for step in steps if isinstance(step.act, Submit)]
    letters: list[Token] = []
    for step in steps:
        if isinstance(step.act, Extend | Decode):
            letters += [member[-1] for member in step.act.batch if member[-1] is not None]
        if isinstance(step.act, Commit):
            letters += step.act.tokens
    return Scope(
        requests=tuple(dict.fromkeys(act.req for act in submits)),
        prompts=tuple(dict.fromkeys(act.tokens for act in submits)),
        letters=tuple(dict.fromkeys(letters)) or (0,),
        max_kv=world.context_len,
        namespaces=tuple(dict.fromkeys(act.namespace for act in submits)),
        match_limits=tuple(dict.fromkeys(act.match_limit for act in submits)),
        publish=tuple(dict.fromkeys(act.publish for act in submits)),
        sessions=tuple(dict.fromkeys(act.session for act in submits)),
        drafts=tuple(dict.fromkeys(step.act.n for step in steps if isinstance(step.act, Reserve))),
    )


def shortest(make: Make, world: World, scope: Scope, rule: str, most: int) -> int | None:
    """The length of the shortest program that breaks `rule`, if one has at most `most` actions."""
    seen: set[Hashable] = set()
    layer: list[tuple[Action, ...]] = [()]
    for length in range(1, most + 1):
        following = []
        for program in layer:
            lockstep = _perform(make, world, program)
            for act in moves(lockstep.ledger, scope):
                if file_of(act).requires(lockstep.ledger, act) is not None:
                    continue
                longer = (*program, act)
                try:
                    state = _state(_perform(make, world, longer))
                except Finding as finding:
                    if finding.rule == rule:
                        return length
                    continue
                if state not in seen:
                    seen.add(state)
                    following.append(longer)
        layer = following
    return None


def _perform(make: Make, world: World, program: Sequence[Action]) -> Lockstep:
    lockstep = Lockstep(make, world, grade=Grade(scramble=False), count_armed=False)
    for act in program:
        lockstep.do(act)
    return lockstep


def _state(lockstep: Lockstep) -> Hashable:
    """The law's state up to names, and the backend's books with all their numbers and orders."""
    view = lockstep.steps[-1].view if lockstep.steps else None
    if not isinstance(view, View):
        return canon(lockstep.ledger)
    free = (tuple(view.free_rows or ()), tuple(view.free_pages or ()))
    return canon(lockstep.ledger), free, tuple(sorted((req, tuple(slots)) for req, slots in (view.table or {}).items()))
