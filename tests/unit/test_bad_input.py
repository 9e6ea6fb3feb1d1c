"""Everything that an adapter can get wrong: exit 2 and one line that says what, and what was expected."""

from __future__ import annotations

import pytest

from kvledger.spec.answer import Reply
from kvledger.spec.backend import RecordView, View
from kvledger.spec.tidy import Said, tidy, tidy_view
from kvledger.tests.unit.written import GOOD, Bench, odd, python

# ---- which backend


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nobody", "backend 'nobody': expected reference, chunk_cache, blocks,"),
        (":make", "backend ':make': expected reference,"),
        ("nowhere:make", "expected a module that can be imported, but nowhere raised ModuleNotFoundError"),
        (".here:make", "backend '.here:make': expected a module that can be imported"),
        ("kvledger:nothing", "expected a function nothing in kvledger, found none"),
        ("kvledger:__version__", "expected a function __version__ in kvledger, found '"),
    ],
)
def test_a_backend_that_is_not_there(bench: Bench, target: str, says: str) -> None:
    assert says in bench.complaint("check", target)
    assert says in bench.complaint("replay", bench.file("t.itf.json", GOOD), "--backend", target)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('two\\nlines')", "raised RuntimeError: two lines"),
        ("raise SystemExit(0)", "raised SystemExit: 0"),
        ("def f(:", "raised SyntaxError: "),
        ("make = 5", "expected a function make in written_"),
        ("def make(world): raise KeyError('k')", "make(4 rows of 7, 8 pages of 1) raised KeyError: 'k'"),
        ("def make(world): raise SystemExit", "make(4 rows of 7, 8 pages of 1) raised SystemExit"),
        ("def make(): pass", "raised TypeError: make() takes 0 positional arguments but 1 was given"),
        ("def make(world): pass", "make returned None, expected a Backend, with a method declare"),
        ("class Odd(Backend): do = None", "expected a Backend, with a method do"),
    ],
)
def test_a_module_that_gives_no_backend(bench: Bench, source: str, says: str) -> None:
    target = bench.backend(source)
    line = bench.complaint("check", target)
    assert says in line and target.partition(":")[0] in line


@pytest.mark.parametrize(
    ("declares", "says"),
    [
        ("None", "declare() returned None, expected a Declaration"),
        ("1 / 0", "declare() raised ZeroDivisionError: division by zero"),
        ("Declaration('mine', '1', {'MAGIC'})", "mine declares capabilities 'MAGIC': expected some of ROWS, PAGED,"),
        ("Declaration('mine', '1', 'VIEW')", "mine declares capabilities='VIEW': expected a set of words"),
        ("Declaration('mine', '1', 5)", "mine declares capabilities=5: expected a set of words"),
        ("Declaration('mine', publishes_on={'submit'})", "publishes_on 'submit': expected some of extend, decode,"),
        ("Declaration('mine', headroom=-1)", "headroom = -1: expected a whole number >= 0"),
        ("Declaration('mine', max_batch=0)", "max_batch = 0: expected a whole number >= 1"),
        ("Declaration('mine', key_lag=2)", "key_lag = 2: expected 0 or 1"),
        ("Declaration('mine', '1', {'EVICT'})", "mine declares EVICT without PREFIX_CACHE"),
        ("Declaration('mine', publishes_on={'finish'})", "declares CHECKPOINT, which publishes, but publishes_on"),
    ],
)
def test_a_declaration_that_is_none(bench: Bench, declares: str, says: str) -> None:
    target = bench.backend(odd("declare", f"return {declares}"))
    line = bench.complaint("check", target)
    assert says in line and target in line


@pytest.mark.parametrize(
    ("method", "capability"), [("view", "VIEW"), ("write", "CONTENT"), ("read", "CONTENT"), ("scramble", "SCRAMBLE")]
)
def test_a_capability_without_its_method(bench: Bench, method: str, capability: str) -> None:
    target = bench.backend(f"class Odd(Backend): {method} = None")
    line = bench.complaint("check", target)
    assert f"{target}: declares {capability}, expected a method {method}, found none" in line


def test_all_backends_are_there_before_one_is_checked(bench: Bench) -> None:
    """A complaint prints nothing else: the first one was not run."""
    assert "backend 'nobody': expected" in bench.complaint("check", "reference", "nobody")


def test_a_make_that_does_not_return(bench: Bench) -> None:
    """Nothing of a backend is called without a limit."""
    wait = "time.sleep(5)"
    for source in (f"import time\ndef make(world): {wait}", "import time\n" + odd("declare", wait)):
        target = bench.backend(source)
        line = bench.complaint("check", target, "--limit", "0.2")
        assert f"{target}: make or declare did not return within 0.2 s" in line


