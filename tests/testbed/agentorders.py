"""Stand-ins for the agents of many nodes: their API of orders, written from its description alone.

Each node is a loopback address. A test takes `seconds`; executions are counted by order and node.
A node refuses what an agent refuses: an order of another node, an old one, one issued before it was
started, a second one at a time; an order that the hub does not ask for in `lease` seconds ends.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme

PATH = "/fabric/v1/orders/"
TOKEN = "a token of the test bed's hub"
MAX_AGE_SECONDS = 120.0
USUAL_BYTES_PER_SECOND = 10e9
PORT_BYTES_PER_SECOND = 12.5e9


class Standing:
    """An order on one node."""

    def __init__(self, order: dict[str, Any], port: float | None) -> None:
        self.order = order
        self.asked = time.monotonic()
        self.state = "waiting"
        self.skipped = ""
        self.port = port
        self.reports: list[dict[str, Any]] = []
        self.changed = threading.Condition()

    def end(self, skipped: str = "", reports: list[dict[str, Any]] | None = None) -> None:
        """It is done; the first call counts."""
        with self.changed:
            if self.state != "done":
                self.state, self.skipped, self.reports = "done", skipped, reports or []
                self.changed.notify_all()

    def status(self, wait: float = 0.0) -> dict[str, Any]:
        """Its state, when it is done or after a while."""
        with self.changed:
            self.changed.wait_for(lambda: self.state == "done", wait)
            own: dict[str, Any] = {
                "state": self.state,
                "skipped": self.skipped,
                "reports": self.reports,
            }
        peer = self.order["target"] if self.order["node"] == self.order["source"] else ""
        one = {"command": f"perftest {peer}".strip(), "output": f"as {self.order['node']}"}
        one["port_limit"] = "PCIe 8.0 GT/s x4 of 8.0 GT/s x16"
        own["runs"] = [{**one, "port_bytes_per_second": self.port}] * len(self.order["tests"])
        return {"id": self.order["id"], "versions": {"nodevitals": "0"}, **own}


class AgentOrders:
    """All nodes. `hung` nodes accept connections and never answer, `gone` ones end them; `slow`
    ones have 40 %. No partner reaches an `unreached` one; with `crashes`, its agent ends.
    """

    def __init__(self, folder: Path, count: int, seconds: float = 0.2, lease: float = 15.0) -> None:
        self.names = [f"127.0.{number // 250 + 1}.{number % 250 + 1}" for number in range(count)]
        self.seconds, self.lease = seconds, lease
        self.rate = USUAL_BYTES_PER_SECOND
        self.port_rate: float | None = PORT_BYTES_PER_SECOND
        """Rate of the port of each node; None for one that promises none."""
        self.slow: set[str] = set()
        self.hung: set[str] = set()
        self.gone: set[str] = set()
        self.unreached: set[str] = set()
        self.crashes = False
        self.metrics: dict[str, str] = {}
        """What nodes expose at /metrics; the others do not answer there."""
        self.occupied: Counter[str] = Counter()
        """How often nodes refuse an order because a planned test runs there."""
        self.jobs: dict[str, str] = {}
        """Reason of the gate of nodes where a job starts while a test runs."""
        self.executions: Counter[str] = Counter()
        self.at_a_time = 0
        self._orders: dict[tuple[str, str], Standing] = {}
        self._refused: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._started = time.time()
        self._secrets(folder)

    def _secrets(self, folder: Path) -> None:
        authority = trustme.CA()
        hub = authority.issue_cert("hub.test")
        hub.private_key_and_cert_chain_pem.write_to_path(str(folder / "hub.pem"))
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        (folder / "token").write_text(TOKEN + "\n")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.verify_mode = ssl.CERT_REQUIRED
        authority.issue_cert(*self.names).configure_cert(self.context)
        authority.configure_trust(self.context)
        pem = str(folder / "hub.pem")
        files = {"cert_file": pem, "key_file": pem, "ca_file": str(folder / "ca.pem")}
        self.agents: dict[str, Any] = {
            "token_file": str(folder / "token"),
            "tls": files,
        }

    def __enter__(self) -> AgentOrders:
        bed = self

        class Handler(_Handler):
            agents = bed

        self._server = _Server(("0.0.0.0", 0), Handler)
        self._server.context = self.context
        self.port = self._server.server_address[1]

        class MetricsHandler(_MetricsHandler):
            agents = bed

        self._metrics_server = ThreadingHTTPServer(("0.0.0.0", 0), MetricsHandler)
        self.agents["metrics_port"] = self._metrics_server.server_address[1]
        for server in (self._server, self._metrics_server):
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._server, self._metrics_server):
            server.shutdown()
            server.server_close()

    @property
    def config(self) -> dict[str, Any]:
        """The sections of the hub's configuration."""
        targets = [f"{name}:{self.port}" for name in self.names]
        return {"agents": self.agents, "nodes": {"static": [{"targets": targets}]}}

    def active(self) -> list[str]:
        """The nodes on which an order is not done."""
        with self._lock:
            self._end_leases()
            return [node for (node, _), one in self._orders.items() if one.state != "done"]

    def put(self, node: str, order: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """PUT of an order."""
        key = (node, order["id"])
        with self._lock:
            self._end_leases()
            known = self._orders.get(key)
            if known is not None:
                known.asked = time.monotonic()
                return 200, known.status()
            if self.occupied[node]:
                self.occupied[node] -= 1
                return 409, {"refusal": "busy", "reason": "testing", "message": "a test runs"}
            refusal = self._refusal(key, order)
            if refusal:
                return 409, {"refusal": refusal, "message": "by the stand-in"}
            standing = self._orders[key] = Standing(order, self.port_rate)
            if node == order["source"]:
                threading.Thread(target=self._execute, args=(standing,), daemon=True).start()
        return 200, standing.status()

    def _refusal(self, key: tuple[str, str], order: dict[str, Any]) -> str:
        age = time.time() - order["issued"]
        if order["node"] != key[0] or key[0] not in (order["source"], order["target"]):
            return "not_this_node"
        if key in self._refused or age > MAX_AGE_SECONDS or order["issued"] < self._started:
            return "stale"
        others = (one for (node, _), one in self._orders.items() if node == key[0])
        return "busy" if any(one.state != "done" for one in others) else ""

    def _execute(self, standing: Standing) -> None:
        order = standing.order
        target = self._orders.get((order["target"], order["id"]))
        if target is None or target.state == "done":
            standing.end("peer_busy")
            return
        self.executions[order["id"]] += 1
        standing.state = target.state = "running"
        if order["target"] in self.jobs:
            target.end(self.jobs[order["target"]])
        end = time.monotonic() + self.seconds
        while time.monotonic() < end and standing.state != "done":
            if target.state == "done":
                standing.end("peer_busy")
                return
            time.sleep(0.01)
            with self._lock:
                self._end_leases()
        lost = self.unreached & {order["source"], order["target"]}
        if lost:
            self.gone |= lost if self.crashes else set()
            text = f"{order['target']}: No route to host"
            standing.end("", [{"outcome": "failed", "reason": "unreachable", "message": text}])
            target.end()
            return
        rate = self.rate
        if self.slow & {order["source"], order["target"]}:
            rate *= 0.4
        reports = [
            {
                "outcome": "ok",
                "rows": [
                    {"message_bytes": test["message_bytes"], "bandwidth_bytes_per_second": rate}
                ],
            }
            for test in order["tests"]
        ]
        standing.end("", reports)
        target.end()

    def _end_leases(self) -> None:
        for one in self._orders.values():
            if time.monotonic() - one.asked > self.lease:
                one.end("lease")

    def get(self, node: str, identity: str, wait: float) -> tuple[int, dict[str, Any]]:
        """GET of an order's state."""
        standing = self._orders.get((node, identity))
        if standing is None:
            return 409, {"refusal": "unknown"}
        standing.asked = time.monotonic()
        return 200, standing.status(min(wait, 10.0))

    def delete(self, node: str, identity: str) -> tuple[int, dict[str, Any]]:
        """DELETE of an order."""
        with self._lock:
            standing = self._orders.get((node, identity))
            if standing is None:
                self._refused.add((node, identity))
                return 409, {"refusal": "unknown"}
        standing.end("canceled")
        return 200, standing.status()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    context: ssl.SSLContext

    def handle_error(self, *_: Any) -> None:
        """A hub that was killed leaves broken connections."""


class _Handler(BaseHTTPRequestHandler):
    agents: AgentOrders
    protocol_version = "HTTP/1.0"

    def setup(self) -> None:
        node = self.request.getsockname()[0]
        while node in self.agents.hung:
            time.sleep(0.05)
        if node in self.agents.gone:
            self.request.shutdown(socket.SHUT_RDWR)
        self.request.settimeout(60)
        self.request = self.server.context.wrap_socket(self.request, server_side=True)  # type: ignore[attr-defined]
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self.request.close()

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._respond(*self.agents.put(self._node(), body))

    def do_GET(self) -> None:
        identity, _, wait = self.path[len(PATH) :].partition("?wait=")
        self._respond(*self.agents.get(self._node(), identity, float(wait or 0)))

    def do_DELETE(self) -> None:
        self._respond(*self.agents.delete(self._node(), self.path[len(PATH) :]))

    def _node(self) -> str:
        return str(self.request.getsockname()[0])

    def _respond(self, status: int, body: dict[str, Any]) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, body = 401, {}
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class _MetricsHandler(BaseHTTPRequestHandler):
    agents: AgentOrders

    def do_GET(self) -> None:
        text = self.agents.metrics.get(str(self.request.getsockname()[0]))
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""
