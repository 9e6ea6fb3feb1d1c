"""Every operator of fast/plan.py, pages.py and stride.py changed, one at a time: somebody must catch each of them.

    python -m kvledger.tests.unit.fast_mutants              # in a clone, some minutes; exit 0: all as listed
    python -m kvledger.tests.unit.fast_mutants --every 12   # a sample: one in twelve

By whom, in this order: `selfcheck` after random calls of a Ledger (fast_calls.py); `check`, the quick profile of the
kit; `against`, the reference in step, in a short replay. Unit tests do not count. What nobody catches is a hole in
these, or no change: then it stands in UNCHANGED, with the reason. A listed one that is caught, or is not there, is an
error, too: the list says what is true now. Each mutant runs in a process of its own that is forked before fast is
imported, with a limit on its time and its memory, and what runs into a limit is caught.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from tqdm import tqdm

from kvledger.spec.actions import Action
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.page import pages_for
from kvledger.spec.world import World
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Finding, Grade, Lockstep
from kvledger.tests.kit.search import BUDGETS, search
from kvledger.tests.law.mutants import expressions, head, standing
from kvledger.tests.replay import formats, synthetic
from kvledger.tests.replay.against import Against, Differs
from kvledger.tests.replay.driver import drive
from kvledger.tests.replay.knobs import Knobs

ROOT = Path(__file__).parents[2]
FILES = ("plan", "pages", "stride")
SECONDS, MEMORY = 60, 8 * 2**30  # of CPU, and bytes of address space that torch has not taken yet
CALLS, SEEDS = 300, 2  # of the random runs, in each world
WORLDS = (World(4, 9, 20, 1), World(4, 10, 12, 3), World(4, 30, 24, 4), World(3, 40, 9, 16))
NOBODY = "NOBODY"

APART = "the two do not look at what the other writes"
EARLY = "it returns without having written anything"
SPEED = "as many numbers as are wanted are there in any case; it is made sooner or later, or larger"
ANEW = "the batch is asked for anew, which costs time alone"
TEXT = "of several wrong ones the text names another"
# Mutant.key -> why that changes nothing
UNCHANGED: dict[tuple[str, str, str], str] = {
    ("plan", "def __init__(self, page_size: int, context_len: int) -> None:",
     "self.width = self.pages_for(context_len) after self.offsets = np.arange(page_size)"): APART,
    ("plan", "def __init__(self, page_size: int, context_len: int) -> None:",
     "self.offsets = np.arange(page_size) after self.numbers = np.arange(1024)"): APART,
    ("plan", "self.numbers = np.arange(1_024)  # grows: a run is made by adding to these",
     "becomes self.numbers = np.arange(1025)"): SPEED,
    ("plan", "self.numbers = np.arange(1_024)  # grows: a run is made by adding to these",
     "becomes self.numbers = np.arange(1023)"): SPEED,
    ("plan", "if len(runs) > len(self.numbers):", "becomes if len(runs) >= len(self.numbers):"): SPEED,
    ("plan", "self.numbers = np.arange(2 * len(runs))", "becomes self.numbers = np.arange(3 * len(runs))"): SPEED,
    ("plan", "self.numbers = np.arange(2 * len(runs))", "becomes self.numbers = np.arange(1 * len(runs))"): SPEED,
    ("plan", "def slots(self, pages: Pages, starts: Ints, stops: Ints) -> Ints:",
     "if self.page_size == 1: after firsts, counts = (pages * np.int64(self.page_size), "
     "np.full(len(pages), self.page_size))"): EARLY,
    ("plan", "def slots(self, pages: Pages, starts: Ints, stops: Ints) -> Ints:",
     "firsts, counts = (pages * np.int64(self.page_size), np.full(len(pages), self.page_size)) after "
     "touched = self.pages_for(stops) - starts // self.page_size"): APART,
    ("plan", "def slots(self, pages: Pages, starts: Ints, stops: Ints) -> Ints:",
     "counts[ends - 1] -= -stops % self.page_size after skipped = starts % self.page_size"): APART,
    ("plan", "if self.page_size == 1:",
     "becomes if self.page_size == 0:"): "a page of one slot needs no arithmetic, and may have it",
    ("plan", "if np.count_nonzero(skipped):",
     "firsts[ends - touched] += skipped after counts[ends - touched] -= skipped"): APART,
    ("pages", "TAKEN = -1", "becomes TAKEN = -2"): "whatever is no place in the stack will do",
    ("pages", "def __init__(self, short: str) -> None:",
     "super().__init__(f'not enough {short}') after self.short = short"): APART,
    ("pages", "def __init__(self, size: int, what: str) -> None:",
     "self.what = what after self.stack = np.arange(1, size + 1, dtype=np.int32)"): APART,
    ("pages", "def __init__(self, size: int, what: str) -> None:",
     "self.stack = np.arange(1, size + 1, dtype=np.int32) after self.place = np.arange(-1, size + 1, dtype=np.int32)"):
        APART,
    ("pages", "def __init__(self, size: int, what: str) -> None:", "self.place[0] = 0 after self.head = 0"): APART,
    ("pages", "self.place[0] = 0",
     "becomes self.place[0] = 1"): "0 is not taken either way, and nobody asks where it stands",
    ("pages", "def repeated(self, numbers: Ints | Pages) -> Ints | Pages:",
     "if len(numbers) < 2: after order = np.arange(len(numbers), dtype=np.int32)"): EARLY,
    ("pages", "if len(numbers) < 2:",
     "becomes if len(numbers) < 1:"):
        "of fewer than two none is repeated: what is left of one without its last is nothing",
    ("pages", "return numbers[:0]",
     "becomes return numbers[:-1]"):
        "of fewer than two none is repeated: what is left of one without its last is nothing",
    ("pages", "def take(self, count: int) -> Pages:",
     "if stop > len(self.stack): after numbers = self.stack[self.head:stop].copy()"): EARLY,
    ("pages", "def take(self, count: int) -> Pages:", "self.place[numbers] = TAKEN after self.head = stop"): APART,
    ("pages", "free = numbers[~taken][0]", "becomes free = numbers[~taken][-1]"): TEXT,
    ("pages", 'raise DoubleFree(f"{self.what} {again[0]} is given back twice in one call: expected once")',
     "becomes raise DoubleFree(f'{self.what} {again[-1]} is given back twice in one call: expected once')"): TEXT,
    ("pages", "def give(self, numbers: Ints | Pages) -> None:",
     "self.check(numbers) after head = self.head - len(numbers)"): APART,
    ("pages", "def give(self, numbers: Ints | Pages) -> None:",
     "self.stack[head:self.head] = numbers after self.place[numbers] = np.arange(head, self.head, dtype=np.int32)"):
        APART,
    ("stride", "def __init__(self, plan: Plan, rows: Ints, positions: Ints, mirror: Pages) -> None:",
     "self.rows.flags.writeable = self.counts.flags.writeable = False after self.key, self.page_size = "
     "(rows.tobytes(), plan.page_size)"): APART,
    ("stride", "def __init__(self, plan: Plan, rows: Ints, positions: Ints, mirror: Pages) -> None:",
     "self.key, self.page_size = (rows.tobytes(), plan.page_size) after self.taken = 0"): APART,
    ("stride", "def __init__(self, plan: Plan, rows: Ints, positions: Ints, mirror: Pages) -> None:",
     "self.taken = 0 after self.steps = plan.context_len - int(positions.max(initial=0))"): APART,
    ("stride", "def __init__(self, plan: Plan, rows: Ints, positions: Ints, mirror: Pages) -> None:",
     "self.steps = plan.context_len - int(positions.max(initial=0)) after whole, phases = "
     "np.divmod(positions, plan.page_size)"): APART,
    ("stride", "def __init__(self, plan: Plan, rows: Ints, positions: Ints, mirror: Pages) -> None:",
     "self.slots: Ints = mirror[lines] * np.int64(plan.page_size) + phases after self.lines = lines + (phases > 0)"):
        APART,
    ("stride", "def __init__(self, plan: Plan, rows: Ints, positions: Ints, mirror: Pages) -> None:",
     "self.lines = lines + (phases > 0) after self.by_phase = phases.argsort(kind='stable')"): APART,
    ("stride", "def __init__(self, plan: Plan, rows: Ints, positions: Ints, mirror: Pages) -> None:",
     "self.by_phase = phases.argsort(kind='stable') after self.groups = [0, "
     "*np.cumsum(np.bincount(phases, minlength=plan.page_size)).tolist()]"): APART,
    ("stride", "def __init__(self, plan: Plan, rows: Ints, positions: Ints, mirror: Pages) -> None:",
     "self.groups = [0, *np.cumsum(np.bincount(phases, minlength=plan.page_size)).tolist()] after self.phase = 0"):
        APART,
    ("stride", "self.steps = plan.context_len - int(positions.max(initial=0))",
     "becomes self.steps = plan.context_len - int(positions.max(initial=-1))"): "a batch of nobody is never full",
    ("stride", "return (",
     "becomes return isinstance(rows, np.ndarray) and rows.dtype is self.rows.dtype and (rows.shape != "
     "self.rows.shape) and (rows.tobytes() == self.key) and (self.steps > 0)"): ANEW,
    ("stride", "return (",
     "becomes return isinstance(rows, np.ndarray) and rows.dtype is self.rows.dtype and (rows.shape == "
     "self.rows.shape) and (rows.tobytes() == self.key) and (self.steps > 1)"): ANEW,
    ("stride", "def turn(self, edges: Ints, pages: Pages) -> Ints:",
     "if len(edges) == len(self.rows): after self.slots[edges] = firsts"):
        "where all are at an edge the other way comes to the same",
    ("stride", "def turn(self, edges: Ints, pages: Pages) -> Ints:",
     "self.slots[edges] = firsts after lines = self.lines[edges]"): APART,
    ("stride", "def step(self) -> Ints:", "self.slots = slots + 1 after self.steps -= 1"): APART,
    ("stride", "def step(self) -> Ints:", "self.steps -= 1 after self.taken += 1"): APART,
    ("stride", "def step(self) -> Ints:",
     "self.taken += 1 after self.phase = (self.phase or self.page_size) - 1"): APART,
}  # fmt: skip


class Mutant(NamedTuple):
    """file: plan or pages. line: the text of the statement that was changed, or in whose body something was. change:
    what became of it. code: the module, changed."""

    file: str
    number: int
    line: str
    change: str
    code: CodeType

    @property
    def key(self) -> tuple[str, str, str]:
        """As in UNCHANGED."""
        return self.file, self.line, self.change


# ---- the mutants


def mutants(file: str) -> Iterator[Mutant]:
    """Every one of this file, line by line."""
    path = ROOT / "fast" / f"{file}.py"
    text = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    for statement in sorted(statements, key=lambda node: node.lineno):
        for change in chain(_operators(statement), expressions(statement, _others), _writes(statement)):
            code = compile(ast.fix_missing_locations(tree), str(path), "exec")
            yield Mutant(file, statement.lineno, lines[statement.lineno - 1].strip(), change, code)


def _operators(statement: ast.stmt) -> Iterator[str]:
    """+= becomes -=, as long as the iterator stands there."""
    if isinstance(statement, ast.AugAssign) and type(statement.op) in OPERATORS:
        with standing(statement, "op", None, statement.op, OPERATORS[type(statement.op)]()):
            yield f"becomes {head(statement)}"


OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Mod: ast.FloorDiv,
    ast.Mult: ast.FloorDiv,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
TWO = {"minimum", "maximum", "min", "max"}  # clamps: either argument instead
ONE = {"cumsum", "copy", "sum"}  # what it is called on instead, or its argument


def _others(node: ast.expr, parent: ast.AST) -> Iterator[ast.expr]:
    """What may stand in an expression's place."""
    match node:
        case ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), whole), ast.FloorDiv(), part)):
            yield ast.BinOp(whole, ast.FloorDiv(), part)  # a ceiling becomes a floor
        case ast.BinOp(left, ast.FloorDiv(), right) if not isinstance(parent, ast.UnaryOp):
            yield ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), left), ast.FloorDiv(), right))
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(operator)](), right)
        case ast.UnaryOp(ast.Invert() | ast.Not(), inside):
            yield inside
        case ast.Compare(left, [comparison], rest) if type(comparison) in COMPARISONS:
            yield ast.Compare(left, [COMPARISONS[type(comparison)]()], rest)
        case ast.Constant(int(number)) if not isinstance(number, bool):
            yield from (ast.Constant(number + 1), ast.Constant(number - 1))
        case ast.Call(ast.Attribute(_, name), [first, second]) if name in TWO:
            yield from (first, second)
        case ast.Call(ast.Attribute(_, name), [argument]) if name in ONE:
            yield argument
        case ast.Call(ast.Attribute(whole, name), []) if name in ONE:
            yield ast.Attribute(whole, "size", ast.Load()) if name == "sum" else whole


