"""`rules backtest` over the history of a real Prometheus: known faults, exact episodes."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from testbed.history import PROMTOOL, HistoricPrometheus, History
from testbed.http_server import HttpServer, Request, Response
from testbed.node import PATIENCE_SECONDS, ROOT, free_port, run
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
    rules:
      - record: nodevitals:free:ratio
        expr: nodevitals_free{job="nodevitals"} / 100
  - name: faults
    rules:
      - record: nodevitals:fault
        labels: {fault: gpu_lost, component: gpu, severity: critical, scope: device}
        expr: nodevitals_accelerator_up{job="nodevitals"} == 0
      - record: nodevitals:fault
        labels: {fault: hot, component: gpu, severity: warning, scope: device}
        expr: |
          max_over_time(nodevitals_temperature{job="nodevitals"}[10m])
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
        labels: {serial: "{{ $labels.uuid }}"}
      - alert: Hot
        expr: nodevitals:fault{fault="hot"}
        for: 5m
      - alert: Full
        expr: nodevitals:fault{fault="full"}
        for: 30m
      - alert: NodeDown
        expr: nodevitals:fault{fault=~"node_down|unknown", scope="node"}
        for: 3m
      - alert: NoTarget
        expr: absent(up{job="nodevitals"})
        for: 5m
        labels: {severity: critical, component: agent}
      - alert: Watchdog
        expr: vector(1)
        labels: {severity: none}
"""
ALERTMANAGER = """
route:
  receiver: chat
  group_by: [cluster, instance, rack]
  routes:
    - matchers: [severity="none"]
      receiver: "null"
    - matchers: [severity="critical"]
      receiver: pager
      continue: true
    - matchers: ['severity="critical"', 'serial!~"GPU-[2-9]"']
      receiver: chat
    - match_re: {severity: warn.*}
      receiver: desk
receivers: [{name: "null"}, {name: pager}, {name: chat}, {name: desk}]
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
        *("--rules", str(site / "rules"), *options),
    )
    assert done.returncode == status, done.stderr
    return done


def report_of(url: str, site: Path, *options: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(backtest(url, site, "--json", *options).stdout)
    return report


def routes(site: Path) -> tuple[str, ...]:
    amtool = str(BINARIES / "amtool")
    return ("--alertmanager-config", str(site / "alertmanager.yaml"), "--amtool", amtool)


def clock(seconds: float | None) -> str:
    """Day (of June) and time; '' for no end."""
    if seconds is None:
        return ""
    day, rest = divmod(round(seconds - START), 86400)
    return f"{day + 1} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def episodes(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Alert and instance, begin and end of each."""
    return [
        (
            f"{one['labels']['alertname']}/{one['labels'].get('instance', '')}",
            clock(one["start"]),
            clock(one["end"]),
        )
        for one in report["episodes"]
        if one["labels"]["alertname"] != "Watchdog"
    ]


EPISODES = [
    # For 10 minutes, and for 10 more by keep_firing_for; of n2 it is over before it fires.
    ("GpuLost/n1", "2 03:02:00", "2 03:20:00"),
    *((f"NodeDown/n{number}", "3 10:03:00", "3 10:30:00") for number in range(1, 5)),
    ("NodeDown/n6", "3 20:03:00", "3 20:20:00"),
    ("Hot/n5", "4 02:05:00", "4 02:40:00"),
]


def test_known_faults_fire_when_prometheus_would(server: HistoricPrometheus, site: Path) -> None:
    report = report_of(server.url, site, *routes(site))
    assert episodes(report) == EPISODES
    alerts = {one["name"]: one for one in report["alerts"]}
    assert [*alerts] == ["NodeDown", "GpuLost", "Hot", "Watchdog"], "worst first"
    down = alerts["NodeDown"]
    assert (down["severity"], down["episodes"], down["longest_seconds"]) == ("critical", 5, 1620)
    assert down["seconds"] == 4 * 1620 + 1020
    assert down["of"] == {f"n{number}": 1 for number in (1, 2, 3, 4, 6)}
    # To both of its routes; of a serial of n2 to n9, it would go to one.
    assert alerts["GpuLost"]["receivers"] == {"pager": 1, "chat": 1}
    assert report["receivers"] == {"pager": 6, "chat": 6, "desk": 1, "null": 1}
    (lost,) = [one for one in report["episodes"] if one["labels"]["alertname"] == "GpuLost"]
    assert lost["labels"]["serial"] == "GPU-1"
    first = report["instances"][0]
    assert (first["name"], first["of"]) == ("n1", {"GpuLost": 1, "NodeDown": 1})
    assert report["gaps"] == []


