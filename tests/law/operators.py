"""Every operator of the law changed, and every write of it dropped, one at a time: something must turn out otherwise.

    python -m kvledger.tests.law.operators              # some minutes; exit 0: all as listed
    python -m kvledger.tests.law.operators --every 20   # a sample: one in twenty

Of page.py, record.py, ledger.py, edit.py, action.py and actions/ in spec/, in every function: a comparison is shifted,
`and` becomes `or`, a `not` goes, + becomes -, of two in min or max one is taken, an integer is one more or less; a
statement is not there. Who removes the `need` lines is `kvledger needs`.

A mutant is noticed when one of many questions (questions.py says which and whose: kernels, answers, verdicts, writes,
views) has another answer than the law as it stands, which is asked first, for a minute. What nobody notices is a line
that the law does not need, or no change: then it stands in unchanged.py, with the reason. A listed one that is noticed,
or is not there, is an error, too. Each mutant runs in a process of its own, with limits; what runs into one is noticed.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import resource
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from signal import SIGKILL
from types import FunctionType
from typing import IO, Any

from tqdm import tqdm

from kvledger.spec.world import WrongInput
from kvledger.tests.law.mutants import Mutant, mutants
from kvledger.tests.law.questions import ASKERS, Question, answer_of, questions
from kvledger.tests.law.unchanged import UNCHANGED

SPEC = Path(__file__).parents[2] / "spec"
ACTIONS = sorted(f"actions/{path.stem}" for path in (SPEC / "actions").glob("[a-z]*.py"))
FILES = ("page", "record", "ledger", "edit", "action", *ACTIONS)
SECONDS, MEMORY = 40, 2 * 2**30  # of CPU, and bytes of address space beyond what is taken
NOBODY = "NOBODY"


def put(mutant: Mutant) -> None:
    """The mutant's code in the function that everybody has by its name already."""
    module = importlib.import_module(f"kvledger.spec.{mutant.file.replace('/', '.')}")
    scratch: dict[str, Any] = {"__name__": module.__name__}
    exec(mutant.code, scratch)
    _function(vars(module), mutant.function).__code__ = _function(scratch, mutant.function).__code__


def _function(names: dict[str, Any], dotted: str) -> FunctionType:
    owner, _, name = dotted.rpartition(".")
    found = vars(names[owner])[name] if owner else names[name]
    function = getattr(found, "fget", None) or getattr(found, "__func__", found)
    assert isinstance(function, FunctionType)
    return function


def noticed(every: list[Mutant], asked: list[tuple[Question, object]]) -> Iterator[tuple[Mutant, str, str]]:
    """By whom each is noticed, and about what; NOBODY. Each in a process of its own, as many at once as there are
    cores."""
    gc.freeze()  # what the children read need not be copied for them
    running: deque[tuple[Mutant, int, IO[str]]] = deque()
    try:
        for mutant in [*every, None]:
            while running and (mutant is None or len(running) >= len(os.sched_getaffinity(0))):
                found = _ended(*running[0])
                running.popleft()
                yield found
            if mutant is not None:
                running.append((mutant, *_begun(mutant, asked)))
    finally:  # interrupted, or nobody asks on
        for _, child, _ in running:
            with suppress(OSError):
                os.kill(child, SIGKILL)
                os.waitpid(child, 0)


def _begun(mutant: Mutant, asked: list[tuple[Question, object]]) -> tuple[int, IO[str]]:
    """A process that asks, and where to read what it finds."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(writing, _first(mutant, asked).encode())
        finally:  # whatever is raised: what the parent has not yet printed is the parent's to print
            os._exit(0)
    os.close(writing)
    return child, os.fdopen(reading)


def _ended(mutant: Mutant, child: int, said: IO[str]) -> tuple[Mutant, str, str]:
    """What it found; one that ran into a limit says nothing."""
    with said:
        who, _, about = said.read().partition(" ")
    os.waitpid(child, 0)
    return mutant, who or "limits", about


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
        yield from mutants(SPEC / f"{file}.py", file)


def main() -> int:
    """The table. Exit 1: a mutant goes unnoticed that is not listed, or a listed one does not. 2: wrong use."""
    try:
        return _table()
    except WrongInput as wrong:
        print(f"operators: {wrong}", file=sys.stderr)
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("operators: interrupted", file=sys.stderr)
    return 2


def _table() -> int:
    parser = argparse.ArgumentParser(prog="python -m kvledger.tests.law.operators", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--only", metavar="TEXT", help="the mutants whose function, line or change has this text in it")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one mutant in N; all, unless told")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args()
    if args.every < 1:
        raise WrongInput(f"--every {args.every}: expected at least 1")
    every = [each for each in every_mutant() if (args.only or "") in "\n".join(each.key)][:: args.every]
    if not every:
        raise WrongInput(f"--only {args.only}: expected a text that the function, line or change of a mutant has in it")
    asked = [(question, answer_of(question)) for question in questions()]
    by, wrong = Counter[str](), 0
    bar = partial(tqdm, total=len(every), unit=" mutants", leave=False, disable=args.quiet or not sys.stderr.isatty())
    for mutant, who, about in bar(noticed(every, asked)):
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
