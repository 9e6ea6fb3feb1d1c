"""Rows over page ordinals: the steps are settled, each seeded fault is refuted in words, and the tie to the code holds.

What a fault breaks is said by the law that it was seeded against; the sentence is what the first bad state shows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import pytest

pytest.importorskip("z3")

from kvledger.proofs import rows_proof
from kvledger.proofs.rows import settle_faults, settle_steps, settle_what_follows
from kvledger.proofs.rows_faults import FAULTS
from kvledger.proofs.rows_laws import LAWS
from kvledger.proofs.rows_logic import Logic, Symbols, Term
from kvledger.proofs.rows_proof import prove, refute, witness
from kvledger.proofs.rows_relations import Relation
from kvledger.proofs.rows_spoil import spoilt
from kvledger.proofs.rows_steps import STEPS, Step
from kvledger.proofs.rows_tie import SHAPES, Misfit, agree, in_shape, tie, watch
from kvledger.proofs.rows_watch import METHODS
from kvledger.spec.action import NAMES, step
from kvledger.spec.actions import Extend, Submit
from kvledger.spec.answer import Granted
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.worlds import A3, WORLDS
from kvledger.tests.unit.test_explore import COUNTS

READS_FREE = r"reads at place \d page \d, which is free"
REFUTED = {
    "frees the prefix": ("borrowed", READS_FREE),
    "unlocks for all": ("every receipt counts", r"page \d, cached under key \d with 0 locks, is read by more holders"),
    "keeps the receipt": ("receipts", r"\w has a receipt for page \d, .* and reads it at no place"),
    "publishes unlocked": ("borrowed", r"reads at place \d page \d, cached .*, without a receipt"),
    "keeps the duplicate": ("no page lost", r"private to row \d at place \d: nobody who holds that row lists it there"),
    "ignores the index": ("one page a key", r"key \d lists pages \d and \d"),
    "cuts by floor": ("own", r"lists at place \d of row \d page \d, which is free"),
    "takes what is not free": ("borrowed", r"reads at place \d page \d, private to row \d"),
    "overwrites a place": ("borrowed", r"reads at place (\d) page \d, private to row \d at place \1"),
    "takes a held row": ("one holder", r"row \d is held by \w and by \w"),
    "leaves both holding": ("borrowed", r"reads at place \d page \d, .*, without a receipt"),
    "takes without receipts": ("borrowed", r"reads at place \d page \d, .*, without a receipt"),
    "evicts what is read": ("borrowed", READS_FREE),
    "leaves the key": ("listed", r"key \d lists page \d, which is free"),
    "forgets to unlock": (
        "every lock is read", r"cached under key \d with (1 lock, is read by 0|2 locks, is read by 1) only"
    ),
}  # fmt: skip
# Faults that write something else than the law; the others accept what the law refuses, which no lawful run shows.
WRITTEN = {
    "frees the prefix": "TINY_A", "unlocks for all": "TINY_A", "keeps the receipt": "TINY_A",
    "publishes unlocked": "TINY_B", "keeps the duplicate": "TINY_A", "cuts by floor": "SESSIONS",
    "leaves both holding": "SESSIONS", "leaves the key": "TINY_B", "forgets to unlock": "SPLIT_ADMIT",
}  # fmt: skip


def quiet(asked: str) -> None:
    """Progress that nobody looks at."""


def spoil(name: str) -> Step:
    """A step with a seeded fault in it."""
    fault = FAULTS[name]
    whole: Relation = STEPS[fault.step].relation
    return STEPS[fault.step]._replace(relation=lambda q, s, p, t: whole(q, s, p, t) | fault.clauses(q, s, p, t))


def test_every_step_is_settled_and_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of them; `kvledger prove` asks for all, and exits 1 if STATUS.md lists more."""
    some = dict(list(STEPS.items())[::3])
    monkeypatch.setattr("kvledger.proofs.rows.STEPS", some)
    verdicts = {verdict.name: verdict for verdict in settle_steps(quiet)}
    assert verdicts.keys() == {f"rows: {name}" for name in some}
    for name, each in some.items():
        verdict = verdicts[f"rows: {name}"]
        many = f"{len(each.cases)} witness{'es' * (len(each.cases) > 1)}"
        assert verdict.holds and verdict.words == f"settled for every size ({len(LAWS)} goals, {many})", verdict