def test_a_page_size_that_it_cannot_have(bench: Bench) -> None:
    target = bench.backend(odd("declare", "return Declaration('mine', '1', {'ROWS'})"))
    assert "does not declare PAGED" in bench.complaint("check", target, "--page-size", "4")


# ---- what it answers and shows


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("None", "answered extend with a NoneType: expected a Reply or Refused"),
        ("(1, [2])", "answered extend with a tuple: expected a Reply or Refused"),
        ("replace(reply, rows=5)", "rows = 5: expected a list of whole numbers"),
        ("replace(reply, rows=[1.5])", "rows = [1.5]: expected a list of whole numbers"),
        ("replace(reply, matched=[3])", "matched = 3: expected a list of whole numbers"),
        ("replace(reply, matched=[*reply.matched, []])", "matched prefixes, one for each request that starts: "),
        ("replace(reply, slots=7)", "slots = 7: expected a list of lists"),
        ("replace(reply, slots=list(reply.slots[0]))", "slots = 1: expected a list of whole numbers"),
        ("replace(reply, slots=['ab'])", "slots = 'ab': expected a list of whole numbers"),
        ("replace(reply, slots=[*reply.slots, []])", "with 2 lists of slots, one for each member: expected 1"),
        ("replace(reply, slots=iter(reply.slots))", "expected a list of lists"),
        ("replace(reply, slots=[iter(reply.slots[0])])", "expected a list of whole numbers"),
        ("replace(reply, published=['A'])", "published = ['A']: expected a mapping of request to length"),
        ("replace(reply, published={0: 1})", "published = {0: 1}: expected a mapping of request to length"),
        ("replace(reply, published={'A': 'all'})", "expected a list of whole numbers"),
        ("replace(reply, evicted={1: 2})", "evicted = {1: 2}: expected a list of whole numbers"),
        ("replace(reply, evicted=range(2**22 + 1))", "with evicted that has more than 4,194,304 numbers"),
        ("replace(reply, rows=[2**63])", "with rows that has a number of more than 63 bits"),
        ("replace(reply, rows=[1, -(2**63)])", "with rows that has a number of more than 63 bits"),
        ("replace(reply, published={'A': 2**63})", "with published that has a number of more than 63 bits"),
        ("replace(reply, freed=[1])", "freed = [1]: expected a Freed or None"),
        ("replace(reply, freed=Freed(1, 2))", "freed = 1: expected a list of whole numbers"),
        ("Refused('memory')", "short = 'memory': expected 'rows', 'pages' or None"),
        ("Refused('pages', {'one'})", "evicted = {'one'}: expected a list of whole numbers"),
    ],
)
def test_an_answer_of_a_wrong_shape(bench: Bench, answer: str, says: str) -> None:
    body = f"reply = theirs()\nreturn {answer} if isinstance(args[0], Extend) and isinstance(reply, Reply) else reply"
    line = bench.complaint("check", bench.backend(odd("do", body)))
    assert says in line and "reference answered extend with" in line


NASTY = """
import asyncio

class Nasty:
    def __index__(self): raise RuntimeError
    def __len__(self): raise RuntimeError
    def __eq__(self, other): raise RuntimeError
    def __hash__(self): raise RuntimeError
    def __iter__(self): raise RuntimeError
    def items(self): raise RuntimeError
    @property
    def __class__(self): raise RuntimeError

class Triples:
    def items(self): return [(1, 2, 3)]
    def __iter__(self): return iter(["A"])

def cancelled(world): raise asyncio.CancelledError
"""


@pytest.mark.parametrize(
    "answer",
    ["Nasty()", "Refused(Nasty())", "Reply(rows=Nasty())", "Reply(rows=[Nasty()])", "Reply(published=Nasty())",
     "Reply(published=Triples())", "Reply(published=dict)", "Reply(evicted=range(10**30))", "Reply(freed=Nasty())",
     "Reply(slots=[range(10**30)])"],
)  # fmt: skip
def test_an_answer_that_raises_when_it_is_looked_at(bench: Bench, answer: str) -> None:
    line = bench.complaint("check", bench.backend(NASTY + odd("do", f"return {answer}")))
    assert "reference answered submit with " in line and line.endswith("(step 1)\n")


