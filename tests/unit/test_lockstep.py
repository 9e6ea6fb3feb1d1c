"""One backend and one monitor in step: the drain probe, what counts as evidence, and that answers are kept as said."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kvledger.reference.backend import Backend as Reference
from kvledger.spec.actions import (
    Abort,
    Action,
    Admit,
    Close,
    Commit,
    Decode,
    Evict,
    Extend,
    Finish,
    Flush,
    Reserve,
    Retract,
    Submit,
)
from kvledger.spec.answer import Granted, Refused, Reply
from kvledger.spec.backend import Declaration, KeepsContent, Make, RecordView, View
from kvledger.spec.rules import RULES, VIEW_PARTS
from kvledger.spec.trace import Step, Trace, judge
from kvledger.spec.world import CAPABILITIES, World
from kvledger.tests.engines.oracle import Oracle, Policy
from kvledger.tests.kit.lockstep import Finding, Grade, Lockstep
from kvledger.tests.kit.verdict import verdicts
from kvledger.tests.unit.written import Bench, odd

WORLD = World(rows=3, context_len=7, pages=8, page_size=2)
ALL = frozenset(CAPABILITIES) - {"SCRAMBLE", "DUPLICATES"}
BEFORE: tuple[Action, ...] = (
    Submit("a", (1, 2, 3), 0), Extend((("a", 3, 9),)), Finish("a", 3, True),
    Submit("b", (1, 2, 3), 0), Extend((("b", 3, 9),)),
)  # fmt: skip


def driven(backend: type[Reference], acts: tuple[Action, ...] = BEFORE, world: World = WORLD) -> Lockstep:
    lockstep = Lockstep(backend, world, name="odd")
    for act in acts:
        lockstep.do(act)
    return lockstep


VIEW_PARTS_SHOWN = tuple(part.lower() for part in VIEW_PARTS)


class ShowsNothing(Reference):
    """Declares a view and leaves every part of it out; cannot tell what it freed."""

    parts: tuple[str, ...] = ()

    def do(self, act: Action) -> Reply | Refused:
        """The reference's, without freed."""
        reply = super().do(act)
        return replace(reply, freed=None) if isinstance(reply, Reply) else reply

    def view(self) -> View:
        """Some parts."""
        return View(**{part: getattr(super(ShowsNothing, self).view(), part) for part in self.parts})


# ---- the drain probe