def test_the_aims_follow_from_the_laws() -> None:
    assert settle_what_follows(quiet)[2:4] == ("settled for every size (4 goals)", True)


@pytest.mark.parametrize("law", ["own", "borrowed", "every receipt counts"])
def test_the_aims_do_not_follow_without(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the first two a row may list what is free, without the third a page that is read may have no lock."""
    q, s, t, laws = rows_proof._every_size()
    less = [formula for name, formula in zip(LAWS, laws, strict=True) if name != law]
    monkeypatch.setattr(rows_proof, "_every_size", lambda: (q, s, t, less))
    monkeypatch.setattr(rows_proof, "LIMIT_MS", 500)
    assert rows_proof.prove_what_follows().open


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_refuted_in_words(name: str) -> None:
    found = refute(STEPS[FAULTS[name].step], FAULTS[name])
    assert found is not None
    law, words = REFUTED[name]
    assert found.law == law
    assert re.fullmatch(rf"before: .*; after: .*: .*{words}.*", found.words), found.words


def test_all_faults_are_counted() -> None:
    words = f"{len(FAULTS)} of {len(FAULTS)} refuted, each by a transition of a small world"
    assert settle_faults(quiet).words == words


def test_no_small_world_refutes_a_step_as_it_is() -> None:
    for name in ("cut", "evict"):
        assert refute(STEPS[name]) is None


def test_a_step_that_is_wrong_is_told_with_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_proof, "LIMIT_MS", 500)
    monkeypatch.setattr("kvledger.proofs.rows.STEPS", {"cut": spoil("cuts by floor")})
    (verdict,) = settle_steps(quiet)
    assert not verdict.holds and verdict.words.startswith("not settled: own refuted")
    assert "which is free" in verdict.counterexample


def test_a_lemma_without_a_witness_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    never = STEPS["close"]._replace(cases={"a session that holds a row": lambda q, s, p: s.holds(p.session)})
    monkeypatch.setattr("kvledger.proofs.rows.STEPS", {"close": never})
    (verdict,) = settle_steps(quiet)
    assert (verdict.words, verdict.holds) == ("no witness of a session that holds a row", False)


def test_a_timeout_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_proof, "LIMIT_MS", 1)
    assert prove(STEPS["publish"]).open


def test_a_witness_is_a_lawful_transition() -> None:
    found = witness(STEPS["publish"], "a duplicate merged")
    assert found is not None and found.law is None
    req, upto = found.parameters["req"], found.parameters["upto"]
    assert found.before["protected"][req] == 0 and found.after["protected"][req] == upto == 1
    own = found.before["table"][req, 0]
    assert found.after["kind"][own] == 0 and found.after["table"][req, 0] != own


# ---- the tie


def test_every_method_that_writes_is_a_step() -> None:
    """Edit is the ledger's only writer. sample appends a token: neither page nor row."""
    assert set(METHODS) == STEPS.keys() | {"sample"}
    assert SHAPES.keys() == {*NAMES.values(), "a refusal"}


def test_a_small_world_is_tied_whole() -> None:
    states, transitions, _ = COUNTS["TINY_B"]
    tied = tie("TINY_B", 1, most=8)
    assert (tied.failed, tied.states, tied.transitions) == (None, states, transitions)
    assert tied.changed > tied.steps.total() > transitions / 2


def test_every_step_occurs_among_the_tied() -> None:
    seen = {name for world in ("SMALL", "DUPLICATES") for name in tie(world, 40, most=0).steps}
    assert seen == STEPS.keys() | {"sample"}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_tie_notices_a_relation_that_says_something_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, FAULTS[name].step, spoil(name))
    failed = tie(WRITTEN[name], 1, most=0).failed
    assert failed is not None and failed.startswith(FAULTS[name].step)


