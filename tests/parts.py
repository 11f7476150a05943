"""The parts of `make proof`: the benchmarks of tests/bench and the tests marked `proof`.

A part is a module of tests/bench, or the tests of one mark, or both under one name.
"""

from __future__ import annotations

import ast
from pathlib import Path

BENCH = Path(__file__).parent / "bench"
# Long forms of tests, by the name in their mark `proof`.
MARKS = {
    "backtest": "what would have fired, asked of series that promtool makes",
    "dashboards": "the panels' data on a fleet without faults, and on one without pods",
    "images": "the hub's container image, packages that are damaged, the bill of materials",
    "kills": "the hub killed at each write, and each of its limits in a storm of faults",
    "lock_race": "a user who races for a lock file",
    "mount_race": "a user who races with the probe of mounts",
    "npu": "each kind of NPU machine, and rows of npu-smi that cannot be parsed",
    "nvml": "each NVML call with each error code",
    "pipeline": "whole sites: the demo, several clusters, the Prometheus operator",
    "preflight": "each defect for which preflight refuses a node",
    "quiet": "a healthy fleet and its noise",
    "rendered": "the chart's rules for many values",
    "replay": "a public trace of faults",
    "unreadable": "each file and call of the probes with most files fails in every way",
}


def benchmark_main(path: Path) -> ast.FunctionDef | None:
    """The function `main` of a module of tests/bench, if it has one."""
    functions = [
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    return next((function for function in functions if function.name == "main"), None)


def benchmarks() -> list[str]:
    """The names of the benchmarks."""
    return sorted(path.stem for path in BENCH.glob("[!_]*.py") if benchmark_main(path))


def names() -> list[str]:
    """The names of all parts."""
    return sorted({*benchmarks(), *MARKS})