def _writes(parent: ast.stmt) -> Iterator[str]:
    """In the body of a function, an if or a loop, two neighbours change places, or one that writes is not there."""
    body = [] if isinstance(parent, ast.ClassDef) else getattr(parent, "body", [])
    documented = isinstance(parent, ast.FunctionDef) and ast.get_docstring(parent) is not None
    for at in range(int(documented), len(body)):
        one, other = body[at], body[at + 1 : at + 2]
        if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr):
            with standing(parent, "body", at, one, ast.copy_location(ast.Pass(), one)):
                yield f"without {head(one)}"
        if other:
            body[at : at + 2] = [*other, one]
            yield f"{head(one)} after {head(other[0])}"
            body[at : at + 2] = [one, *other]


# ---- who catches them


class Caught(Exception):
    """Something is wrong. Its text says what."""


def selfcheck() -> None:
    """Random calls, everything asked after each."""
    from kvledger.tests.unit.fast_calls import endless_drafts, long_rows, run

    long_rows()
    endless_drafts()
    for seed in range(SEEDS):
        for world in WORLDS:
            run(world, seed, CALLS)


def check() -> None:
    """The kit's quick profile."""
    found = search(load_backend("fast"), name="fast", budget=BUDGETS["quick"], seed_number=0, grade=Grade()).finding
    if found is not None:
        raise Caught(f"{found.rule} {dict(found.facts)}")


