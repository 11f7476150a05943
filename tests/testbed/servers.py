"""Real Prometheus, Alertmanager and Pushgateway from .tools, on free loopback ports.

Alertmanager and Prometheus have the shipped routes and rules with shorter waits (`testbed.waits`).
"""

from __future__ import annotations

import math
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
import yaml

from testbed.node import PATIENCE_SECONDS, ROOT, free_port, wait_until
from testbed.waits import FASTEST_SCRAPES, milliseconds, shorten_routes, write_shortened_rules

# Time intervals. The 30th of February never comes.
NEVER: list[Any] = [{"months": ["february"], "days_of_month": ["30"]}]
ALWAYS: list[Any] = [{"years": ["2000:2100"]}]
BINARIES = ROOT / ".tools/root/usr/bin"


def show_debian_files() -> None:
    """Mount the unpacked packages' /usr/share over the machine's, in the private mount namespace:
    Debian's Alertmanager reads its default template only from there.
    """
    if not Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
        # Outside it, the mount would stay on the machine.
        assert "PRIVATE_MOUNTS" in os.environ, "start it with tools/private-mounts"
        layers = f"lowerdir={ROOT / '.tools/root/usr/share'}:/usr/share"
        mount = ["mount", "-t", "overlay", "overlay", "-o", layers, "/usr/share"]
        subprocess.run(mount, check=True)


