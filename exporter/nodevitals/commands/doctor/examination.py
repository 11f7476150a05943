"""Queries all servers and collects the findings in order.

All servers are queried at the same time, in threads. Findings that need several answers are made
here.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from nodevitals import __version__
from nodevitals.commands.doctor import alertmanager_findings as manager
from nodevitals.commands.doctor import prometheus_findings as prometheus
from nodevitals.commands.doctor import servers
from nodevitals.commands.doctor.agent_side import AgentSide, offset_findings
from nodevitals.commands.doctor.findings import Finding
from nodevitals.commands.doctor.http import (
    Answer,
    Endpoint,
    Jobs,
    ask,
    decoded,
    endpoint,
    late,
    read_http_config,
)
from nodevitals.commands.doctor.prometheus_findings import Expected, read_expected, rule_findings
from nodevitals.commands.doctor.scrape_findings import AGENTS_QUERY, Node, scrape_findings
from nodevitals.commands.shipped import shipped

MAX_METRICS_BYTES = 16 << 20
MAX_ANSWER_BYTES = 64 << 20
ASKING_SHARE = 0.8
"""Of the time limit; the rest is for what the answers say."""

_Shape = TypeVar("_Shape")
_PROMETHEUS = {
    "build": ("/api/v1/status/buildinfo", None),
    "runtime": ("/api/v1/status/runtimeinfo", None),
    "ready": ("/-/ready", None),
    "targets": ("/api/v1/targets", {"state": "active"}),
    "rules": ("/api/v1/rules", None),
    "managers": ("/api/v1/alertmanagers", None),
    "agents": ("/api/v1/query", {"query": AGENTS_QUERY}),
    "thresholds": ("/api/v1/query", {"query": 'nodevitals:threshold{job=""}'}),
    "time": ("/api/v1/query", {"query": "vector(time())"}),
    "maintenance": ("/api/v1/query", {"query": manager.MAINTENANCE_QUERY}),
}
_ALERTMANAGER = {
    "status": ("/api/v2/status", None),
    "watchdog": ("/api/v2/alerts", {"filter": 'alertname="Watchdog"'}),
    "silences": ("/api/v2/silences", None),
}


class Examination:
    """One call of doctor. The constructor raises CommandError for unusable options."""

    def __init__(self, options: argparse.Namespace, began: float, seconds: float) -> None:
        self._options = options
        self._seconds = ASKING_SHARE * seconds
        self._deadline = began + self._seconds
        self._jobs = Jobs(self._deadline)
        self._expected: Expected | None = None
        self._instances: frozenset[str] = frozenset()
        self._prometheus_age: float | None = None
        agent = endpoint(
            "--url", options.url, read_http_config(options.url_http), MAX_METRICS_BYTES
        )
        self._prometheus = self._server("prometheus")
        self._alertmanager = self._server("alertmanager")
        if self._prometheus or self._alertmanager:
            folder = Path(options.rules) if options.rules else shipped("rules")
            self._expected = read_expected(folder, options.job)
        self._agent = AgentSide(options, agent, self._jobs, self._deadline)

    def _server(self, name: str) -> Endpoint | None:
        url = getattr(self._options, name)
        if url is None:
            return None
        config = read_http_config(getattr(self._options, f"{name}_http"))
        return endpoint(f"--{name}", url, config, MAX_ANSWER_BYTES)

    def findings(self) -> Iterator[Finding]:
        """All findings, in the order of the pipeline."""
        for prefix, server, questions in (
            ("prometheus", self._prometheus, _PROMETHEUS),
            ("alertmanager", self._alertmanager, _ALERTMANAGER),
        ):
            if server is not None:
                for name, (path, params) in questions.items():
                    self._ask(f"{prefix} {name}", server, path, params)
        self._agent.start()
        yield from self._agent.findings()
        if self._prometheus is not None:
            yield from self._of_prometheus(self._prometheus)
        if self._alertmanager is not None:
            yield from self._of_alertmanager(self._alertmanager)

    def _ask(self, name: str, server: Endpoint, path: str, params: dict[str, str] | None) -> None:
        deadline = self._deadline
        self._jobs.start(name, lambda: ask(server, server.path + path, deadline, params))

    def _answer(self, name: str) -> Answer:
        return self._jobs.result(name, late(self._seconds))

    def _decoded(self, name: str, shape: type[_Shape]) -> tuple[_Shape | None, Answer]:
        return decoded(self._answer(name), shape, name.partition(" ")[0].capitalize())

    def _of_prometheus(self, server: Endpoint) -> Iterator[Finding]:
        build, answer = self._decoded("prometheus build", servers.BuildAnswer)
        if build is None:
            yield prometheus.no_answer("prometheus", "prometheus", server, answer)
            return
        ready = self._answer("prometheus ready")
        yield from prometheus.server_findings(server, build.data.version, ready)
        now, answer = self._decoded("prometheus time", servers.QueryAnswer)
        seconds = now.data.result[0].number if now and now.data.result else None
        yield from offset_findings(answer, seconds)
        yield from self._scrape(
            server, seconds if seconds is not None and math.isfinite(seconds) else time.time()
        )
        runtime, answer = self._decoded("prometheus runtime", servers.RuntimeAnswer)
        if runtime is not None:
            self._prometheus_age = answer.received - runtime.data.startTime.timestamp()
        yield from self._rules()
        thresholds, answer = self._decoded("prometheus thresholds", servers.QueryAnswer)
        assert self._expected is not None
        if thresholds is None:
            yield prometheus.missing_part("thresholds", answer)
        else:
            yield from prometheus.threshold_findings(
                thresholds.data.result, self._expected.thresholds
            )
        managers, answer = self._decoded("prometheus managers", servers.ManagersAnswer)
        if managers is None:
            yield prometheus.missing_part("notifications", answer)
        else:
            urls = [active.url for active in managers.data.activeAlertmanagers]
            yield from prometheus.manager_findings(urls)
        ends, _ = self._decoded("prometheus maintenance", servers.QueryAnswer)
        yield from manager.maintenance_findings(ends.data.result if ends else (), self._instances)

    def _scrape(self, server: Endpoint, now: float) -> Iterator[Finding]:
        targets, answer = self._decoded("prometheus targets", servers.TargetsAnswer)
        if targets is None:
            yield prometheus.missing_part("scrape", answer)
            return
        agents, answer = self._decoded("prometheus agents", servers.QueryAnswer)
        if agents is None:
            yield prometheus.missing_part("scrape", answer)
            return
        agent = self._agent
        node = Node(agent.started, agent.names(server.host), agent.server.port)
        active = targets.data.activeTargets
        scrape = scrape_findings(active, agents.data.result, node, self._options.job, now)
        self._instances = scrape.instances
        yield from scrape.findings

    def _rules(self) -> Iterator[Finding]:
        rules, answer = self._decoded("prometheus rules", servers.RulesAnswer)
        if rules is None:
            yield prometheus.missing_part("rules", answer)
            return
        assert self._expected is not None
        groups, expected = rules.data.groups, self._expected
        yield from rule_findings(groups, expected, __version__)
        yield from prometheus.alert_findings(groups, expected.rules.keys(), self._instances)

    def _of_alertmanager(self, server: Endpoint) -> Iterator[Finding]:
        for instance in self._instances:
            only = {"filter": f"instance={json.dumps(instance, ensure_ascii=False)}"}
            self._ask(f"alertmanager alerts of {instance}", server, "/api/v2/alerts", only)
        status, answer = self._decoded("alertmanager status", servers.ManagerStatus)
        if status is None:
            yield prometheus.no_answer("alertmanager", "alertmanager", server, answer)
            return
        yield from manager.status_findings(server, status)
        alerts, answer = self._decoded("alertmanager watchdog", list[servers.ReceivedAlert])
        if alerts is None:
            yield prometheus.missing_part("watchdog", answer)
        else:
            yield from manager.watchdog_findings(alerts, answer.received, self._prometheus_age)
        yield from manager.receiver_findings(status.config.original)
        silences, answer = self._decoded("alertmanager silences", list[servers.Silence])
        if silences is None:
            yield prometheus.missing_part("silence", answer)
        else:
            assert self._expected is not None
            ours, received = self._expected.alerts, list(self._received())
            yield from manager.silence_findings(silences, ours, received, self._instances)
            yield from manager.inhibition_findings(received)

    def _received(self) -> Iterator[servers.ReceivedAlert]:
        """The alerts of this node that Alertmanager has; where it does not answer, the Watchdog's
        finding says so.
        """
        for instance in self._instances:
            alerts, _ = self._decoded(
                f"alertmanager alerts of {instance}", list[servers.ReceivedAlert]
            )
            yield from (one for one in alerts or () if one.labels.get("instance") == instance)