def against() -> None:
    """The reference in step, in a replay of 12 made-up requests in a tight pool, once with drafts."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/made.jsonl"
        synthetic.write(path, 12, 0)
        requests = formats.read(path, block_tokens=2)
    longest = max(trace.positions for trace in requests) + 3
    for drafts in (0, 3):
        world = World(rows=10, context_len=longest, pages=pages_for(longest, 4) + 8, page_size=4)
        lockstep, other = (Lockstep(load_backend(name), world, name=name) for name in ("fast", "reference"))
        beside = Against(lockstep, other, ("fast", "reference"))

        def step(act: Action, lockstep: Lockstep = lockstep, beside: Against = beside) -> Granted | Refused:
            answer = lockstep.do(act)
            beside.follow(act, answer)
            return answer

        knobs = Knobs(lockstep.world, running=8, chunk=8, drafts=drafts)
        drive(requests, step, lockstep.ledger.prefix, knobs, lambda _: None)
        lockstep.drain()
        beside.drain()


CATCHERS: tuple[Callable[[], None], ...] = (selfcheck, check, against)


def caught(mutant: Mutant) -> tuple[str, str]:
    """Who catches it, and what is said then; NOBODY."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        _try(mutant, lambda words: os.write(writing, words.encode()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        words = said.read()
    _, status = os.waitpid(child, 0)
    who, _, what = words.rpartition("\0")[2].partition("\n")
    return who, " ".join(what.split()) or ("runs into a limit" if os.WIFSIGNALED(status) else "")


