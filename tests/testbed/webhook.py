"""A webhook that Alertmanager notifies: it records every alert and when it arrived."""

from __future__ import annotations

import http.server
import json
import threading
import time
from typing import Any


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    # Connections that are not accepted at once: with 5, the next one is tried again after a second.
    request_queue_size = 256


class Receiver:
    """An HTTP server on loopback; the path of a request is the name of Alertmanager's receiver."""

    def __init__(self) -> None:
        self.alerts: list[tuple[float, dict[str, Any]]] = []
        """Each alert with the monotonic time of its arrival and its receiver's name."""
        self.messages: list[tuple[str, dict[str, Any]]] = []
        """Each request: the receiver's name and the body."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.record(self.path.removeprefix("/"), body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def record(self, receiver: str, body: dict[str, Any]) -> None:
        """Record one request."""
        now = time.monotonic()
        self.alerts += [(now, {**alert, "receiver": receiver}) for alert in body["alerts"]]
        self.messages.append((receiver, body))

    def labels(self, receiver: str) -> list[dict[str, str]]:
        """Return the labels of the alerts that a receiver was notified of."""
        return [alert["labels"] for _, alert in self.alerts if alert["receiver"] == receiver]

    def arrived(
        self, status: str, since: float = 0.0, **labels: str
    ) -> tuple[float, dict[str, Any]] | None:
        """Return the first alert with these labels that arrived after `since`, and when."""
        for moment, alert in self.alerts:
            matches = labels.items() <= alert["labels"].items()
            if moment >= since and alert["status"] == status and matches:
                return moment, alert
        return None
