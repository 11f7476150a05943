"""A hub whose queue is full: what it says to whom, and that what may wait is started later."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from testbed.hub import HubProcess
from testbed.kubernetes_api.checks import CheckApi
from testbed.node import wait_until

NODES = [f"gpu-{number}" for number in range(1, 7)]
TEST = {"device": "mlx5_0"}
WAITS = "the hub's queue is full (limits.queued): waits for a place"
FULL = "1 checks wait (limits.queued): try again later"


class FullHub(HubProcess):
    """A hub that runs one check at a time, and lets one wait."""

    def __init__(self, folder: Path, api: CheckApi) -> None:
        super().__init__(
            folder,
            simulated=True,
            access={"anonymous": "run"},
            nodes={"static": [{"targets": [*NODES, "gpu-held"]}]},
            limits={"running": 1, "queued": 1},
            presets={"own": {"kind": "matrix", "test": TEST}},
            alerts=[{"alertname": "NodeFabricSlow", "preset": "own"}],
            resources={"enabled": True, "list_every": "200ms"},
        )
        self.environment = {"KUBECONFIG": str(api.kubeconfig), "WAITS": "10,0.2,0.3,0.3"}
        self.environment |= {"RUN_SECONDS": "0.01", "HELD": "gpu-held"}

    def __enter__(self) -> FullHub:
        self.start()
        return self

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        """Status, body and headers of a response of the REST API."""
        data = None if body is None else json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            request = urllib.request.Request(url, data, headers)
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, json.load(response), response.headers
        except urllib.error.HTTPError as error:
            return error.code, json.load(error), error.headers
        except OSError:  # the web server starts after the rest
            return 0, None, {}

    def add_schedule(self) -> None:
        """Add one that would start a check every second."""
        often = {"kind": "pair", "nodes": NODES[4:], "test": TEST}
        schedules = {"schedules": {"often": {"check": often, "every": "1s"}}}
        self.config.write_text(self.config.read_text() + yaml.safe_dump(schedules))
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def reason(self) -> str:
        """Why the schedule has not started a check."""
        found = self.ask("/api/v1/schedules")[1]
        return str(found[0]["reason"]) if found else ""

    def scheduled(self) -> list[str]:
        """The checks of the schedule."""
        return [one.id for one in self.list() if one.requester.trigger == "schedule"]


def alert(node: str) -> dict[str, Any]:
    """A message of Alertmanager."""
    labels = {"alertname": "NodeFabricSlow", "instance": node}
    return {
        "version": "4",
        "alerts": [{"status": "firing", "fingerprint": "ab12", "labels": labels}],
    }


def test_a_full_queue(tmp_path: Path) -> None:
    held = {"kind": "pair", "nodes": ["gpu-1", "gpu-held"], "test": TEST}
    pair = {"kind": "pair", "nodes": NODES[:2], "test": TEST}
    with CheckApi(tmp_path) as api, FullHub(tmp_path, api) as hub:
        wait_until(lambda: hub.ask("/api/v1/checks")[0] == 200, 30, "the web server")
        assert hub.ask("/api/v1/checks", held)[0] == 201
        again = {"Idempotency-Key": "waiting"}
        status, waiting, _ = hub.ask("/api/v1/checks", held, **again)
        assert (status, waiting["phase"]) == (201, "queued")

        status, body, headers = hub.ask("/api/v1/checks", pair)
        assert (status, body, headers["Retry-After"]) == (429, {"error": FULL}, "10")
        status, body, _ = hub.ask("/api/v1/checks", held, **again)
        assert (status, body["id"]) == (201, waiting["id"])

        api.create("resource", pair)
        wait_until(lambda: api.status("resource").get("phase") == "Pending", 30)
        assert api.status("resource")["message"] == WAITS
        lists, patches = api.count("list"), api.count("patch")
        wait_until(lambda: api.count("list") > lists + 2, 30)
        assert api.count("patch") == patches == 1

        assert hub.ask("/api/v1/alerts", alert("gpu-3"))[:2] == (503, {"error": FULL})
        status, body, _ = hub.ask("/alerts/ab12")
        assert (status, body["error"]) == (404, f"NodeFabricSlow of gpu-3: no check: {FULL}")

        hub.add_schedule()
        full = "2 checks run or wait (limits.running)"
        wait_until(lambda: hub.reason() == full, 30)
        assert not hub.scheduled()

        for one in hub.list(limit=2):
            hub.cancel(one.id)
        wait_until(lambda: api.status("resource").get("phase") == "Done", 60)
        wait_until(lambda: hub.ask("/api/v1/alerts", alert("gpu-3"))[0] == 200, 30)
        [check] = hub.ask("/api/v1/alerts", alert("gpu-3"))[1]["checks"]
        assert "gpu-3" in hub.detail(check).check.request.nodes
        wait_until(hub.scheduled, 30)
        wait_until(lambda: hub.ask("/api/v1/checks", pair)[0] == 201, 30)
        assert api.invalid == []
        assert "Traceback" not in hub.log.read_text()
