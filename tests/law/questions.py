"""Questions about the law that have an answer, a value, each: for operators.py, which asks a changed law.

kernels: what a kernel returns or refuses, in drawn calls. answers: which calls are forbidden, and which answers legal.
verdicts: how an answer near a legal one is judged. writes: what a legal one writes, in a copy and in place, and whether
it is noted as touched. views: what the ledger shows. All but the first are asked in states of the named worlds and of a
few more: where a situation comes about (spec/situations.py), the nearest, and some drawn ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, product
from random import Random
from types import FunctionType, ModuleType
from typing import NamedTuple

from kvledger.spec import page, record
from kvledger.spec.action import apply, file_of, members_of, name_of, publishers_of, step
from kvledger.spec.actions import (
    Action,
    Admit,
    Checkpoint,
    Commit,
    Defer,
    Evict,
    Extend,
    Finish,
    Flush,
    MatchPrefix,
    Reserve,
    Submit,
)
from kvledger.spec.answer import Freed, Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.explore import Path as Steps
from kvledger.spec.explore import explore, moves
from kvledger.spec.ledger import Ledger, Names, slots_in
from kvledger.spec.page import Page
from kvledger.spec.record import Record
from kvledger.spec.rules import Broken
from kvledger.spec.world import OPTIONS, PUBLISHING, Declaration, World
from kvledger.spec.worlds import A3, KEPT, PLAIN, SPLIT, TALKING, TWO, WORLDS, Scope
from kvledger.tests.kit.probes import forbidden
from kvledger.tests.law.near import near, near_freed

NEAREST, STATES, ALL = 20, 12, 300  # states of a world, drawn ones, and all if they are few
NEAR, CALLS = 5, 3_000  # drawn: near answers of a call there, calls of a kernel function
# What no named world has: hardly anything declared; no chunks and no evict; duplicates with leaves first, or read by
# sessions and admitted requests; bigram keys that sessions read; one row for a turn and another request; turns that are
# cut inside their second page; match limits beyond a prompt; publishing wherever one may. And SHORT, where of a key's
# pages one is needed and no other page can be had: so seldom that each state is asked what an extend is answered.
HARDLY = Declaration(capabilities=frozenset(), max_batch=1, declines=frozenset(OPTIONS))
UNCHUNKED = replace(PLAIN, capabilities=PLAIN.capabilities - {"CHUNKED", "EVICT"}, declines=frozenset(OPTIONS))
DUPLICATES = PLAIN.capabilities | {"DUPLICATES"}
LEAVES = Declaration("keeps duplicates, leaves first", capabilities=DUPLICATES, max_batch=1)
READERS = KEPT.capabilities | {"SESSIONS", "SPLIT_ADMIT"}
TALKS = replace(KEPT, name="keeps duplicates and sessions", capabilities=READERS)
BIGRAM_TALKS = replace(TALKING, name="bigram keys and sessions", key_lag=1)
EAGER = replace(PLAIN, capabilities=PLAIN.capabilities | {"DRAFTS"}, publishes_on=frozenset(PUBLISHING))
A1, A2, A4 = ("a",), ("a", "a"), ("a",) * 4
PLACES = WORLDS | {
    "HARDLY": (World(2, 3, 3, 1, HARDLY), Scope(TWO, (A2,), ("a",), max_kv=3)),
    "UNCHUNKED": (World(2, 4, 2, 2, UNCHUNKED), Scope(TWO, (A3,), ("a",), max_kv=4)),
    "LEAVES": (World(2, 2, 4, 1, LEAVES), Scope(TWO, (A2,), ("a",), max_kv=2)),
    "TALKS": (World(2, 2, 3, 1, TALKS), Scope(TWO, (A2,), ("a",), max_kv=2, sessions=(None, "s"))),
    "SHORT": (World(2, 2, 3, 1, TALKS), Scope(TWO, (A2, ("b",)), ("a",), max_kv=2)),
    "BIGRAM_TALKS": (World(1, 4, 4, 1, BIGRAM_TALKS), Scope(("r0",), (A3, A4), ("a",), max_kv=4, sessions=("s",))),
    "TURNS": (World(1, 2, 2, 1, TALKING), Scope(TWO, (A2,), ("a",), max_kv=2, sessions=(None, "s"))),
    "CUTS": (World(1, 4, 2, 2, TALKING), Scope(("r0",), (A2, A4), ("a",), max_kv=4, sessions=("s",))),
    "LIMITS": (World(2, 2, 4, 1, SPLIT), Scope(TWO, (A2,), ("a",), max_kv=2, match_limits=(None, 0, 5))),
    "EAGER": (World(2, 3, 3, 1, EAGER), Scope(TWO, (A1,), ("a", "b"), max_kv=3, drafts=(2,))),
}
ASKERS = ("kernels", "answers", "verdicts", "writes", "views")


class Question(NamedTuple):
    """who: one of ASKERS. about: the action, the kernel's function, or the view. ask: its answer, a value."""

    who: str
    about: str
    ask: Callable[[], object]


