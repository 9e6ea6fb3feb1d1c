"""The two kernels are proved, post by post: CrossHair confirms each over all paths, and refutes it of a changed body.

A post that no change of one token refutes would say nothing, so each has one such change below. Page sizes that the
proof leaves out are sampled: Hypothesis draws arguments, and the same docstrings are evaluated as they stand.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from crosshair.core_and_libs import MessageType
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kvledger.proofs.posts import analysed, confirmed, posts
from kvledger.spec import page, record

pytestmark = pytest.mark.filterwarnings("ignore:typing:DeprecationWarning")  # CrossHair looks at all of typing

Function = Callable[..., Any]
WITHOUT_POSTS = {(page, "lawful"), (record, "lawful"), (record, "holds_kv")}  # what the posts are written in
OTHER_SIZES = (3, 5, 7, 12, 96, 1000)
# function -> for each of its posts, in order: the text of the body, and the same text with one token changed
CHANGES: dict[Function, tuple[tuple[str, str], ...]] = {
    page.grant: (("ordinal, 0)", "ordinal, 1)"), ("row, ordinal,", "row, row,")),
    page.publish: (("key, 0, 0)", "key, 1, 0)"), ("(CACHED, key,", "(CACHED, 0,")),
    page.lock: (("owner, 0, page.locks", "owner, 1, page.locks"), ("page.locks + 1", "page.locks + 2")),
    page.unlock: (("owner, 0, page.locks", "owner, 1, page.locks"), ("page.locks - 1", "page.locks - 0")),
    page.give_back: (("return FREE_PAGE", "return page"),),
    page.evict: (("return FREE_PAGE", "return page"),),
    page.pages_for: (("- 1)", "- 2)"), ("- 1)", "- 0)")),
    page.whole_pages: (("length // page_size", "length * page_size"), ("length // page_size", "length - page_size")),
    page.new_pages: (
        ("pages_for(upto,", "pages_for(0,"),
        ("page_size) - pages_for", "page_size) + pages_for"),
        ("pages_for(prefix,", "pages_for(upto,"),
    ),
    page.slot_of: (("position % page_size", "position + page_size"), ("+ position %", "+ page %")),
    page.page_of: (("slot // page_size", "slot * page_size"), ("slot // page_size", "slot - page_size")),
    record.start: (("upto, upto)", "upto, 0)"), ("matched, upto, upto)", "matched, matched, upto)")),
    record.grow: (
        ("upto, upto)", "upto, 0)"),
        ("record.protected_len, upto, upto)", "record.committed_len, upto, upto)"),
        ("protected_len, upto, upto)", "protected_len, 0, upto)"),
    ),
    record.reserve: (
        ("committed_len, upto)", "committed_len, 0)"),
        ("record.protected_len, record", "record.committed_len, record"),
        ("record.committed_len, upto)", "record.protected_len, upto)"),
    ),
    record.commit: (
        ("upto, record.allocated_len)", "upto, record.committed_len)"),
        ("record.protected_len, upto,", "record.committed_len, upto,"),
        ("protected_len, upto, record", "protected_len, 0, record"),
    ),
    record.cut: (
        ("upto, upto)", "upto, 0)"),
        ("record.protected_len, upto, upto)", "record.committed_len, upto, upto)"),
        ("protected_len, upto, upto)", "protected_len, 0, upto)"),
    ),
    record.protect: (
        ("(record.row, upto,", "(record.row, 1,"),
        ("(record.row, upto,", "(record.row, 0,"),
        ("upto, record.committed_len,", "upto, record.allocated_len,"),
    ),
    record.release: (("committed_len, 0)", "committed_len, 1)"), ("Record(None,", "Record(1,")),
}


def name_of(function: Function) -> str:
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


@pytest.mark.parametrize("module", [page, record], ids=["page", "record"])
def test_every_function_has_posts_or_is_what_posts_are_written_in(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    contracted = {function.__name__ for function in CHANGES if function.__module__ == module.__name__}
    assert names == contracted | {name for where, name in WITHOUT_POSTS if where is module}


@pytest.mark.parametrize("function", CHANGES, ids=name_of)
def test_every_post_is_confirmed_and_nothing_else_is_said(function: Function) -> None:
    assert len(posts(function)) == len(CHANGES[function]) > 0
    assert confirmed(function, analysed(function))


@pytest.mark.parametrize(
    ("function", "nth"),
    [pytest.param(each, nth, id=f"{name_of(each)}-{nth}") for each in CHANGES for nth in range(len(CHANGES[each]))],
)
def test_every_post_is_refuted_once_a_token_changes(function: Function, nth: int, tmp_path: Path) -> None:
    old, new = CHANGES[function][nth]
    assert one_token_apart(old, new)
    spoiled = changed(function, old, new, tmp_path)
    refuted = {message.line for message in analysed(spoiled) if message.state is MessageType.POST_FAIL}
    assert posts(function)[nth] in refuted


def one_token_apart(old: str, new: str) -> bool:
    """Whether the texts differ in exactly one Python token. They may leave brackets open."""

    def tokens(text: str) -> list[str]:
        found = []
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                found.append(token.string)
        except tokenize.TokenError:
            pass
        return found

    mine, theirs = tokens(old), tokens(new)
    return len(mine) == len(theirs) and sum(one != other for one, other in zip(mine, theirs, strict=True)) == 1


def changed(function: Function, old: str, new: str, folder: Path) -> Function:
    """The function from a copy of its module in which `old`, found once below its docstring, reads `new`."""
    module = inspect.getmodule(function)
    assert module is not None
    whole, text = inspect.getsource(module), inspect.getsource(function)
    head, quotes, body = text.rpartition('"""')
    assert whole.count(text) == 1 and body.count(old) == 1, f"{old!r} stands {body.count(old)} times in the body"
    name = f"changed_{function.__name__}"
    path = folder / f"{name}.py"
    path.write_text(whole.replace(text, head + quotes + body.replace(old, new)))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    copy = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    found: Function = getattr(copy, function.__name__)
    return found


