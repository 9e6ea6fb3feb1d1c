"""`kvledger replay` from the outside: exit codes, what it prints, and how a failing run becomes a short one."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from kvledger.spec.actions import Action, Decode, Extend, Finish, Retract, Submit
from kvledger.spec.answer import Granted, Refused, Reply
from kvledger.spec.backend import Declaration, View
from kvledger.spec.page import pages_for
from kvledger.spec.trace import Step, Trace
from kvledger.spec.trace import read as read_stored
from kvledger.spec.trace import write as write_stored
from kvledger.spec.world import World
from kvledger.tests.kit.load import load_backend
from kvledger.tests.kit.lockstep import Finding, Lockstep
from kvledger.tests.replay.driver import drive
from kvledger.tests.replay.formats import read
from kvledger.tests.replay.knobs import Knobs
from kvledger.tests.replay.narrow import narrow
from kvledger.tests.unit.written import Bench, odd

FAULTY = "kvledger.tests.zoo.freed_twice:make"
# A run of some backend; the retract comes too late to be made.
CALLS = (Submit("a", (1, 2), 0), Extend((("a", 2, 3),)), Finish("a", 2, False), Retract("a"))
STORED = Trace(World(rows=2, context_len=4, pages=4, page_size=1), tuple(Step(act, Reply()) for act in CALLS))


@pytest.fixture
def trace(bench: Bench) -> str:
    """A made-up trace in the current folder."""
    assert bench.call("replay", "t.jsonl", "--synthetic", "--requests", "30", "--seed", "5")[0] == 0
    return "t.jsonl"


@pytest.mark.parametrize("backend", ["reference", "chunk_cache", "blocks"])
@pytest.mark.parametrize("sizes", ["--pages 700", "--pages 320", "--page-size 4 --block-tokens 6 --pages 500"])
def test_good_backends_hold(bench: Bench, trace: str, backend: str, sizes: str) -> None:
    code, out, _ = bench.call("replay", trace, "--backend", backend, *sizes.split())
    assert code == 0 and " rules: " in out and "BROKEN" not in out
    assert re.search(r"\d request actions per CPU second, [\d,]+ in the monitor alone; calibration loop \d+ ms", out)


def test_a_tight_pool_of_single_slots_ends(bench: Bench, trace: str) -> None:
    words = "--page-size 1 --block-tokens 4 --pages 1000 --json out.json"
    assert bench.call("replay", trace, *words.split())[0] == 0
    figures = json.loads(Path("out.json").read_text())["figures"]
    assert figures["retractions"] and figures["refusals, short of pages"] and figures["pages evicted"]
    assert figures["peak pages"] == 1000


@pytest.mark.parametrize("backend", ["reference", "fast"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--pages 2147483648", "world with pages = 2147483648: expected a whole number from 1 to 2^31 - 1"),
        ("--rows 2147483648", "world with rows = 2147483648: expected a whole number from 1 to 2^31 - 1"),
        ("--context-len 2147483648", "world with context_len = 2147483648: expected a whole number from 1 to 2^31 - 1"),
        ("--page-size 2147483648", "world with page_size = 2147483648: expected a whole number from 1 to 2^31 - 1"),
        ("--pages 134217728 --page-size 16", "world with 134217728 pages of 16 slots: expected less than 2^31 in all"),
        ("--pages 715827882 --page-size 3", "world with 715827882 pages of 3 slots: expected less than 2^31 in all"),
    ],
)
def test_what_int32_cannot_address_is_said_at_once(
    bench: Bench, trace: str, backend: str, words: str, says: str
) -> None:
    """With those of the padding page 2^31 slots can be numbered: 134,217,727 pages of 16, 715,827,881 of 3."""
    if backend == "fast":
        pytest.importorskip("torch", reason="fast needs torch: pip install 'kvledger[fast]'")
    assert bench.complaint("replay", trace, "--backend", backend, *words.split()) == f"kvledger replay: {says}\n"


def test_its_figures_are_those_of_the_run(bench: Bench, trace: str) -> None:
    """Each is counted here as well, call by call, on the same requests in the same world: in the file and in words."""
    requests, size = read(trace, 30, 16), 16
    widest = pages_for(max(trace.positions for trace in requests), size) * size
    lockstep = Lockstep(load_backend("reference"), World(28, widest, 270, size))
    granted, refused, evicted, pages = list[tuple[Action, Granted]](), Counter[str | None](), 0, set[int]()

    def step(act: Action) -> Granted | Refused:
        nonlocal evicted
        answer = lockstep.do(act)
        evicted += len(answer.evicted)
        pages.add(len(lockstep.ledger.pages))
        if isinstance(answer, Refused):
            refused[answer.short] += 1
        else:
            granted.append((act, answer))
        return answer

    summary = drive(requests, step, lockstep.ledger.prefix, Knobs(lockstep.world, running=20), lambda _: None)
    kinds = Counter(type(act).__name__ for act, _ in granted)
    chunks, decoded = (sum(len(act.batch) for act, _ in granted if isinstance(act, kind)) for kind in (Extend, Decode))
    expected = {
        "requests finished": 30,
        "request actions": chunks + decoded + len(granted) - kinds["Extend"] - kinds["Decode"],
        "calls": len(granted),
        "tokens prompted": sum(len(request.prompt) for request in requests),
        "tokens matched": sum(len(found) * size for _, answer in granted for found in answer.matched),
        "tokens decoded": decoded,
        "prompt chunks": chunks,
        "checkpoints": kinds["Checkpoint"],
        "pages evicted": evicted,
        "retractions": kinds["Retract"],
        "refusals, short of pages": refused["pages"],
        "peak running": summary.peak_running,
        "peak pages": max(pages),
    }
    assert all(expected.values()) and len(set(expected.values())) == len(expected)  # each is told from the others
    code, out, _ = bench.call("replay", trace, "--pages", "270", "--running", "20", "--json", "out.json")
    assert code == 0 and json.loads(Path("out.json").read_text())["figures"] == expected
    for name, value in expected.items():
        assert f"\n  {name:<28}{value:>12,}\n" in out


TWO = """{"timestamp": 0, "input_length": 1536, "output_length": 1024, "hash_ids": [1, 2, 3]}
{"timestamp": 0, "input_length": 1536, "output_length": 1024, "hash_ids": [4, 5, 6]}
"""


def test_what_nobody_missed_is_found_in_the_drain_probe(bench: Bench) -> None:
    """A retract loses a page, and seven of eight are enough: five for each, the second one after the first."""
    body = "reply = theirs()\nif isinstance(args[0], Retract):\n    self.allocator.alloc(1)\nreturn reply"
    target = bench.backend(odd("do", body))
    code, screen, _ = bench.call("replay", bench.file("two.jsonl", TWO), "--pages", "8", "--backend", target)
    assert code == 1 and "BROKEN  PAGE-2 no-page-lost" in screen and "in the drain probe, by extend" in screen
    assert bench.call("replay", "two.jsonl", "--pages", "8")[0] == 0


def test_a_view_leaves_nothing_unseen(bench: Bench, trace: str) -> None:
    for words, unseen in (([], True), (["--view"], False)):
        code, out, _ = bench.call("replay", trace, "--requests", "10", *words)
        assert code == 0 and ("UNSEEN" in out) == unseen


FORGETS = """reply = theirs()
return replace(reply, free_pages=reply.free_pages[1:]) if self.req_to_token_pool.available_size() < 20 else reply"""


def test_a_view_after_every_nth_call(bench: Bench, trace: str) -> None:
    """It says how often, and what is found between two looks is told to the call once the run is short."""
    code, out, _ = bench.call("replay", trace, "--requests", "10", "--view-every", "16", "--json", "out.json")
    report = json.loads(Path("out.json").read_text())
    said = re.search(r"books and content looked at ([\d,]+) times, in ([\d,]+) calls", out)
    assert code == 0 and "UNSEEN" not in out and said is not None
    looks, calls = (int(number.replace(",", "")) for number in said.groups())
    assert looks == report["looks"] and -(-calls // 16) <= looks <= calls // 16 + 2
    target, shown = bench.backend(odd("view", FORGETS)), []
    for words in (["--view"], ["--view-every", "16"]):
        code, screen, _ = bench.call("replay", trace, "--requests", "30", "--backend", target, *words)
        assert code == 1 and f"--backend {target} --requests 30 {' '.join(words)}" in " ".join(screen.split())
        shown.append(re.findall("BROKEN .*|by .*, at step .*", screen)[0])
    assert shown[0] == shown[1] and "PAGE-2" in shown[0]


def test_json_for_machines(bench: Bench, trace: str) -> None:
    code, out, _ = bench.call("replay", trace, "--json", "-")
    report = json.loads(out)
    assert code == report["exit"] == 0 and report["name"] == "reference"
    assert report["figures"]["requests finished"] == 30
    assert report["rules"]["PAGE-1"]["verdict"] == "HOLDS" and report["rules"]["PAGE-1"]["armed"] > 0
    assert bench.call("replay", trace, "--backend", FAULTY, "--json", "out.json")[0] == 1
    assert json.loads(Path("out.json").read_text())["finding"]["rule"] == "PAGE-6"


def test_a_broken_rule_is_shown_stored_and_replayed(bench: Bench, trace: str) -> None:
    code, out, _ = bench.call("replay", trace, "--backend", FAULTY, "--chunk", "100")
    assert code == 1 and "BROKEN  PAGE-6 freed-exactly" in out
    assert f"$ kvledger replay t.jsonl --backend {FAULTY} --chunk 100" in out
    [stored] = Path(".kvledger").iterdir()
    assert len(read_stored(stored).steps) < 10
    assert bench.call("replay", str(stored), "--backend", FAULTY)[0] == 1
    assert bench.call("replay", str(stored), "--backend", "reference")[0] == 0


def test_a_stored_run_for_machines(bench: Bench) -> None:
    """--json is kept; what another backend could not be asked is counted, and no rule is said to hold for it."""
    write_stored(STORED, "run.itf.json")
    code, out, _ = bench.call("replay", "run.itf.json", "--json", "out.json")
    assert (code, out) == (0, "3 of 4 calls of run.itf.json could be made on reference: no rule breaks\n")
    report = json.loads(Path("out.json").read_text())
    assert report == {"backend": "reference", "name": "reference", "calls": 4, "made": 3, "exit": 0}
    code, out, _ = bench.call("replay", "run.itf.json", "--backend", FAULTY, "--json", "-")
    report = json.loads(out)
    assert (code, report["exit"], report["finding"]["rule"]) == (1, 1, "PAGE-6")


@pytest.mark.parametrize("size", ["--requests 5", "--page-size 1", "--pages 4096", "--rows 3", "--chunk 1"])
def test_a_stored_run_has_its_own_sizes(bench: Bench, size: str) -> None:
    """Even one that is the default is not passed over."""
    write_stored(STORED, "run.itf.json")
    line = bench.complaint("replay", "run.itf.json", *size.split())
    assert f"{size.split()[0]} with run.itf.json: a stored run has its sizes" in line


# ---- sessions, faults, drafts, and what an engine is known for

TURN = '{"type": "n", "in": %d, "out": 128, "hash_ids": %s}'
WEKA = '{"block_size": 64, "requests": [%s]}\n'


@pytest.fixture
def weka(bench: Bench) -> str:
    """Four conversations of three turns each, in the current folder."""
    turns = ", ".join(TURN % (length, list(range(length // 64))) for length in (640, 1000, 2000))
    return bench.file("w.jsonl", WEKA % turns * 4)


def figures(bench: Bench, *words: str) -> dict[str, int]:
    code, out, _ = bench.call("replay", *words, "--pages", "100", "--view", "--json", "-")
    assert code == 0, out
    report = json.loads(out)
    assert not [name for name, rule in report["rules"].items() if rule["verdict"] == "BROKEN"]
    found: dict[str, int] = report["figures"]
    return found


def test_a_session_a_line(bench: Bench, weka: str) -> None:
    found = figures(bench, weka)
    assert (found["requests finished"], found["turns"], found["sessions closed"]) == (12, 12, 4)
    assert found["tokens kept by sessions"] == 4 * (20 + 4 - 1 + 32 + 4 - 1)  # all but the pending token of each turn
    plain = figures(bench, weka, "--no-sessions")
    assert plain["requests finished"] == 12 and "turns" not in plain
    assert plain["tokens matched"] > found["tokens matched"]


def test_sessions_without_sessions(bench: Bench, weka: str) -> None:
    code, out, _ = bench.call("replay", weka, "--backend", "blocks", "--pages", "100")
    assert code == 0 and "\nblocks does not declare SESSIONS: every turn is a plain request\n" in out
    words = ["--backend", "blocks", "--pages", "100", "--no-sessions"]
    assert "does not declare" not in bench.call("replay", weka, *words)[1]


def test_faults_and_drafts_are_counted(bench: Bench, weka: str) -> None:
    words = "--drafts 3 --abort 30 --retract 100 --close-early 30 --seed 4 --batch 2 --chunk 8"
    found = figures(bench, weka, *words.split())
    assert found["requests finished"] + found["requests aborted"] == 12 and found["sessions closed early"]
    assert 0 < found["tokens drafted, accepted"] < found["tokens drafted"] and found["retractions"]
    assert found == figures(bench, weka, *words.split())
    assert found != figures(bench, weka, *words.replace("4 -", "5 -").split())


def test_resends(bench: Bench) -> None:
    """The last of nine is the first once more: in its place it reads from the cache, pulled forward it cannot."""
    line = '{"timestamp": 0, "input_length": 4096, "output_length": 640, "hash_ids": %s}\n'
    prompts = [list(range(8 * number, 8 * number + 8)) for number in (0, 1, 2, 3, 4, 5, 6, 7, 0)]
    path = bench.file("r.jsonl", "".join(line % ids for ids in prompts))
    assert figures(bench, path, "--running", "2")["tokens matched"] == 112
    assert figures(bench, path, "--running", "2", "--resend")["tokens matched"] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--drafts 2 --backend blocks", "drafts = 2: blocks does not declare DRAFTS, expected 0"),
        ("--close-early 2 --backend blocks", "close_early = 2: blocks does not declare SESSIONS"),
        ("--close-early 2 --no-sessions", "close_early = 2: no request is a turn of a session, expected some"),
        ("--abort 200", "abort = 200: expected a whole number from 0 to 100"),
        ("--view-every 0", "--view-every 0: expected at least 1"),
        ("--view --view-every 3", "argument --view-every: not allowed with argument --view"),
        ("--batch 0", "batch = 0: expected a whole number >= 1"),
        ("--block-tokens 65", "65 tokens a block: expected at most 64"),
        ("--deviations none.toml", "deviations none.toml: expected a TOML file that can be read"),
    ],
)
def test_what_cannot_be_is_said(bench: Bench, weka: str, words: str, says: str) -> None:
    assert says in bench.complaint("replay", weka, *words.split())


@pytest.mark.parametrize(
    "word",
    ["--sessions", "--no-sessions", "--resend", "--view-every 4", "--drafts 0", "--abort 1", "--deviations d.toml"],
)
def test_a_stored_run_is_what_it_is(bench: Bench, word: str) -> None:
    write_stored(STORED, "run.itf.json")
    line = bench.complaint("replay", "run.itf.json", *word.split())
    assert f"{word.split()[0].replace('--no-', '--')} with run.itf.json: a stored run has its sizes" in line


def test_a_known_deviation_ends_the_run_and_is_said(bench: Bench, weka: str) -> None:
    """The fault is found without the list, and its stored run is the witness of the entry that then explains it."""
    fault = "kvledger.tests.zoo.freed_after_handover:make"
    code, screen, _ = bench.call("replay", weka, "--backend", fault)
    assert code == 1 and "BROKEN  SES-1" in screen
    [stored] = Path(".kvledger").iterdir()
    fields = {"rule": "SES-1", "by": "finish", "kind": "fault", "reason": "it forgets", "witness": stored}
    entry = "".join(f'{name} = "{value}"\n' for name, value in fields.items())
    listed = bench.file("known.toml", f"[[deviation]]\n{entry}")
    code, out, _ = bench.call("replay", weka, "--backend", fault, "--deviations", listed, "--json", "out.json")
    assert code == 2 and "DEVIATES  SES-1 session-takes-over by finish, fault: it forgets" in out
    assert "the run ended in it, with 0 of 12 requests finished: what follows cannot be judged" in out
    report = json.loads(Path("out.json").read_text())
    assert report["deviation"] == stored.name and report["rules"]["SES-1"]["verdict"] == "DEVIATES"
    code, out, _ = bench.call("replay", weka, "--no-sessions", "--backend", fault, "--deviations", listed)
    assert code == 0 and f"{fault} is known not to keep SES-1: this run did not come to that" in out


# ---- narrow: from thousands of calls to a few

WORLD = World(rows=40, context_len=1024, pages=80, page_size=16)


def broken(trace: str, lockstep: Lockstep) -> Finding:
    with pytest.raises(Finding) as found:
        drive(read(trace, 30, 4), lockstep.do, lockstep.ledger.prefix, Knobs(lockstep.world), lambda _: None)
    return found.value


@pytest.mark.parametrize(
    ("fault", "most"),
    [
        # as short as written by hand
        ("freed_twice", 3), ("duplicate_kept", 5), ("stale_reuse", 4),
        # the prompts that fill a pool, or end inside a page, are as long as they were
        ("pending_published", 5), ("locked_evicted", 10), ("refused_keeps_row", 13),
    ],
)  # fmt: skip
def test_narrow_keeps_the_rule_and_drops_the_rest(trace: str, fault: str, most: int) -> None:
    """most: calls that are left. Without whole requests and without members dropped it would be more."""
    make = load_backend(f"kvledger.tests.zoo.{fault}:make")
    lockstep = Lockstep(make, WORLD)
    finding, told = broken(trace, lockstep), list[int]()
    small = narrow(make, lockstep.world, lockstep.steps, finding, grade=lockstep.grade, name=fault, drain=False,
                   seconds=1e6, progress=told.append)  # fmt: skip
    assert small is not None and small.finding.rule == finding.rule and len(lockstep.steps) > 30
    assert len(small.steps) == small.finding.step == min(told) <= most


def test_narrowing_has_a_budget(trace: str) -> None:
    """Out of time at once: the run as it is, for it breaks the rule once more."""
    make = load_backend("kvledger.tests.zoo.freed_twice:make")
    lockstep = Lockstep(make, WORLD)
    finding = broken(trace, lockstep)
    small = narrow(make, lockstep.world, lockstep.steps, finding, grade=lockstep.grade, name="twice", drain=False,
                   seconds=-1)  # fmt: skip
    assert small is not None and len(small.steps) == len(lockstep.steps)


class Moody:
    """Breaks a rule in the first world that it lives in, and never again."""

    lives = 0

    def __init__(self, world: World) -> None:
        Moody.lives += 1
        self.bad = Moody.lives == 1
        self.inner = load_backend("reference")(world)

    def declare(self) -> Declaration:
        return self.inner.declare()

    def view(self) -> View | None:
        return self.inner.view()

    def do(self, action: Action) -> Reply | Refused:
        if self.bad and type(action).__name__ == "Decode":
            raise RuntimeError("moody")
        return self.inner.do(action)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_narrow_says_when_a_backend_does_not_repeat_itself(trace: str) -> None:
    lockstep = Lockstep(Moody, WORLD)
    finding = broken(trace, lockstep)
    assert finding.rule == "RAISES"
    assert not narrow(Moody, lockstep.world, lockstep.steps, finding, grade=lockstep.grade, name="moody", drain=False)
