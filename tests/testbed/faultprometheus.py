"""A stand-in of Prometheus that answers the query of isolation/faults.py, by a clock of tests."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nodevitals.linux.host import Clock
from nodevitals_hub.isolation.faults import PART


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


class FaultPrometheus:
    """Its attributes are what it says; the server ends with the with block."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.nodes: tuple[str, ...] = ()
        """All nodes, whose data are fresh."""
        self.faults: set[tuple[str, str]] = set()
        """Node and name of confirmed faults."""
        self.labels: dict[str, str] = {}
        """Labels of all of these, over the usual ones."""
        self.incident = False
        self.is_empty = False
        """Whether no rule is loaded."""
        self.is_away = False
        self.queries = 0
        self._time, self._count = time, itertools.count(1)
        handler = type("Handler", (_Handler,), {"prometheus": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultPrometheus:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self) -> dict[str, Any]:
        """The vector of one query; its clock moves by a millisecond between two."""
        self.queries += 1
        now = self._time() + next(self._count) / 1000
        rows = [{PART: "alive"}]
        for node, name in sorted(self.faults):
            labels = {"instance": f"{node}:9855", "fault": name, "device_id": "GPU-1"}
            more = {"service": "drain_now", "action": "reset_device", "incident": "false"}
            rows.append({PART: "fault", **labels, **more, **self.labels})
        rows += [{PART: "incident", "kind": "node"}] if self.incident else []
        rows += [{PART: "fresh", "instance": f"{node}:9855"} for node in self.nodes]
        found = [{"metric": row, "value": [now, str(now)]} for row in rows]
        result = [] if self.is_empty else found
        return {"status": "success", "data": {"resultType": "vector", "result": result}}


class _Handler(BaseHTTPRequestHandler):
    prometheus: FaultPrometheus

    def do_GET(self) -> None:
        """Answer a query."""
        away = self.prometheus.is_away
        body = b"" if away else json.dumps(self.prometheus.answer()).encode()
        self.send_response(503 if away else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""