def answer_of(question: Question) -> object:
    """What comes, or what is raised."""
    try:
        return question.ask()
    except Broken as broken:
        return "broken", broken.rule, dict(broken.facts)
    except Exception as error:
        return type(error).__name__, str(error)


def questions(places: Collection[str] = PLACES.keys()) -> list[Question]:
    """Of these worlds, all of them unless told. Sorted by who asks; the kernels' are always there."""
    draw = Random(0)
    found = list(_of_kernels(draw))
    for name in places:
        world, scope = PLACES[name]
        found.append(Question("views", "start", partial(Ledger.start, world)))
        states: list[Ledger] = []
        found_there = explore(world, scope, laws=False, on_state=partial(_noted, states))
        ahead = {path[:-1] for path in found_there.reached.values()}
        some = states if len(states) <= ALL else [*states[:NEAREST], *draw.sample(states, STATES)]
        for ledger in [*some, *(_at(world, path) for path in sorted(ahead, key=repr))]:
            found += _of_state(ledger, scope, draw)
        for ledger in states if name == "SHORT" else ():
            acts = [act for act in moves(ledger, scope) if isinstance(act, Extend)]
            acts = [act for act in acts if file_of(act).requires(ledger, act) is None]
            found += [Question("answers", "extend", partial(_legal, ledger, act, True)) for act in acts]
    return sorted(found, key=lambda question: ASKERS.index(question.who))


def _noted(states: list[Ledger], ledger: Ledger, _: object) -> None:
    states.append(ledger)


def _at(world: World, path: Steps) -> Ledger:
    """The state that a path leads to."""
    ledger = Ledger.start(world)
    for act, answer in path:
        ledger = step(ledger, act, answer)
    return ledger


def _of_kernels(draw: Random) -> Iterator[Question]:
    """Drawn calls, lawful or not, of every function of the kernels."""
    sizes = (1, 2, 3, 4, 16)
    for module in (page, record):
        functions = [each for each in vars(module).values() if isinstance(each, FunctionType)]
        for function in (each for each in functions if each.__module__ == module.__name__):
            names = function.__code__.co_varnames[: function.__code__.co_argcount]
            for _ in range(CALLS):
                given = [_drawn(module, name, sizes, draw) for name in names]
                yield Question("kernels", function.__name__, partial(function, *given))
    yield Question("kernels", "Names", lambda: list(_of_names()))
    for size, upto in product((1, 2, 3), range(7)):
        for start in range(upto + 1):
            yield Question("kernels", "slots_in", partial(slots_in, (3, 7, 5, 9, 2, 4), start, upto, size))
    for row in (None, 0, 1):
        yield Question("kernels", "holds_kv", partial(getattr, Record(row, 0, 1, 1), "holds_kv"))


def _drawn(module: ModuleType, name: str, sizes: tuple[int, ...], draw: Random) -> object:
    if name == "page_size":
        return draw.choice(sizes)
    if name == "page" and module is page:
        return Page(draw.randrange(4), draw.randint(-1, 2), draw.randint(-1, 2), draw.randint(-1, 2))
    if name == "record":
        lengths = sorted(draw.randint(-1, 4) for _ in range(3))
        if draw.random() < 0.2:
            draw.shuffle(lengths)
        return Record(draw.choice((None, 0, 1, 2)), *lengths)
    return draw.randint(-1, 9)


def _of_names() -> Iterator[object]:
    """What may be known of tags: which of them are equal, and which come before which."""
    names = Names()
    yield names.known_root("n"), names.known(0, "a"), list(names.roots)
    one, other = names.root("n"), names.root("m")
    trails = [names.trail(root, tokens) for root in (one, other) for tokens in ("ab", "aab", "ab", "")]
    tags = [0, one, other, *chain.from_iterable(trails)]
    yield [tags.index(tag) for tag in tags], [tags.index(tag) for tag in names.roots], [len(trail) for trail in trails]
    yield [tags.index(names.before(tag)) for tag in tags[1:]], [names.root("n") == one, names.known_root("m") == other]
    for root, tokens in product((one, other), ("", "a", "ab", "aab", "abb", "b")):
        known = names.known(root, tokens)
        yield None if known is None else tags.index(known)


