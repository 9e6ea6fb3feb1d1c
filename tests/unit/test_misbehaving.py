"""A backend that raises, hangs, or never does the same twice is a finding, never a crash of ours; one that is merely
odd is neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvledger.spec.trace import read
from kvledger.tests.unit.written import Bench, odd

BOOM = 'raise RuntimeError("boom\\nbang")'
SLEEP = "import time\nwhile True:\n    try:\n        time.sleep(0.01)\n    except Exception:\n        pass"


def on(act: str, body: str) -> str:
    """The source of a backend that does this where it should grant one kind of action."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    granted = f"isinstance(args[0], {act}) and isinstance(reply, Reply)"
    return odd("do", f"reply = theirs()\nif {granted}:\n{lines}\nreturn reply")


def stored() -> str:
    """The one run that was saved."""
    [path] = Path(".kvledger").iterdir()
    return str(path)


@pytest.mark.parametrize(
    ("source", "call", "where"),
    [
        (on("Finish", BOOM), "do", "by finish, at step 3"),
        (on("Decode", BOOM), "do", "by decode, at step 3"),
        (odd("view", BOOM), "view", "at step 1"),
        (odd("write", BOOM), "write", "by extend, at step 2"),
        (odd("read", BOOM), "read", "by extend, at step 2"),
        (odd("scramble", BOOM), "scramble", "at step 1"),
    ],
)
def test_raising_is_a_finding(bench: Bench, source: str, call: str, where: str) -> None:
    """Found, shrunk, shown, stored; the stored run shows it again, and so does a replay."""
    target = bench.backend(source)
    code, screen = bench.check(target)
    assert code == 1 and screen.count(f"{where}\n") == 1
    assert "BROKEN  the backend raises" in screen
    assert f"The backend's {call} raised RuntimeError: boom bang at written_" in " ".join(screen.split())
    trace = read(stored())
    assert trace.rule == "RAISES" and trace.at == len(trace.steps) == int(where[-1])
    code, again, _ = bench.call("replay", stored(), "--backend", target)
    assert code == 1 and f"The backend's {call} raised RuntimeError: boom bang at written_" in " ".join(again.split())
    code, told, _ = bench.call("explain", stored())
    assert code == 1 and told.count(f"{where}\n") == 1 and "BROKEN  the backend raises" in told
    assert bench.call("replay", stored())[0] == 1  # whoever made it
    assert bench.call("replay", stored(), "--backend", "reference")[0] == 0


def test_leaving_is_raising(bench: Bench) -> None:
    """sys.exit inside an engine does not end the check."""
    code, screen = bench.check(bench.backend(on("Submit", "raise SystemExit(0)")))
    assert code == 1 and "The backend's do raised SystemExit: 0 at written_" in " ".join(screen.split())


def test_an_exception_that_leaves_when_it_is_told(bench: Bench) -> None:
    """Its text is somebody else's, too: it does not decide how the check ends."""
    source = "class Last(Exception):\n    def __str__(self): raise SystemExit(0)\n" + odd("do", "raise Last")
    code, screen = bench.check(bench.backend(source))
    assert code == 1 and "raised Last at" in " ".join(screen.split())


def test_what_was_never_answered_is_shown_so(bench: Bench) -> None:
    code, screen = bench.check(bench.backend(on("Submit", BOOM)))
    assert code == 1
    assert [line.split() for line in screen.splitlines() if line.startswith("  >")] == [
        [">", "1", "submit", "A", "1", "token", "no", "answer"]
    ]


def test_hanging_is_a_finding(bench: Bench) -> None:
    """Even if the engine swallows every exception that it can."""
    target = bench.backend(on("Finish", SLEEP))
    code, screen = bench.check(target, ["--limit", "0.3"])
    assert code == 1
    assert "BROKEN  the backend hangs\n        by finish, at step 3" in screen
    assert "The backend did not answer within 0.3 s." in screen
    assert read(stored()).rule == "HANGS"
    code, told, _ = bench.call("explain", stored())
    assert code == 1 and "BROKEN  the backend hangs\n        by finish, at step 3" in told


SLOW = "import time\ntime.sleep(isinstance(args[0], Extend))\nreturn theirs()"  # a start takes a second


def test_a_stored_run_is_judged_as_it_was(bench: Bench) -> None:
    """With the same limit: what hung under --limit 0.2 hangs again, in a replay and in its pytest, and says so."""
    target = bench.backend(odd("do", SLOW))
    code, screen = bench.check(target, ["--limit", "0.2"])
    assert code == 1 and "BROKEN  the backend hangs" in screen and read(stored()).limit_s == 0.2
    code, again, _ = bench.call("replay", stored())
    assert code == 1 and "did not answer within 0.2 s" in again
    code, again, _ = bench.call("replay", stored(), "--limit", "5")
    assert code == 0 and "no rule breaks" in again
    code, told, _ = bench.call("explain", stored())
    assert code == 1 and f"--backend {target} --limit 0.2\n" in told
    assert finding_of_pytest(bench) == "HANGS"


