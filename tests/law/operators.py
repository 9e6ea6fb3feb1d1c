"""Every operator of the law changed, and every write of it dropped, one at a time: something must turn out otherwise.

    python -m kvledger.tests.law.operators              # some minutes; exit 0: all as listed
    python -m kvledger.tests.law.operators --every 20   # a sample: one in twenty

Of spec/page.py, record.py, edit.py and actions/: each comparison, each `and` and `or`, each integer constant in a
function; each statement that writes, in `effect` and in Edit. Who removes the `need` lines is `kvledger needs`.

A mutant is noticed when one of many questions has another answer than the law as it stands, asked in this order: what
a kernel returns or refuses, in drawn calls (`kernels`); which calls are forbidden and which answers legal (`answers`);
how an answer near a legal one is judged (`verdicts`); what a legal one writes, in a copy and in place (`writes`). All
but the first are asked in states of the named worlds and of four more: where a situation comes about
(spec/situations.py), the nearest, and some drawn ones. What nobody notices is a line that the law does not need, or no
change: then it stands in UNCHANGED, with the reason. A listed one that is noticed, or is not there, is an error, too.
Each mutant runs in a process of its own, with limits; what runs into one is noticed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from tqdm import tqdm

from kvledger.spec import page, record
from kvledger.spec.action import apply, file_of, name_of, step
from kvledger.spec.actions import Action, Extend
from kvledger.spec.answer import Freed, Granted, Refused
from kvledger.spec.edit import Edit
from kvledger.spec.explore import Path as Steps
from kvledger.spec.explore import explore, moves
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import Page
from kvledger.spec.record import Record
from kvledger.spec.rules import Broken
from kvledger.spec.world import OPTIONS, PUBLISHING, World
from kvledger.spec.worlds import A3, JOINT, PLAIN, SPLIT, TWO, WORLDS, Scope
from kvledger.tests.kit.probes import forbidden
from kvledger.tests.law.mutants import Mutant, mutants
from kvledger.tests.law.near import near, near_freed

SPEC = Path(__file__).parents[2] / "spec"
FILES = ("page", "record", "edit", *sorted(f"actions/{path.stem}" for path in (SPEC / "actions").glob("[a-z]*.py")))
SECONDS, MEMORY = 60, 2 * 2**30  # of CPU, and bytes of address space beyond what is taken
NEAREST, STATES = 20, 5  # states of a world, and drawn ones
NEAR, CALLS = 5, 3_000  # drawn: near answers of a call there, calls of a kernel function
NOBODY = "NOBODY"
# A backend that knows little, one with admission and match limits, turns that are admitted, and a backend that
# publishes whenever it may.
BARE = replace(PLAIN, capabilities=PLAIN.capabilities - {"CHUNKED"}, declines=frozenset(OPTIONS))
EAGER = replace(PLAIN, capabilities=PLAIN.capabilities | {"DRAFTS"}, publishes_on=frozenset(PUBLISHING))
MORE = {
    "BARE": (World(2, 4, 2, 2, BARE), Scope(TWO, (A3,), ("a",), max_kv=4)),
    "LIMITS": (World(2, 2, 4, 1, SPLIT), Scope(TWO, (("a", "a"),), ("a",), max_kv=2, match_limits=(None, 0))),
    "TURNS": (World(1, 2, 2, 1, JOINT), Scope(("r",), (("a", "a"),), ("a",), max_kv=2, sessions=("s",))),
    "EAGER": (World(2, 3, 3, 1, EAGER), Scope(TWO, (("a",),), ("a", "b"), max_kv=3, drafts=(2,))),
}
ASKERS = ("kernels", "answers", "verdicts", "writes")
GUARD = "a kernel is called for its guard alone, and in a lawful state that never accuses"
BOUNDS = "is_free knows which pages there are"
FREE = "free = [page for page in range(1, ledger.world.pages + 1) if ledger.is_free(page) or page in gone | cut_off]"
ONE = "there is one member: the first is the last"
ADMIT = "edit.admit(act.req, answer.matched[0] if answer.matched else ())"
MATCH = "judge_matched(ledger, act.req, answer.matched[0])"
RESERVE = "edit.reserve(act.req, answer.pages[0], answer.reserved)"
PAGE = "least and most end in one page"
MEMBER = "return [Member(act.req, ledger.records[act.req].allocated_len, range_of(ledger, act)[0], starts=False)]"
ROW = "a holder's row is a number; the other is said to the type checker alone"
ROWS = 'rows += [ledger.records[holder].row or 0] if ledger.world.has("ROWS") else []'
# Mutant.key -> why that changes nothing
UNCHANGED: dict[tuple[str, str, str], str] = {
    ("edit.Edit.publish", "kernel.give_back(self.pages[own], cast(int, record.row))",
     "without kernel.give_back(self.pages[own], cast(int, record.row))"): GUARD,
    ("edit.Edit.release", "record_kernel.release(record, self.world.page_size)",
     "without record_kernel.release(record, self.world.page_size)"): GUARD,
    ("edit.Edit.evict", "kernel.evict(self.pages[page])", "without kernel.evict(self.pages[page])"): GUARD,
    ("edit.Edit._give_back", "kernel.give_back(self.pages[page], row)",
     "without kernel.give_back(self.pages[page], row)"): GUARD,
    ("actions/admit.effect", ADMIT, "becomes " + ADMIT.replace("[0]", "[-1]")): ONE,
    ("actions/match_prefix.judge", MATCH, "becomes " + MATCH.replace("[0]", "[-1]")): ONE,
    ("actions/reserve.effect", RESERVE, "becomes " + RESERVE.replace("[0]", "[-1]")): ONE,
    ("actions/reserve.members", MEMBER, "becomes " + MEMBER.replace("[0]", "[1]")): PAGE,
    ("actions/reserve.members", MEMBER, "becomes " + MEMBER.replace("[0]", "[-1]")): PAGE,
    ("actions/back.given_back", ROWS, "becomes " + ROWS.replace('"', "'").replace("or 0", "or 1")): ROW,
    ("actions/back.given_back", ROWS, "becomes " + ROWS.replace('"', "'").replace("or 0", "or -1")): ROW,
    ("actions/taking.judge_rows", 'fits = not ledger.world.has("ROWS") or 1 <= row <= ledger.world.rows',
     "becomes fits = not ledger.world.has('ROWS') or 0 <= row <= ledger.world.rows"):
        "row 0 is refused two lines before",
    ("actions/every_answer.eviction_sets",
     "for size in [fewest] if least else range(max(1, fewest), len(pages) + 1):",
     "becomes for size in [fewest] if least else range(max(1, fewest), len(pages) + 2):"):
        "no set has more pages than there are",
    ("actions/every_answer.stayings",
     "if not ledger.may_publish(publisher.req, kind) or kind not in declared.publishes_on or most <= first:",
     "becomes if not ledger.may_publish(publisher.req, kind) or kind not in declared.publishes_on or most < first:"):
        "where there is no page to publish, the choices of what follows are one and empty, too",
    ("actions/every_answer.takings", FREE, "becomes " + FREE.replace("range(1,", "range(0,")): BOUNDS,
    ("actions/every_answer.takings", FREE, "becomes " + FREE.replace("+ 1)", "+ 2)")): BOUNDS,
}  # fmt: skip


class Question(NamedTuple):
    """who: one of ASKERS. about: the action, or the kernel's function. ask: its answer, a value."""

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


