"""For each rule the shortest run whose first finding it is, and which nothing else would name.

Searched over the named worlds, nearest state first: every answer one change away from a legal one, every view one
change away from the law's, every request that reads something else, a forbidden call that is granted, and a call that
is refused again with the room made. With the rule's own guards off such a run is accepted, or names a rule of which
`kvledger rules` says that it implies this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tqdm import tqdm

from kvledger.spec.action import apply, file_of
from kvledger.spec.actions import Action
from kvledger.spec.answer import Reply
from kvledger.spec.explore import Answer, Path, explore, moves
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.rules import RULES
from kvledger.spec.saying import of_path, said
from kvledger.spec.trace import Step, Trace
from kvledger.spec.worlds import WORLDS, Scope
from kvledger.tests.kit.probes import forbidden
from kvledger.tests.law.near import near_replies
from kvledger.tests.law.needs import ACCEPTED, Switch, Trial, retries, switched, verdict, weakened
from kvledger.tests.law.spoilt import spoilt

NO_TRACE = ("REC-3",)  # shown by two runs of one backend, with stale lengths overwritten and without: no run is enough


def broken(quiet: bool = True) -> dict[str, Trace]:
    """Rule -> its run, for every MUST rule that a run can break."""
    states: list[tuple[str, Ledger, Callable[[], Path]]] = []
    for name, (world, scope) in WORLDS.items():
        explore(world, scope, laws=False, on_state=lambda ledger, path, name=name: states.append((name, ledger, path)))  # type: ignore[misc]
    wanted = [rule.id for rule in RULES.values() if rule.must and rule.id not in NO_TRACE]
    found: dict[str, Trace] = {}
    nearest = sorted(((len(path()), at) for at, (*_, path) in enumerate(states)))
    with switched() as switch, tqdm(total=len(wanted), unit="rule", leave=False, disable=quiet) as bar:
        for _, at in nearest:
            name, ledger, path = states[at]
            world, scope = WORLDS[name]
            missing = [set(RULES[rule].shown_by) for rule in wanted if rule not in found]
            for last, trial in trials(ledger, scope, any(shown.isdisjoint({"ANSWER", "PROBE"}) for shown in missing)):
                rule = verdict(trial)
                if rule in wanted and rule not in found and alone(rule, trial, switch):
                    steps = (*of_path(world, path()).steps, *last)
                    found[rule] = Trace(world, steps, rule, len(steps), note=f"{RULES[rule].name} ({name})")
                    bar.update()
            if len(found) == len(wanted):
                break
    return {rule: found[rule] for rule in wanted if rule in found}


def without_its_guards(trace: Trace) -> str:
    """What a broken run ends in with the guards of its rule off: accepted, or another rule."""
    *earlier, last = trace.steps
    monitor = Monitor(trace.world, count_armed=False)
    for step in earlier:
        monitor.step(step.act, step.answer)
    trial: Trial
    if last.probe:
        trial = partial(monitor.probe, last.act, last.answer)
    elif last.view is not None:
        trial = partial(monitor.compare, last.view, last.act, monitor.step(last.act, last.answer))
    elif last.read is not None:
        monitor.step(last.act, last.answer)
        [(req, tags)] = last.read.items()
        trial = partial(monitor.read, req, tags)
    else:
        trial = partial(monitor.judge, last.act, last.answer)
    with switched() as switch:
        switch.rule = trace.rule
        return weakened(trial)


def alone(rule: str, trial: Trial, switch: Switch) -> bool:
    """Whether nothing else names it, with the rule's guards off, but what implies it."""
    switch.rule = rule
    after = weakened(trial)
    switch.rule = None
    return after in (ACCEPTED, *RULES[rule].implied_by)


def trials(ledger: Ledger, scope: Scope, books: bool) -> Iterator[tuple[list[Step], Trial]]:
    """What may go wrong next: the last steps, and what judges them. books: with wrong books, too."""
    monitor = Monitor(ledger.world, count_armed=False)
    monitor.ledger = ledger
    for act in moves(ledger, scope):
        file = file_of(act)
        if file.requires(ledger, act) is None:
            legal = list(file.answers(ledger, act, True))
            for reply in near_replies(ledger, act, legal):
                yield [Step(act, reply)], partial(monitor.judge, act, reply)
            for answer in legal if books else ():
                yield from _of_books(ledger, act, answer)
    for acts in forbidden(ledger, "nobody", scope.namespaces[0]).values():
        yield [Step(acts[0], Reply(), probe=True)], partial(monitor.probe, acts[0], Reply())
    yield from retries(ledger, scope)


def _of_books(ledger: Ledger, act: Action, answer: Answer) -> Iterator[tuple[list[Step], Trial]]:
    """A legal step, and wrong books after it."""
    monitor = Monitor(ledger.world, count_armed=False)
    monitor.ledger = apply(ledger, act, answer).commit()
    reply = said(ledger, act, answer)
    for view in spoilt(monitor.ledger):
        yield [Step(act, reply, view=view)], partial(monitor.compare, view, act, answer)
    for req in monitor.ledger.records:
        tags = (0, *monitor.ledger.trail_of(req)[1 : monitor.ledger.records[req].committed_len])
        yield [Step(act, reply, read={req: tags})], partial(monitor.read, req, tags)
