"""Known deviations: a run that comes to one ends there and is no finding; one that is mended must go; bad files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvledger.spec.world import WrongInput
from kvledger.tests.kit.check import check, make_arguments
from kvledger.tests.kit.deviations import Deviation, known, read_file

FAULT = "kvledger.tests.zoo.refused_keeps_row:make"
ENTRY = """[[deviation]]
rule = "ATOM-1"
by = "extend"
when = ["pages are refused"]
kind = "fault"
reason = "a refused start keeps its row"
witness = "witness.itf.json"
"""


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file for a faulty backend, its witness beside it, made by a check that found it."""
    folder = tmp_path_factory.mktemp("deviations")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        report = check(FAULT, make_arguments("quick", 0))
        assert report.code == 1 and report.trace is not None
        (folder / report.trace).rename(folder / "witness.itf.json")
    (folder / "known.toml").write_text(ENTRY)
    return folder / "known.toml"


def checked(target: str, listed: Path) -> tuple[int, str]:
    args = make_arguments("quick", 0)
    args.deviations = str(listed)
    report = check(target, args)
    return report.code, report.text


def test_a_known_deviation_ends_its_run_and_the_search_goes_on(listed: Path) -> None:
    code, text = checked(FAULT, listed)
    assert code == 0
    assert text.startswith("CONFORMS  refused_keeps_row 1, but for what it is known not to keep: ATOM-1")
    times = re.search(r"witness\.itf\.json, \d+ actions; (\d+) runs ended in it", text)
    assert times and int(times[1]) > 1
    assert re.search(r"\d+ HOLDS, 1 DEVIATES", text)


def test_another_fault_is_found_beside_it(listed: Path) -> None:
    code, text = checked("kvledger.tests.zoo.freed_twice:make", listed)
    assert code == 1 and "BROKEN  PAGE-6" in text


def test_what_is_mended_may_not_stay_listed(listed: Path) -> None:
    """The witness is performed by the backend that is checked, whoever made it; this one conforms."""
    code, text = checked("reference", listed)
    assert code == 1 and text.startswith("DOES NOT CONFORM") and "MENDED, so its entry must go" in text


def test_the_same_rule_elsewhere_is_a_finding(listed: Path) -> None:
    """An entry says in which situations; where one of them is not the case, the fault is another one."""
    other = listed.with_name("other.toml")
    other.write_text(ENTRY.replace("pages are refused", "rows are refused"))
    code, text = checked(FAULT, other)
    assert code == 1 and "BROKEN  ATOM-1" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("deviation = 1", "expected entries [[deviation]] and nothing else"),
        ("other = 1", "expected entries [[deviation]] and nothing else"),
        ("[[deviation]", "expected a TOML file that can be read"),
        (ENTRY.replace("ATOM-1", "ATOM-9"), "entry 1: rule has 'ATOM-9', expected one of ROW-1"),
        (ENTRY.replace("extend", "expand"), "entry 1: by has 'expand', expected one of submit"),
        (ENTRY.replace("pages are refused", "pages"), "entry 1: when has 'pages', expected one of"),
        (ENTRY.replace("fault", "bug"), "entry 1: kind has 'bug', expected one of fault, choice"),
        (ENTRY.replace("witness.itf", "nobody.itf"), "nobody.itf.json is not there"),
        (ENTRY.replace("by =", "at ="), "entry 1: ['at'] is none of backends, by,"),
        ("", "expected entries [[deviation]] and nothing else"),
        (ENTRY.replace('"a refused start keeps its row"', "3"), "entry 1: reason = 3, expected a text"),
        (ENTRY.replace('["pages are refused"]', '"pages"'), "entry 1: when = 'pages', expected a list of texts"),
        (ENTRY + 'backends = ["nobody"]\n', "entry 1: backends has 'nobody', expected one of reference"),
    ],
)
def test_a_bad_file_is_said_in_one_line(listed: Path, text: str, says: str) -> None:
    bad = listed.with_name("bad.toml")
    bad.write_text(text)
    with pytest.raises(WrongInput, match=re.escape(says)) as wrong:
        read_file(bad)
    assert "\n" not in str(wrong.value) and str(bad) in str(wrong.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="expected a TOML file that can be read"):
        known("reference", str(tmp_path / "nobody.toml"))


def test_backends_that_share_a_file_have_entries_of_their_own(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = listed.parent
    (folder / "blocks.toml").write_text(ENTRY + 'backends = ["blocks"]\n' + ENTRY + 'backends = ["reference"]\n')
    monkeypatch.setattr("kvledger.tests.kit.deviations.SHIPPED", folder)
    [found] = known("blocks", None)
    assert isinstance(found, Deviation) and found.backends == ("blocks",)
    assert known("reference", None) == ()