def _of_views(ledger: Ledger, scope: Scope) -> Iterator[Question]:
    """What each view of the ledger shows, of everybody and everything that is there."""
    given: dict[str, list[object]] = {
        "req": [*ledger.requests], "request": [*ledger.requests.values()], "by": ["abort", "finish"],
        "holder": [*ledger.records], "page": list(range(ledger.world.pages + 2)), "row": [1, 2],
        "namespace": [*scope.namespaces, "unseen"], "ordinal": [0, 1], "length": list(range(-1, scope.max_kv + 2)),
    }  # fmt: skip
    for name, view in vars(Ledger).items():
        if isinstance(view, FunctionType) and not name.startswith("_"):
            wanted = view.__code__.co_varnames[1 : view.__code__.co_argcount]
            for each in product(*(given[one] for one in wanted)):
                yield Question("views", name, partial(getattr(ledger, name), *each))


def _of_state(ledger: Ledger, scope: Scope, draw: Random) -> Iterator[Question]:
    """What is forbidden here and what legal, how near answers are judged, and what the legal ones write."""
    yield from _of_views(ledger, scope)
    calls = [act for acts in forbidden(ledger, "nobody", scope.namespaces[0]).values() for act in acts]
    acts = list({(name_of(act), act): act for act in chain(moves(ledger, scope), _further(ledger, scope))}.values())
    turned = [act._replace(batch=act.batch[::-1]) for act in acts if isinstance(act, Extend) and len(act.batch) > 1]
    for act in [*acts, *turned, *calls]:
        file, about = file_of(act), name_of(act)
        yield Question("answers", about, partial(file.requires, ledger, act))
        yield Question("views", "name_of", partial(name_of, act))
        if file.requires(ledger, act) is not None:
            continue
        for least in (True, False):
            yield Question("answers", about, partial(_legal, ledger, act, least))
        legal = list(file.answers(ledger, act, False))
        yield Question("views", "members_of", partial(members_of, ledger, act))
        for granted in [answer for answer in legal if isinstance(answer, Granted)][:1]:
            yield Question("views", "publishers_of", partial(publishers_of, ledger, act, granted))
        wrong = near(ledger, act, legal)
        beside = [
            replace(each, freed=freed)
            for each in legal[:2]
            for freed in near_freed(each.freed or Freed(), ledger.world)
        ]
        for some in (list(wrong), beside, legal):
            for answer in draw.sample(some, min(NEAR, len(some))):
                yield Question("verdicts", about, partial(file.judge, ledger, act, answer))
                if draw.random() < 0.1:
                    yield Question("verdicts", "action", partial(_stepped, ledger, act, answer))
        for answer in draw.sample(legal, min(NEAR, len(legal))):
            for in_place in (False, True):
                yield Question("writes", about, partial(_written, ledger, act, answer, in_place))


def _further(ledger: Ledger, scope: Scope) -> Iterator[Action]:
    """Calls that exploration does not try: of what may not be declared, and with other numbers."""
    prompt, namespace = scope.prompts[0], scope.namespaces[0]
    yield from (Submit("new", prompt, "elsewhere"), Submit("new", prompt, namespace, 0))
    yield from (Submit("new", prompt, namespace, publish=False), Submit("new", prompt, namespace, session="s"))
    yield from (Evict(0), Evict(2), Evict(9), Flush())
    for req in ledger.requests:
        yield from (Admit(req), Defer(req), MatchPrefix(req), Reserve(req, 1), Commit(req, A1), Commit(req, A2))
        for upto in range(ledger.record(req).committed_len):
            yield from (Checkpoint(req, upto), Finish(req, upto, True), Finish(req, upto, False))


def _legal(ledger: Ledger, act: Action, least: bool) -> Counter[Granted | Refused]:
    """How often each legal answer comes, in whatever order."""
    return Counter(file_of(act).answers(ledger, act, least))


def _stepped(ledger: Ledger, act: Action, answer: Granted | Refused) -> object:
    """The ledger that follows, if the answer is legal."""
    return step(ledger, act, answer)


def _written(ledger: Ledger, act: Action, answer: Granted | Refused, in_place: bool) -> object:
    """The ledger that follows, and what is written there without being noted as touched."""
    before = Edit(ledger).commit()
    edit = apply(before if in_place else ledger, act, answer, in_place=in_place)
    after, noted = edit.commit(), edit.touched
    for names, touched in (
        (("records", "tables", "locks"), noted.holders), (("pages", "tags"), noted.pages), (("index",), noted.keys)
    ):  # fmt: skip
        for name in names:
            was, now = getattr(ledger, name), getattr(after, name)
            unnoted = {each for each in was | now if was.get(each) != now.get(each)} - touched
            assert not unnoted, f"{name} of {unnoted} written, and not noted"
    return after, (after is before) == in_place


