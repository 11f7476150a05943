"""Each benchmark is among those of `make proof`, and can be started by it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


def _main(path: Path) -> ast.FunctionDef | None:
    tree = ast.parse(path.read_text())
    functions = (one for one in tree.body if isinstance(one, ast.FunctionDef))
    return next((one for one in functions if one.name == "main"), None)


BENCHMARKS = sorted(path.stem for path in BENCH.glob("*.py") if _main(path))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_takes_the_folder_that_it_is_given(name: str) -> None:
    found = _main(BENCH / f"{name}.py")
    assert found is not None
    required = len(found.args.args) - len(found.args.defaults)
    assert required == 1, f"tests/bench/{name}.py: main() must take one folder"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_is_among_all(name: str) -> None:
    text = (BENCH / "__main__.py").read_text()
    assert len(re.findall(rf"^ +{name},$", text, re.MULTILINE)) == 2, (
        f"tests/bench/__main__.py: {name}"
    )
