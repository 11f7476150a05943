"""Stand-ins of Prometheus that respond with vectors, by a clock of tests."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from nodevitals.linux.host import Clock
from nodevitals_hub.isolation.faults import PART
from testbed.http_server import HttpServer, Request, Response


class StoppedClock(Clock):
    """A clock that only tests move."""

    def __init__(self) -> None:
        self.wall, self.elapsed = 1.8e9, 0.0

    def monotonic(self) -> float:
        """Seconds that tests have let pass."""
        return self.elapsed

    def time(self) -> float:
        """Unix time."""
        return self.wall

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.elapsed += seconds


class VectorPrometheus(HttpServer, ABC):
    """Each query has the same vector, or an error while the server is away."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        super().__init__(self._respond)
        self.is_away = False
        self.queries = 0
        self._now = now

    @abstractmethod
    def rows(self) -> list[dict[str, str]]:
        """Return the labels of each sample; the value is the time."""

    def _respond(self, _: Request) -> Response:
        """The clock of queries moves by a millisecond between two."""
        self.queries += 1
        if self.is_away:
            return Response(503)
        now = self._now() + self.queries / 1000
        found = [{"metric": row, "value": [now, str(now)]} for row in self.rows()]
        data = {"resultType": "vector", "result": found}
        return Response(200, json.dumps({"status": "success", "data": data}).encode())


class FaultPrometheus(VectorPrometheus):
    """Its attributes are what it responds to the query of isolation/faults.py."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        self.nodes: tuple[str, ...] = ()
        """All nodes, whose data are fresh."""
        self.faults: set[tuple[str, str]] = set()
        """Node and name of confirmed faults."""
        self.labels: dict[str, str] = {}
        """Labels of all of these, over the usual ones."""
        self.reported: set[tuple[str, str]] = set()
        """Node and name of faults that other nodes report, or that concern its connections."""
        self.incident = False
        self.is_empty = False
        """Whether no rule is loaded."""

    def rows(self) -> list[dict[str, str]]:
        """Return the parts of the query's vector."""
        if self.is_empty:
            return []
        rows = [{PART: "alive"}]
        for node, name in sorted(self.faults):
            labels = {"instance": f"{node}:9855", "fault": name, "device_id": "GPU-1"}
            more = {"service": "drain_now", "action": "reset_device", "incident": "false"}
            rows.append({PART: "fault", **labels, **more, **self.labels})
        for node, name in sorted(self.reported):
            of_peer = {"peer": node, "port": "22", "protocol": "ssh"}
            where = of_peer if name == "peer_unreachable" else {"instance": f"{node}:9855"}
            where |= {"unit": "ssh.service"} if name == "service_down" else {}
            more = {"fault": name, "severity": "warning", "action": "investigate"}
            rows.append({PART: "reported", **where, **more})
        rows += [{PART: "incident", "kind": "node"}] if self.incident else []
        return rows + [{PART: "fresh", "instance": f"{node}:9855"} for node in self.nodes]
