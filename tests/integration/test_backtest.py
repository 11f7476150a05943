"""`rules backtest` over the history of a real Prometheus: known faults, exact notifications."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.history import HistoricPrometheus, History
from testbed.node import run
from testbed.servers import BINARIES

START = 1_780_272_000.0  # Monday 2026-06-01 00:00 UTC
DAYS = 4
HOUR = 3600.0
RULES = """
groups:
  - name: thresholds
    rules:
      - record: nodevitals:threshold
        labels: {threshold: heat}
        expr: vector(80)
  - name: records
    interval: 1m
    rules:
      - record: nodevitals:temperature:avg5m
        expr: avg_over_time(nodevitals_temperature{job="nodevitals"}[5m])
      - record: nodevitals:free:ratio
        labels: {kind: local}
        expr: nodevitals_free{job="nodevitals", kind!="shared"} / 100
      - record: nodevitals:free:ratio
        labels: {kind: shared}
        expr: min by (job, cluster) (nodevitals_free{job="nodevitals", kind="shared"}) / 100
      - record: nodevitals:rack
        expr: max by (cluster, instance, rack) (nodevitals_node_info{job="nodevitals"})
  - name: faults
    rules:
      - record: nodevitals:fault
        labels: {fault: gpu_lost, component: gpu, severity: critical, scope: device}
        expr: nodevitals_accelerator_up{job="nodevitals"} == 0
      - record: nodevitals:fault
        labels: {fault: hot, component: gpu, severity: warning, scope: device}
        expr: |
          max_over_time(nodevitals:temperature:avg5m{job="nodevitals"}[10m])
            > on () group_left () nodevitals:threshold{threshold="heat"}
      - record: nodevitals:fault
        labels: {fault: full, component: mount, severity: warning, scope: node}
        expr: nodevitals:free:ratio{kind=~"local|shared"} < 0.1
      - record: nodevitals:fault
        labels: {fault: node_down, component: node, severity: critical, scope: node}
        expr: up{job="nodevitals"} == 0
      - record: nodevitals:fault
        labels: {fault: unknown, component: node, severity: warning, scope: node}
        expr: nodevitals_never_seen{job="nodevitals"} == 0
      - alert: GpuLost
        expr: nodevitals:fault{fault="gpu_lost"}
        for: 2m
        keep_firing_for: 10m
      - alert: Hot
        expr: nodevitals:fault{fault="hot"}
        for: 5m
      - alert: Full
        expr: nodevitals:fault{fault="full"}
        for: 30m
      - alert: NodeDown
        expr: nodevitals:fault{fault="node_down"}
        for: 3m
      - alert: Unknown
        expr: nodevitals:fault{fault="unknown"}
      - alert: NoTarget
        expr: absent(up{job="nodevitals"})
        for: 5m
        labels: {severity: critical, component: agent}
      - alert: Watchdog
        expr: vector(1)
        labels: {severity: none}
  - name: fleet
    interval: 5s
    rules:
      - record: nodevitals:down
        expr: |
          count_over_time((group by (cluster, instance) (nodevitals:fault{fault="node_down"}))[39s999ms:5s]) >= 8
      - record: nodevitals:rack_down
        expr: |
          count by (cluster, rack) (nodevitals:down * on (cluster, instance) group_left (rack) nodevitals:rack)
            >= 3
      - record: nodevitals:inside
        expr: |
          group by (cluster, instance) (
            nodevitals:down and on (cluster, instance)
              nodevitals:rack * on (cluster, rack) group_left () (nodevitals:rack_down > bool 0))
          or (last_over_time(nodevitals:inside[10m]) and on (cluster, instance) nodevitals:fault{fault="node_down"})
      - alert: RackDown
        expr: nodevitals:rack_down
        for: 1m
        labels: {severity: critical, component: node}
      - alert: Inside
        expr: nodevitals:inside
        keep_firing_for: 2m
        labels: {severity: none}
"""
ALERTMANAGER = """
time_intervals:
  - name: office
    time_intervals:
      - weekdays: ["monday:friday"]
        times: [{start_time: "09:00", end_time: "18:00"}]
        location: Asia/Shanghai
route:
  receiver: chat
  group_by: [cluster, instance, rack]
  group_wait: 30s
  group_interval: 5m
  repeat_interval: 4h
  routes:
    - matchers: [severity="none"]
      receiver: "null"
    - matchers: [severity="critical"]
      receiver: pager
      group_wait: 10s
      group_interval: 1m
      continue: true
    - matchers: [severity="critical"]
      receiver: chat
    - matchers: [severity="warning"]
      receiver: desk
      active_time_intervals: [office]
      repeat_interval: 24h
inhibit_rules:
  - source_matchers: [alertname="Inside", 'instance=~".+"']
    target_matchers: [alertname="NodeDown"]
    equal: [cluster, instance]
receivers:
  - name: "null"
  - name: pager
    pagerduty_configs: [{routing_key: x}]
  - name: chat
    webhook_configs: [{url: "http://127.0.0.1:1/"}]
  - name: desk
    email_configs: [{to: desk@example.com, send_resolved: true}]
"""


def at(day: int, hour: float) -> float:
    """Seconds since the start."""
    return day * 24 * HOUR + hour * HOUR


def pulse(good: float, bad: float, *spans: tuple[float, float]) -> list[tuple[float, float | None]]:
    """Return a value that is bad within spans (seconds since the start)."""
    steps: list[tuple[float, float | None]] = [(0.0, good)]
    for first, after in spans:
        steps += [(first, bad), (after, good)]
    return steps


def fleet() -> History:
    history = History(START, DAYS * 24 * HOUR)
    lost = {
        "n1": [(at(1, 3), at(1, 3) + 600)],  # a page in the night, over after 10 + 10 minutes
        "n2": [(at(1, 5), at(1, 5) + 60)],  # shorter than its wait
    }
    rack_down = (at(2, 10), at(2, 10) + 1800)
    for number in range(1, 7):
        name = f"n{number}"
        node = {"job": "nodevitals", "cluster": "c", "instance": name}
        down = [rack_down] if number <= 4 else [(at(2, 20), at(2, 20) + 1200)] * (number == 6)
        history.add("up", pulse(1, 0, *down), **node)
        history.add("nodevitals_node_info", 1, **node, rack="r1" if number <= 4 else "r2")
        up = pulse(1, 0, *lost.get(name, []))
        history.add("nodevitals_accelerator_up", up, **node, uuid=f"GPU-{number}")
        heat = [(at(3, 2), at(3, 2) + 1800)] if name == "n5" else []
        history.add("nodevitals_temperature", pulse(50, 95, *heat), **node, uuid=f"GPU-{number}")
        history.add("nodevitals_free", 50, **node, kind="local")
        history.add("nodevitals_free", 5 if number == 3 else 50, **node, kind="shared")
    return history


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HistoricPrometheus]:
    with HistoricPrometheus(tmp_path_factory.mktemp("history"), fleet()) as prometheus:
        yield prometheus


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "rules").mkdir()
    (folder / "rules/all.yaml").write_text(RULES)
    (folder / "alertmanager.yaml").write_text(ALERTMANAGER)
    return folder


def backtest(url: str, site: Path, *options: str, status: int = 0) -> Any:
    done = run(
        *("rules", "backtest", "--prometheus", url, "--days", "3.5", "--end", "2026-06-05T00:00Z"),
        *("--rules", str(site / "rules"), "--alertmanager-config", str(site / "alertmanager.yaml")),
        *("--promtool", str(BINARIES / "promtool"), *options),
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done