def test_what_the_history_does_not_answer_is_unknown(
    server: HistoricPrometheus, site: Path
) -> None:
    """Not 0: the filesystem of n3 was full all the time, which only a recorded series shows."""
    report = report_of(server.url, site)
    assert [(one["alert"], one["missing"], one["until"]) for one in report["unknown"]] == [
        ("Full", ["nodevitals:free:ratio"], None),
        ("NodeDown", ["nodevitals_never_seen"], None),
    ]
    assert "Full" not in [one["name"] for one in report["alerts"]]


def test_series_recorded_for_a_part_of_the_span_answer_for_that_part(
    tmp_path: Path, site: Path
) -> None:
    history = History(START, DAYS * 24 * HOUR)
    node = {"job": "nodevitals", "cluster": "c", "instance": "n1"}
    since: list[tuple[float, float | None]] = [(0, None), (at(2, 0), 0.05)]
    history.add("nodevitals_build_info", 1, **node)
    history.add("nodevitals:free:ratio", since, **node, kind="local")
    history.add("nodevitals:threshold", [(0, None), (at(2, 0), 80)], threshold="heat")
    with HistoricPrometheus(tmp_path, history.write(tmp_path / "blocks")) as prometheus:
        report = report_of(prometheus.url, site)
        text = backtest(prometheus.url, site).stdout
    assert ("Full/n1", "3 00:30:00", "") in episodes(report)
    (full,) = [one for one in report["unknown"] if one["alert"] == "Full"]
    assert clock(full["until"]) == "3 00:00:00"
    assert "series that rules record begin later: nodevitals:free:ratio" in text


@pytest.mark.proof("backtest")
def test_series_that_promtool_makes_of_the_history_answer(
    tmp_path: Path, server: HistoricPrometheus, blocks: Path, site: Path
) -> None:
    """As docs/backtest.md says."""
    argv = [PROMTOOL, "tsdb", "create-blocks-from", "rules", "--url", server.url]
    argv += ["--start", f"{START:.0f}", "--end", f"{START + DAYS * 86400:.0f}"]
    argv += ["--eval-interval", "1m", "--output-dir", str(tmp_path / "recorded")]
    subprocess.run([*argv, str(site / "rules/all.yaml")], check=True, capture_output=True)
    shutil.copytree(blocks, tmp_path / "all")
    shutil.copytree(tmp_path / "recorded", tmp_path / "all", dirs_exist_ok=True)
    with HistoricPrometheus(tmp_path, tmp_path / "all") as prometheus:
        report = report_of(prometheus.url, site)
    # Full before the span, and still.
    assert ("Full/n3", "1 12:00:00", "") in [
        (name, max(start, "1 12:00:00"), end) for name, start, end in episodes(report)
    ]
    assert [one["alert"] for one in report["unknown"]] == ["NodeDown"]


def test_tables_name_what_matters(server: HistoricPrometheus, site: Path) -> None:
    lines = backtest(server.url, site, *routes(site)).stdout.splitlines()
    cells = [line.split() for line in lines]
    down = ["NodeDown", "critical", "5", "2.1", "0.5", "n1", "1,", "n2", "1,", "n3", "1,", "2"]
    assert [*down, "more", "pager,", "chat"] in cells
    assert ["pager", "6"] in cells
    (full,) = [line for line in lines if line.startswith("Full")]
    assert full.endswith("no samples of series that rules record: nodevitals:free:ratio")
    assert "are left out" in "\n".join(lines)


def test_finer_steps_in_several_queries_find_the_same(
    server: HistoricPrometheus, site: Path
) -> None:
    """20,160 points: more than Prometheus returns at once."""
    report = report_of(server.url, site, "--step", "15s")
    assert [one[0] for one in episodes(report)] == [one[0] for one in EPISODES]


def test_servers_limit_on_samples_is_met_with_shorter_queries(
    tmp_path: Path, server: HistoricPrometheus, blocks: Path, site: Path
) -> None:
    whole = report_of(server.url, site)
    with HistoricPrometheus(tmp_path, blocks, "--query.max-samples=8000") as limited:
        report = report_of(limited.url, site)
    assert report["episodes"] == whole["episodes"]
    assert report["cost"]["queries"] > 2 * whole["cost"]["queries"]


