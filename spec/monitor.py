"""The only judge: takes actions, answers and views as they come, and says which rule breaks at which step.

Here slots become pages, once, and geometry is judged (TAB-1), for answers of every kind. The ledger is written
in place: judging comes first and to the end, so a broken answer has written nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from kvledger.spec.action import MATCHING, apply, file_of, members_of, name_of, publishers_of
from kvledger.spec.actions import Abort, Action, Checkpoint, Finish, Reserve, Retract
from kvledger.spec.actions.giving import Publisher, judge_length
from kvledger.spec.actions.taking import Member, judge_matched
from kvledger.spec.answer import Freed, Granted, Published, Refused, Reply
from kvledger.spec.backend import View
from kvledger.spec.compare import RULE_OF, Owed, differences, owed_by
from kvledger.spec.invariants import check_touched, check_whole
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import page_of
from kvledger.spec.rules import Broken, need
from kvledger.spec.should import left_undone
from kvledger.spec.situations import Moment, armed
from kvledger.spec.snapshot import Snapshot, opened
from kvledger.spec.staying import staying
from kvledger.spec.tidy import Said, counted, numbers, tidy, tidy_view
from kvledger.spec.world import Holder, PageId, ReqId, Row, Slot, World, WrongInput

# Steps between two looks at the whole ledger, in between only at what was touched: so many, or, in a large pool, one
# for so many pages in use, for a look costs as much as there is.
WHOLE_EVERY, PAGES_A_STEP = 64, 16


class _Refusal(NamedTuple):
    act: Action | None
    short: str
    requests: set[ReqId]


NO_REFUSAL = _Refusal(None, "", set())


class Monitor:
    """One run under judgement, from its start or from an opening. ledger: what is true so far. arms: the rules that the
    last step could have broken. armed: rule -> in how many steps. undone: SHOULD rule -> how often it was not kept."""

    def __init__(self, world: World, opening: Snapshot | None = None, *, count_armed: bool = True) -> None:
        self.world = world
        self.ledger = Ledger.start(world) if opening is None else opened(world, opening)
        self.armed: Counter[str] = Counter()
        self.arms: set[str] = set()
        self.undone: Counter[str] = Counter()
        self.steps = 0
        self._owed = Owed()  # by the last step, beyond what every step owes
        self._whole_at = WHOLE_EVERY
        self._count_armed = count_armed
        self._refused = NO_REFUSAL  # the last call refused for want of room
        self._released: set[ReqId] = set()  # live requests that were retracted once: stale state may lurk

    def step(self, act: Action, reply: Reply | Refused) -> Granted | Refused:
        """Judge one answer and go on from it. Returns it in pages.

        Raises Broken; WrongInput if the answer has a wrong type or shape, or the caller may not call this now.
        """
        file = file_of(act)
        missing = file.requires(self.ledger, act)
        if missing is not None:
            raise WrongInput(f"{name_of(act)} {act[0] if act else ''} may not be called here: {missing}")
        answer = self.judge(act, reply)
        self._count(act, answer)
        self._owed = owed_by(self.ledger, act)
        edit = apply(self.ledger, act, answer, in_place=True)
        self.steps += 1
        check_touched(self.ledger, edit.touched)
        if self.steps >= self._whole_at:
            check_whole(self.ledger)
            self._whole_at = self.steps + max(WHOLE_EVERY, len(self.ledger.pages) // PAGES_A_STEP)
        return answer

    def judge(self, act: Action, reply: Reply | Refused) -> Granted | Refused:
        """Judge one answer to a call that may be made, and write nothing. Returns it in pages. Raises Broken."""
        answer = self._in_pages(act, reply)
        try:
            file_of(act).judge(self.ledger, act, answer)
        except Broken as broken:
            same = self._retried(act) and isinstance(answer, Refused) and answer.short == self._refused.short
            need(not same or broken.rule not in ("PAGE-5", "ROW-4"), "LIVE-1", **broken.facts)
            raise
        return answer

    def _retried(self, act: Action) -> bool:
        """Whether this is the call that was refused last."""
        return type(act) is type(self._refused.act) and act == self._refused.act

    def where(self, act: Action) -> str:
        """How a complaint about the answer that comes now begins."""
        return f"{self.world.declared.name} answered {name_of(act)}"

    def probe(self, act: Action, reply: Reply | Refused) -> None:
        """Judge the answer to a call that `requires` forbids: refused, and nothing given up for it (GUARD-1)."""
        said = tidy(reply, self.where(act))
        self.steps += 1
        self._arm({"GUARD-1"})
        quiet = isinstance(said, Refused) and not said.evicted and said.freed in (None, Freed())
        need(quiet, "GUARD-1", by=name_of(act))

    def compare(self, view: View, act: Action, answer: Granted | Refused | None, *, fresh: bool = True) -> None:
        """Hold the backend's own books against the law. answer None: the call was a probe. fresh: False if the call
        before was not followed by this, so that a disagreement may be older, and is named by its kind alone."""
        for difference in differences(self.ledger, tidy_view(view, self.world.declared.name)):
            rule = RULE_OF[difference.kind]
            if not fresh:
                need(False, rule, by=name_of(act), **difference._asdict())
            rule = self._owed.named(difference) or rule
            if answer is None:
                rule = "GUARD-1"
            elif isinstance(answer, Refused):
                rule = "ATOM-1"
            need(False, rule, by=name_of(act), **difference._asdict())

    def read(self, req: Holder, tags: Sequence[int]) -> None:
        """Hold what a holder reads through the backend's table against what was written for it (TAG-1)."""
        law = self.ledger.trail_of(req)[: self.ledger.records[req].committed_len]
        tags = numbers(tags, f"{self.world.declared.name} read {req}", "its tags")
        if tags != law:
            shorter = min(len(tags), len(law))
            position = next((at for at in range(shorter) if law[at] != tags[at]), shorter)
            page = self.ledger.tables[req][position // self.world.page_size] if position < shorter else None
            need(False, "TAG-1", req=req, position=position, read=len(tags), law=len(law), page=page)

    def finish(self) -> None:
        """At the end of a run: every law, everywhere."""
        check_whole(self.ledger)

    def _count(self, act: Action, answer: Granted | Refused) -> None:
        moment, arms = Moment(self.ledger, act, answer), set[str]()
        if isinstance(answer, Refused):
            if answer.short:
                self._refused = _Refusal(act, answer.short, {member.req for member in moment.members})
        elif self._retried(act):
            arms.add("LIVE-1")
            self._refused = NO_REFUSAL
        if isinstance(answer, Granted):
            for req in (member.req for member in moment.starters):
                if req in self._released:
                    arms |= {"REC-1", "REC-3"}
            if isinstance(act, Retract) and self.ledger.requests[act.req].session is None:
                self._released.add(act.req)
            elif isinstance(act, Abort | Finish):
                self._released.discard(act.req)
                if act.req in self._refused.requests:
                    self._refused = NO_REFUSAL  # the id may come again, and is another request then
        if self._count_armed:
            arms |= armed(moment)
            self.undone.update(left_undone(moment))
        self._arm(arms)

    def _arm(self, rules: set[str]) -> None:
        self.arms = rules
        self.armed.update(rules)

    # ---- slots become pages

    def _in_pages(self, act: Action, reply: Reply | Refused) -> Granted | Refused:
        where = self.where(act)
        said = tidy(reply, where)
        if not self.world.has("PREFIX_CACHE") and (said.evicted or (isinstance(said, Reply) and said.published)):
            raise WrongInput(f"{where} with evicted or published: it declares no PREFIX_CACHE, expected neither")
        if said.freed is not None and not self.world.has("ROWS"):
            said = replace(said, freed=Freed(said.freed.pages))
        twice = next((page for page, times in Counter(said.evicted).items() if times > 1), None)
        need(twice is None, "EVICT-4", page=twice, twice=True)
        evicted = frozenset(said.evicted)
        if isinstance(said, Refused):
            return replace(said, evicted=evicted)
        stray = said.listed.keys() - (() if isinstance(act, Checkpoint) else said.published)
        if stray:
            raise WrongInput(f"{where} with listed of {min(stray)}: expected only requests that published by it, and "
                             "none at a checkpoint, whose slots say it")  # fmt: skip
        members = members_of(self.ledger, act)
        starters = [member for member in members if member.starts]
        turn = next((member.req for member in members if self.ledger.lender(member.req) is not None), None)
        takers = [] if isinstance(act, MATCHING) else starters
        rows = self._rows(takers, said.rows)
        first = starters[0].req if starters else None
        need(turn is None or len(rows) <= len(takers), "SES-2", req=turn, rows=rows)
        need(len(rows) == len(takers), "REC-1", req=first, starting=len(takers), rows=len(rows))
        named = len(said.matched)  # a start that names no match was taken for a record that goes on
        need(named >= len(starters), "REC-1", req=first, starting=len(starters), matched=named)
        need(turn is None or named <= len(starters), "SES-2", req=turn, matched=named)
        counted(said.matched, len(starters), where, "matched prefixes, one for each request that starts")
        for member, each in zip(starters, said.matched, strict=True):
            inside = len(each) % self.world.page_size
            need(not inside, "CACHE-4", req=member.req, page=page_of(each[-1] if each else 0, self.world.page_size),
                 ordinal=len(each) // self.world.page_size, tokens=len(each))  # fmt: skip
        matched = tuple(self._pages_of(who.req, each, 0) for who, each in zip(starters, said.matched, strict=True))
        if isinstance(act, Checkpoint):
            return Granted(published=self._repointed(act, said, where), evicted=evicted, freed=said.freed)
        if isinstance(act, MATCHING):
            return Granted((), matched, evicted=evicted, freed=said.freed)
        counted(said.slots, len(members), where, "lists of slots, one for each member")
        if isinstance(act, Reserve):
            return self._reserved(members[0], said.slots[0], Granted(evicted=evicted, freed=said.freed))
        if any(len(slots) != who.upto - who.prefix for who, slots in zip(members, said.slots, strict=True)):
            for member, found in zip(starters, matched, strict=True):  # a wrong match explains a wrong count
                judge_matched(self.ledger, member.req, found)
        prefixes = iter(matched)
        pages = tuple(
            self._new_pages(member, next(prefixes) if member.starts else self.ledger.row_of(member.req), slots)
            for member, slots in zip(members, said.slots, strict=True)
        )
        granted = Granted(rows, matched, pages, (), evicted, said.freed)
        return replace(granted, published=self._staying(act, publishers_of(self.ledger, act, granted), said))

    def _rows(self, starters: list[Member], rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """The rows that were handed out; numbers of our own for a backend that has none."""
        if self.world.has("ROWS"):
            return rows
        held = {record.row for record in self.ledger.records.values()}
        free = (row for row in range(1, len(held) + len(starters) + 1) if row not in held)
        return tuple(row for row, _ in zip(free, starters, strict=False))

    def _new_pages(self, member: Member, table: tuple[PageId, ...], slots: tuple[Slot, ...]) -> tuple[PageId, ...]:
        """TAB-1 for new positions: the rest of the last page first, then whole pages from their first slot on."""
        size, wanted = self.world.page_size, member.upto - member.prefix
        fits, facts = len(slots) == wanted, {"positions": wanted, "slots": len(slots), "prefix": member.prefix}
        need(fits or self.ledger.lender(member.req) is None, "SES-2", req=member.req, **facts)
        need(fits, "PAGE-4", req=member.req, **facts)
        within = min(-member.prefix % size, wanted)
        if within:
            self._in_order(member.req, slots[:within], member.prefix, table[-1] * size + member.prefix % size)
        return self._pages_of(member.req, slots[within:], member.prefix + within)

    def _reserved(self, member: Member, slots: tuple[Slot, ...], granted: Granted) -> Granted:
        """How far a reserve reaches: as far as it says, and judged later."""
        upto = member.prefix + len(slots)
        pages = self._new_pages(member._replace(upto=upto), self.ledger.tables[member.req], slots)
        return replace(granted, pages=(pages,), reserved=upto)

    def _pages_of(self, req: ReqId, slots: tuple[Slot, ...], position: int) -> tuple[PageId, ...]:
        """TAB-1 for slots from a page's first on: each page's slots follow one another."""
        size = self.world.page_size
        if size == 1:
            return slots
        pages = []
        for at in range(0, len(slots), size):
            part = slots[at : at + size]
            pages.append(page_of(part[0], size))
            self._in_order(req, part, position + at, pages[-1] * size)
        return tuple(pages)

    def _in_order(self, req: ReqId, slots: tuple[Slot, ...], position: int, first: int) -> None:
        """TAB-1: from `position` on, one slot after another."""
        if slots != tuple(range(first, first + len(slots))):
            at = next(at for at, slot in enumerate(slots) if slot != first + at)
            need(False, "TAB-1", req=req, position=position + at, law=first + at, slot=slots[at])

    def _repointed(self, act: Checkpoint, said: Said, where: str) -> Published:
        """What a checkpoint published: the pages that the row lists for [protected, k) from now on."""
        protected = self.ledger.records[act.req].protected_len
        k = said.published.get(act.req, protected)
        whole = k >= protected and k % self.world.page_size == 0
        need(whole, "CACHE-3", req=act.req, upto=k, most=act.upto, by="checkpoint")
        if k > protected:
            for publisher in publishers_of(self.ledger, act, Granted()):
                judge_length(self.ledger, publisher, k, "checkpoint")
        slots = said.slots[0] if said.slots else ()
        counted(said.slots or [()], 1, where, "lists of slots, the row's from protected to k")
        need(len(slots) == k - protected, "REC-2", req=act.req, protected=protected, upto=k, slots=len(slots))
        others = tuple((req, (0,)) for req in said.published if req != act.req)
        return others + (((act.req, self._pages_of(act.req, slots, protected)),) if slots else ())

    def _staying(self, act: Action, publishers: list[Publisher], said: Said) -> Published:
        """What the answer leaves under the keys: how far is judged here, which pages spec/staying.py reads."""
        size, who = self.world.page_size, {publisher.req: publisher for publisher in publishers}
        listed: dict[ReqId, tuple[PageId, ...]] = {}
        for req, k in said.published.items():
            if req in who:
                _, protected, upto, table, _ = who[req]
                whole = protected <= k <= len(table) * size and k % size == 0
                need(whole, "CACHE-3", req=req, upto=k, most=upto, by=name_of(act))
                judge_length(self.ledger, who[req], k, name_of(act))
                if req in said.listed:
                    slots = said.listed[req]
                    need(len(slots) == k - protected, "REC-2", req=req, protected=protected, upto=k, slots=len(slots))
                    listed[req] = self._pages_of(req, slots, protected)
        gone = said.freed.pages if said.freed else ()
        strangers = tuple((req, (0,)) for req in said.published if req not in who)
        return strangers + staying(self.ledger, publishers, said.published, listed, gone, said.evicted)
