"""A fleet of hundreds of nodes as one page of samples, for rules over many nodes.

It replaces the agents where only the rules are tested: each sample has an `instance` of its own,
and Prometheus scrapes the page with `honor_labels`.
"""

from __future__ import annotations

import http.server
import threading
from typing import Any


class Fleet:
    """An HTTP server on loopback that exposes samples by name and labels."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Fleet:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def set(self, name: str, value: float | None, **labels: str) -> None:
        """Set a sample; None removes it."""
        key = (name, tuple(labels.items()))
        with self._lock:
            if value is None:
                self._samples.pop(key, None)
            else:
                self._samples[key] = value

    def text(self) -> str:
        """Return the page."""
        with self._lock:
            samples = sorted(self._samples.items())
        lines = []
        for (name, labels), value in samples:
            pairs = ",".join(f'{label}="{text}"' for label, text in labels)
            lines.append(f"{name}{{{pairs}}} {value}\n")
        return "".join(lines)