def _try(mutant: Mutant, says: Callable[[str], object]) -> None:
    """Say who looks now, then what it found; at the end that it was nobody."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    who = ""
    try:
        for catcher in CATCHERS:
            who = catcher.__name__
            says(f"\0{who}\n")
            if catcher is CATCHERS[0]:
                _load(mutant)
            catcher()
        says(f"\0{NOBODY}\n")
    except Finding as finding:
        says(f"{finding.rule} {dict(finding.facts)}")
    except (Exception, Differs) as error:
        says(f"{type(error).__name__}: {error}")


def _load(mutant: Mutant) -> None:
    """The mutant in place of the module, before anybody imports that."""
    name = f"kvledger.fast.{mutant.file}"
    assert name not in sys.modules
    importlib.import_module("kvledger.fast")
    module = sys.modules[name] = ModuleType(name)
    exec(mutant.code, module.__dict__)


def main() -> int:
    """The table. Exit 1: a mutant survives that is not listed, or a listed one does not."""
    parser = argparse.ArgumentParser(prog="python -m kvledger.tests.unit.fast_mutants", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--only", metavar="TEXT", help="the mutants of lines that have this text in them")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one mutant in N; all, unless told")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args()
    importlib.import_module("torch").set_num_threads(1)  # what is forked must not have threads
    every = [mutant for file in FILES for mutant in mutants(file) if args.only is None or args.only in mutant.line]
    every = every[:: max(args.every, 1)]
    by, wrong, seen = Counter[str](), 0, set[tuple[str, str, str]]()
    for mutant in tqdm(every, unit=" mutants", leave=False, disable=args.quiet or not sys.stderr.isatty()):
        who, what = caught(mutant)
        by[who] += 1
        seen.add(mutant.key)
        why = UNCHANGED.get(mutant.key)
        if who == NOBODY:
            wrong += why is None
            what = f"unchanged: {why}" if why else "SURVIVES, and is not listed"
        elif why is not None:
            wrong += 1
            what = f"LISTED as unchanged, but caught: {what}"
        tqdm.write(f"{mutant.file}.py:{mutant.number:<4}{mutant.line}\n    {mutant.change}\n    {who}: {what[:150]}")
    gone = [] if args.only or args.every > 1 else sorted(UNCHANGED.keys() - seen)
    for key in gone:
        tqdm.write(f"LISTED, but no mutant: {key}")
    counts = ", ".join(f"{by[name]} by {name}" for name in [each.__name__ for each in CATCHERS] + [NOBODY])
    tqdm.write(f"{len(every)} mutants: {counts}; {wrong + len(gone)} not as listed")
    return 1 if wrong or gone else 0


if __name__ == "__main__":
    sys.exit(main())
