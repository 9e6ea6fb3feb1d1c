"""The relations of the rows, held against the code: on transitions that the explorer takes, and on changed ones.

Three things are asked of a transition. The steps that its action wrote come in the order that is said for it here.
Each step fulfils its relation, between the ledger right before and right after. And with any one field of the ledger
after changed, it does not: the relation says everything that the step writes, and what it leaves alone.
Two things are asked of a state: the laws of the rows hold in it; and with one entry of the ledger spoilt, whatever they
refuse spec/invariants.py refuses too, and what they let pass there is beyond whole pages.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import NamedTuple

from kvledger.proofs.rows_laws import LAWS, broken_law
from kvledger.proofs.rows_logic import Explored, tables
from kvledger.proofs.rows_parts import Clauses, unchanged
from kvledger.proofs.rows_spoil import spoilt
from kvledger.proofs.rows_state import STATE
from kvledger.proofs.rows_steps import STEPS
from kvledger.proofs.rows_watch import Said, Watched, WatchedEdit, changes, logic_of, parameters_of, state_of
from kvledger.spec.action import apply, name_of
from kvledger.spec.actions import Action
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.explore import explore
from kvledger.spec.invariants import check_whole
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import SpecError, pages_for
from kvledger.spec.worlds import WORLDS

# What an action writes, in order. `sample` appends a token: no page, no row.
SHAPES = {
    "submit": "evict? submit",
    "admit": "evict? cut? admit?",
    "defer": "evict? defer evict?",
    "match_prefix": "evict?",
    "extend": "evict? (cut|take_up)* (start|grow|sample)* publish*",
    "decode": "evict? (grow|sample)* publish*",
    "reserve": "evict? reserve?",
    "commit": "evict? (sample|accept)* publish?",
    "checkpoint": "evict? publish?",
    "finish": "evict? publish? ((cut? hand_over)|release) forget (release? close)? evict?",
    "retract": "evict? ((cut? hand_over)|release) evict?",
    "abort": "evict? publish? release? defer? forget (release? close)? evict?",
    "close": "evict? release? close evict?",
    "evict": "evict",
    "flush": "evict? release* evict?",
    "a refusal": "evict? cut*",
}
NO_PAGE = ("sample", "close")  # may write what is no row, page or receipt: a token; that a session is closing
# What spec/invariants.py says of a ledger that the rows cannot see.
BEYOND = {
    "TAG-1": "what is written in a page",
    "REC-2, lengths": "tokens inside a page",
    "REC-2, more KV than tokens": "tokens",
    "SES-1, has a request's id, or a turn that is not its own": "that a session names a request that is gone",
    "SES-2, knows": "the tokens of a session",
}


class Tied(NamedTuple):
    """What was held against the code in one world. failed: the first that did not fit, in words."""

    world: str
    transitions: int
    steps: Counter[str]
    changed: int
    states: int
    spoilt: int
    every: int
    failed: str | None


class Misfit(Exception):
    """A transition that a relation does not describe, or a state of which laws and invariants disagree."""


def tie(name: str, every: int, *, most: int | None) -> Tied:
    """Explore a named world, and hold every `every`-th transition and state against the relations and laws.

    most: how many changed fields are tried on a step, and spoilt entries on a state, drawn with a fixed seed; None:
    all.
    """
    world, scope = WORLDS[name]
    draw, steps = Random(name), Counter[str]()
    done = {"transitions": 0, "seen": 0, "changed": 0, "states": 0, "visited": 0, "spoilt": 0}

    def on_transition(before: Ledger, act: Action, answer: Granted | Refused, after: Ledger) -> None:
        done["seen"] += 1
        if done["seen"] % every == 0:
            try:
                watched = watch(before, act, answer, after)
                done["transitions"] += 1
                for each in watched:
                    steps[each.step] += 1
                    done["changed"] += hold(each, draw, most)
            except Misfit as misfit:
                raise Misfit(f"{misfit}; in {name_of(act)}{tuple(act)}, answered {answer}") from None

    def on_state(ledger: Ledger, path: object) -> None:
        done["visited"] += 1
        if done["visited"] % every == 0:
            done["states"] += 1
            done["spoilt"] += agree(ledger, draw, most)

    failed = None
    try:
        explore(world, scope, on_transition=on_transition, on_state=on_state)
    except Misfit as misfit:
        failed = str(misfit)
    return Tied(name, done["transitions"], steps, done["changed"], done["states"], done["spoilt"], every, failed)


def watch(before: Ledger, act: Action, answer: Granted | Refused, after: Ledger) -> list[Watched]:
    """The steps of a transition. Raises Misfit where they come in another order, or end elsewhere."""
    edit = apply(before, act, answer, writer=WatchedEdit)
    assert isinstance(edit, WatchedEdit)
    watched = edit.seen()
    name = name_of(act) if isinstance(answer, Granted) else "a refusal"
    said = " ".join(each.step for each in watched)
    if not in_shape(name, said):
        raise Misfit(f"{name} writes {said or 'nothing'}: expected {SHAPES[name]}")
    if (watched[-1].after if watched else before) != after:
        raise Misfit(f"{name}, watched, ends in another ledger")
    return watched


def in_shape(name: str, said: str) -> bool:
    """Whether an action may write these steps in this order."""
    shape = re.sub(r"\w+", r"(?:\g<0>,)", SHAPES[name]).replace(" ", "")
    return re.fullmatch(shape, "".join(f"{step}," for step in said.split())) is not None


def clauses_of(watched: Watched, there: Explored, before: Said, after: Said, stays: bool) -> Clauses:
    """The clauses of a step, evaluated. stays: it writes what the rows do not see."""
    s, t = tables(STATE, before), tables(STATE, after)
    if stays:
        return unchanged(there, s, t)
    step = STEPS[watched.step]
    p = parameters_of(watched)
    filled = {name: p.get(name, {}) for name in step.parameters}
    return step.relation(there, s, tables(step.parameters, filled), t)


def hold(watched: Watched, draw: Random, most: int | None) -> int:
    """One step against its relation; then with fields changed: how many. Raises Misfit."""
    before, after = state_of(watched.before), state_of(watched.after)
    depth = {"depth": before["depth"] | after["depth"]}
    before, after = before | depth, after | depth
    there = logic_of(watched.before.world, before, after)
    if watched.step not in STEPS and watched.step != "sample":
        raise Misfit(f"something is written by {watched.step or 'no method of Edit'}, which is no step")
    stays = watched.step in NO_PAGE and (watched.step == "sample" or before == after)
    for clause, fits in clauses_of(watched, there, before, after, stays).items():
        if not fits:
            raise Misfit(f"{watched.step}{watched.arguments}: {clause} are not as the relation says")
    spoils = list(changes(after, there))
    if most is not None and len(spoils) > most:
        spoils = draw.sample(spoils, most)
    for place, changed in spoils:
        if all(clauses_of(watched, there, before, changed, stays).values()):
            raise Misfit(f"{watched.step}{watched.arguments}: the relation lets pass {place}")
    return len(spoils)


def broken(ledger: Ledger) -> tuple[str | None, str]:
    """The law of the rows that a ledger breaks, and the culprit in words."""
    said = state_of(ledger)
    there, s = logic_of(ledger.world, said), tables(STATE, said)
    law = broken_law(there, s)
    return law, "" if law is None else LAWS[law].broken(s, *there.culprit)


def in_order_by_pages(ledger: Ledger) -> bool:
    """Whether the lengths of each record are in order when counted in pages: what is wrong, if anything, lies inside
    one."""
    size, most = ledger.world.page_size, pages_for(ledger.world.context_len, ledger.world.page_size)
    for record in ledger.records.values():
        whole, allocated = record.committed_len // size, pages_for(record.allocated_len, size)
        if not 0 <= record.protected_len // size <= whole <= pages_for(record.committed_len, size) <= allocated:
            return False
        if not 1 <= allocated <= most:
            return False
    return True


def agree(ledger: Ledger, draw: Random, most: int | None) -> int:
    """The laws of the rows against spec/invariants.py, on a state and on spoilt ones: how many. Raises Misfit."""
    law, words = broken(ledger)
    if law is not None:
        raise Misfit(f"a state that spec/invariants.py lets pass: {words}")
    spoils = list(spoilt(ledger))
    if most is not None and len(spoils) > most:
        spoils = draw.sample(spoils, most)
    for place, spoil in spoils:
        law, words = broken(spoil)
        complaint = None
        try:
            check_whole(spoil)
        except SpecError as error:
            complaint = str(error)
        if law is not None and complaint is None:
            raise Misfit(f"{place}: {law} refuses it, {words}; spec/invariants.py does not")
        unseen = complaint is not None and any(word in complaint for word in BEYOND) and in_order_by_pages(spoil)
        if law is None and complaint is not None and not unseen:
            raise Misfit(f"{place}: spec/invariants.py refuses it, {complaint}; no law of the rows does")
    return len(spoils)
