"""Which tests run and in which order, and the compiled modules that their processes start with.

`make test` leaves out what is marked `proof("NAME")`; `make proof PART=NAME` runs only that.
"""

from __future__ import annotations

import compileall
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import parts

TESTS = Path(__file__).parent
# What takes longest, also where it waits rather than computes; --durations=0 shows it.
LONGEST = (
    "integration/test_shipped_rules.py",
    "e2e/test_dashboards.py",
    "e2e/test_scenarios.py",
    "integration/test_misbehaviour.py",
    "integration/test_hub_notifications.py",
    "integration/test_packages.py",
    "integration/test_backtest.py",
    "integration/test_nvidia.py",
    "integration/test_doctor.py",
    "e2e/test_doctor.py",
    "integration/test_image.py",
    "integration/test_ascend.py",
    "e2e/test_respond.py",
    "e2e/test_preflight.py",
    "contract/test_listed_twice.py",
    "integration/test_fabric.py",
    "integration/test_fabric_orders.py",
    "integration/test_init.py",
    "integration/test_nvidia_usage.py",
    "e2e/test_critical_alerts.py",
    "e2e/test_onekey.py",
    "e2e/test_operator_relabeling.py",
    "integration/test_hub_kills.py",
)
_SOURCES = ("exporter/nodevitals", "hub/nodevitals_hub", "tests/testbed")
COMPILED = tuple(TESTS.parent / folder for folder in _SOURCES)


# How long an example takes says how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


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
    os.environ.setdefault("GOGC", "800")
    os.environ.setdefault("GOMEMLIMIT", "1GiB")


def pytest_collection_finish() -> None:
    """Until now pytest has written the bytecode of the test modules."""
    sys.dont_write_bytecode = True


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses a part of `make proof`."""
    parser.addoption(
        "--proof",
        default="",
        choices=("", "all", *parts.MARKS),
        help="only the tests marked proof(NAME); all: every test, marked or not",
    )


def proof_of(item: pytest.Item) -> str:
    """The part of `make proof` that a test belongs to; empty for one of `make test`."""
    mark = item.get_closest_marker("proof")
    if mark is None:
        return ""
    if len(mark.args) != 1 or mark.args[0] not in parts.MARKS:
        raise pytest.UsageError(f"{item.nodeid}: no such part in tests/parts.py: {mark.args}")
    return str(mark.args[0])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other parts, and put the files that take longest first: a long one
    that starts last keeps one worker busy when the others have ended.
    """
    part = config.getoption("--proof")
    proofs = {item: proof_of(item) for item in items}
    if part != "all":
        config.hook.pytest_deselected(items=[item for item in items if proofs[item] != part])
        items[:] = [item for item in items if proofs[item] == part]
    order = {TESTS / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
