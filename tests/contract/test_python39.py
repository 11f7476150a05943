"""What runs on a node runs on Python 3.9: openEuler 22.03 has no later one.

There is no interpreter of it on a Debian 12. `make lint` has vermin for what came later to the
standard library; here is what only evaluation shows. `python -m tests.bench python39` runs it.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "exporter/nodevitals"
CLASS_NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*")


def unions(node: ast.AST) -> Iterator[ast.BinOp]:
    """Every `X | Y` in a node."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.BitOr):
            yield inner


def is_type(node: ast.expr) -> bool:
    """Whether an operand of `|` looks like a type: None, a type of Python, a class's name."""
    if isinstance(node, ast.Subscript):
        return is_type(node.value)
    name = getattr(node, "attr", getattr(node, "id", ""))
    is_none = isinstance(node, ast.Constant) and node.value is None
    builtin = isinstance(getattr(builtins, name, None), type)
    return is_none or builtin or CLASS_NAME.fullmatch(name) is not None


def unevaluated(tree: ast.AST) -> Iterator[ast.expr]:
    """Annotations that `from __future__ import annotations` makes texts, except those of classes'
    fields: msgspec evaluates them.
    """
    fields = {
        id(field)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        hint = getattr(node, "returns", None) or getattr(node, "annotation", None)
        if hint is not None and id(node) not in fields:
            yield hint


def evaluated_unions(text: str) -> list[str]:
    """`X | Y` that Python 3.9 evaluates, where it is a TypeError. Raises SyntaxError."""
    tree = ast.parse(text, feature_version=(3, 9))
    texts = {id(union) for hint in unevaluated(tree) for union in unions(hint)}
    return [
        f"line {union.lineno}: {ast.unparse(union)}"
        for union in unions(tree)
        if id(union) not in texts and (is_type(union.left) or is_type(union.right))
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class A:\n    b: int | None = None", ["line 2: int | None"]),
        ("class A:\n    b: Annotated[int, 1] | None", ["line 2: Annotated[int, 1] | None"]),
        ("Both = _First | Second", ["line 1: _First | Second"]),
        ("isinstance(a, int | float)", ["line 1: int | float"]),
        ("def f(a: int | None) -> str | None: ...", []),
        ("async def f(*a: int | None) -> A | B:\n    c: int | None = None", []),
        ("class A:\n    def f(self, a: int | None) -> None: ...", []),
        ("flags = os.O_RDONLY | os.O_CLOEXEC | more | {1}", []),
    ],
)
def test_evaluated_unions_are_found(text: str, found: list[str]) -> None:
    assert evaluated_unions(text) == found


def test_later_syntax_is_found() -> None:
    with pytest.raises(SyntaxError):
        evaluated_unions("match a:\n    case 1: pass")


def test_the_package_has_the_syntax_of_python_39() -> None:
    problems = {
        str(path.relative_to(ROOT)): found
        for path in sorted(PACKAGE.rglob("*.py"))
        if (found := evaluated_unions(path.read_text()))
    }
    assert not problems, "write Optional[X] and Union[X, Y] where it is evaluated"


def test_every_tool_has_the_same_lowest_version() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.9"' in project
    assert 'target-version = "py39"' in project
    assert "vermin --target=3.9-" in (ROOT / "Makefile").read_text()
