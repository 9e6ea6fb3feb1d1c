"""`kvledger engines`: what is listed, what a setup leaves behind however it ends, and the way into an environment."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

import kvledger
from kvledger.spec.world import WrongInput
from kvledger.tests.engines import command, install, venvs
from kvledger.tests.engines.venvs import ENGINES, OURS, READY, SGLANG, SGLANG_0_5_10, VLLM, Elsewhere, Engine
from kvledger.tests.kit.deviations import known
from kvledger.tests.kit.load import NAMES, load_backend, page_sizes
from kvledger.tests.unit.written import ROOT, Bench, python


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where engines are set up: nowhere yet."""
    monkeypatch.setenv("KVLEDGER_ENGINES", str(tmp_path / "engines"))
    return tmp_path / "engines"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The programs that a setup runs; none of them is: a venv makes its folder, pip leaves nothing."""
    calls: list[tuple[str, ...]] = []

    def run(engine: Engine, *words: str) -> None:
        calls.append(words)
        engine.python.parent.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(install, "_run", run)
    return calls


def mark(engine: Engine) -> None:
    """As if it were set up."""
    engine.place.mkdir(parents=True)
    (engine.place / READY).write_text(engine.recipe)


def test_what_kvledger_needs_is_what_the_package_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert tuple(project["dependencies"]) == OURS
    hosts = [engine for engine in ENGINES.values() if not engine.host]
    assert all(set(OURS) <= {name for needs in engine.needs for name in needs} for engine in hosts)


def test_each_engine_has_its_adapter() -> None:
    """One file, where its name says: with its version, where several versions of it are here."""
    packages = [engine.package for engine in ENGINES.values()]
    for engine in ENGINES.values():
        version = f"_{engine.version.replace('.', '_')}" if packages.count(engine.package) > 1 else ""
        modules = {NAMES[name].partition(":")[0] for name in command.backends(engine)}
        assert modules == {f"kvledger.tests.engines.{engine.package}{version}"}
        assert (ROOT / f"tests/engines/{engine.package}{version}.py").exists()


def test_engines_are_listed(bench: Bench, home: Path) -> None:
    mark(SGLANG)
    code, out, err = bench.call("engines")
    sglang, _, _, _, guest, _, vllm, _ = out.splitlines()
    assert (code, err) == (0, "")
    assert sglang.split() == ["sglang", SGLANG.version, str(SGLANG.place)]
    assert guest.endswith("not set up: kvledger engines setup sglang-0.5.10")
    assert vllm.split()[:2] == ["vllm", VLLM.version] and vllm.endswith("not set up: kvledger engines setup vllm")


@pytest.mark.parametrize(
    ("words", "says"),
    [("setup", f"setup of nothing: expected {' or '.join(ENGINES)}"),
     ("setup x", f"engine 'x': expected {' or '.join(ENGINES)}"),
     ("setup sglang x", f"engine 'x': expected {' or '.join(ENGINES)}"), ("remove", "argument action: invalid choice")],
)  # fmt: skip
def test_wrong_use(bench: Bench, home: Path, ran: list[object], words: str, says: str) -> None:
    assert says in bench.complaint("engines", *words.split()) and not ran


def test_a_setup_runs_the_recipe_and_marks_it_last(bench: Bench, home: Path, ran: list[tuple[str, ...]]) -> None:
    code, out, err = bench.call("engines", "setup", "sglang")
    assert (code, err) == (0, "") and out.endswith("\nnext: kvledger check sglang\n")
    venv, *pips = ran
    assert venv[1:] == ("-m", "venv", str(SGLANG.place))
    assert [words[-1] for words in pips] == [*(needs[-1] for needs in SGLANG.needs), f"sglang=={SGLANG.version}"]
    assert all(words[:4] == (str(SGLANG.python), "-m", "pip", "install") for words in pips)
    assert SGLANG.is_set_up
    code, out, _ = bench.call("engines", "setup", "sglang")
    assert code == 0 and "is set up already" in out and len(ran) == 1 + len(pips)


def test_another_recipe_asks_for_another_environment(home: Path, ran: list[object]) -> None:
    mark(replace(SGLANG, needs=((),)))
    assert not SGLANG.is_set_up
    install.install(SGLANG, lambda text: None)
    assert SGLANG.is_set_up and ran


def interrupted() -> None:
    raise KeyboardInterrupt


def refused() -> None:
    raise WrongInput("no room")


@pytest.mark.parametrize("ending", [interrupted, refused])
@pytest.mark.parametrize("step", range(2 + len(SGLANG.needs)))
def test_a_setup_that_ends_early_leaves_nothing(
    home: Path, ran: list[object], monkeypatch: pytest.MonkeyPatch, step: int, ending: Callable[[], None]
) -> None:
    theirs = install._run

    def run(engine: Engine, *words: str) -> None:
        if len(ran) == step:
            ending()
        theirs(engine, *words)

    monkeypatch.setattr(install, "_run", run)
    with pytest.raises((KeyboardInterrupt, WrongInput)):
        install.install(SGLANG, lambda text: None)
    assert not SGLANG.place.exists() and not SGLANG.is_set_up


def test_what_was_left_by_a_kill_is_made_anew(home: Path, ran: list[object]) -> None:
    """No mark, no engine."""
    rest = SGLANG.place / "lib" / "half.py"
    rest.parent.mkdir(parents=True)
    rest.touch()
    assert not SGLANG.is_set_up
    install.install(SGLANG, lambda text: None)
    assert SGLANG.is_set_up and not rest.exists()


def test_two_setups_do_not_meet(home: Path, ran: list[object]) -> None:
    home.mkdir()
    with (home / f"{SGLANG.place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(WrongInput, match="being set up by somebody else"):
            install.install(SGLANG, lambda text: None)
    assert not ran


def test_a_program_that_fails_costs_a_line() -> None:
    with pytest.raises(WrongInput, match=r"^sglang 0.5.23: .* failed: ERROR: not so$"):
        install._run(SGLANG, sys.executable, "-c", "import sys; sys.exit('ERROR: not so\\nand more')")


def test_an_engine_that_is_not_set_up(bench: Bench, home: Path) -> None:
    says = f"backend 'sglang': {SGLANG.title} is not set up, kvledger engines setup sglang\n"
    assert bench.complaint("check", "sglang") == f"kvledger check: {says}"
    assert bench.complaint("check", "reference", "sglang") == f"kvledger check: {says}"


def test_a_command_starts_again_where_the_engine_is(
    bench: Bench, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same words; nothing but our package is taken along."""
    mark(SGLANG)
    ended: list[tuple[object, list[str]]] = []

    def execv(program: object, words: list[str]) -> None:
        ended.append((program, words))
        raise KeyboardInterrupt  # as little comes back as from the real one

    monkeypatch.setattr(os, "execv", execv)
    words = ["check", "sglang", "--profile", "quick"]
    with pytest.raises(KeyboardInterrupt):
        bench.call(*words)
    [(program, said)] = ended
    assert program == SGLANG.python and said[0] == str(program) and said[-len(words) :] == words
    assert said[-len(words) - 2 : -len(words)] == [str(Path(kvledger.__file__).parent), ""]