def test_the_tie_notices_a_relation_that_leaves_something_open(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = STEPS["release"].relation
    open_one = STEPS["release"]._replace(relation=lambda *of: whole(*of) | {"receipts": True})
    monkeypatch.setitem(STEPS, "release", open_one)
    failed = tie("TINY_B", 1, most=None).failed
    assert failed is not None and "the relation lets pass reads of" in failed


def test_the_tie_notices_a_writer_that_writes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Edit, "_unlock", lambda self, holder: self.locks.pop(holder, None))
    failed = tie("TINY_B", 1, most=0).failed
    assert failed is not None and re.search(r"pages are not as the relation says", failed)


def test_the_tie_notices_a_law_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LAWS, "no page lost")
    failed = tie("TINY_B", 1, most=None).failed
    assert failed is not None and "PAGE-2" in failed and "no law of the rows does" in failed


def test_the_tie_notices_a_ladder_with_a_rung_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows do not see lengths inside a page; that committed is below allocated, in pages, they must."""

    def weaker(q: Logic, s: Symbols) -> Term:
        return q.all("holder", lambda h: q.implies(s.holds(h), s.protected(h) <= s.allocated(h)), lambda h: s.row(h))

    monkeypatch.setitem(LAWS, "lengths", LAWS["lengths"]._replace(formula=weaker))
    failed = tie("TINY_A", 20, most=None).failed
    assert failed is not None and "REC-2, lengths" in failed and "no law of the rows does" in failed


def test_the_tie_notices_a_law_that_is_too_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = LAWS["own"]._replace(formula=lambda q, s: q.all("holder", lambda h: q.no(s.holds(h))), broken=lambda s, h: h)
    monkeypatch.setitem(LAWS, "own", lazy)
    assert tie("TINY_B", 1, most=0).failed == "a state that spec/invariants.py lets pass: r0"


@pytest.mark.parametrize(
    ("action", "said", "fits"),
    [
        ("finish", "publish release forget", True),
        ("finish", "evict cut hand_over forget release close evict", True),
        ("finish", "release publish forget", False),
        ("finish", "forget", False),
        ("extend", "cut take_up grow sample start publish", True),
        ("extend", "grow take_up", False),
        ("evict", "", False),
        ("match_prefix", "", True),
    ],
)
def test_an_action_writes_its_steps_in_order(action: str, said: str, fits: bool) -> None:
    assert in_shape(action, said) == fits


def test_what_is_written_by_no_method_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that changes behind Edit's methods is of no step."""
    world, _ = WORLDS["TINY_B"]
    waiting = step(Ledger.start(world), Submit("r0", A3, "n"), Granted())
    act, answer = Extend((("r0", 3, "a"),)), Granted(rows=(1,), matched=((),), pages=((1, 2),))
    after = step(waiting, act, answer)
    assert [each.step for each in watch(waiting, act, answer, after)] == ["start", "sample"]
    with pytest.raises(Misfit, match="ends in another ledger"):
        watch(waiting, act, answer, replace(after, tables={"r0": (2, 1)}))


def test_a_spoilt_ledger_differs_in_one_entry() -> None:
    world, _ = WORLDS["TINY_B"]
    waiting = step(Ledger.start(world), Submit("r0", A3, "n"), Granted())
    running = step(waiting, Extend((("r0", 3, "a"),)), Granted(rows=(1,), matched=((),), pages=((1, 2),)))
    said = [place for place, _ in spoilt(running)]
    assert len(said) == len(set(said)) > 10
    assert all(ledger != running for _, ledger in spoilt(running))
    assert agree(running, Random(0), None) == len(said)
