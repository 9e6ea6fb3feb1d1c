"""The house: who may import whom, what is asked only in one place, how long the law is, what its page shows."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

import pytest

from kvledger.spec.rulebook import find
from kvledger.spec.rules import EVIDENCE, RULES
from kvledger.spec.world import CAPABILITIES, OPTIONS

ROOT = Path(__file__).parents[2]
ROOMS = ("spec", "reference", "fast", "tests", "proofs")
# What reference and fast may know of the law: sizes, the actions as data, and the protocol. Else they are no second
# opinion.
BACKENDS_MAY = {"kvledger.spec.world", "kvledger.spec.actions", "kvledger.spec.backend"}
PACKAGES = {"numpy", "torch", "triton"}  # what fast is made of
ENGINES = "kvledger.tests.engines."
# The bench times the real engines, in their environments; its command starts those.
BENCH_MAY = {
    "fast/bench/sglang.py": re.compile(rf"sglang\.|{ENGINES}sglang_start$"),
    "fast/bench/vllm.py": re.compile(rf"vllm\.|{ENGINES}vllm$"),
    "fast/bench/process.py": re.compile(r"kvledger\.tests\.kit\.calibration$"),
    "fast/bench/printed.py": re.compile(rf"kvledger\.tests\.kit\.calibration$|{ENGINES}venvs$"),
    "fast/bench/command.py": re.compile(rf"(tqdm|kvledger|kvledger\.tests\.report|{ENGINES}venvs)$"),
}
# Exceptions, by file: zoo backends spoil the reference; the kit and the reports name backends only as text.
MAY_IMPORT = {"reference": re.compile(r"tests/(zoo|unit)/"), "fast": re.compile(r"tests/unit/")}
LAW = ("world", "answer", "page", "record", "ledger", "edit", "rules", "invariants", "action", "actions/*")
LAW_LINES = 1_900


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Every module that a file imports, in full."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found.add(node.module or "")
    return found


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "kvledger" and len(parts) > 1 else None


@pytest.mark.parametrize("path", [path for room in ROOMS for path in modules(room)], ids=str)
def test_imports_follow_the_arrows(path: Path) -> None:
    """spec imports nothing of ours and nothing but the standard library; the others import spec."""
    room, name = path.relative_to(ROOT).parts[0], str(path.relative_to(ROOT))
    for module in imports(path):
        top = module.split(".")[0]
        assert top not in ROOMS, f"{name} imports {module} by its bare folder name"
        if name in BENCH_MAY and BENCH_MAY[name].match(module):
            continue
        target = room_of(module)
        if room in ("spec", "reference") and top != "kvledger":
            assert top in sys.stdlib_module_names, f"{name} imports {module}, which is not in the standard library"
        if room == "fast" and top != "kvledger":
            assert top in sys.stdlib_module_names | PACKAGES, f"{name} imports {module}"
        if room == "spec":
            assert target in (None, "spec"), f"{name} imports {module}"
        elif room in ("reference", "fast"):
            own = target in (None, room) or module in BACKENDS_MAY
            assert own, f"{name} imports {module}, which {room} may not know"
        elif target in MAY_IMPORT:
            assert MAY_IMPORT[target].search(name), f"{name} imports {module}"


@pytest.mark.parametrize("room", ["reference", "fast"])
def test_the_backends_take_only_data_from_the_actions(room: str) -> None:
    """Names with a capital: Extend, not extend."""
    for path in modules(room):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "kvledger.spec.actions":
                assert all(alias.name[0].isupper() for alias in node.names), path


def test_only_the_record_asks_whether_a_row_is_there() -> None:
    """Everybody else asks holds_kv."""
    asking = re.compile(r"\brow is (not )?None")
    homes = {ROOT / "spec/record.py", ROOT / "reference/rows.py", Path(__file__)}
    for room in ROOMS:
        for path in modules(room):
            if path not in homes:
                assert not asking.search(path.read_text()), path


def code_lines(path: Path) -> int:
    """Lines of code: no blanks, comments or docstrings."""
    source = path.read_text()
    docs: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            docs |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    quiet = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in quiet:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def test_the_law_stays_short() -> None:
    """1,900 lines of code at most, without the tools, every_answer.py and situations.py."""
    files = {path for name in LAW for path in (ROOT / "spec").glob(f"{name}.py")}
    files.remove(ROOT / "spec/actions/every_answer.py")
    assert len(files) == len(LAW) - 1 + 19
    total = sum(map(code_lines, files))
    assert total <= LAW_LINES, total


def test_every_need_names_a_rule_and_every_rule_is_needed() -> None:
    """No id in the code without a sentence, no sentence without code."""
    text = "".join(path.read_text() for path in modules("spec"))
    named = set(re.findall(r'"([A-Z]+-\d)"', text))
    assert named == set(RULES)
    for rule in RULES.values():
        assert find(rule.id) is find(rule.name) is rule
        assert set(rule.needs) <= {*CAPABILITIES, *OPTIONS}
        assert set(rule.implied_by) <= set(RULES)
        assert rule.shown_by and set(rule.shown_by) <= set(EVIDENCE)


def test_the_readme_shows_the_code_as_it_is() -> None:
    """The pieces of code in spec/README.md stand in the files, word for word."""
    code = "".join(path.read_text() for path in modules("spec"))
    pieces = re.findall(r"```python\n(.*?)```", (ROOT / "spec/README.md").read_text(), re.DOTALL)
    assert len(pieces) == 3
    for piece in pieces:
        assert piece in code, piece


def test_spec_needs_nothing_installed() -> None:
    """Neither the law nor the reference loads hypothesis, torch or tqdm."""
    for room in ("spec", "reference"):
        for path in modules(room):
            assert imports(path).isdisjoint({"hypothesis", "torch", "tqdm", "pytest"}), path