@pytest.mark.parametrize(
    "view",
    ["Nasty()", "View(records=Nasty())", "View(records=dict)", "View(records=Triples())", "View(free_pages=Nasty())",
     "View(cached={1: CachedView(Nasty(), 0)})", "View(totals=Nasty())"],
)  # fmt: skip
def test_a_view_that_raises_when_it_is_looked_at(bench: Bench, view: str) -> None:
    line = bench.complaint("check", bench.backend(NASTY + odd("view", f"return {view}")))
    assert "reference shows a view " in line and line.endswith("(step 1)\n")


@pytest.mark.parametrize(
    "source",
    [
        NASTY + "make = cancelled",
        NASTY + odd("declare", "raise GeneratorExit"),
        "def __getattr__(name):\n    raise RuntimeError\ndel make",
        "class Odd(Backend):\n    @property\n    def do(self): raise RuntimeError",
        "class Loud(Declaration): pass\n" + odd("declare", "return Loud()"),
        odd("declare", "return replace(theirs(), name='two\\nlines')"),
    ],
)
def test_a_backend_that_raises_before_it_is_asked(bench: Bench, source: str) -> None:
    bench.complaint("check", bench.backend(source))


def test_a_probe_is_answered_in_shape(bench: Bench) -> None:
    body = "reply = theirs()\nreturn None if reply == Refused() else reply"
    line = bench.complaint("check", bench.backend(odd("do", body)))
    assert "with a NoneType: expected a Reply or Refused" in line


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("None", "declares VIEW, but view() returned None"),
        ("{}", "shows a dict as its view: expected a View"),
        ("replace(view, free_rows=1)", "free_rows = 1: expected a list of whole numbers"),
        ("replace(view, free_pages=dict.fromkeys(view.free_pages))", "expected a list of whole numbers"),
        ("replace(view, free_pages=iter(view.free_pages))", "expected a list of whole numbers"),
        ("replace(view, records=[1])", "records = [1]: expected a mapping"),
        ("replace(view, records={'A': (1, 0, 0)})", "records['A'] = (1, 0, 0): expected a request and its RecordView"),
        ("replace(view, records={0: RecordView(1, 0, 1, 1)})", "records[0] = RecordView(row=1, protected_len=0, "),
        ("replace(view, records={'A': RecordView(1, 0, None, 1)})", "expected a request and its RecordView"),
        ("replace(view, records={'A': RecordView(2**63, 0, 1, 1)})", "expected a request and its RecordView"),
        ("replace(view, records={'A': RecordView(1, 0, 1, 2**63)})", "expected a request and its RecordView"),
        ("replace(view, cached={2: CachedView(1, -(2**63))})", "cached[2] = CachedView(key=1, locks=-92233720368"),
        ("replace(view, free_rows=range(2**22 + 1))", "with free_rows that has more than 4,194,304 numbers"),
        ("replace(view, table={'A': range(2**22 + 1)})", "expected a request and its slots"),
        ("replace(view, table={'A': 'abc'})", "table['A'] = 'abc': expected a request and its slots"),
        ("replace(view, cached={2: (1, 0)})", "cached[2] = (1, 0): expected a page and its CachedView"),
        ("replace(view, cached={'2': CachedView(1, 0)})", "cached['2'] = CachedView(key=1, locks=0): expected a page"),
        ("replace(view, cached={2: CachedView([1], 0)})", "a hashable key"),
        ("replace(view, totals=5)", "totals = 5: expected Totals"),
        ("replace(view, totals=(1, 2, 3, 4))", "totals = (1, 2, 3, 4): expected Totals"),
        ("replace(view, totals=Totals(1, 2, 3, 2**63))", "expected Totals, four numbers of pages"),
        ("replace(view, totals=Totals(1, 2, 3, 'all'))", "expected Totals, four numbers of pages"),
    ],
)
def test_a_view_of_a_wrong_shape(bench: Bench, view: str, says: str) -> None:
    line = bench.complaint("check", bench.backend(odd("view", f"view = theirs()\nreturn {view}")))
    assert says in line and "reference" in line


def test_the_widest_numbers_and_the_longest_list() -> None:
    """One bit and one number less than what is too much."""
    wide = (2**63 - 1, 1 - 2**63)
    assert tidy(Reply(rows=wide, evicted=range(2**22)), "x") == Said(rows=wide, evicted=tuple(range(2**22)))
    record = RecordView(2**63 - 1, 0, 1, 1 - 2**63)
    assert tidy_view(View(records={"a": record}), "x").records == {"a": record}


# ---- the same from a shell


@pytest.mark.parametrize("source", ["raise SystemExit(0)", "def make(world): raise MemoryError"])
def test_from_a_shell(bench: Bench, source: str) -> None:
    done = python("-m", "kvledger", "check", bench.backend(source))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("kvledger check: ") and "raised" in done.stderr
