"""Rows over page ordinals: every step of the ledger's writer keeps every law, for every number of rows, pages, keys,
requests and sessions; and the steps are what the code does.

Read rows_state (what the laws speak of), rows_laws, rows_relations (the steps), rows_steps (their names and
witnesses), rows_faults (what must be refuted), conjuncts (that no guard asks for more than it must),
then how it is asked: rows_logic and rows_proof of Z3, rows_watch and rows_tie of the code.

Not covered: what is written in a page and which tokens a key names, beyond how many pages come before it; parents and
children of keys; counts of free pages and rows; lengths inside a page; that a session is closing. The explorer and the
settled kernels cover those. Whether a refusal has a cause is judge's affair: a refusal here is what it wrote.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from kvledger.proofs.conjuncts import in_words
from kvledger.proofs.kernels import not_settled
from kvledger.proofs.rows_faults import FAULTS
from kvledger.proofs.rows_laws import FOLLOWS, LAWS
from kvledger.proofs.rows_proof import idle, prove, prove_what_follows, refute, witness
from kvledger.proofs.rows_steps import STEPS
from kvledger.proofs.rows_tie import Tied, tie
from kvledger.proofs.verdict import Progress, Verdict
from kvledger.spec.worlds import WORLDS

EVERY = 20  # each so-many-th transition and state of a world is tied
CHANGES = 4  # changed fields tried on a step, and spoilt entries on a state


def settle(progress: Progress, worlds: Iterable[str] = WORLDS) -> Iterator[Verdict]:
    """One verdict a step, and one on its guard, one on what follows from the laws, one on the faults, and one a world
    that the steps are tied to, by a part of its transitions and states; `ties` takes all."""
    yield from settle_steps(progress)
    yield from settle_guards(progress)
    yield settle_what_follows(progress)
    yield settle_faults(progress)
    yield from settle_ties(progress, "rows: tie", worlds, EVERY)


def settle_ties(progress: Progress, name: str, worlds: Iterable[str], every: int) -> Iterator[Verdict]:
    """That the steps are what the code does, in these worlds, at one transition and one state in so many."""
    for world in worlds:
        progress(f"{name} {world}")
        began = time.process_time()
        yield _tied(tie(world, every, most=CHANGES), f"{name} {world}", time.process_time() - began)


def settle_steps(progress: Progress) -> Iterator[Verdict]:
    """That each step keeps all laws, and is possible."""
    for name, step in STEPS.items():
        progress(f"rows: {name}")
        began = time.process_time()
        goals = prove(step)
        missing = [case for case in step.cases if witness(step, case) is None]
        words = f"settled for every size ({len(LAWS)} goals, {_counted(len(step.cases), 'witness', 'witnesses')})"
        found = refute(step) if goals.open else None
        if goals.open or missing:
            refuted = {} if found is None or found.law is None else {found.law: "sat"}
            said = [not_settled(goals.open | refuted)] * bool(goals.open)
            words = "; ".join([*said, *(f"no witness of {case}" for case in missing)])
        yield Verdict(
            f"rows: {name}", f"{step.sentence} ({step.acts}); every law of the rows holds after", words,
            not goals.open and not missing, time.process_time() - began, found.words if found else "", goals.slowest,
        )  # fmt: skip


def settle_guards(progress: Progress) -> Iterator[Verdict]:
    """That each step asks for no more than it must: a narrower guard would be a weaker theorem, and still settled."""
    for name, step in STEPS.items():
        progress(f"rows: guard of {name}")
        began = time.process_time()
        many, needless = idle(step)
        claim = "no conjunct of its guard is idle: without it, or with a bound one wider, a law fails in a small world"
        yield Verdict(
            f"rows: guard of {name}", claim, in_words(many, needless, "conjunct", "conjuncts"), not needless,
            time.process_time() - began,
        )  # fmt: skip


def settle_what_follows(progress: Progress) -> Verdict:
    """That the laws say what they are there for."""
    progress("rows: what follows")
    goals = prove_what_follows()
    words = not_settled(goals.open) if goals.open else f"settled for every size ({len(FOLLOWS)} goals)"
    claim = "; ".join(sentence for sentence, _ in FOLLOWS.values())
    return Verdict("rows: what follows", claim, words, not goals.open, goals.seconds, "", goals.slowest)


def settle_faults(progress: Progress) -> Verdict:
    """That a step with a fault in it is refuted, by a state."""
    progress("rows: faults")
    began = time.process_time()
    missed = [name for name, fault in FAULTS.items() if refute(STEPS[fault.step], fault) is None]
    words = f"{len(FAULTS) - len(missed)} of {len(FAULTS)} refuted, each by a transition of a small world"
    return Verdict(
        "rows: faults", "a step with a fault in it breaks a law", words, not missed, time.process_time() - began,
        f"not refuted: {', '.join(missed)}" if missed else "",
    )  # fmt: skip


def _tied(tied: Tied, name: str, seconds: float) -> Verdict:
    share = "all" if tied.every == 1 else f"one in {tied.every}"
    words = (
        f"{tied.transitions:,} transitions of world {tied.world}, {share}: {tied.steps.total():,} steps, and "
        f"{tied.changed:,} with a field changed; {tied.states:,} states, and {tied.spoilt:,} with an entry spoilt"
    )
    claim = "what an action writes is made of these steps, and the laws are those of spec/invariants.py in whole pages"
    return Verdict(name, claim, words, tied.failed is None, seconds, tied.failed or "")


def _counted(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