# ---- the questions


def questions() -> list[Question]:
    """All of them. Kernels first, then state by state, a world in turn."""
    draw = Random(0)
    found = list(_of_kernels(draw))
    for world, scope in (WORLDS | MORE).values():
        states: list[Ledger] = []
        found_there = explore(world, scope, on_state=lambda ledger, _, states=states: states.append(ledger))  # type: ignore[misc]
        ahead = {path[:-1] for path in found_there.reached.values()}
        some = [*states[:NEAREST], *draw.sample(states, STATES)]
        for ledger in [*some, *(_at(world, path) for path in sorted(ahead, key=repr))]:
            found += _of_state(ledger, scope, draw)
    return sorted(found, key=lambda question: ASKERS.index(question.who))


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


def _of_state(ledger: Ledger, scope: Scope, draw: Random) -> Iterator[Question]:
    """What is forbidden here and what legal, how near answers are judged, and what the legal ones write."""
    calls = [act for acts in forbidden(ledger, "nobody", scope.namespaces[0]).values() for act in acts]
    acts = list(moves(ledger, scope))
    turned = [act._replace(batch=act.batch[::-1]) for act in acts if isinstance(act, Extend) and len(act.batch) > 1]
    for act in [*acts, *turned, *calls]:
        file, about = file_of(act), name_of(act)
        yield Question("answers", about, partial(file.requires, ledger, act))
        if file.requires(ledger, act) is not None:
            continue
        for least in (True, False):
            yield Question("answers", about, partial(_legal, ledger, act, least))
        legal = list(file.answers(ledger, act, False))
        wrong = near(ledger, act, legal)
        beside = [replace(each, freed=freed) for each in legal[:2]
                  for freed in near_freed(each.freed or Freed(), ledger.world)]
        for some in (list(wrong), beside, legal):
            for answer in draw.sample(some, min(NEAR, len(some))):
                yield Question("verdicts", about, partial(file.judge, ledger, act, answer))
        for answer in draw.sample(legal, min(NEAR, len(legal))):
            for in_place in (False, True):
                yield Question("writes", about, partial(_written, ledger, act, answer, in_place))


