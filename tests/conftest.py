"""The order of the tests, and the compiled modules that their processes start with."""

from __future__ import annotations

import compileall
import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Files of more than half a minute; --durations=0 shows them.
LONGEST = (
    "e2e/test_demo.py",
    "e2e/test_dashboards.py",
)
COMPILED = (TESTS.parent / "exporter/nodevitals", TESTS / "testbed")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the modules once: tests start hundreds of agents, commands and fake tools, and half
    of the time of a start would be spent compiling.

    Those processes themselves write no bytecode: a module that a test changes twice within a second
    would be the first one for Python.
    """
    if not hasattr(config, "workerinput"):
        for folder in COMPILED:
            compileall.compile_dir(folder, quiet=2)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # Prometheus and promtool spend a third of their time on garbage, also where memory is ample.
    os.environ.setdefault("GOGC", "400")
    os.environ.setdefault("GOMEMLIMIT", "1GiB")


def pytest_collection_finish() -> None:
    """Until now pytest has written the bytecode of the test modules."""
    sys.dont_write_bytecode = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first: a long one that starts last keeps one worker busy when
    the others have ended.
    """
    order = {TESTS / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
