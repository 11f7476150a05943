"""A hub as a process takes nodes out of service, is killed, and goes on."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import requests
import yaml

from testbed.faultprometheus import FaultPrometheus
from testbed.hub import HubProcess
from testbed.node import wait_until
from testbed.respond import Site

NODES = [f"gpu-{number}" for number in range(1, 21)]
TOKEN = "a-token-with-the-role-act"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def settings(folder: Path, site: Site, prometheus: str) -> dict[str, Any]:
    """Two nodes may be out, but only one of them within the hour."""
    tokens = folder / "tokens.yaml"
    tokens.write_text(yaml.safe_dump([{"name": "ada", "role": "act", "token": TOKEN}]))
    tokens.chmod(0o600)
    section = {
        "scheduler": "command",
        "command": site.commands(),
        "where": [{"pool": "a"}],
        "dry_run": False,
        "grace": "100ms",
        "every": "50ms",
        "limits": {"per_hour": 1, "share": 0.5},
    }
    return {
        "access": {"tokens_file": str(tokens)},
        "nodes": {"static": [{"targets": NODES, "labels": {"pool": "a"}}]},
        "prometheus": {"url": prometheus},
        "out_of_service": section,
    }


def test_a_hub_takes_out_and_returns_each_node_once(tmp_path: Path) -> None:
    site = Site(tmp_path, NODES)
    with FaultPrometheus(time.time) as prometheus:
        prometheus.nodes = tuple(NODES)
        prometheus.faults = {("gpu-1", "nvidia_xid"), ("gpu-2", "nvidia_xid")}
        hub = HubProcess(tmp_path, simulated=True, **settings(tmp_path, site, prometheus.url))

        def listed() -> dict[str, dict[str, Any]]:
            address = f"http://127.0.0.1:{hub.port}/api/v1/isolations"
            try:
                found = requests.get(address, timeout=60).json()
            except requests.ConnectionError:
                return {}
            return {one["node"]: one for one in (*found["ended"], *found["open"])}

        def state(node: str) -> str:
            one = listed().get(node, {})
            return f"{one.get('state')} {'done' if one.get('acted') else ''}".strip()

        def ask(node: str, what: str) -> None:
            address = f"http://127.0.0.1:{hub.port}/api/v1/isolations/{listed()[node]['id']}"
            answer = requests.post(f"{address}/{what}", json={}, headers=HEADERS, timeout=60)
            answer.raise_for_status()

        with hub:
            wait_until(lambda: state("gpu-1") == "isolated done", 30, "the first node")
            wait_until(lambda: state("gpu-2") == "refused", 30, "the second node")
            hub.kill()
            hub.start()
            wait_until(lambda: state("gpu-2") == "refused", 30, "the hub")
            ask("gpu-2", "approve")
            wait_until(lambda: state("gpu-2") == "isolated done", 30, "the approved node")
            ask("gpu-1", "return")
            wait_until(lambda: state("gpu-1") == "canceled done", 30, "the returned node")
            assert hub.kill(signal.SIGTERM) == 0
            log = hub.log.read_text()
    assert site.log("isolate") == ["gpu-1", "gpu-2"]
    assert site.log("restore") == ["gpu-1"]
    assert site.get("gpu-1") == "in service"
    assert "Traceback" not in log
    assert TOKEN not in log
