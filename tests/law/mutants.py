"""Python with one expression changed, or one statement gone: what a careless hand might write. One at a time.

`mutants` are the law's; `expressions`, `standing` and `head` serve whoever makes others.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import CodeType
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SIGNS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}


class Mutant(NamedTuple):
    """file: below spec/, without .py. line: the text of the line where the changed statement begins. change: what
    became of it. function: whose code is another then, "Edit.cut". code: of the module, changed."""

    file: str
    number: int
    line: str
    change: str
    function: str
    code: CodeType

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from the others, whatever else moves in the file."""
        return f"{self.file}.{self.function}", self.line, self.change


def mutants(path: Path, file: str) -> Iterator[Mutant]:
    """Every mutant of the functions of a file, in order. Of like ones the second is called so."""
    text = path.read_text(encoding="utf-8")
    tree, lines, seen = ast.parse(text), text.splitlines(), Counter[tuple[str, str, str]]()
    for name, function in _functions(tree):
        statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
        statements.sort(key=lambda node: node.lineno)
        changed = ((each, change) for each in statements for change in expressions(each, _others))
        dropped = (pair for parent in [function, *statements] for pair in _drops(parent))
        for statement, change in chain(changed, dropped):
            line = lines[statement.lineno - 1].strip()
            seen[name, line, change] += 1
            again = seen[name, line, change]
            code = compile(ast.fix_missing_locations(tree), str(path), "exec")
            yield Mutant(file, statement.lineno, line, change + f" ({again})" * (again > 1), name, code)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods by name. None of the law stands inside another."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))


def expressions(statement: ast.stmt, others: Callable[[ast.expr, ast.AST], Iterator[ast.expr]]) -> Iterator[str]:
    """One expression of the statement is another one, as long as the iterator stands there. Not those of statements
    inside it, and not what only says a type. others: what may stand in an expression's place, in this parent."""
    ahead: list[ast.AST] = [statement]
    while ahead:
        parent = ahead.pop()
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for at, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(node, ast.stmt) or not isinstance(node, ast.AST):
                    continue
                ahead.append(node)
                for new in others(node, parent) if isinstance(node, ast.expr) else ():
                    with standing(parent, name, at, node, ast.copy_location(new, node)):
                        yield f"becomes {head(statement)}"


def _others(node: ast.expr, parent: ast.AST) -> Iterator[ast.expr]:
    """What may stand in an expression's place."""
    match node:
        case ast.Compare(left, operators, rest):
            for at, one in enumerate(operators):
                if type(one) in COMPARISONS:
                    yield ast.Compare(left, [*operators[:at], COMPARISONS[type(one)](), *operators[at + 1 :]], rest)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), inside):
            yield inside
        case ast.BinOp(left, sign, right) if type(sign) in SIGNS:
            yield ast.BinOp(left, SIGNS[type(sign)](), right)
        case ast.Call(ast.Name("min" | "max"), [_, _] as both, []):
            yield from both
        case ast.Constant(int(number)) if not isinstance(number, bool):
            yield from (ast.Constant(number + 1), ast.Constant(number - 1))


def _drops(parent: ast.stmt) -> Iterator[tuple[ast.stmt, str]]:
    """A statement without a body of its own is not there, in that of a function, an if or a loop. A `need` is
    (`kvledger needs` deletes those), and what does nothing."""
    for field in ("body", "orelse"):
        body = getattr(parent, field, [])
        for at, one in enumerate(body):
            if not hasattr(one, "body") and not _stays(one, parent):
                with standing(parent, field, at, one, ast.copy_location(ast.Pass(), one)):
                    yield one, f"without {head(one)}"


def _stays(statement: ast.stmt, parent: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(ast.Constant()) | ast.Expr(ast.Call(ast.Name("need"))):
            return True
        case ast.Return(ast.Constant(None)):
            return isinstance(parent, ast.FunctionDef) and parent.body[-1] is statement
    return False


def head(statement: ast.stmt) -> str:
    """A statement in a line, without its body."""
    return ast.unparse(statement).splitlines()[0]


@contextmanager
def standing(parent: ast.AST, name: str, at: int | None, old: ast.AST, new: ast.AST) -> Iterator[None]:
    """Another node in a node's place, for a while."""

    def put(node: ast.AST) -> None:
        if at is None:
            setattr(parent, name, node)
        else:
            getattr(parent, name)[at] = node

    put(new)
    try:
        yield
    finally:
        put(old)