def _legal(ledger: Ledger, act: Action, least: bool) -> Counter[Granted | Refused]:
    """How often each legal answer comes, in whatever order."""
    return Counter(file_of(act).answers(ledger, act, least))


def _written(ledger: Ledger, act: Action, answer: Granted | Refused, in_place: bool) -> object:
    """The ledger that follows, and what is said to be touched."""
    edit = apply(Edit(ledger).commit(), act, answer, in_place=in_place)
    return edit.commit(), edit.touched


# ---- who notices


def put(mutant: Mutant) -> None:
    """The mutant's code in the function that everybody has by its name already."""
    module = importlib.import_module(f"kvledger.spec.{mutant.file.replace('/', '.')}")
    scratch: dict[str, Any] = {"__name__": module.__name__}
    exec(mutant.code, scratch)
    _function(vars(module), mutant.function).__code__ = _function(scratch, mutant.function).__code__


def _function(names: dict[str, Any], dotted: str) -> FunctionType:
    owner, _, name = dotted.rpartition(".")
    found = vars(names[owner])[name] if owner else names[name]
    function = found.fget if isinstance(found, property) else found
    assert isinstance(function, FunctionType)
    return function


def noticed(mutant: Mutant, asked: list[tuple[Question, object]]) -> tuple[str, str]:
    """By whom, and about what; NOBODY. In a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(writing, _first(mutant, asked).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        who, _, about = said.read().partition(" ")
    os.waitpid(child, 0)
    return who or "limits", about


def _first(mutant: Mutant, asked: list[tuple[Question, object]]) -> str:
    """The first question that has another answer: of the action that the file is about, if it is about one."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    put(mutant)
    stem = mutant.file.rpartition("/")[2]
    for own in (True, False):
        for question, before in asked:
            if (question.about == stem) == own and answer_of(question) != before:
                return f"{question.who} {question.about}"
    return NOBODY


def every_mutant() -> Iterator[Mutant]:
    """Of every file, in order."""
    for file in FILES:
        yield from mutants(SPEC / f"{file}.py", file, lambda name: name == "effect" or name.startswith("Edit."))


def main() -> int:
    """The table. Exit 1: a mutant goes unnoticed that is not listed, or a listed one does not."""
    parser = argparse.ArgumentParser(prog="python -m kvledger.tests.law.operators", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--only", metavar="TEXT", help="the mutants of lines or functions with this text in them")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one mutant in N; all, unless told")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args()
    every = [each for each in every_mutant() if args.only is None or args.only in f"{each.key[0]} {each.line}"]
    every = every[:: max(args.every, 1)]
    asked = [(question, answer_of(question)) for question in questions()]
    by, wrong = Counter[str](), 0
    for mutant in tqdm(every, unit=" mutants", leave=False, disable=args.quiet or not sys.stderr.isatty()):
        who, about = noticed(mutant, asked)
        by[who] += 1
        why = UNCHANGED.get(mutant.key)
        if who == NOBODY:
            wrong += why is None
            about = f"unchanged: {why}" if why else "and it is not listed"
        elif why is not None:
            wrong += 1
            about += ": LISTED as unchanged"
        tqdm.write(f"{mutant.file}.py:{mutant.number:<4}{mutant.line}\n    {mutant.change}\n    {who}: {about}")
    gone = sorted(UNCHANGED.keys() - {mutant.key for mutant in every_mutant()})
    for key in gone:
        tqdm.write(f"LISTED, but no mutant: {key}")
    counts = ", ".join(f"{by[name]} by {name}" for name in (*ASKERS, "limits", NOBODY))
    tqdm.write(f"{len(every)} mutants, {len(asked):,} questions: {counts}; {wrong + len(gone)} not as listed")
    return 1 if wrong or gone else 0


if __name__ == "__main__":
    sys.exit(main())
