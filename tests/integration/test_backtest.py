"""`rules backtest` over the history of a real Prometheus: known faults, exact notifications."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from nodevitals.commands.rules.backtest import pieces, windows
from nodevitals.commands.rules.backtest.evaluate import Span, evaluate
from nodevitals.commands.rules.backtest.rule_set import read_rule_set
from nodevitals.commands.rules.backtest.server import Server
from nodevitals.commands.rules.backtest.stretches import Labels
from testbed.history import PROMTOOL, HistoricPrometheus, History
from testbed.node import PATIENCE_SECONDS, free_port, run

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
            > on () group_left () nodevitals:threshold{job="", threshold="heat"}
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
      - record: nodevitals:known
        expr: |
          group by (cluster, instance) (up{job="nodevitals"})
            or last_over_time(nodevitals:known[5m])
      - alert: Left
        expr: nodevitals:known unless on (cluster, instance) up{job="nodevitals"}
        for: 5m
        labels: {severity: warning, component: agent}
      - alert: Watchdog
        expr: vector(1)
        labels: {severity: none}
  - name: fleet
    interval: 5s
    rules:
      - record: nodevitals:down
        expr: |
          count_over_time((
            group by (cluster, instance) (nodevitals:fault{fault="node_down"}))[39s999ms:5s]) >= 8
      - record: nodevitals:rack_down
        expr: |
          count by (cluster, rack) (
            nodevitals:down * on (cluster, instance) group_left (rack) nodevitals:rack) >= 3
      - record: nodevitals:inside
        expr: |
          group by (cluster, instance) (
            nodevitals:down and on (cluster, instance)
              nodevitals:rack * on (cluster, rack) group_left () (nodevitals:rack_down > bool 0))
          or (last_over_time(nodevitals:inside[10m])
                and on (cluster, instance) nodevitals:fault{fault="node_down"})
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
    # A target that is removed: nothing else changes then.
    left: list[tuple[float, float | None]] = [(0, 1), (at(2, 2), None)]
    history.add("up", left, job="nodevitals", cluster="c", instance="n7")
    return history


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fleet().write(tmp_path_factory.mktemp("history") / "blocks")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, blocks: Path) -> Iterator[HistoricPrometheus]:
    with HistoricPrometheus(tmp_path_factory.mktemp("server"), blocks) as prometheus:
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
        *("--promtool", PROMTOOL, *options),
    )
    assert done.returncode == status, done.stderr
    return done


def clock(seconds: float) -> str:
    """Day (of June) and time."""
    day, rest = divmod(round(seconds - START), 86400)
    return f"{day + 1} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def notified(report: dict[str, Any], reason: str) -> list[tuple[str, str, str]]:
    """Time, receiver and alerts (with the node) of the messages for a reason."""
    return [
        (
            clock(one["time"]),
            one["receiver"],
            " ".join(f"{alert['alertname']}/{alert.get('instance', '')}" for alert in one["new"]),
        )
        for one in report["messages"]
        if one["reason"] == reason
    ]


def test_known_faults_are_notified_when_alertmanager_would(
    server: HistoricPrometheus, site: Path
) -> None:
    report = json.loads(backtest(server.url, site, "--json").stdout)
    assert notified(report, "new") == [
        # Office hours of Shanghai begin at 01:00 UTC; the filesystem was full before the span.
        ("2 01:00:30", "desk", "Full/"),
        ("2 03:02:10", "pager", "GpuLost/n1"),
        ("2 03:02:30", "chat", "GpuLost/n1"),
        # The last sample is 5 minutes old, and 5 minutes more.
        ("3 02:10:30", "desk", "Left/n7"),
        # Four nodes of a rack: one page, after 40 s and `for: 1m`; their own alerts are muted.
        ("3 10:01:55", "pager", "RackDown/"),
        ("3 10:02:15", "chat", "RackDown/"),
        ("3 20:03:10", "pager", "NodeDown/n6"),
        ("3 20:03:30", "chat", "NodeDown/n6"),
        ("4 02:09:30", "desk", "Hot/n5"),
    ]
    assert [(time, receiver) for time, receiver, _ in notified(report, "resolved")] == [
        ("2 03:20:10", "pager"),
        ("2 03:22:30", "chat"),
        ("3 10:30:55", "pager"),
        ("3 10:32:15", "chat"),
        ("3 20:20:10", "pager"),
        ("3 20:23:30", "chat"),
        ("4 02:44:30", "desk"),
    ]
    receivers = {one["receiver"]: one for one in report["receivers"]}
    # Once a day: twice for the filesystem, once for the target.
    assert receivers["desk"]["repeats"] == 3
    assert (
        receivers["pager"] | {"pager": True, "incidents": 3, "worst_shift": 1} == receivers["pager"]
    )
    down = next(one for one in report["alerts"] if one["name"] == "NodeDown")
    assert (down["episodes"], down["pages"]) == (5, 1)
    assert down["never_notified"] == {"inhibited by Inside": 4}
    assert [one["name"] for one in report["nodes"][:2]] == ["n1", "n6"]
    assert [(one["rule"], one["metrics"]) for one in report["not_evaluated"]] == [
        ("unknown", ["nodevitals_never_seen"])
    ]
    assert report["gaps"] == []


def test_table_names_what_matters(server: HistoricPrometheus, site: Path) -> None:
    text = backtest(server.url, site).stdout
    assert "pager (pager)  3 " in text
    assert "4 inhibited by Inside" in text
    assert (
        "Not evaluated, no series in this span:\n  unknown (Unknown): nodevitals_never_seen" in text
    )


def test_finer_steps_in_several_queries_notify_of_the_same(
    server: HistoricPrometheus, site: Path
) -> None:
    """20,160 points: more than Prometheus returns at once."""
    report = json.loads(backtest(server.url, site, "--json", "--step", "15s").stdout)
    assert [one[1:] for one in notified(report, "new")] == [
        *(("desk", "Full/"), ("pager", "GpuLost/n1"), ("chat", "GpuLost/n1"), ("desk", "Left/n7")),
        *(("pager", "RackDown/"), ("chat", "RackDown/"), ("pager", "NodeDown/n6")),
        *(("chat", "NodeDown/n6"), ("desk", "Hot/n5")),
    ]


def test_servers_limit_on_samples_is_met_with_shorter_queries(
    tmp_path: Path, server: HistoricPrometheus, blocks: Path, site: Path
) -> None:
    whole = json.loads(backtest(server.url, site, "--json").stdout)
    with HistoricPrometheus(tmp_path, blocks, "--query.max-samples=8000") as limited:
        report = json.loads(backtest(limited.url, site, "--json").stdout)
    assert report["messages"] == whole["messages"]
    assert report["cost"]["queries"] > 2 * whole["cost"]["queries"]


class Faulty:
    """A proxy that spoils some answers of a server; `spoil` gets the number of a request."""

    def __init__(self, url: str, spoil: Callable[[int], str]) -> None:
        self.requests = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer()

            def do_POST(self) -> None:
                self.answer()

            def answer(self) -> None:
                outer.requests += 1
                kind = spoil(outer.requests)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if kind == "unavailable":
                    self.respond(503, b"upstream is restarting")
                    return
                if kind == "slow":
                    time.sleep(4)
                found = requests.request(
                    self.command,
                    url + self.path,
                    data=body or None,
                    headers={"Content-Type": self.headers.get("Content-Type", "")},
                    timeout=PATIENCE_SECONDS,
                )
                content = found.content
                self.respond(
                    found.status_code, content[: len(content) // 2] if kind == "cut" else content
                )

            def respond(self, status: int, content: bytes) -> None:
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Faulty:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_passing_failures_of_the_server_change_nothing(
    server: HistoricPrometheus, site: Path
) -> None:
    kinds = {2: "unavailable", 4: "cut", 6: "slow"}
    whole = json.loads(backtest(server.url, site, "--json").stdout)
    with Faulty(server.url, lambda number: kinds.get(number, "")) as proxy:
        report = json.loads(backtest(proxy.url, site, "--json", "--timeout", "1s").stdout)
    assert report["messages"] == whole["messages"]
    assert proxy.requests > whole["cost"]["queries"] + 2


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("unavailable", "/api/v1/query_range: HTTP 503: upstream is restarting"),
        ("cut", "the answer broke off after"),
        ("slow", "no answer within 1 s, for "),
    ],
)
def test_lasting_failures_end_with_status_2(
    server: HistoricPrometheus, site: Path, kind: str, message: str
) -> None:
    with Faulty(server.url, lambda number: kind if number > 1 else "") as proxy:
        done = backtest(proxy.url, site, "--timeout", "1s" if kind == "slow" else "60s", status=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_server_that_is_not_there_ends_with_status_2(site: Path) -> None:
    done = backtest(f"http://127.0.0.1:{free_port()}", site, status=2)
    assert "no connection; check the URL" in done.stderr


def test_a_server_without_the_agents_metrics_ends_with_status_2(
    server: HistoricPrometheus, site: Path
) -> None:
    done = backtest(server.url, site, "--end", "2026-01-01T00:00Z", status=2)
    assert "no metric nodevitals_* in this span" in done.stderr


def test_gap_in_the_history_is_reported(tmp_path: Path, site: Path) -> None:
    history = History(START, 6 * HOUR)
    node = {"job": "nodevitals", "cluster": "c", "instance": "n1"}
    steps: list[tuple[float, float | None]] = [(0, 1), (2 * HOUR, None), (3 * HOUR, 1)]
    for metric in ("up", "nodevitals_accelerator_up"):
        history.add(metric, steps, **node)
    with HistoricPrometheus(tmp_path, history.write(tmp_path / "blocks")) as prometheus:
        options = ("--days", "0.25", "--end", "2026-06-01T06:00Z", "--json")
        report = json.loads(backtest(prometheus.url, site, *options).stdout)
    # A series is gone 5 minutes after its last sample.
    assert [tuple(map(clock, gap)) for gap in report["gaps"]] == [("1 02:05:00", "1 03:00:00")]
    assert ("1 02:10:10", "pager", "NoTarget/") in notified(report, "new")


def test_history_shorter_than_the_span_is_all_of_it(server: HistoricPrometheus, site: Path) -> None:
    """Before it, no target is absent."""
    report = json.loads(backtest(server.url, site, "--days", "30", "--json").stdout)
    assert clock(report["start"]) == "1 00:00:00"
    assert not [one for one in report["alerts"] if one["name"] == "NoTarget"]


@pytest.mark.parametrize("remembering", [True, False])
def test_neither_quiet_time_nor_runs_of_promtool_change_an_alert(
    server: HistoricPrometheus, site: Path, monkeypatch: pytest.MonkeyPatch, remembering: bool
) -> None:
    """Evaluated in one run without leaving time out, as usual, and in a run for each event, which
    needs quiet moments and rules that remember nothing about themselves.
    """
    rules = [
        rule
        for rule in read_rule_set(site / "rules")
        if remembering or not {"full", "Inside", "Left"} & {rule.name, rule.labels.get("fault")}
    ]
    span = Span(START + 2.0 * 86400, START + 3.2 * 86400, 60)
    runs = 0

    def count_runs(_: str) -> None:
        nonlocal runs
        runs += _.startswith("promtool")

    def alerts() -> tuple[dict[Labels, list[tuple[float, float]]], float]:
        found = evaluate(rules, Server(server.url), span, PROMTOOL, count_runs)
        assert not found.forced_borders
        return found.alerts, found.evaluated_seconds

    monkeypatch.setattr(pieces, "WANTED_SLOTS", 1)
    usual, some = alerts()
    assert runs == 1 if remembering else runs > 2
    monkeypatch.setattr(windows, "LEAD_SECONDS", 86400 * DAYS)
    whole, everything = alerts()
    assert whole == usual
    assert everything > 3 * some


def test_long_activity_is_cut_into_runs_with_a_warm_up(
    server: HistoricPrometheus, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filesystem is full all the time: there is no quiet moment. Only what a rule remembers about
    itself is lost (nodevitals:known), and the report counts the cuts.
    """
    rules = read_rule_set(site / "rules")
    span = Span(START + 2.05 * 86400, START + 2.5 * 86400, 60)
    usual = evaluate(rules, Server(server.url), span, PROMTOOL, lambda _: None)
    monkeypatch.setattr(pieces, "MAX_SAMPLES", 1)
    monkeypatch.setattr(windows, "LEAD_SECONDS", 86400 * DAYS)
    found = evaluate(rules, Server(server.url), span, PROMTOOL, lambda _: None)
    assert found.forced_borders > 2
    for alerts in (found.alerts, usual.alerts):
        assert alerts.pop(next(labels for labels in alerts if ("alertname", "Left") in labels))
    assert found.alerts == usual.alerts
