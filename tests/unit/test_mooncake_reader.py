"""The Mooncake reader: what it makes of good lines, and the one line it says about each bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvledger.spec.world import WrongInput
from kvledger.tests.replay.formats import read
from kvledger.tests.replay.mooncake import BLOCK
from kvledger.tests.replay.request import TraceRequest
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


def test_an_id_may_recur_at_its_place(tmp_path: Path) -> None:
    assert len(read_lines(tmp_path, line(), line(), line(hash_ids=[0, 4, 8]))) == 3


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("", "'' is not JSON, expected an object"),
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


@pytest.mark.parametrize("name", ["mooncake_conversation_2000.jsonl", "mooncake_synthetic_2000.jsonl"])
def test_the_recorded_traces_read(name: str) -> None:
    requests = read(shared_trace(name), 5_000, 16)
    assert len(requests) == 2_000
    assert all(request.prompt and request.output_len for request in requests)
