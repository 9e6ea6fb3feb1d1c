"""The made-up trace: readable, the same for the same seed, and shaped as its docstring says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean, median

import pytest

from kvledger.spec.world import WrongInput
from kvledger.tests.replay.formats import read
from kvledger.tests.replay.mooncake import BLOCK, Recorded
from kvledger.tests.replay.synthetic import LONGEST, lines, write


@pytest.mark.parametrize("seed", range(4))
def test_it_reads_back(tmp_path: Path, seed: int) -> None:
    path = str(tmp_path / "t.jsonl")
    write(path, 500, seed)
    back = read(path, 1_000, BLOCK)
    assert [(len(request.prompt), request.output_len) for request in back] == [
        (line.input_length, line.output_length) for line in islice(lines(seed), 500)
    ]


def test_one_seed_one_file(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write(str(tmp_path / name), 50, seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


def test_a_longer_file_begins_like_a_shorter_one(tmp_path: Path) -> None:
    write(str(tmp_path / "a"), 20, 3)
    write(str(tmp_path / "b"), 40, 3)
    assert (tmp_path / "b").read_text().startswith((tmp_path / "a").read_text())


@pytest.mark.parametrize("seed", range(4))
def test_its_shape(seed: int) -> None:
    """Of 2,000 requests about 1,400 share the first block alone, 440 continue, 120 fork off, 40 are sent again; half
    are longer than 7,000 tokens, 20 longer than 90,000. Measured over these seeds: 1,391..1,429, 415..461, 104..133,
    34..46; 16..30."""
    made = list(islice(lines(seed), 2_000))
    lengths = [line.input_length for line in made]
    assert 6_000 < median(lengths) < 9_000 and 11_000 < mean(lengths) < 15_000 and max(lengths) <= LONGEST
    assert 10 <= sum(length > 90_000 for length in lengths) <= 40
    assert 300 < mean(line.output_length for line in made) < 400

    shared = Counter(kinds(made))
    assert shared["none"] == 1  # the very first
    assert 1_300 < shared["first block"] < 1_500
    assert 380 <= shared["continued"] <= 500
    assert 80 <= shared["forked"] <= 160
    assert 20 < shared["sent again"] < 70


def kinds(made: Sequence[Recorded]) -> Iterator[str]:
    """What each prompt shares with those before it: which ids, and whether they are all the full blocks of one."""
    seen: set[int] = set()
    whole: set[tuple[int, ...]] = set()
    full: set[tuple[int, ...]] = set()
    for line in made:
        ids = tuple(line.hash_ids)
        hits = sum(ident in seen for ident in ids)
        if ids in whole:
            yield "sent again"
        elif hits < 2:
            yield "first block" if hits else "none"
        else:
            yield "continued" if ids[:hits] in full else "forked"
        seen.update(ids)
        whole.add(ids)
        full.add(ids[: line.input_length // BLOCK])


def test_an_existing_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("mine")
    with pytest.raises(WrongInput, match="exists"):
        write(str(tmp_path / "t.jsonl"), 5, 0)
    assert (tmp_path / "t.jsonl").read_text() == "mine"


def test_a_name_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="No such file or directory, expected a name that can be written"):
        write(str(tmp_path / "nowhere" / "t.jsonl"), 5, 0)
    with pytest.raises(WrongInput, match="expected a whole number >= 1"):
        write(str(tmp_path / "t.jsonl"), 0, 0)
    assert not (tmp_path / "t.jsonl").exists()
