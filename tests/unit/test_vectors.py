"""Every stored vector: nothing is found in it, its last step is the situation it is named after, and it is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvledger.spec.ledger import Edit, Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.situations import SITUATIONS, Moment
from kvledger.spec.trace import judge, read
from kvledger.tests.vectors.make import VALID, file_of, main

PATHS = sorted(VALID.glob("*.itf.json"))


def copy(ledger: Ledger) -> Ledger:
    """A ledger that the monitor's next step does not write."""
    return Edit(ledger).commit()


def test_every_situation_has_a_vector() -> None:
    assert [path.name for path in PATHS] == sorted(map(file_of, SITUATIONS))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_vector_is_valid_and_ends_in_its_situation(path: Path) -> None:
    trace = read(path)
    assert trace.rule is None and file_of(trace.note) == path.name
    assert judge(trace, str(path)) is None
    monitor = Monitor(trace.world)
    for act, reply, *_ in trace.steps:
        before = copy(monitor.ledger)
        moment = Moment(before, act, monitor.step(act, reply))
    assert SITUATIONS[trace.note].holds(moment)


def test_vectors_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_a_check_tells_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kvledger.tests.vectors.make.VALID", tmp_path)
    monkeypatch.setattr("kvledger.tests.vectors.make.made", lambda: {"new.itf.json": "{}"})
    (tmp_path / "old.itf.json").write_text("{}")
    assert main(["--check"]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["old.itf.json"]
    assert main([]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["new.itf.json"]
    assert main(["--check"]) == 0
    assert "gone     old.itf.json" in capsys.readouterr().out
