"""The WEKA reader: sessions, sub-agents and edits, and the one line it says about each bad file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvledger.spec.world import WrongInput
from kvledger.tests.replay import weka
from kvledger.tests.replay.formats import read
from kvledger.tests.replay.lines import lines
from kvledger.tests.replay.request import TraceRequest, answer
from kvledger.tests.unit.shared_traces import shared_trace

WEKA = "weka_agentic_sessions.jsonl"


def asked(length: int, ids: Sequence[object], out: int = 64, **changes: object) -> dict[str, object]:
    return {"type": "n", "in": length, "out": out, "hash_ids": ids, **changes}


def sub_agent(*requests: object) -> dict[str, object]:
    return {"type": "subagent", "requests": list(requests)}


def session(*requests: object, **changes: object) -> str:
    return json.dumps({"block_size": 64, "requests": list(requests), **changes})


def read_lines(folder: Path, *texts: str, **words: Any) -> list[TraceRequest]:
    path = folder / "t.jsonl"
    path.write_text("".join(text + "\n" for text in texts))
    return read(str(path), **{"block_tokens": 64, **words})


TURNS = session(asked(128, [1, 2]), asked(300, [1, 2, 3, 4], type="s"), asked(600, [1, 2, 3, 4, *range(5, 10)]))


def test_a_line_is_a_session(tmp_path: Path) -> None:
    requests = read_lines(tmp_path, TURNS)
    assert [(request.session, request.keep, request.after) for request in requests] == [
        ("s0", 192, ()), ("s0", 364, ("r0",)), ("s0", 0, ("r1",)),
    ]  # fmt: skip
    for before, after in pairwise(requests):
        assert after.prompt[: before.keep] == before.prompt + answer(before.number, 0, 64)


def test_ids_mean_nothing_outside_of_their_line(tmp_path: Path) -> None:
    requests = read_lines(tmp_path, TURNS, TURNS)
    assert [request.session for request in requests] == ["s0"] * 3 + ["s3"] * 3
    assert set(requests[0].prompt).isdisjoint(requests[3].prompt) and requests[3].after == ()


def test_lengths_are_scaled_to_a_32nd(tmp_path: Path) -> None:
    assert [len(request.prompt) for request in read_lines(tmp_path, TURNS, block_tokens=None)] == [4, 10, 19]


def test_an_edited_prompt_begins_anew(tmp_path: Path) -> None:
    """It shares one block, and whoever goes on from it is the next turn of its own session."""
    text = session(asked(128, [1, 2]), asked(192, [1, 7, 8]), asked(300, [1, 7, 8, 9]), asked(128, [1, 2]))
    requests = read_lines(tmp_path, text)
    assert [request.session for request in requests] == [None, "s1", "s1", None]
    assert [request.after for request in requests] == [(), ("r0",), ("r1",), ("r2",)]
    assert requests[1].prompt[:64] == requests[0].prompt[:64] and requests[1].prompt[64] != requests[0].prompt[64]
    assert requests[3].prompt == requests[0].prompt


def test_an_answer_that_does_not_fit_goes_on_in_part(tmp_path: Path) -> None:
    one, two = read_lines(tmp_path, session(asked(128, [1, 2], out=500), asked(192, [1, 2, 3])))
    assert one.keep == 191 and two.session == "s0" and two.prompt[:191] == (one.prompt + answer(0, 0, 500))[:191]


def test_an_answer_without_end_is_not_made_up(tmp_path: Path) -> None:
    one, two = read_lines(tmp_path, session(asked(128, [1, 2], out=10**15), asked(192, [1, 2, 3])))
    assert one.output_len == 10**15 and one.keep == 191 and len(two.prompt) == 192


def test_a_parent_waits_for_its_sub_agents(tmp_path: Path) -> None:
    """Two at once, of two calls and of one, which has a sub-agent itself; each is a conversation of its own."""
    first = sub_agent(asked(64, [20]), asked(200, [20, 21, 22]))
    second = sub_agent(sub_agent(asked(70, [40])), asked(64, [30]))
    requests = read_lines(tmp_path, session(asked(128, [1, 2]), first, second, asked(256, [1, 2, 3, 4])))
    assert [request.session for request in requests] == ["s0", "s1", "s1", None, None, "s0"]
    assert [request.after for request in requests] == [(), ("r0",), ("r1",), ("r0",), ("r0", "r3"), ("r0", "r2", "r4")]


def test_a_prompt_below_a_block_has_no_id(tmp_path: Path) -> None:
    one, two, three = read_lines(tmp_path, session(asked(60, [])), session(asked(60, []), asked(200, [1, 2, 3])))
    assert len(one.prompt) == 60 and one.session is None and two.session == three.session == "s1"


def test_calls_are_counted_and_sessions_can_be_switched_off(tmp_path: Path) -> None:
    assert len(read_lines(tmp_path, TURNS, "nonsense", requests=3)) == 3
    two = read_lines(tmp_path, TURNS, TURNS, requests=2)
    assert [request.keep for request in two] == [192, 0]
    plain = read_lines(tmp_path, TURNS, sessions=False)
    assert [request.session for request in plain] == [None] * 3 and not any(request.keep for request in plain)
    assert [request._replace(session="s0", keep=0) for request in plain] == [
        request._replace(keep=0) for request in read_lines(tmp_path, TURNS)
    ]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("[]", "[], expected a JSON object"),
        (json.dumps({"requests": []}), "no field block_size, expected block_size, requests"),
        (session(block_size=32), "block_size 32, expected 64"),
        (session(block_size="64"), "block_size '64', expected a whole number >= 1"),
        (json.dumps({"block_size": 64, "requests": 5}), "requests 5, expected a list"),
        (session(7), "request 1: 7, expected a JSON object"),
        (session({}), "request 1: no field type, expected type"),
        (session(asked(1, [], type="x")), "request 1: type 'x', expected one of n, s, subagent"),
        (session(asked(1, [], type=["n"])), "request 1: type ['n'], expected one of n, s, subagent"),
        (session(asked(1, []), {"type": "s", "in": 1}), "request 2: no field out, expected type, in, out, hash_ids"),
        (session({"type": "subagent"}), "request 1: no field requests, expected type, requests"),
        (session(asked(0, [])), "request 1: in 0, expected a whole number >= 1"),
        (session(asked(True, [])), "request 1: in True, expected a whole number >= 1"),
        (session(asked(1, [], out=-1)), "request 1: out -1, expected a whole number >= 0"),
        (session(asked(64, [])), "request 1: 0 hash_ids, expected 1 for in 64"),
        (session(asked(63, [1])), "request 1: 1 hash_ids, expected 0 for in 63"),
        (session(asked(64, ["1"])), "request 1: hash_ids with '1', expected whole numbers >= 0"),
        (session(asked(128, [1, 1])), "request 1: id 1 stands twice in hash_ids, expected each once"),
        (session(asked(64, [1]), sub_agent(asked(64, [2]), asked(128, [2, 1]))),
         "request 2: request 2: id 1 after id 2, expected it first, as in an earlier prompt"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path: Path, bad: str, says: str) -> None:
    with pytest.raises(WrongInput) as wrong:
        read_lines(tmp_path, TURNS, bad)
    assert str(wrong.value).startswith(f"{tmp_path / 't.jsonl'}:2: ") and says in str(wrong.value)


def test_sub_agents_have_an_end(tmp_path: Path) -> None:
    """Whether the JSON is too deep, or what is in it."""
    for levels in (300, 450, 5_000):
        deep = '{"type": "subagent", "requests": [' * levels + "]}" * levels
        text = '{"block_size": 64, "requests": [' + deep + "]}"
        try:
            read_lines(tmp_path, TURNS, text)
        except WrongInput as wrong:
            assert "is not JSON" in str(wrong) or "sub-agents inside sub-agents" in str(wrong)
        else:
            assert levels < 500


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1}', ":1: no field by which a format is known, expected hash_ids (Mooncake) or requests (WEKA)"),
        (session(), ": no request in it, expected one at least"),
        ("", ": an empty file, expected one JSON object a line"),
    ],
)
def test_a_file_of_no_format_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(WrongInput) as wrong:
        read_lines(tmp_path, *[text] * bool(text))
    assert str(wrong.value) == f"{tmp_path / 't.jsonl'}{says}"


def test_a_block_has_64_tokens(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"^65 tokens a block: expected at most 64"):
        read_lines(tmp_path, TURNS, block_tokens=65)


def test_the_recorded_sessions() -> None:
    """33 lines, 322 calls, 6 sub-agents; counted in the file: of 283 calls that follow another, 259 have all of its
    blocks and more tokens, 25 of these too few for its whole answer. So 259 later turns, in 52 sessions."""
    calls = weka.calls(lines(shared_trace(WEKA)), 10_000, True)
    children = Counter(call.parent for call in calls if call.parent is not None)
    assert (len(calls), children.total(), max(children.values())) == (322, 259, 1)
    requests = read(shared_trace(WEKA))
    assert len({request.session for request in requests} - {None}) == 52
    assert sum(request.keep > 0 for request in requests) == 259
    by_name = {request.req: request for request in requests}
    cut = 0
    for call, request in zip(calls, requests, strict=True):
        if call.parent is not None:
            before = by_name[f"r{call.parent}"]
            whole = before.prompt + answer(before.number, 0, before.samples)
            assert request.prompt[: before.keep] == whole[: before.keep]
            cut += before.keep < len(whole)
    assert cut == 25
