"""oracle: a backend that answers with any legal answer, chosen by a policy. It keeps nothing but the law's ledger.

It shows that the law can be lived by, with choices no shipped engine makes: the adversarial policy evicts without
need, publishes as little as it may, and hands out what was given back last. A finding against it accuses the law.
Answers are picked, never enumerated, so pools may be large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from kvledger.spec.action import apply, file_of, members_of, name_of, publishers_of
from kvledger.spec.actions import (
    Abort,
    Action,
    Admit,
    Checkpoint,
    Close,
    Commit,
    Decode,
    Evict,
    Extend,
    Finish,
    Flush,
    MatchPrefix,
    Reserve,
    Retract,
    abort,
    close,
    finish,
    flush,
    reserve,
    retract,
)
from kvledger.spec.actions.back import NOTHING, Back, given_back
from kvledger.spec.actions.giving import frees
from kvledger.spec.actions.taking import Member, demand, obtainable, trimmed, trims
from kvledger.spec.answer import Granted, Refused, Reply
from kvledger.spec.backend import CachedView, Declaration, RecordView, Totals, View
from kvledger.spec.ledger import Ledger, Tag, slots_in
from kvledger.spec.page import CACHED, PRIVATE
from kvledger.spec.saying import said
from kvledger.spec.world import CAPABILITIES, PUBLISHING, Holder, PageId, ReqId, World

ENDS: dict[type, Callable[..., Back]] = {
    Finish: finish.back,
    Retract: retract.back,
    Abort: abort.back,
    Close: close.back,
}
PLAIN = frozenset(CAPABILITIES) - {"DUPLICATES", "SCRAMBLE"}
LOOSE = frozenset(CAPABILITIES) - {"LEAF_FIRST", "SCRAMBLE"}


@dataclass
class Policy:
    """How to choose among what is legal. order: lifo, fifo or random. needless: evict and decline at will."""

    order: str
    declared: Declaration
    needless: bool = False
    dice: Random = field(default_factory=lambda: Random(0))
    age: dict[int, int] = field(default_factory=dict)  # page or row -> when it came back last

    def choose(self, among: Collection[int], n: int) -> tuple[int, ...]:
        """n of these numbers, in this policy's order."""
        if self.order == "random":
            return tuple(self.dice.sample(sorted(among), n))
        ranked = sorted(among, key=lambda number: (self.age.get(number, 0), number), reverse=self.order == "lifo")
        return tuple(ranked[:n])

    def at_will(self, most: int) -> int:
        """A number from 0 to most: 0, unless the policy does what it need not."""
        return self.dice.randint(0, most) if self.needless and most > 0 else 0


def pick(ledger: Ledger, act: Action, policy: Policy) -> Granted | Refused:
    """One legal answer."""
    match act:
        case Extend() | Decode():
            members = members_of(ledger, act)
            taken = take(ledger, members, policy)
            if isinstance(taken, Refused):
                return taken
            return give(ledger, act, taken, trims(ledger, members), policy)
        case Reserve():
            return ahead(ledger, act, policy)
        case Admit() | MatchPrefix():
            members = members_of(ledger, act)
            granted = Granted(matched=found(ledger, members, policy))
            return give(ledger, act, granted, trims(ledger, members), policy)
        case Checkpoint() | Commit():
            return give(ledger, act, Granted(), NOTHING, policy)
        case Finish() | Retract() | Abort() | Close():
            return give(ledger, act, Granted(), ENDS[type(act)](ledger, act), policy)
        case Evict(n):
            return Granted(evicted=leaves(ledger, (), n + policy.at_will(2), policy))
        case Flush():
            if flush.in_the_way(ledger):
                return Refused()
            return give(ledger, act, Granted(evicted=ledger.cached()), flush.back(ledger), policy)
        case _:
            return Granted()


def ahead(ledger: Ledger, act: Reserve, policy: Policy) -> Granted | Refused:
    """Slots for drafts, as far as the policy likes."""
    least, most = reserve.range_of(ledger, act)
    if ledger.records[act.req].committed_len + act.n > ledger.world.context_len and policy.at_will(1):
        return Refused()
    taken = take(ledger, members_of(ledger, act), policy)
    return taken if isinstance(taken, Refused) else replace(taken, reserved=most - policy.at_will(most - least))


