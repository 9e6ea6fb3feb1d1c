"""The Mooncake reader: what it makes of good lines, and the one line it says about each bad one."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from kvledger.spec.world import WrongInput
from kvledger.tests.replay import mooncake
from kvledger.tests.replay.formats import read
from kvledger.tests.replay.lines import lines
from kvledger.tests.replay.mooncake import BLOCK
from kvledger.tests.replay.request import TraceRequest, answer
from kvledger.tests.replay.resends import forward
from kvledger.tests.unit.shared_traces import shared_trace

GOOD = {"timestamp": 5, "input_length": 1200, "output_length": 52, "hash_ids": [0, 4, 7]}


def line(**changes: object) -> str:
    return json.dumps(GOOD | changes)


def read_lines(folder: Path, *lines: str, requests: int = 100, block_tokens: int = 16) -> list[TraceRequest]:
    path = folder / "t.jsonl"
    path.write_text("".join(text + "\n" for text in lines))
    return read(str(path), requests, block_tokens)


def test_a_line_becomes_a_request(tmp_path: Path) -> None:
    [request] = read_lines(tmp_path, line(), block_tokens=4)
    assert (request.req, request.output_len) == ("r0", 1)
    assert request.prompt == tuple(range(10))  # ceil(1200 * 4 / 512) = 10, all new


def test_who_shares_an_id_shares_its_tokens(tmp_path: Path) -> None:
    other = line(hash_ids=[0, 4, 9, 10], input_length=4 * BLOCK)
    one, two = read_lines(tmp_path, line(), other, block_tokens=6)
    assert one.prompt[:12] == two.prompt[:12]
    assert one.prompt[12] != two.prompt[12]
    assert len(two.prompt) == 24


@pytest.mark.parametrize("block_tokens", [1, 4, 6, 16, 511, 512])
@pytest.mark.parametrize("length", [1, 511, 512, 513, 1024, 5000])
def test_scaling_keeps_the_number_of_blocks(tmp_path: Path, block_tokens: int, length: int) -> None:
    blocks = -(-length // BLOCK)
    [request] = read_lines(
        tmp_path, line(input_length=length, hash_ids=list(range(blocks))), block_tokens=block_tokens
    )
    assert (blocks - 1) * block_tokens < len(request.prompt) <= blocks * block_tokens
    assert len(set(request.prompt)) == len(request.prompt)


def test_only_the_lines_asked_for_are_read(tmp_path: Path) -> None:
    assert [request.req for request in read_lines(tmp_path, line(), line(), "nonsense", requests=2)] == ["r0", "r1"]
    assert len(read_lines(tmp_path, line(), line(), requests=9)) == 2


def test_a_line_that_holds_nothing_is_passed_over(tmp_path: Path) -> None:
    assert len(read_lines(tmp_path, line(), "", line(), "", requests=9)) == 2


def test_an_id_may_recur_at_its_place(tmp_path: Path) -> None:
    assert len(read_lines(tmp_path, line(), line(), line(hash_ids=[0, 4, 8]))) == 3


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "'{' is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("1" * 5_000, "is not JSON"),
        ("[1]", "[1], expected a JSON object"),
        ("null", "None, expected a JSON object"),
        ('{"timestamp": 5}', "no field input_length, expected timestamp, input_length, output_length, hash_ids"),
        (line(timestamp="5"), "timestamp '5', expected a whole number >= 0"),
        (line(timestamp=4.5), "timestamp 4.5, expected a whole number >= 0"),
        (line(timestamp=-1), "timestamp -1, expected a whole number >= 0"),
        (line(timestamp=4), "timestamp 4, expected 5 or later, as in the line before"),
        (line(input_length=True), "input_length True, expected a whole number >= 1"),
        (line(input_length=0, hash_ids=[]), "input_length 0, expected a whole number >= 1"),
        (line(output_length=None), "output_length None, expected a whole number >= 0"),
        (line(output_length=-3), "output_length -3, expected a whole number >= 0"),
        (line(hash_ids="047"), "hash_ids '047', expected a list of ids"),
        (line(hash_ids=[0, 4, "7"]), "hash_ids with '7', expected whole numbers >= 0"),
        (line(hash_ids=[0, 4, False]), "hash_ids with False, expected whole numbers >= 0"),
        (line(hash_ids=[0, 4, -7]), "hash_ids with -7, expected whole numbers >= 0"),
        (line(hash_ids=[0, 4]), "2 hash_ids, expected 3 for input_length 1200"),
        (line(input_length=10**12), f"3 hash_ids, expected {-(-(10**12) // BLOCK)} for input_length {10**12}"),
        (line(hash_ids=[0, 4, 0]), "id 0 stands twice in hash_ids, expected each once"),
        (line(hash_ids=[4, 0, 9]), "id 4 first, expected it after id 0, as in an earlier prompt"),
        (line(hash_ids=[9, 4, 7]), "id 4 after id 9, expected it after id 0, as in an earlier prompt"),
        (line(hash_ids=[9, 0, 7]), "id 0 after id 9, expected it first, as in an earlier prompt"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: str, says: str) -> None:
    with pytest.raises(WrongInput) as wrong:
        read_lines(tmp_path, line(), bad)
    text = str(wrong.value)
    assert text.startswith(f"{tmp_path / 't.jsonl'}:2: ")
    assert says in text
    assert "\n" not in text and len(text) < 300


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none.jsonl", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(WrongInput, match=says):
            read(str(path), 1, 16)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(line().encode() + b"\n\xff\xfe{}\n")
    with pytest.raises(WrongInput, match=r"t\.jsonl:2: byte 0 is not UTF-8, expected a JSON object"):
        read(str(tmp_path / "t.jsonl"), 2, 16)


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"t\.jsonl: an empty file, expected one JSON object a line"):
        read_lines(tmp_path)


@pytest.mark.parametrize(("requests", "block_tokens"), [(0, 16), (-1, 16), (1, 0)])
def test_sizes_are_checked(tmp_path: Path, requests: int, block_tokens: int) -> None:
    with pytest.raises(WrongInput, match="expected a whole number >= 1"):
        read_lines(tmp_path, line(), requests=requests, block_tokens=block_tokens)


@pytest.mark.parametrize("block_tokens", [BLOCK + 1, 100_000_000])
def test_a_block_has_no_more_tokens_than_in_the_file(tmp_path: Path, block_tokens: int) -> None:
    with pytest.raises(WrongInput, match=f"^{block_tokens} tokens a block: expected at most 512"):
        read_lines(tmp_path, line(), block_tokens=block_tokens)


def parents(folder: Path, *texts: str) -> list[int | None]:
    path = folder / "t.jsonl"
    path.write_text("".join(text + "\n" for text in texts))
    return [call.parent for call in mooncake.calls(lines(str(path)), 100, True)]


def prompt(length: int, ids: list[int], output: int = 10) -> str:
    return line(input_length=length, hash_ids=ids, output_length=output)


@pytest.mark.parametrize(
    ("length", "ids", "parent"),
    [
        (1210, [0, 4, 9], 0),  # just room for the answer; the partial block 7 is another one now
        (1209, [0, 4, 9], None),  # no room
        (1210, [0, 5, 9], None),  # not all full blocks
        (3000, [0, 4, 9, 10, 11, 12], 0),
    ],
)
def test_who_goes_on_from_whom(tmp_path: Path, length: int, ids: list[int], parent: int | None) -> None:
    assert parents(tmp_path, prompt(1200, [0, 4, 7]), prompt(length, ids)) == [None, parent]


def test_one_full_block_says_nothing(tmp_path: Path) -> None:
    assert parents(tmp_path, prompt(600, [0, 1]), prompt(2000, [0, 2, 3, 4])) == [None, None]


def test_most_blocks_win_and_then_the_latest(tmp_path: Path) -> None:
    texts = [prompt(1100, [0, 1, 2]), prompt(1700, [0, 1, 3, 4]), prompt(1100, [0, 1, 2]), prompt(1640, [0, 1, 3, 5])]
    assert parents(tmp_path, *texts, prompt(4000, [0, 1, 3, 6, 7, 8, 9, 10])) == [None, 0, None, 2, 3]
    assert parents(tmp_path, *texts, prompt(1650, [0, 1, 3, 6])) == [None, 0, None, 2, 3]
    assert parents(tmp_path, *texts, prompt(1640, [0, 1, 3, 6])) == [None, 0, None, 2, 2]


def test_sessions_are_inferred_only_where_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{prompt(1200, [0, 4, 7])}\n{prompt(1400, [0, 4, 9])}\n")
    plain = read(str(path))
    assert all(request.session is None and not request.keep and not request.after for request in plain)
    one, two = read(str(path), sessions=True)
    assert (one.session, one.keep) == ("s0", 39)  # ceil(1200 / 32) + ceil(10 / 32)
    assert (two.session, two.after) == ("s0", ("r0",))
    assert two.prompt[:39] == (*one.prompt, -1) and len(two.prompt) == 44


@pytest.mark.parametrize(
    ("name", "turns", "conversations", "forks", "resent"),
    [("mooncake_conversation_2000.jsonl", 435, 285, 7, 15), ("mooncake_synthetic_2000.jsonl", 85, 73, 8, 39)],
)
def test_the_recorded_traces(name: str, turns: int, conversations: int, forks: int, resent: int) -> None:
    """Of 2,000 each: requests that go on from an earlier one, conversations of two turns at least, requests from which
    two go on, exact resends that go on from nothing. Counted on these files by the rule, apart from this reader."""
    calls = mooncake.calls(lines(shared_trace(name)), 5_000, True)
    children = Counter(call.parent for call in calls if call.parent is not None)
    assert len(calls) == 2_000 and children.total() == turns
    assert sum(calls[parent].parent is None for parent in children) == conversations
    assert sum(times >= 2 for times in children.values()) == forks
    known, again = set[tuple[object, ...]](), 0
    for call in calls:
        again += tuple(call.blocks) in known and call.parent is None
        known.add(tuple(call.blocks))
    assert again == resent


@pytest.mark.parametrize(
    ("name", "sessions", "later"),
    [("mooncake_conversation_2000.jsonl", 289, 426), ("mooncake_synthetic_2000.jsonl", 72, 76)],
)
@pytest.mark.parametrize("block_tokens", [4, 6, 16])
def test_the_recorded_traces_as_requests(name: str, sessions: int, later: int, block_tokens: int) -> None:
    """A fork that somebody goes on from begins a session of its own; of each file one more begins with blocks that were
    there before its parent, and goes on from nothing."""
    requests = read(shared_trace(name), 5_000, block_tokens, sessions=True)
    assert all(request.prompt and request.output_len for request in requests)
    turns = [request for request in requests if request.session is not None]
    assert len({request.session for request in turns}) == sessions
    assert sum(request.keep > 0 for request in turns) == later
    last: dict[str | None, TraceRequest] = {}
    for request in turns:
        before = last.get(request.session)
        if before is not None:
            whole = before.prompt + answer(before.number, 0, before.samples)
            assert request.prompt[: before.keep] == whole and before.req in request.after
        last[request.session] = request
    assert all(request.keep == 0 for request in last.values())


def test_resends_are_pulled_forward() -> None:
    """13 prompts of the conversation file come again, 17 times in all; two of these go on from another, as forks."""
    requests = read(shared_trace("mooncake_conversation_2000.jsonl"), 5_000, sessions=True)
    moved = forward(requests)
    again = [two for one, two in pairwise(moved) if one.prompt == two.prompt]
    assert sorted(request.number for request in moved) == list(range(2_000))
    assert len(again) == 17 and all(request.session in (None, f"s{request.number}") for request in again)
