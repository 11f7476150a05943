"""`rules backtest` raises the alerts that promtool raises over the same series, with every shipped
rule: nothing is lost where the server evaluates a part of the rules.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from nodevitals.commands.rules.backtest.evaluate import Span, evaluate
from nodevitals.commands.rules.backtest.references import references
from nodevitals.commands.rules.backtest.rule_set import read_rule_set
from nodevitals.commands.rules.backtest.server import Server
from testbed.alerting.timeline import ENVIRONMENT
from testbed.history import HistoricPrometheus, History
from testbed.node import ROOT
from testbed.quiet import STEP_SECONDS, QuietFleet
from testbed.servers import BINARIES

START = 1_780_272_000.0
HOURS = 1.5
NODES = 8
PROMTOOL = str(BINARIES / "promtool")
# An alert may begin and end so much earlier or later: groups of promtool and of Prometheus see each
# other an evaluation late.
TOLERANCE_SECONDS = 90
Interval = tuple[float, float]


def faulty_fleet() -> list[dict[str, Any]]:
    """A quiet fleet with some faults: metric, nodes, first sample, number of samples, value."""
    faults = [
        ("nodevitals_rdma_port_up", {3}, 100, 80, 0),
        ("nodevitals_accelerator_up", {5}, 130, 60, 0),
        ("nodevitals_mount_writable", {1, 2, 3, 4, 6}, 200, 40, 0),
        ("up", {7}, 150, 60, 0),
        ("nodevitals_nvidia_row_remap_failure", {2}, 300, 200, 1),
    ]
    found = QuietFleet(NODES, HOURS).series
    for series in found:
        # Blocks of OpenMetrics have no staleness: in both, a series ends after five minutes.
        series["values"] = series["values"].replace("stale", "_")
        for metric, nodes, first, count, value in faults:
            node = re.search(r'instance="node-(\d+)"', series["series"])
            if series["series"].startswith(f"{metric}{{") and node and int(node[1]) in nodes:
                cells = list(unpacked(series["values"]))
                cells[first : first + count] = [str(value)] * count
                series["values"] = " ".join(cells)
    return found


def unpacked(values: str) -> Iterator[str]:
    for cell in values.split():
        value, _, count = cell.partition("x")
        yield from [value] * (int(count or 0) + (value != "_" or not count))


def history_of(series: list[dict[str, Any]]) -> History:
    history = History(START, HOURS * 3600, STEP_SECONDS)
    for one in series:
        metric, _, rest = one["series"].partition("{")
        labels = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        is_time = "timestamp_seconds" in metric or metric == "nodevitals_node_time_seconds"
        steps: list[tuple[float, float | None]] = []
        for index, cell in enumerate(unpacked(one["values"])):
            value = None if cell == "_" else float(cell) + START * is_time
            steps.append((index * STEP_SECONDS, value))
        history.add(metric, steps, **labels)
    return history


def reference(folder: Path, series: list[dict[str, Any]]) -> dict[str, list[Interval]]:
    """The alerts by their labels, from promtool with the rule files as they are."""
    files = sorted((ROOT / "rules").glob("*.yaml"))
    groups = {
        group["name"]: group["rules"]
        for file in files
        for group in yaml.safe_load(file.read_text())["groups"]
    }
    end = int(HOURS * 3600) - STEP_SECONDS
    document = {
        "rule_files": list(map(str, files)),
        "evaluation_interval": f"{STEP_SECONDS}s",
        "group_eval_order": ordered(groups),
        "tests": [
            {
                "interval": f"{STEP_SECONDS}s",
                "input_series": series,
                "promql_expr_test": [
                    {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{at}s"}
                    for at in range(0, end, 15)
                ],
            }
        ],
    }
    (folder / "test.yaml").write_text(json.dumps(document))
    argv = [PROMTOOL, "test", "rules", "test.yaml"]
    done = subprocess.run(
        argv, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    firing: dict[str, list[float]] = {}
    for at, got in re.findall(
        r"time: (\w+),\s*exp:[^\n]*\s*got:([^\n]*)", done.stderr + done.stdout
    ):
        seconds = sum(
            int(n) * {"h": 3600, "m": 60, "s": 1}[u] for n, u in re.findall(r"(\d+)([hms])", at)
        )
        for labels in re.findall(r'\{((?:[^"{}]|"[^"]*")*)\}', got):
            found = re.findall(r'(\w+)="([^"]*)"', labels)
            # A template that expands to nothing: such an alert has no such label.
            pairs = {name: value for name, value in found if "{{" not in value}
            for name in ("__name__", "alertstate"):
                pairs.pop(name)
            firing.setdefault(str(sorted(pairs.items())), []).append(START + seconds)
    return {labels: intervals(times) for labels, times in firing.items()}


def ordered(groups: dict[str, Any]) -> list[str]:
    """Groups after those whose records they read."""
    records = {
        name: {rule["record"] for rule in rules if "record" in rule}
        for name, rules in groups.items()
    }
    read = {
        name: {one.name for rule in rules for one in references(str(rule["expr"]))[1]}
        for name, rules in groups.items()
    }
    found: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name not in found and name not in path:
            for other in groups:
                if records[other] & read[name] and other != name:
                    visit(other, (*path, name))
            found.append(name)

    for name in groups:
        visit(name, ())
    return found


def intervals(times: list[float]) -> list[Interval]:
    found: list[Interval] = []
    for time in times:
        if found and time - found[-1][1] <= STEP_SECONDS:
            found[-1] = (found[-1][0], time)
        else:
            found.append((time, time))
    return found


def test_backtest_raises_what_promtool_raises(tmp_path: Path) -> None:
    series = faulty_fleet()
    expected = reference(tmp_path, series)
    blocks = history_of(series).write(tmp_path / "blocks")
    with HistoricPrometheus(tmp_path, blocks) as prometheus:
        rules = read_rule_set(ROOT / "rules")
        span = Span(START, START + HOURS * 3600 - STEP_SECONDS, STEP_SECONDS)
        found = evaluate(rules, Server(prometheus.url), span, PROMTOOL, lambda _: None)
    actual = {str(list(labels)): times for labels, times in found.alerts.items()}
    assert found.forced_borders == 0
    names = {labels.partition("alertname', '")[2].partition("'")[0] for labels in expected}
    assert {"RdmaPortDown", "AcceleratorLost", "FleetIncident", "Watchdog"} <= names
    differences = [
        f"{labels}: {shown(expected.get(labels, []))}, here {shown(actual.get(labels, []))}"
        for labels in sorted(expected.keys() | actual.keys())
        if not alike(expected.get(labels, []), actual.get(labels, []), span.end)
    ]
    assert not differences, "\n".join(differences)


def shown(times: list[Interval]) -> str:
    return " ".join(f"{first - START:.0f}-{last - START:.0f}" for first, last in times)


def alike(expected: list[Interval], actual: list[Interval], end: float) -> bool:
    """Whether alerts fire at the same times; here the end of the last one is open."""
    pairs = zip(expected, actual, strict=False)
    return len(expected) == len(actual) and all(
        abs(one - other) <= TOLERANCE_SECONDS
        for (first, last), (start, stop) in pairs
        for one, other in ((first, start), (min(last, end), min(stop, end)))
    )
