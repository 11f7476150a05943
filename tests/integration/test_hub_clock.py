"""A hub whose clock is set forward and back while it runs."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from testbed.hub import HubProcess
from testbed.node import ROOT, SOURCES, wait_until

NODES = [f"gpu-{number}" for number in range(1, 10)]
TEST = {"device": "mlx5_0"}
MONTH = 30 * 86400
PAIR = {"kind": "pair", "nodes": NODES[:2], "test": TEST}


class JumpingHub(HubProcess):
    """A hub whose clock `jump` sets."""

    def __init__(self, folder: Path, **config: Any) -> None:
        super().__init__(folder, simulated=True, **config)
        self.skew = folder / "skew"
        self.jump(0)
        paths = [ROOT / "tests/testbed/skew", SOURCES, ROOT / "tests"]
        self.environment = {"PYTHONPATH": ":".join(map(str, paths)), "SKEW_FILE": str(self.skew)}
        self.environment |= {"RUN_SECONDS": "0.01", "HELD": "gpu-9"}

    def __enter__(self) -> JumpingHub:
        self.start()
        return self

    def jump(self, seconds: float) -> None:
        """Let its clock be wrong by so much from now on."""
        beside = self.skew.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.replace(self.skew)

    def web(self, path: str, body: Any = None) -> Any:
        """A response of the REST API."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def scheduled(self) -> list[str]:
        """The checks of schedules, the newest first."""
        return [one.id for one in self.list() if one.requester.trigger == "schedule"]

    def next_start(self) -> float:
        """When the schedule starts next."""
        return float(self.web("/api/v1/schedules")[0]["next_start"])

    def alert(self) -> list[str]:
        """Checks that a message of Alertmanager leads to."""
        labels = {"alertname": "NodeFabricSlow", "instance": "gpu-3"}
        alert = {"status": "firing", "fingerprint": "ab12", "labels": labels}
        found = self.web("/api/v1/alerts", {"version": "4", "alerts": [alert]})
        return list(found["checks"])


def test_jumps_start_nothing_twice_and_end_nothing(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "access": {"anonymous": "run"},
        "nodes": {"static": [{"targets": NODES}]},
        "schedules": {"monthly": {"check": PAIR, "every": "30d"}},
        "presets": {"own": {"kind": "matrix", "test": TEST}},
        "alerts": [{"alertname": "NodeFabricSlow", "preset": "own", "at_most_every": "30d"}],
    }
    with JumpingHub(tmp_path, **config) as hub:
        wait_until(lambda: hub.web("/api/v1/schedules"))
        held = hub.submit(kind="pair", nodes=["gpu-8", "gpu-9"], test=TEST)
        wait_until(lambda: len(hub.scheduled()) == 1)
        first = hub.alert()
        hub.jump(2 * MONTH)
        wait_until(lambda: len(hub.scheduled()) == 2)
        second = hub.alert()
        assert first != second
        hub.jump(0)
        wait_until(lambda: hub.next_start() < hub.list()[0].created - MONTH + 1)
        assert hub.alert() == first
        hub.jump(2 * MONTH)
        assert hub.alert() == second
        wait_until(lambda: hub.next_start() > hub.list()[0].created)
        hub.jump(-2 * MONTH)
        wait_until(lambda: len(hub.scheduled()) == 3)
        hub.jump(0)
        assert hub.detail(held.id).check.phase == "running"
        assert hub.cancel(held.id).phase == "canceled"
        for identity in hub.scheduled():
            assert hub.ended(identity).check.verdict is not None
        assert len(hub.scheduled()) == 3
        assert "Traceback" not in hub.log.read_text()
