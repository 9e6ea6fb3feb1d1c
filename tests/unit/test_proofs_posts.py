"""The gate over the posts: only "confirmed over all paths" of each post passes, and whatever else is said fails."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvledger.proofs import posts
from kvledger.spec import page, record

pytestmark = pytest.mark.filterwarnings("ignore:typing:DeprecationWarning")  # CrossHair looks at all of typing


def module_of(source: str, folder: Path, name: str) -> ModuleType:
    """CrossHair reads the file of what it analyses."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONTROLS = {
    "good": ("pre: n >= 0\n    post: _ > n", "n + 1", "confirmed over all paths (1 post)"),
    "wrong": ("pre: n >= 0\n    post: _ > n", "n", "not confirmed: POST_FAIL"),
    "raises": ("pre: n >= 0\n    post: _ > n", "n // (n - n)", "not confirmed: EXEC_ERR"),
    "vacuous": ("pre: n > 0 and n < 0\n    post: _ > n", "n + 1", "not confirmed: PRE_UNSAT"),
    "bare": ("It has no contract.", "n", "not confirmed: no post"),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_the_gate(name: str, tmp_path: Path) -> None:
    """The kinds of failure that CrossHair's exit code calls success are among them."""
    contract, returns, words = CONTROLS[name]
    source = f'def f(n: int) -> int:\n    """One.\n\n    {contract}\n    """\n    return {returns}\n'
    [verdict] = posts.settle(print, [module_of(source, tmp_path, f"control_{name}")])
    assert (verdict.name, verdict.words, verdict.holds) == (f"posts: control_{name}.f", words, name == "good")
    assert bool(verdict.counterexample) == (name not in ("good", "bare"))


def test_fewer_page_sizes_are_not_what_is_listed(tmp_path: Path) -> None:
    """The post holds, of the two sizes that `pre:` allows."""
    contract = "pre: n >= 0 and page_size in (1, 2)\n    post: _ >= n"
    body = f'    """One.\n\n    {contract}\n    """\n    return n * page_size\n'
    source = f"def f(n: int, page_size: int) -> int:\n{body}"
    [verdict] = posts.settle(print, [module_of(source, tmp_path, "control_sizes")])
    assert not verdict.holds and verdict.words.startswith("not confirmed: pre: allows other page sizes than (1, 2, 4,")
    sizes = str(posts.SIZES)
    [verdict] = posts.settle(print, [module_of(source.replace("(1, 2)", sizes), tmp_path, "control_all_sizes")])
    assert (verdict.holds, verdict.words) == (True, "confirmed over all paths (1 post)")


def test_every_function_of_the_kernels_is_asked() -> None:
    """All that STATUS.md should list: the transitions, and the arithmetic."""
    names = [function.__name__ for module in (page, record) for function in posts.functions(module)]
    assert len(names) == 18 and {"evict", "pages_for", "slot_of", "release"} < set(names) and "lawful" not in names