def start(argv: list[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a program that the kernel kills when this process ends for any reason."""
    with log.open("ab") as handle:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv],
            stdout=handle,
            stderr=handle,
            stdin=subprocess.DEVNULL,
            **options,
        )


class ServerProcess(ABC):
    """A program that serves /-/ready; it runs inside the with block."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._name = name

    @abstractmethod
    def argv(self) -> list[str]:
        """Return the command line."""

    def __enter__(self) -> Any:
        log = self.folder / "log"
        self.process = start(self.argv(), log)
        wait_until(self._ready, 30, f"{self._name} ready; its log:\n{log}")
        return self

    def _ready(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return requests.get(f"{self.url}/-/ready", timeout=60).ok
        except requests.RequestException:
            return False

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(120)


class PrometheusProcess(ServerProcess):
    """Prometheus with the prometheus.yaml and the data of its folder, and further flags."""

    prefix: tuple[str, ...] = ()
    """`nice`, where others that run at the same time come first."""
    flags: tuple[str, ...] = ()

    def argv(self) -> list[str]:
        """Return the command line."""
        return [
            *self.prefix,
            str(BINARIES / "prometheus"),
            f"--config.file={self.folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            *self.flags,
        ]


class Alertmanager(ServerProcess):
    """The shipped configuration; every receiver is a webhook of its name.

    `hours` replaces time intervals by name; as shipped, none depends on the time of day.
    `ungrouped` notifies each alert in a group of its own, as when nothing else is broken;
    `webhooks` replaces the webhooks of receivers by name.
    """

    def __init__(
        self,
        folder: Path,
        webhook: str,
        speed: float,
        hours: dict[str, list[Any]] | None = None,
        ungrouped: bool = False,
        webhooks: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(folder, "alertmanager")
        show_debian_files()
        config = yaml.safe_load((ROOT / "alertmanager/alertmanager.yaml").read_text())
        del config["global"]
        config["templates"] = [str(ROOT / "alertmanager/templates/*.tmpl")]
        config["receivers"] = [
            {
                "name": name,
                "webhook_configs": [(webhooks or {}).get(name, {"url": f"{webhook}/{name}"})],
            }
            for name in (item["name"] for item in config["receivers"])
        ]
        for interval in config["time_intervals"]:
            interval["time_intervals"] = (hours or {}).get(
                interval["name"], interval["time_intervals"]
            )
        if ungrouped:
            config["route"]["group_by"] = ["..."]
            for route in config["route"]["routes"]:
                route.pop("group_by", None)
        shorten_routes(config, speed)
        (self.folder / "alertmanager.yaml").write_text(yaml.safe_dump(config))

    def argv(self) -> list[str]:
        """Return the command line of a single Alertmanager, without a cluster."""
        return [
            str(BINARIES / "prometheus-alertmanager"),
            f"--config.file={self.folder / 'alertmanager.yaml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def inhibited(self) -> dict[tuple[str, str], bool]:
        """Return, by name and instance, whether each alert is inhibited."""
        found: list[dict[str, Any]] = requests.get(f"{self.url}/api/v2/alerts", timeout=60).json()
        return {
            (one["labels"]["alertname"], one["labels"].get("instance", "")): bool(
                one["status"]["inhibitedBy"]
            )
            for one in found
        }


class Pushgateway(ServerProcess):
    """A Pushgateway without persistence."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "pushgateway")

    def argv(self) -> list[str]:
        """Return the command line."""
        program = str(BINARIES / "prometheus-pushgateway")
        return [program, f"--web.listen-address=127.0.0.1:{self.port}"]


class Prometheus(PrometheusProcess):
    """Scrapes the given instances (name to host:port) and evaluates the shipped rules.

    `fleet` is the address of a page whose lines have instances of their own, `hub` that of a hub.
    `waits_speed` divides `for` and `keep_firing_for` where these should be shorter than `speed`
    makes them, and no wait is longer than `longest_wait` seconds.
    """

    def __init__(
        self,
        folder: Path,
        targets: dict[str, str],
        alertmanager: Alertmanager | None,
        speed: float,
        fleet: str = "",
        waits_speed: float | None = None,
        longest_wait: float = math.inf,
        hub: str = "",
    ) -> None:
        super().__init__(folder, "prometheus")
        write_shortened_rules(self.folder / "rules", speed, waits_speed or speed, longest_wait)
        interval = milliseconds(15 / min(speed, FASTEST_SCRAPES))
        managers = [{"targets": [f"127.0.0.1:{alertmanager.port}"]}] if alertmanager else []
        config = {
            "global": {
                "scrape_interval": interval,
                "evaluation_interval": interval,
                "external_labels": {"cluster": "demo"},
            },
            "rule_files": [f"{self.folder}/rules/*.yaml"],
            "alerting": {"alertmanagers": [{"static_configs": managers}]},
            "scrape_configs": [
                _agents_job(targets),
                *([_fleet_job(fleet)] if fleet else []),
                *([_hub_job(hub)] if hub else []),
                _own_job(f"127.0.0.1:{self.port}"),
            ],
        }
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the instant vector of an expression."""
        answer = requests.get(
            f"{self.url}/api/v1/query", params={"query": expression}, timeout=PATIENCE_SECONDS
        ).json()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found


def _agents_job(targets: dict[str, str]) -> dict[str, Any]:
    configs = [
        {"targets": [address], "labels": {"instance": name}} for name, address in targets.items()
    ]
    return {"job_name": "nodevitals", "static_configs": configs}


def _own_job(address: str) -> dict[str, Any]:
    """Of its own metrics, whether rules fail; a busy machine evaluates some late."""
    kept = {"source_labels": ["__name__"], "regex": "prometheus_rule_evaluation_failures_total"}
    return {
        "job_name": "prometheus",
        "static_configs": [{"targets": [address]}],
        "metric_relabel_configs": [kept | {"action": "keep"}],
    }


def _hub_job(address: str) -> dict[str, Any]:
    return {"job_name": "nodevitals-hub", "static_configs": [{"targets": [address]}]}


def _fleet_job(address: str) -> dict[str, Any]:
    """Return a job for one page of many instances: their samples get the agents' job, the `up` of
    the page itself does not.
    """
    return {
        "job_name": "fleet",
        "honor_labels": True,
        "static_configs": [{"targets": [address]}],
        "metric_relabel_configs": [{"target_label": "job", "replacement": "nodevitals"}],
    }