def finding_of_pytest(bench: Bench) -> str | None:
    """The rule that the test which explain writes of the stored run finds broken."""
    code, source, _ = bench.call("explain", "--pytest", stored())
    assert code == 0
    names: dict[str, Any] = {}
    exec(source, names)
    [test] = [each for name, each in names.items() if name.startswith("test_")]
    try:
        test()
    except AssertionError as error:
        return str(error).split()[0]
    return None


def test_a_run_without_a_view_is_judged_without_one(bench: Bench) -> None:
    """Else another rule would be found, at an earlier step; --view looks at it all the same."""
    freed = on("Finish", "return replace(reply, freed=Freed((1, 1)))")
    target = bench.backend(freed + "    view = lambda self: View(totals=Totals(0, 0, 0, 0))\n")
    code, screen = bench.check(target, ["--no-view"])
    assert code == 1 and "BROKEN  PAGE-6 " in screen and not read(stored()).view
    code, again, _ = bench.call("replay", stored())
    assert code == 1 and "BROKEN  PAGE-6 " in again
    assert finding_of_pytest(bench) == "PAGE-6"
    code, again, _ = bench.call("replay", stored(), "--view")
    assert code == 1 and "BROKEN  CONS-1 " in again


@pytest.mark.parametrize("method", ["view", "read"])
def test_hanging_in_view_or_read_is_a_finding(bench: Bench, method: str) -> None:
    code, screen = bench.check(bench.backend(odd(method, SLEEP)), ["--limit", "0.3"])
    assert code == 1 and "BROKEN  the backend hangs" in screen


FICKLE = """
import random
DICE = random.Random(7)

class Odd(Backend):
    def do(self, act):
        reply = super().do(act)
        if DICE.random() < {chance}:
            return {answer}
        return reply
"""


@pytest.mark.parametrize(
    ("chance", "answer"),
    [
        (0.02, "Refused('pages')"),
        (0.5, "Refused('rows')"),
        (0.05, "Reply(freed=Freed((1,), (2,)))"),
        (0.02, "1 / 0"),
        (0.05, "replace(reply, evicted={DICE.randrange(9)})"),
    ],
)
@pytest.mark.parametrize("words", [[], ["--no-view"]])
def test_a_backend_that_does_not_repeat_itself(bench: Bench, chance: float, answer: str, words: list[str]) -> None:
    """It is found out, and what was seen is shown, shrunk or not; a replay may see something else, and says so."""
    target = bench.backend(FICKLE.format(chance=chance, answer=answer))
    code, screen = bench.check(target, words)
    assert code == 1 and "BROKEN  " in screen
    assert bench.call("replay", stored(), "--backend", target)[0] in (0, 1)
    assert bench.call("explain", stored())[0] == 1


def test_what_shows_earlier_the_next_time_is_no_delay(bench: Bench) -> None:
    """The first run lies in its view, at its second step; every later run raises at once."""
    source = """
class Odd(Backend):
    lives = 0

    def __init__(self, world):
        super().__init__(world)
        Odd.lives += 1

    def do(self, act):
        return 1 / 0 if Odd.lives > 2 else super().do(act)

    def view(self):
        return replace(super().view(), records={})
"""
    code, screen = bench.check(bench.backend(source))
    assert code == 1 and "BROKEN  REC-1" in screen and "later" not in screen


def test_a_wrong_shape_on_the_way_does_not_hide_the_finding(bench: Bench) -> None:
    """While shrinking, the same backend also answers nonsense: that trial is no finding, and the check goes on."""
    body = """
reply = theirs()
self.calls = getattr(self, "calls", 0) + 1
if isinstance(args[0], Finish) and isinstance(reply, Reply):
    return replace(reply, freed=Freed((1, 1), ())) if self.calls > 4 else None
return reply"""
    code, screen = bench.check(bench.backend(odd("do", body.strip())))
    assert code == 1 and "BROKEN  PAGE-6 freed-exactly" in screen


def test_a_folder_that_cannot_be_written(bench: Bench) -> None:
    """The finding is shown all the same."""
    bench.file(".kvledger", "a file, where the folder should be")
    code, screen = bench.check(bench.backend(on("Submit", BOOM)))
    assert code == 1 and "BROKEN  the backend raises" in screen and "could not be stored" in screen
    assert "again    " not in screen


def test_what_is_slow_is_not_taken_for_what_hangs(bench: Bench) -> None:
    """Each start takes half of the limit; shrinking with a shorter one must not end up accusing it."""
    hang = "\n".join(f"    {line}" for line in SLEEP.splitlines())
    body = f"import time\ntime.sleep(0.2 * isinstance(args[0], Extend))\nif isinstance(args[0], Retract):\n{hang}"
    code, screen = bench.check(bench.backend(odd("do", f"{body}\nreturn theirs()")), ["--limit", "0.4"])
    assert code == 1 and "by retract, at step" in screen and "did not answer within 0.4 s" in screen
    assert "--limit 0.4\n" in screen


def test_capabilities_may_come_from_a_generator(bench: Bench) -> None:
    target = bench.backend(odd("declare", "return replace(theirs(), capabilities=(c for c in theirs().capabilities))"))
    assert bench.check(target)[0] == 0