def found(ledger: Ledger, members: list[Member], policy: Policy) -> tuple[tuple[PageId, ...], ...]:
    """What the starting members match: of each key any page, or what they were admitted with."""
    matched = []
    for member in (member for member in members if member.starts):
        ordinals = range(member.prefix // ledger.world.page_size)
        keys = [ledger.key(ledger.requests[member.req], ordinal) for ordinal in ordinals]
        held = ledger.admitted.get(member.req)
        matched.append(tuple(policy.choose(ledger.index[key].pages, 1)[0] for key in keys) if held is None else held)
    return tuple(matched)


def take(ledger: Ledger, members: list[Member], policy: Policy) -> Granted | Refused:
    """Matches, evictions, rows and pages; or a refusal, where one is due."""
    starters = [member for member in members if member.starts]
    back = given_back(ledger, trims(ledger, members))
    if ledger.world.has("ROWS") and len(starters) > ledger.free_row_count():
        return Refused("rows", leaves(ledger, (), policy.at_will(2), policy), back)
    sizes, cut_off, matched = demand(ledger, members), trimmed(ledger, members), found(ledger, members, policy)
    reading = {page for pages in matched for page in pages}
    evictable = set(ledger.evictable()) - reading
    asked, room = sum(sizes), ledger.free_page_count() + len(cut_off)
    if asked > room + len(evictable) or (policy.needless and asked > obtainable(ledger, members)):
        return Refused("pages", leaves(ledger, reading, policy.at_will(2), policy), back)
    gone = leaves(ledger, reading, max(0, asked - room) + policy.at_will(2), policy)
    free = [page for page in range(1, ledger.world.pages + 1) if ledger.is_free(page)]
    chosen = iter(policy.choose([*free, *gone, *cut_off], asked))
    pages = tuple(tuple(next(chosen) for _ in range(count)) for count in sizes)
    held = {record.row for record in ledger.records.values()}
    most = ledger.world.rows if ledger.world.has("ROWS") else len(held) + len(starters)
    rows = policy.choose(set(range(1, most + 1)) - held, len(starters))
    return Granted(rows, matched, pages, evicted=gone)


def leaves(ledger: Ledger, reading: Collection[PageId], n: int, policy: Policy) -> frozenset[PageId]:
    """n evictable pages (or all), so that what remains is closed under parents where that is declared."""
    left = {page for page in ledger.evictable() if page not in reading}
    parents = [entry.parent for entry in ledger.index.values()] if ledger.world.has("LEAF_FIRST") else []
    children, copies = Counter(parents), {key: len(entry.pages) for key, entry in ledger.index.items()}
    gone: set[PageId] = set()
    while len(gone) < n and left:
        key_of = {page: ledger.pages[page].owner for page in left}
        page = policy.choose([page for page, key in key_of.items() if copies[key] > 1 or children[key] <= 0], 1)[0]
        left.remove(page)
        gone.add(page)
        copies[key_of[page]] -= 1
        if copies[key_of[page]] == 0:
            children[ledger.index[key_of[page]].parent] -= 1
    return frozenset(gone)


def give(ledger: Ledger, act: Action, granted: Granted, back: Back, policy: Policy) -> Granted:
    """What is published, as far as the policy likes, and what is freed by that."""
    declared, joined = ledger.world.declared, dict[Tag, set[PageId]]()
    publishers = publishers_of(ledger, act, granted)
    published: list[tuple[ReqId, tuple[PageId, ...]]] = []
    for req, protected, upto, table, request in publishers if name_of(act) in declared.publishes_on else ():
        first = protected // ledger.world.page_size
        most = ledger.publishable(upto) if ledger.may_publish(req, name_of(act)) else first
        stays = []
        for ordinal in range(first, most - policy.at_will(most - first)):
            key, own = ledger.key(request, ordinal), table[ordinal]
            there = joined.setdefault(key, set())
            there |= ledger.index[key].pages - granted.evicted if key in ledger.index else set()
            merges = there and not (declared.has("DUPLICATES") and policy.at_will(1) == 0)
            stays.append(policy.choose(there, 1)[0] if merges else own)
            there.add(stays[-1])
        if stays:
            published.append((req, tuple(stays)))
    return replace(granted, published=tuple(published), freed=frees(ledger, publishers, tuple(published), back))


class Oracle:
    """The ledger of the law, and a memory of content."""

    def __init__(self, world: World, policy: Policy) -> None:
        self.policy = policy
        self.ledger = Ledger.start(replace(world, declared=policy.declared))
        self.content: dict[int, int] = {}

    def declare(self) -> Declaration:
        """As the policy says."""
        return self.policy.declared

    def do(self, action: Action) -> Reply | Refused:
        """Pick a legal answer, and go on from it."""
        if file_of(action).requires(self.ledger, action) is not None:
            return Refused()
        answer = pick(self.ledger, action, self.policy)
        reply = said(self.ledger, action, answer)
        apply(self.ledger, action, answer, in_place=True)
        for number in sorted({*answer.evicted, *(answer.freed.pages if answer.freed else ())}):
            self.policy.age[number] = len(self.policy.age) + 1
        return reply

    def view(self) -> View:
        """The ledger's."""
        return shown(self.ledger)

    def write(self, slots: Sequence[int], tags: Sequence[int]) -> None:
        """Each slot holds its tag."""
        self.content.update(zip(slots, tags, strict=True))

    def read(self, holder: Holder) -> Sequence[int]:
        """What stands in the slots of [0, committed_len)."""
        table, upto = self.ledger.tables[holder], self.ledger.records[holder].committed_len
        return [self.content[slot] for slot in slots_in(table, 0, upto, self.ledger.world.page_size)]


def shown(ledger: Ledger) -> View:
    """The ledger, as a backend would show it."""
    world = ledger.world
    held = {record.row for record in ledger.records.values()}
    private = sum(page.kind == PRIVATE for page in ledger.pages.values())
    evictable = len(ledger.evictable())
    cached = {page: state for page, state in ledger.pages.items() if state.kind == CACHED}
    return View(
        free_rows=[row for row in range(1, world.rows + 1) if row not in held],
        free_pages=[page for page in range(1, world.pages + 1) if ledger.is_free(page)],
        records={req: RecordView(*record) for req, record in ledger.records.items()},
        table={
            req: slots_in(table, 0, ledger.records[req].allocated_len, world.page_size)
            for req, table in ledger.tables.items()
        },
        cached={page: CachedView(state.owner, state.locks) for page, state in cached.items()},
        totals=Totals(ledger.free_page_count(), evictable, len(ledger.pages) - private - evictable, private),
    )


def _declared(order: str, capabilities: frozenset[str], publishes_on: Iterable[str]) -> Declaration:
    return Declaration(f"oracle, {order}", "1", capabilities, frozenset(publishes_on))


def make_lifo(world: World) -> Oracle:
    """What came back last goes out first: SGLang's paged allocator."""
    return Oracle(world, Policy("lifo", _declared("lifo", PLAIN, ("checkpoint", "finish"))))


def make_fifo(world: World) -> Oracle:
    """What came back first goes out first: vLLM's free queue. Publishes at an abort, too; its keys are bigrams."""
    declared = replace(_declared("fifo", PLAIN, ("checkpoint", "finish", "abort")), key_lag=1)
    return Oracle(world, Policy("fifo", declared))


def make_random(world: World) -> Oracle:
    """Anything; duplicates kept or merged, parents evicted before their children, every action publishes."""
    return Oracle(world, Policy("random", _declared("random", LOOSE, PUBLISHING), needless=True))


def make_adversarial(world: World) -> Oracle:
    """Evicts without need, publishes little, matches a page less than it could, keeps a page back for starts."""
    plain = _declared("adversarial", PLAIN, ("checkpoint", "finish"))
    declared = replace(plain, headroom=1, match_backoff=1)
    return Oracle(world, Policy("lifo", declared, needless=True))
