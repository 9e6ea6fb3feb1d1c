"""The made-up trace: readable, the same for the same seed, and shaped as its docstring says."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from statistics import mean, median

import pytest

from kvledger.spec.world import WrongInput
from kvledger.tests.replay.mooncake import BLOCK, read
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
    made = list(islice(lines(seed), 2_000))
    lengths = [line.input_length for line in made]
    assert 6_000 < median(lengths) < 9_000 and 11_000 < mean(lengths) < 15_000 and max(lengths) <= LONGEST
    assert 300 < mean(line.output_length for line in made) < 400

    seen: set[int] = set()
    shared: Counter[str] = Counter()
    whole: set[tuple[int, ...]] = set()
    for line in made:
        hits = sum(ident in seen for ident in line.hash_ids)
        kind = "resend" if tuple(line.hash_ids) in whole else "first block" if hits == 1 else "more" if hits else "none"
        shared[kind] += 1
        seen.update(line.hash_ids)
        whole.add(tuple(line.hash_ids))
    assert shared["none"] == 1  # the very first
    assert 1_300 < shared["first block"] < 1_500
    assert 20 < shared["resend"] < 70


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
