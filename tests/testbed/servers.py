"""Real Prometheus and Alertmanager from .tools on free loopback ports, and who hears of alerts."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import requests
import yaml

from testbed.node import ROOT, free_port, wait_until

# It is always office hours, and never maintenance (the 30th of February).
NEVER: list[Any] = [{"months": ["february"], "days_of_month": ["30"]}]
ALWAYS: dict[str, list[Any]] = {"office-hours": [{"years": ["2000:2100"]}], "maintenance": NEVER}
BINARIES = ROOT / ".tools/root/usr/bin"


def show_debian_files() -> None:
    """Lay the unpacked packages' /usr/share over ours, in our private mount namespace: Debian's
    Alertmanager looks for its default template there and nowhere else.
    """
    if not Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
        layers = f"lowerdir={ROOT / '.tools/root/usr/share'}:/usr/share"
        mount = ["mount", "-t", "overlay", "overlay", "-o", layers, "/usr/share"]
        subprocess.run(mount, check=True)


def start(argv: list[str], log: Path, **more: Any) -> subprocess.Popen[bytes]:
    """Start a program that the kernel kills when we end, however we end."""
    with log.open("ab") as handle:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv],
            stdout=handle,
            stderr=handle,
            stdin=subprocess.DEVNULL,
            **more,
        )


class Server(ABC):
    """A program that answers on /-/ready, and is gone after the with block."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._name = name

    @abstractmethod
    def argv(self) -> list[str]:
        """The command line."""

    def __enter__(self) -> Any:
        log = self.folder / "log"
        self.process = start(self.argv(), log)
        wait_until(self._ready, 30, f"{self._name} ready; its log:\n{log}")
        return self

    def _ready(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return requests.get(f"{self.url}/-/ready", timeout=2).ok
        except requests.RequestException:
            return False

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)


class Alertmanager(Server):
    """The shipped configuration, with every receiver a webhook of its name and its waits shortened.

    `hours` replaces the time intervals by name, so that a test does not depend on the time of day;
    `alone` gives each alert a group of its own, as when nothing else breaks at the same time.
    """

    def __init__(
        self,
        folder: Path,
        receiver: str,
        speed: float,
        hours: dict[str, list[Any]] | None = None,
        alone: bool = False,
    ) -> None:
        super().__init__(folder, "alertmanager")
        show_debian_files()
        config = yaml.safe_load((ROOT / "alertmanager/alertmanager.yaml").read_text())
        del config["global"]
        config["templates"] = [str(ROOT / "alertmanager/templates/*.tmpl")]
        config["receivers"] = [
            {"name": name, "webhook_configs": [{"url": f"{receiver}/{name}"}]}
            for name in (item["name"] for item in config["receivers"])
        ]
        for interval in config["time_intervals"]:
            interval["time_intervals"] = (hours or ALWAYS)[interval["name"]]
        if alone:
            config["route"]["group_by"] = ["..."]
        for route in (config["route"], *config["route"]["routes"]):
            for key in ("group_wait", "group_interval"):
                if key in route:
                    route[key] = divided(route[key], speed)
        (self.folder / "alertmanager.yaml").write_text(yaml.safe_dump(config))

    def argv(self) -> list[str]:
        """Alone, without a cluster."""
        return [
            str(BINARIES / "prometheus-alertmanager"),
            f"--config.file={self.folder / 'alertmanager.yaml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]


class Pushgateway(Server):
    """Takes what is pushed, and keeps nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "pushgateway")

    def argv(self) -> list[str]:
        """On its port."""
        program = str(BINARIES / "prometheus-pushgateway")
        return [program, f"--web.listen-address=127.0.0.1:{self.port}"]


class Prometheus(Server):
    """Scrapes the given instances (name to host:port) and evaluates the shipped rules."""

    def __init__(
        self,
        folder: Path,
        targets: dict[str, str],
        alertmanager: Alertmanager | None,
        speed: float,
        fleet: str = "",
        waits_speed: float | None = None,
    ) -> None:
        """`fleet` is the address of a page whose lines name their own instances; `waits_speed` is
        for the alerts' own waits, where these should pass faster still.
        """
        super().__init__(folder, "prometheus")
        self._waits_speed = waits_speed or speed
        for file in (ROOT / "rules").glob("*.yaml"):
            self._copy_rules(file, speed)
        managers = [{"targets": [f"127.0.0.1:{alertmanager.port}"]}] if alertmanager else []
        config = {
            "global": {
                "scrape_interval": divided("15s", min(speed, 15)),
                "evaluation_interval": divided("15s", min(speed, 15)),
                "external_labels": {"cluster": "demo"},
            },
            "rule_files": [f"{self.folder}/rules/*.yaml"],
            "alerting": {"alertmanagers": [{"static_configs": managers}]},
            "scrape_configs": [
                {
                    "job_name": "nodevitals",
                    "static_configs": [
                        {"targets": [address], "labels": {"instance": name}}
                        for name, address in targets.items()
                    ],
                },
                *([_fleet_job(fleet)] if fleet else []),
            ],
        }
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def _copy_rules(self, file: Path, speed: float) -> None:
        document = yaml.safe_load(file.read_text())
        for group in document["groups"]:
            if "interval" in group:
                group["interval"] = divided(group["interval"], min(speed, 5))
            for rule in group["rules"]:
                # 40 s are shorter where evaluations come sooner.
                step = round(5_000 / min(speed, 15))
                sooner = f"[{8 * step - 1}ms:{step}ms]"
                rule["expr"] = rule["expr"].replace("[39s999ms:5s]", sooner)
                for key in ("for", "keep_firing_for"):
                    if key in rule:
                        rule[key] = divided(rule[key], self._waits_speed)
        (self.folder / "rules").mkdir(exist_ok=True)
        (self.folder / "rules" / file.name).write_text(yaml.safe_dump(document))

    def argv(self) -> list[str]:
        """With its data in its folder."""
        return [
            str(BINARIES / "prometheus"),
            f"--config.file={self.folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression."""
        answer = requests.get(
            f"{self.url}/api/v1/query", params={"query": expression}, timeout=10
        ).json()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found


def _fleet_job(address: str) -> dict[str, Any]:
    """Scrape a page of many instances; its own `up` must not be one of theirs."""
    return {
        "job_name": "fleet",
        "honor_labels": True,
        "static_configs": [{"targets": [address]}],
        "metric_relabel_configs": [{"target_label": "job", "replacement": "nodevitals"}],
    }


def divided(duration: str, by: float) -> str:
    """A Prometheus duration divided, in whole milliseconds."""
    unit = {"s": 1000, "m": 60_000, "h": 3_600_000}[duration[-1]]
    return f"{max(1, round(float(duration[:-1]) * unit / by))}ms"


class Receiver:
    """A webhook that remembers every alert it was told of, and when."""

    def __init__(self) -> None:
        self.alerts: list[tuple[float, dict[str, Any]]] = []
        self.messages: list[tuple[str, dict[str, Any]]] = []
        """Each call: the receiver's name, and the body."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver = self.path.removeprefix("/")
                outer.alerts += [
                    (time.monotonic(), {**alert, "receiver": receiver}) for alert in body["alerts"]
                ]
                outer.messages.append((receiver, body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def arrived(
        self, status: str, since: float = 0.0, **labels: str
    ) -> tuple[float, dict[str, Any]] | None:
        """When an alert with these labels arrived after `since`, and the alert."""
        for moment, alert in self.alerts:
            fits = labels.items() <= alert["labels"].items()
            if moment >= since and alert["status"] == status and fits:
                return moment, alert
        return None
