"""What Prometheus spends on the evaluation of rules.

`RulesServer` is a real Prometheus that scrapes `testbed.replicas` every 15 s with rules as given.
`Spent` is what it used in a time: CPU of the process, and for each rule its times of evaluation.
"""

from __future__ import annotations

import re
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import psutil
import requests
import yaml

from testbed.replicas import STEP_SECONDS, Replicas
from testbed.servers import BINARIES, ServerProcess

_LONG_RANGE = re.compile(r"([a-z][a-z0-9_]+)(?:\{[^{}]*\})?\[(?:\d+[hd]|[1-5]?\d+m\d*s?\w*)[\]:]")


def families_over_time(rules: Path) -> set[str]:
    """Return the names of what the rules of a folder read over minutes or more."""
    return {name for file in rules.glob("*.yaml") for name in _LONG_RANGE.findall(file.read_text())}


class Rule(msgspec.Struct, frozen=True):
    """A rule in its group: the interval in seconds, and what it records or the alert's name."""

    group: str
    interval: float
    number: int
    title: str


class Spent(msgspec.Struct):
    """CPU seconds of the process, seconds that passed, and the times of each rule in seconds."""

    cpu: float
    wall: float
    evaluations: dict[Rule, list[float]]

    def quiet(self, rule: Rule) -> float:
        """Return the share of a core of one rule: its shortest evaluation per interval."""
        return min(self.evaluations[rule]) / rule.interval

    def typical(self, rule: Rule) -> float:
        """Return the same of its median evaluation, which other load makes longer."""
        ordered = sorted(self.evaluations[rule])
        return ordered[len(ordered) // 2] / rule.interval


class RulesServer(ServerProcess):
    """Prometheus over all pages of a fleet, without rules until it is given some."""

    def __init__(self, folder: Path, name: str, fleet: Replicas) -> None:
        super().__init__(folder, name)
        self.reader = name
        self._config = {
            "global": {
                "scrape_interval": f"{STEP_SECONDS}s",
                "scrape_timeout": f"{STEP_SECONDS}s",
                "evaluation_interval": f"{STEP_SECONDS}s",
                "external_labels": {"cluster": "bench"},
            },
            "scrape_configs": [
                {
                    "job_name": "fleet",
                    "honor_labels": True,
                    "metric_relabel_configs": [
                        {"target_label": "job", "replacement": "nodevitals"}
                    ],
                    "static_configs": [
                        {"targets": [fleet.address], "labels": {"__metrics_path__": path}}
                        for path in fleet.paths(name)
                    ],
                }
            ],
        }
        self._write()

    def _write(self) -> None:
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(self._config))

    def load(self, rules: Path) -> None:
        """Evaluate the rules of a folder from now on. The past alone looks like a fault to them."""
        self._config["rule_files"] = [f"{rules}/*.yaml"]
        self._write()
        self.process.send_signal(signal.SIGHUP)

    def argv(self) -> list[str]:
        """Return the command line."""
        return [
            *("nice", str(BINARIES / "prometheus")),
            f"--config.file={self.folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the API."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=60).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def count(self, selector: str) -> int:
        """Return the number of series."""
        found = self.ask("query", query=f"count({selector})")["result"]
        return int(found[0]["value"][1]) if found else 0

    def own(self, family: str) -> dict[str, float]:
        """Return the samples of a family of Prometheus's own, by group or "" where it has none."""
        found = {}
        for line in requests.get(f"{self.url}/metrics", timeout=60).text.splitlines():
            if line.startswith((f"{family}{{", f"{family} ")):
                labels, value = line.rsplit(" ", 1)
                found[labels.partition(";")[2].rstrip('"}')] = float(value)
        return found

    def memory_bytes(self) -> int:
        """Return the resident memory of the process."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process until now."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def evaluations(self) -> dict[Rule, tuple[str, float]]:
        """Return of each rule when it was last evaluated, and for how many seconds."""
        return {
            Rule(group["name"], group["interval"], number, _title(rule)): (
                rule["lastEvaluation"],
                rule["evaluationTime"],
            )
            for group in self.ask("rules")["groups"]
            for number, rule in enumerate(group["rules"])
        }


def _title(rule: dict[str, Any]) -> str:
    labels = rule.get("labels", {})
    more = labels.get("fault") or labels.get("domain") or labels.get("level") or labels.get("scope")
    return f"{rule['name']}{f' {more}' if more and rule['type'] == 'recording' else ''}"


def spend(servers: list[RulesServer], wall: float) -> dict[str, Spent]:
    """Return what each server uses in the next `wall` seconds, side by side."""
    before = {one.reader: one.cpu_seconds() for one in servers}
    found: dict[str, dict[Rule, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    began = time.monotonic()
    while time.monotonic() < began + wall:
        # Not after every evaluation: the answer costs CPU, too.
        time.sleep(20)
        for server in servers:
            for rule, (moment, took) in server.evaluations().items():
                found[server.reader][rule][moment] = took
    passed = time.monotonic() - began
    return {
        one.reader: Spent(
            one.cpu_seconds() - before[one.reader],
            passed,
            {rule: list(times.values()) for rule, times in found[one.reader].items()},
        )
        for one in servers
    }