@pytest.mark.parametrize(
    ("declared", "empties", "lengths"),
    [
        # 8 pages, 3 rows of 7 tokens: 4 + 3 + 1 pages
        (Declaration("all", "", ALL), Evict, [7, 6, 2]),
        (Declaration("one namespace", "", ALL, declines=frozenset({"NAMESPACES"})), Evict, [7, 6, 2]),
        (Declaration("two kept back", "", ALL, headroom=2), Evict, [7, 2, 2]),
        (Declaration("nothing but headroom", "", ALL, headroom=8), Evict, []),
        (Declaration("without evict", "", ALL - {"EVICT"}), Flush, [7, 6, 2]),
        (Declaration("without a cache", "", frozenset({"ROWS", "PAGED", "CHUNKED"})), None, [7, 6, 2]),
        (Declaration("without rows", "", ALL - {"ROWS"}), Evict, [7, 7]),
    ],
    ids=lambda value: value.name if isinstance(value, Declaration) else "",
)
def test_a_drain_takes_everything_once(declared: Declaration, empties: type | None, lengths: list[int]) -> None:
    """Who lives ends, the cache is emptied, every row and every page but the headroom is taken, then given back."""
    lockstep = Lockstep(lambda world: Oracle(world, Policy("lifo", declared)), WORLD, name=declared.name)
    for act in BEFORE:
        lockstep.do(act)
    lockstep.drain()
    acts = [step.act for step in lockstep.steps[len(BEFORE) :]]
    assert acts[0] == Abort("b")
    assert {type(act) for act in acts if isinstance(act, Evict | Flush)} == ({empties} if empties else set())
    taken = [act.batch[0][1] for act in acts if isinstance(act, Extend)]
    assert taken == lengths
    pages = [slots for step in lockstep.steps[len(BEFORE) :] if isinstance(step.answer, Reply)
             for each in step.answer.slots for slots in {slot // 2 for slot in each}]  # fmt: skip
    assert len(pages) == len(set(pages)) == WORLD.pages - declared.headroom
    assert not lockstep.ledger.requests and not lockstep.ledger.pages


class LosesAPage(Reference):
    """Every retract loses one, and its books do not show it."""

    def do(self, act: Action) -> Reply | Refused:
        """The reference's, then a page less."""
        reply = super().do(act)
        if isinstance(act, Retract) and isinstance(reply, Reply):
            self.allocator.alloc(1)
        return reply

    def view(self) -> View:
        """Nothing but totals that nobody asked for."""
        return View()


def test_what_is_refused_in_the_drain_probe_was_lost() -> None:
    lockstep = driven(LosesAPage, (*BEFORE, Retract("b")))
    with pytest.raises(Finding) as found:
        lockstep.drain()
    assert found.value.rule == "PAGE-2" and lockstep.draining_since == len(BEFORE) + 1


TALK: tuple[Action, ...] = (Submit("t", (1, 2, 3), 0, session="s"), Extend((("t", 3, 9),)), Finish("t", 3, False))

DRAFTED: tuple[Action, ...] = (Submit("c", (4, 5), 0), Extend((("c", 2, 9),)), Reserve("c", 3))


def test_a_drain_ends_sessions_drafts_and_admissions_too() -> None:
    admitted: tuple[Action, ...] = (Submit("w", (1, 2), 0), Admit("w"), Submit("u", (1, 2, 3, 9), 0, session="s"))
    lockstep = driven(Reference, (*TALK, *DRAFTED, *admitted))
    before = len(lockstep.steps)
    lockstep.drain()
    assert [step.act for step in lockstep.steps[before : before + 4]] == [
        Abort("c"), Abort("w"), Abort("u"), Close("s"),
    ]  # fmt: skip
    assert not any((lockstep.ledger.requests, lockstep.ledger.sessions, lockstep.ledger.pages))


class ForgetsSessions(ShowsNothing):
    """A closed session is forgotten, and what it holds with it."""

    def close(self, act: Close) -> Reply | Refused:
        """Only of idle sessions; whatever it says, it says nothing of what was freed."""
        session = self.sessions.get(act.session)
        if session is None or session.turn is not None:
            return super().close(act)
        del self.sessions[act.session]
        return Reply()


@pytest.mark.parametrize(("pages", "rule"), [(8, "PAGE-2"), (12, "ROW-1")])
def test_what_a_closed_session_has_left_is_missed_in_the_drain_probe(pages: int, rule: str) -> None:
    """By who wants all of the pages; or, where there are more than the rows can take, all of the rows."""
    lockstep = driven(ForgetsSessions, (*TALK, Close("s")), replace(WORLD, pages=pages))
    with pytest.raises(Finding) as found:
        lockstep.drain()
    assert found.value.rule == rule


class EvictsFew(Reference):
    """Refuses to evict more than three pages."""

    def do(self, act: Action) -> Reply | Refused:
        """The reference's, but for that."""
        return Refused() if isinstance(act, Evict) and act.n > 3 else super().do(act)


def test_only_what_the_drain_probe_takes_was_lost() -> None:
    """It evicts as others do, and there a refusal without cause is one (PAGE-5): no page is lost."""
    lockstep = driven(EvictsFew)
    with pytest.raises(Finding) as found:
        lockstep.drain()
    assert (found.value.rule, type(lockstep.steps[-1].act)) == ("PAGE-5", Evict)


# ---- content


class KeepsRejected(Reference):
    """Its row lists the slot behind the accepted drafts in place of their last one."""

    def commit(self, act: Commit) -> Reply | Refused:
        """The reference's, then that."""
        reply, kv = super().commit(act), self.reqs[act.req].kv
        row = self.req_to_token_pool.req_to_token[kv.row]
        row[kv.kv_committed_len - 1] = row[kv.kv_committed_len]
        return reply


@pytest.mark.parametrize(("accepted", "rule"), [((6,), "TAG-1"), ((6, 7), "TAG-1"), ((6, 7, 8), None)])
def test_what_is_not_accepted_is_not_read(accepted: tuple[int, ...], rule: str | None) -> None:
    """Slots of rejected drafts hold what is nobody's; where all are accepted the row does end there."""
    world = replace(WORLD, page_size=1)
    backend = KeepsRejected if rule else Reference
    lockstep = Lockstep(backend, world, grade=Grade(view=False), name="odd")
    for act in DRAFTED:
        lockstep.do(act)
    if rule is None:
        lockstep.do(Commit("c", accepted))
        return
    with pytest.raises(Finding) as found:
        lockstep.do(Commit("c", accepted))
    assert (found.value.rule, found.value.facts["position"]) == (rule, 1 + len(accepted))


# ---- evidence


def seen(lockstep: Lockstep) -> dict[str, str]:
    """The word for each rule, had each been armed often enough."""
    armed = dict.fromkeys(RULES, 100)
    return {each.rule.id: each.word for each in verdicts(lockstep.world, armed, undone={}, seen=lockstep.evidence)}


def test_a_rule_holds_only_on_evidence() -> None:
    """A view without parts shows nothing, freed=None shows nothing of PAGE-6; every other word stays."""
    everything, nothing = seen(driven(Reference)), seen(driven(ShowsNothing))
    assert set(everything.values()) == {"HOLDS"}
    changed = {rule for rule, word in nothing.items() if word == "UNSEEN"}
    assert changed == {rule.id for rule in RULES.values() if set(rule.shown_by) <= {"FREED", *VIEW_PARTS}}
    of_sessions = {"SES-1", "SES-3", "SES-4"}  # SES-2 is seen in answers as well: rows and slots of a turn
    assert {"PAGE-6", "LOCK-1", "ROW-3", "TAB-2", "CONS-1", "ATOM-1"} | of_sessions == changed


@pytest.mark.parametrize("part", VIEW_PARTS)
def test_each_part_of_a_view_is_evidence_for_its_own_rules(part: str) -> None:
    class Shows(ShowsNothing):
        parts = (part.lower(),)

    changed = {rule for rule, word in seen(driven(Shows)).items() if word == "UNSEEN"}
    assert changed == {
        rule.id for rule in RULES.values() if set(rule.shown_by) <= {"FREED", *VIEW_PARTS} - {part}
    }


def test_what_nobody_looked_at_does_not_count() -> None:
    """A rule is armed where it was shown, not elsewhere."""

    class Seldom(ShowsNothing):
        def view(self) -> View:
            self.parts = VIEW_PARTS_SHOWN if not self.parts else ()
            return super().view()

    grows = (*BEFORE, *[Decode((("b", token),)) for token in range(4)])  # each arms TAB-2: a held row grows
    always, once = driven(Reference, grows), driven(Seldom, grows)
    assert (always.armed["TAB-2"], once.armed["TAB-2"]) == (4, 2)  # every second view is empty
    assert once.armed["CACHE-1"] == always.armed["CACHE-1"]  # an answer shows it


def test_a_pool_that_no_drain_can_take_is_not_drained() -> None:
    """Two rows of four pages, and a pool of nine: a page that is lost may be the one that nobody can ask for."""
    for pages, evidence in ((8, True), (9, False)):
        lockstep = driven(Reference, world=World(rows=2, context_len=7, pages=pages, page_size=2))
        assert ("DRAIN" in lockstep.evidence) == evidence


def test_freed_is_evidence_when_somebody_leaves() -> None:
    """That a submit frees nothing says nothing."""

    class Tells(ShowsNothing):
        def do(self, act: Action) -> Reply | Refused:
            return Reference.do(self, act)

    assert seen(driven(Tells, BEFORE[:2]))["PAGE-6"] == "UNSEEN"
    assert seen(driven(Tells, BEFORE[:3]))["PAGE-6"] == "HOLDS"


# ---- answers and books are kept as they were


class Live(Reference):
    """Answers and shows lists that it goes on using."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.slots: list[int] = []
        self.free: list[int] = []
        self.records: dict[str, RecordView] = {}

    def do(self, act: Action) -> Reply | Refused:
        """The reference's, in one list that is filled anew."""
        reply = super().do(act)
        if isinstance(reply, Reply) and len(reply.slots) == 1:
            self.slots[:] = reply.slots[0]
            return replace(reply, slots=[self.slots])
        return reply

    def view(self) -> View:
        """The reference's, in one list and one mapping that are filled anew."""
        view = super().view()
        self.free[:] = view.free_pages or ()
        self.records.clear()
        self.records.update(view.records or {})
        return replace(view, free_pages=self.free, records=self.records)


class Keeping(Lockstep):
    """Keeps every step with its view."""

    def __init__(self, make: Make, world: World) -> None:
        super().__init__(make, world)
        self.kept: list[Step] = []

    def do(self, act: Action) -> Granted | Refused:
        """As ever."""
        answer = super().do(act)
        self.kept.append(self.steps[-1])
        return answer


def test_what_changes_later_changes_no_run() -> None:
    """The stored run of a backend that reuses its lists is judged as it was when it happened: nothing breaks."""
    lockstep = Keeping(Live, WORLD)
    for act in BEFORE:
        lockstep.do(act)
    lockstep.drain()
    assert judge(Trace(lockstep.world, tuple(lockstep.kept))) is None
    views = [step.view for step in lockstep.kept if step.view is not None]
    assert len(views) == len(lockstep.steps)
    assert len({view.free_pages for view in views}) > 1  # tuples: the steps differ from one another


def test_only_the_view_compared_last_is_kept() -> None:
    """As the Lockstep says: a view is as large as the pool, and a replay has thousands of steps."""
    lockstep = driven(Reference)
    assert [number for number, step in enumerate(lockstep.steps, 1) if step.view] == [len(BEFORE)]
    lockstep.drain()
    assert [number for number, step in enumerate(lockstep.steps, 1) if step.view] == [len(lockstep.steps)]


# ---- a look after every Nth call

GROWS = (*BEFORE, *[Decode((("b", token),)) for token in range(4)])


def seldom(backend: type[Reference], every: int) -> Lockstep:
    """BEFORE and four decodes: nine calls."""
    lockstep = Lockstep(backend, WORLD, grade=Grade(every=every), name="odd")
    for act in GROWS:
        lockstep.do(act)
    return lockstep


@pytest.mark.parametrize(("every", "looks"), [(1, 9), (2, 4), (4, 2), (9, 1), (100, 0)])
def test_books_and_content_are_looked_at_after_every_nth_call(every: int, looks: int) -> None:
    """And once more when it is asked for, if a call was not looked at. What is written in between is read in the end:
    the decodes wrote 3 to 6 of b."""
    lockstep = seldom(Reference, every)
    assert lockstep.looks == looks
    lockstep.audit()
    lockstep.audit()
    assert lockstep.looks == looks + (len(GROWS) % every > 0)
    assert isinstance(lockstep.backend, KeepsContent)
    assert lockstep.backend.read("b") == list(lockstep.ledger.trail_of("b")[:7])
    assert {"CONTENT", "TABLE", "SCRAMBLE"} <= lockstep.evidence


class ForgetsALock(ShowsNothing):
    """From the first decode on its books say one lock less."""

    parts = VIEW_PARTS_SHOWN
    decoded = False

    def do(self, act: Action) -> Reply | Refused:
        """The reference's."""
        self.decoded |= isinstance(act, Decode)
        return super().do(act)

    def view(self) -> View:
        """The reference's, but for the locks."""
        view = super().view()
        cached = {page: each._replace(locks=0) for page, each in (view.cached or {}).items()}
        return replace(view, cached=cached if self.decoded else view.cached)


@pytest.mark.parametrize(("every", "step"), [(1, 6), (4, 8), (9, 9), (100, 9)])
def test_what_goes_wrong_in_between_is_found_at_the_next_look(every: int, step: int) -> None:
    """At the end of the run, if no look was due before: the drain probe begins with one."""
    with pytest.raises(Finding) as found:
        seldom(ForgetsALock, every).drain()
    assert (found.value.rule, found.value.step) == ("LOCK-1", step)


def test_a_later_look_does_not_blame_the_call_before_it() -> None:
    """After a refusal every disagreement breaks ATOM-1; but this one is older than the refusal of d."""
    longer = [act for req in "cd" for act in (Submit(req, (7,) * 7, req), Extend(((req, 7, 0),)))]
    lockstep = Lockstep(ForgetsALock, WORLD, grade=Grade(every=10), name="odd")
    with pytest.raises(Finding) as found:
        for act in (*GROWS[:6], *longer):
            lockstep.do(act)
    assert isinstance(lockstep.steps[9].answer, Refused)
    assert (found.value.rule, found.value.step) == ("LOCK-1", 10)


# ---- stale lengths

READS_STALE = """
act = args[0]
if isinstance(act, Extend):
    for req in [self.reqs[rid] for rid, _, _ in act.batch if rid in self.reqs]:
        if not req.kv.holds_kv and not 0 <= req.kv.kv_committed_len <= self.world.context_len:
            {answer}
return theirs()"""


@pytest.mark.parametrize(
    ("answer", "shown"),
    [("return Refused('pages')", "refused: no pages"), ("raise ValueError('no such length')", "no answer")],
)
def test_what_only_scrambling_shows_is_rec_3(bench: Bench, answer: str, shown: str) -> None:
    """The lengths of a released record happen to be harmless, until they are overwritten: for a check and a replay."""
    target = bench.backend(odd("do", READS_STALE.format(answer=answer).strip()))
    assert bench.call("replay", "t.jsonl", "--synthetic", "--requests", "30", "--seed", "5")[0] == 0
    code, screen, _ = bench.call("replay", "t.jsonl", "--pages", "300", "--backend", target, "--json", "out.json")
    assert code == 1 and "BROKEN  REC-3 ask-the-record" in screen and shown in screen
    assert json.loads((bench.folder / "out.json").read_text())["finding"]["rule"] == "REC-3"
    for path in (bench.folder / ".kvledger").iterdir():
        path.unlink()
    code, screen = bench.check(target)
    assert code == 1 and "BROKEN  REC-3 ask-the-record" in screen and shown in screen
    code, told, _ = bench.call("explain", *[str(path) for path in (bench.folder / ".kvledger").iterdir()])
    assert code == 1 and "BROKEN  REC-3 ask-the-record" in told
