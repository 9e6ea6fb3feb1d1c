"""Everything that a person can get wrong on the command line: exit 2 and one line that says what was expected."""

from __future__ import annotations

import sys

import pytest

from kvledger.__main__ import main
from kvledger.tests.unit.written import GOOD, Bench, python


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("{", "", "t.itf.json: line 1, column 8: "),
        (GOOD[-40:], "", "t.itf.json: line "),
        (GOOD, "", "t.itf.json: line 1, column 1: Expecting value, expected JSON"),
        (GOOD, "[]", "t.itf.json: the file = [], expected an object"),
        ('"kvledger": "1"', '"kvledger": "9"', "t.itf.json: #meta.kvledger = '9', expected '1'"),
        ('"init"', '"start"', "t.itf.json: state 0: mbt::actionTaken = 'start', expected 'init'"),
        ('"rows": {"#bigint": "1"}', '"rows": 0', "state 0: world: world with rows = 0: expected a whole number"),
        ('"rows": {"#bigint": "1"}', '"rows": "many"', "state 0: world.rows = 'many', expected a whole number"),
        ('"PAGED", ', '"MAGIC", ', "declares capabilities 'MAGIC': expected some of"),
        ('"flush"', '"explode"', "state 1: mbt::actionTaken = 'explode', expected one of submit, "),
        ('"tag": "Reply"', '"tag": "Maybe"', "state 1: answer = {'tag': 'Maybe', 'value': {}}, expected a variant"),
    ],
)
def test_a_stored_run_that_is_damaged(bench: Bench, old: str, new: str, says: str) -> None:
    assert old in GOOD
    path = bench.file("t.itf.json", GOOD.replace(old, new, 1))
    for words in (["explain"], ["explain", "--pytest"], ["replay"]):
        assert says in bench.complaint(*words, path)


def test_a_stored_run_that_is_not_there(bench: Bench) -> None:
    bench.folder.joinpath("folder.json").mkdir()
    for name, says in [
        ("none.json", "none.json: cannot be read, No such file or directory"),
        ("folder.json", "folder.json: cannot be read, Is a directory"),
    ]:
        assert says in bench.complaint("explain", name) and says in bench.complaint("replay", name)


def test_a_call_that_was_not_allowed(bench: Bench) -> None:
    retract = GOOD.replace('"flush"', '"retract"').replace('{}, "answer"', '{"req": "A"}, "answer"')
    line = bench.complaint("explain", bench.file("t.itf.json", retract))
    assert "t.itf.json: step 1: retract A may not be called here: the request holds no row" in line


# ---- words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("explode", "kvledger: argument COMMAND: invalid choice: 'explode'"),
        ("check --explode", "unrecognized arguments: --explode"),
        ("check --profile fast", "argument --profile: invalid choice: 'fast'"),
        ("check --page-size 5", "argument --page-size: invalid choice: 5"),
        ("check --actions 0", "--actions 0: expected at least 1"),
        ("check --actions many", "argument --actions: invalid int value: 'many'"),
        ("check --limit 0", "--limit 0.0: expected seconds, at least 0.001"),
        ("check --limit nan", "--limit nan: expected seconds, at least 0.001 and less than a million"),
        ("check --limit 1e7", "--limit 10000000.0: expected seconds, at least 0.001 and less than a million"),
        ("check --json nowhere/out.json", "--json nowhere/out.json: the folder does not exist"),
        ("check --json .", "--json .: this is a folder, expected a file"),
        ("rules nonsense", "rule 'nonsense': expected an id or a name, such as ROW-1 one-holder"),
        ("rules row-9", "rule 'row-9': expected an id or a name, such as ROW-1 one-holder"),
        ("explore NOWHERE", "world 'NOWHERE': expected some of TINY_A, "),
        ("zoo unicorn", "fault 'unicorn': expected some of freed_twice, "),
        ("zoo --seeds 0", "--seeds 0: expected at least 1"),
        ("zoo --json nowhere/out.json", "--json nowhere/out.json: the folder does not exist"),
        ("explain", "the following arguments are required: what"),
        ("replay none.jsonl", "none.jsonl: No such file or directory, expected a trace of requests"),
        ("replay none.json", "none.json: cannot be read, No such file or directory"),
        ("replay bad.jsonl", "bad.jsonl:2: "),
        ("replay new.jsonl --synthetic --requests 0", "0 requests: expected a whole number >= 1"),
        ("replay nowhere/new.jsonl --synthetic", "nowhere/new.jsonl: No such file or directory"),
        ("replay t.jsonl --synthetic", "t.jsonl: this file exists, expected a new name to write to"),
        ("replay t.jsonl --pages 0", "world with pages = 0: expected a whole number from 1 to 2^31 - 1"),
        ("replay t.jsonl --page-size 0", "world with page_size = 0: expected a whole number from 1 to 2^31 - 1"),
        ("replay t.jsonl --pages 2147483648", "world with pages = 2147483648: expected a whole number from 1"),
        ("replay t.jsonl --pages 1073741824 --page-size 2", "1073741824 pages of 2 slots: expected less than 2^31"),
        ("replay t.jsonl --requests 0", "0 requests: expected a whole number >= 1"),
        ("replay t.jsonl --block-tokens 0", "0 tokens a block: expected a whole number >= 1"),
        ("replay t.jsonl --running 0", "running = 0: expected a whole number >= 1"),
        ("replay t.jsonl --chunk 0", "chunk = 0: expected a whole number >= 1"),
        ("replay t.jsonl --rows 3", "32 running requests with 3 rows: expected a row for each"),
        ("replay t.jsonl --pages 2", "request r0 cannot fit: 63 + 29 tokens need 6 pages of 16, the pool has 2"),
        ("replay t.jsonl --context-len 5", "request r0 cannot fit: 63 + 29 tokens need 91 columns, a row has 5"),
        ("replay t.jsonl --backend nobody", "backend 'nobody': expected reference, "),
        ("replay t.jsonl --json nowhere/out.json", "--json nowhere/out.json: the folder does not exist"),
    ],
)
def test_words_that_mean_nothing(bench: Bench, words: str, says: str) -> None:
    line = '{"timestamp": 0, "input_length": 2000, "output_length": 900, "hash_ids": [1, 2, 3, 4]}\n'
    bench.file("t.jsonl", line)
    bench.file("bad.jsonl", line + line[:30])
    assert says in bench.complaint(*words.split())


@pytest.mark.parametrize(("missing", "command"), [("tqdm", "check"), ("hypothesis", "check"), ("tqdm", "zoo")])
def test_what_is_not_installed_is_said(missing: str, command: str) -> None:
    """From a clone, where nobody has installed anything."""
    without = f"import sys; sys.modules[{missing!r}] = None; from kvledger.__main__ import main; sys.exit(main())"
    done = python("-c", without, command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"kvledger {command}: needs {missing}: pip install kvledger\n"


def test_what_is_missing_of_ours_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No advice to install what is installed."""
    monkeypatch.setitem(sys.modules, "kvledger.tests.kit.check", None)
    with pytest.raises(ModuleNotFoundError):
        main(["check"])


def test_nothing_at_all_is_help(bench: Bench) -> None:
    code, out, err = bench.call()
    assert (code, err) == (2, "") and out.startswith("usage: kvledger")
