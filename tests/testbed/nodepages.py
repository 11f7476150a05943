"""The agents of a simulated fleet, each with a page and an address of its own on loopback."""

from __future__ import annotations

import http.server
import threading
import time
from typing import Any

from testbed.site.series import Series

_OF_THE_SERVER = ("up", "scrape_")
_OF_THE_TARGET = ("job", "instance", "cluster")


class NodePages:
    """An HTTP server whose pages are those of nodes; a node that is down answers with an error."""

    def __init__(self, series: list[Series], nodes: list[str]) -> None:
        self._pages: dict[str, list[Series]] = {}
        self._up: dict[str, Series] = {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer._page(self.headers["Host"]).encode()
                self.send_response(200 if body else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        self._server.daemon_threads = True
        port = self._server.server_address[1]
        self.addresses = {
            node: f"127.0.1.{number}:{port}" for number, node in enumerate(nodes, start=1)
        }
        """Where each node's agent listens."""
        for one in series:
            address = self.addresses.get(one.labels.get("instance", ""))
            if address and one.labels["job"] == "nodevitals":
                self._add(address, one)

    def _add(self, address: str, one: Series) -> None:
        if one.name == "up":
            self._up[address] = one
        if not one.name.startswith(_OF_THE_SERVER):
            own = {key: text for key, text in one.labels.items() if key not in _OF_THE_TARGET}
            self._pages.setdefault(address, []).append(Series(one.name, own, one.value))

    def __enter__(self) -> NodePages:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _page(self, address: str) -> str:
        now = time.time()
        if not self._up[address].at(now):
            return ""
        samples = ((one.head, one.at(now)) for one in self._pages[address])
        return "".join(f"{head} {value:.12g}\n" for head, value in samples if value is not None)