class Faulty(HttpServer):
    """A proxy that spoils some responses of a server; `spoil` gets the number of a request."""

    def __init__(self, url: str, spoil: Callable[[int], str]) -> None:
        super().__init__(self._respond)
        self.requests = 0
        self._target, self._spoil = url, spoil

    def _respond(self, request: Request) -> Response:
        self.requests += 1
        kind = self._spoil(self.requests)
        if kind == "unavailable":
            return Response(502, b"upstream is restarting")
        if kind == "slow":
            time.sleep(4)
        found = requests.request(
            request.method,
            self._target + request.path,
            data=request.body or None,
            headers={"Content-Type": request.headers.get("Content-Type", "")},
            timeout=PATIENCE_SECONDS,
        )
        end = len(found.content) // 2 if kind == "cut" else None
        return Response(found.status_code, found.content[:end])


def test_passing_failures_of_the_server_change_nothing(
    server: HistoricPrometheus, site: Path
) -> None:
    kinds = {2: "unavailable", 4: "slow"}
    whole = report_of(server.url, site)
    with Faulty(server.url, lambda number: kinds.get(number, "")) as proxy:
        report = report_of(proxy.url, site, "--timeout", "1s")
    assert report["episodes"] == whole["episodes"]
    assert proxy.requests > whole["cost"]["queries"] + 1


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("unavailable", "/api/v1/query_range: HTTP 502: upstream is restarting"),
        ("cut", "/api/v1/query_range: not an answer of Prometheus' API"),
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


def test_a_query_that_the_server_refuses_is_unknown_and_ends_with_status_2(
    server: HistoricPrometheus, tmp_path: Path
) -> None:
    (tmp_path / "rules").mkdir()
    text = RULES.replace("vector(1)", "vector(1) +")
    (tmp_path / "rules/all.yaml").write_text(text)
    report = json.loads(backtest(server.url, tmp_path, "--json", status=2).stdout)
    assert episodes(report) == EPISODES
    (refused,) = [one for one in report["unknown"] if one["alert"] == "Watchdog"]
    assert "HTTP 400: 1:12: parse error" in refused["reason"]


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("route: [", 1, "alertmanager.yaml"),
        ("route: {}", 1, "not an Alertmanager configuration"),
        ("route: {receiver: nobody}\nreceivers: []", 1, "undefined receiver"),
    ],
)
def test_a_wrong_configuration_of_alertmanager_ends_with_status_1(
    server: HistoricPrometheus, site: Path, tmp_path: Path, text: str, status: int, message: str
) -> None:
    (tmp_path / "alertmanager.yaml").write_text(text)
    done = backtest(server.url, site, *routes(tmp_path), status=status)
    assert message in done.stderr
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
        report = report_of(prometheus.url, site, "--days", "0.25", "--end", "2026-06-01T06:00Z")
    # A series is gone 5 minutes after its last sample.
    assert [tuple(map(clock, gap)) for gap in report["gaps"]] == [("1 02:05:00", "1 03:00:00")]
    assert ("NoTarget/", "1 02:10:00", "1 03:00:00") in episodes(report)


def test_history_shorter_than_the_span_is_all_of_it(server: HistoricPrometheus, site: Path) -> None:
    """Before it, no target is absent."""
    report = report_of(server.url, site, "--days", "30")
    assert clock(report["start"]) == "1 00:00:00"
    assert episodes(report) == EPISODES


def test_every_shipped_alert_is_asked(tmp_path: Path) -> None:
    """Of a server that has the agents' metrics and no recorded series: what it cannot answer is
    unknown, by the name of the series.
    """
    alerts, recorded = set(), set()
    for path in (ROOT / "rules").glob("*.yaml"):
        rules = [
            rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]
        ]
        alerts |= {rule["alert"] for rule in rules if "alert" in rule}
        recorded |= {rule["record"] for rule in rules if ":" in rule.get("record", "")}
    history = History(START, 2 * HOUR)
    node = {"job": "nodevitals", "cluster": "c", "instance": "n1"}
    for metric in ("up", "nodevitals_build_info", "nodevitals_accelerator_up"):
        history.add(metric, 0 if metric.endswith("_up") else 1, **node, uuid="GPU-1")
    with HistoricPrometheus(tmp_path, history.write(tmp_path / "blocks")) as prometheus:
        done = run(
            *("rules", "backtest", "--prometheus", prometheus.url, "--end", "2026-06-01T02:00Z"),
            *("--rules", str(ROOT / "rules"), "--days", "0.05", "--json"),
        )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {"AcceleratorLost", "Watchdog"} <= {one["name"] for one in report["alerts"]}
    unknown = {one["alert"]: set(one["missing"]) for one in report["unknown"]}
    assert set(unknown) < alerts
    assert unknown["FleetIncident"] == {"nodevitals:incident_nodes"}
    assert "nodevitals:threshold" not in set().union(*unknown.values())
    assert all(missing <= recorded or not missing & recorded for missing in unknown.values())