# ---- page sizes that the proof leaves out


@cache
def lengths(size: int) -> st.SearchStrategy[int]:
    """Lengths around the edges of pages."""
    return st.builds(lambda pages, more: pages * size + more, st.integers(0, 4), st.sampled_from((0, 1, size - 1)))


@cache
def records(size: int) -> st.SearchStrategy[record.Record]:
    """Records, most of them lawful; half without over-allocation."""

    def of(row: int, protected: int, committed: int, above: int) -> record.Record:
        return record.Record(row, protected * size, protected * size + committed, protected * size + committed + above)

    return st.builds(of, st.integers(1, 2), st.integers(0, 1), lengths(size), st.just(0) | lengths(size))


SIZED = [function for function in CHANGES if "page_size" in inspect.signature(function).parameters]


@pytest.mark.parametrize("function", SIZED, ids=name_of)
@settings(max_examples=200, suppress_health_check=[HealthCheck.filter_too_much], deadline=None, derandomize=True)
@given(data=st.data())
def test_the_posts_hold_for_other_page_sizes(function: Function, data: st.DataObject) -> None:
    size = data.draw(st.sampled_from(OTHER_SIZES))
    drawn = {name: data.draw(records(size) if name == "record" else lengths(size), name)
             for name in inspect.signature(function).parameters if name != "page_size"}  # fmt: skip
    names = {**vars(inspect.getmodule(function)), **drawn, "page_size": size}
    for clause in clauses(function, "pre"):
        assume(eval(re.sub(r"page_size in \([\d, ]+\)", f"page_size in {OTHER_SIZES}", clause), names))
    names["_"] = function(**drawn, page_size=size)
    for clause in clauses(function, "post"):
        assert eval(clause, names), f"{clause} with {drawn}, page_size {size}"


def clauses(function: Function, kind: str) -> list[str]:
    """The expressions after `kind:` in the function's docstring."""
    found = re.findall(rf"^\s*{kind}: (.+)$", function.__doc__ or "", re.MULTILINE)
    assert found
    return found