def test_the_start_takes_our_package_and_nothing_beside_it(tmp_path: Path) -> None:
    """Run by an interpreter that would not find it, nor anything that lies beside it."""
    (tmp_path / "kvledger").symlink_to(Path(kvledger.__file__).parent)
    (tmp_path / "beside.py").touch()
    look = "import kvledger, sys; print(kvledger.__file__); import beside"
    boot = venvs.BOOT.replace("from kvledger.__main__ import main\nsys.exit(main())", look)
    words = [sys.executable, "-I", "-S", "-c", boot, str(tmp_path / "kvledger"), ""]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == str(tmp_path / "kvledger/__init__.py") and "No module named 'beside'" in done.stderr
    words = [sys.executable, "-I", "-S", "-c", venvs.BOOT, str(tmp_path / "kvledger"), "", "--version"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"kvledger {kvledger.__version__}\n"), done.stderr


def test_one_engine_a_call(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is in one environment is not sent to the next: the first would be asked for again there."""
    mark(SGLANG)
    mark(VLLM)
    with pytest.raises(Elsewhere, match=str(VLLM.python)):
        load_backend("vllm")
    monkeypatch.setattr(sys, "prefix", str(SGLANG.place))
    with pytest.raises(WrongInput, match="have a process each") as complaint:
        load_backend("vllm")
    assert not isinstance(complaint.value, Elsewhere)


# ---- a guest: an older version, in a newer one's environment


def test_a_guest_is_its_wheel_in_its_hosts_environment(
    bench: Bench, home: Path, ran: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host is made first; the wheel is downloaded by its interpreter, and unpacked whole."""

    def run(engine: Engine, *words: str) -> None:
        theirs(engine, *words)
        if "download" in words:
            with ZipFile(Path(words[words.index("--dest") + 1]) / "its.whl", "w") as wheel:
                wheel.writestr("sglang/__init__.py", "")

    theirs = install._run
    monkeypatch.setattr(install, "_run", run)
    code, out, err = bench.call("engines", "setup", "sglang-0.5.10")
    assert (code, err) == (0, "") and out.endswith("\nnext: kvledger check sglang-0.5.10\n")
    assert SGLANG.is_set_up and SGLANG_0_5_10.is_set_up
    assert ran[-1][:4] == (str(SGLANG.python), "-m", "pip", "download") and ran[-1][-1] == "sglang==0.5.10"
    assert (home / "sglang-0.5.10/sglang/__init__.py").exists()
    shutil.rmtree(SGLANG.place)
    assert not SGLANG_0_5_10.is_set_up


def test_a_guest_is_started_with_its_folder(home: Path) -> None:
    mark(SGLANG)
    mark(SGLANG_0_5_10)
    with pytest.raises(Elsewhere) as elsewhere:
        load_backend("sglang-0.5.10")
    *start, last = elsewhere.value.engine.words
    assert start[0] == str(SGLANG.python) and last == str(SGLANG_0_5_10.place)


def test_pages_are_of_the_sizes_that_kernels_take() -> None:
    """Triton counts in powers of two; 0.5.23 has a path without it, and no engine of ours asks."""
    assert page_sizes("sglang-0.5.10") == page_sizes("sglang-0.5.20") == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert page_sizes("sglang") == page_sizes("reference") == page_sizes("a.module:make") == ()


def test_another_page_size_is_wrong_input(bench: Bench) -> None:
    for words in (["check", "sglang-0.5.10"], ["replay", "t.jsonl", "--backend", "sglang-0.5.20"]):
        bench.file("t.jsonl", '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [0]}')
        engine = words[-1]
        if ENGINES[engine].is_set_up:
            says = f"page size 3: {engine} has kernels for 1, 2, 4, 8, 16, 32"
            done = python("-m", "kvledger", *words, "--page-size", "3", cwd=bench.folder)
            assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1



def test_each_version_knows_its_own_deviations() -> None:
    """Though they share a file."""
    old, new = ({each.witness.name for each in known(name, None)} for name in ("sglang-0.5.10", "sglang"))
    assert old and all(name.startswith("sglang-0.5.10-") for name in old) and not old & new


def test_one_version_a_process(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever was started: a guest stands in the way of its host, and the other way round."""
    mark(SGLANG)
    mark(SGLANG_0_5_10)
    monkeypatch.setattr(sys, "prefix", str(SGLANG.place))
    assert SGLANG.runs_here and not SGLANG_0_5_10.runs_here
    with pytest.raises(WrongInput, match=r"sglang and sglang-0\.5\.10 have a process each"):
        load_backend("sglang-0.5.10")
    monkeypatch.syspath_prepend(str(SGLANG_0_5_10.place))
    assert SGLANG_0_5_10.runs_here and not SGLANG.runs_here
    with pytest.raises(WrongInput, match=r"sglang-0\.5\.10 and sglang have a process each"):
        load_backend("sglang")


def test_the_page_states_how_long_each_file_is() -> None:
    """In lines, of all the files that a row names."""
    page = (ROOT / "tests/engines/README.md").read_text()
    rows = re.findall(r"^\| (\[\w+\.py\].*?) \| (\d+) \|", page, re.MULTILINE)
    assert len(rows) == 10
    for names, lines in rows:
        files = re.findall(r"\]\((\w+\.py)\)", names)
        assert sum(len((ROOT / "tests/engines" / file).read_text().splitlines()) for file in files) == int(lines), names


def test_the_page_tells_every_deviation() -> None:
    """Each stored run is linked, and each link leads to one."""
    page = (ROOT / "tests/engines/README.md").read_text()
    stored = {path.name for path in (ROOT / "tests/engines/deviations").glob("*.itf.json")}
    assert set(re.findall(r"\(deviations/([\w.-]+\.itf\.json)\)", page)) == stored
