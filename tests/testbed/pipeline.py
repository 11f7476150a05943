"""An agent, Prometheus with the shipped rules and Alertmanager, all well, and what breaks each."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import requests
import yaml

from testbed.node import PATIENCE_SECONDS, Node, run, wait_until
from testbed.servers import Alertmanager, PrometheusProcess
from testbed.waits import write_shortened_rules

SOURCE = Path(__file__).with_name("adjtimex.c")


def synchronized_clock(folder: Path) -> dict[str, str]:
    """The environment of an agent whose clock is synchronized until `folder`/unsynchronized is."""
    library = folder / "adjtimex.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return {"LD_PRELOAD": str(library), "UNSYNCHRONIZED": str(folder / "unsynchronized")}


class Pipeline:
    """Every part of it; it runs inside the with block. `repair` restores what a test broke."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unsynchronized = folder / "unsynchronized"
        self.maintenance = folder / "maintenance"
        self.healthy: dict[str, Any] = {
            "defaults": {"interval": "500ms", "timeout": "400ms"},
            "probes": {
                "misbehave": {"behaviours": ["healthy"]},
                "node": {},
                "maintenance": {"file": str(self.maintenance)},
            },
        }
        self.node = Node(folder, self.healthy, **synchronized_clock(folder))
        self.alertmanager = Alertmanager(folder, "http://127.0.0.1:9", 60)
        self.prometheus = PrometheusProcess(folder, "prometheus")
        self.prometheus.flags = ("--rules.alert.resend-delay=1s", "--web.enable-lifecycle")
        self._configured = False
        self.rules = folder / "rules"
        # The waits stay: no alert fires during a test.
        write_shortened_rules(self.rules, 60, 1, 1e9)
        self.loaded = folder / "loaded"
        shutil.copytree(self.rules, self.loaded)
        self._write(self.config())

    def config(self) -> dict[str, Any]:
        """Prometheus' configuration; tests change a copy."""
        manager = {"static_configs": [{"targets": [f"127.0.0.1:{self.alertmanager.port}"]}]}
        target = {
            "targets": [f"127.0.0.1:{self.node.port}"],
            "labels": {"instance": "gpu-node-1"},
        }
        return {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
                "external_labels": {"cluster": "demo"},
            },
            "rule_files": [f"{self.loaded}/*.yaml"],
            "alerting": {"alertmanagers": [manager]},
            "scrape_configs": [{"job_name": "nodevitals", "static_configs": [target]}],
        }

    def _write(self, config: dict[str, Any]) -> None:
        (self.prometheus.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def configure(self, config: dict[str, Any]) -> None:
        """Have Prometheus take another configuration, or the rules as they are now."""
        self._write(config)
        self._configured = True
        reload = f"{self.prometheus.url}/-/reload"  # the answer comes when it is done
        requests.post(reload, timeout=PATIENCE_SECONDS).raise_for_status()

    def repair(self) -> None:
        """Make everything as it was."""
        self.unsynchronized.unlink(missing_ok=True)
        self.maintenance.unlink(missing_ok=True)
        if self._configured:
            shutil.copytree(self.rules, self.loaded, dirs_exist_ok=True)
            self.configure(self.config())
            self._configured = False
        changed = self.node.config_file.read_text()
        self.node.write(self.healthy)
        if self.node.config_file.read_text() != changed:
            loaded = "nodevitals_config_last_reload_success_timestamp_seconds"
            before = self.node.value(loaded)
            self.node.hang_up()
            wait_until(lambda: self.node.value(loaded) != before, what="a reload of the agent")

    def doctor(self, *flags: str) -> tuple[int, list[dict[str, str]]]:
        """The status and the findings of `nodevitals doctor` on the whole pipeline."""
        done = run(
            "doctor",
            f"--url={self.node.url}",
            f"--config.file={self.node.config_file}",
            f"--prometheus={self.prometheus.url}",
            f"--alertmanager={self.alertmanager.url}",
            f"--rules={self.rules}",
            "--json",
            *flags,
        )
        assert not done.stderr, done.stderr
        found: list[dict[str, str]] = json.loads(done.stdout)
        return done.returncode, found

    def __enter__(self) -> Pipeline:
        for part in (self.node, self.alertmanager, self.prometheus):
            part.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for part in (self.prometheus, self.alertmanager, self.node):
            part.__exit__(None, None, None)


def not_well(findings: list[dict[str, str]]) -> dict[str, str]:
    """The state and the detail of each finding that is a problem or unknown, by its check."""
    return {
        one["check"]: f"{one['state']}: {one['detail']}"
        for one in findings
        if one["state"] in ("problem", "unknown")
    }
