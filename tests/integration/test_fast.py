"""Second-level monitoring from the command to Prometheus: the hub's routes over a real agent."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import yaml
from hypercorn.asyncio import serve
from hypercorn.config import Config
from litestar import Litestar, Request, Response
from litestar.types import ASGIApp, Receive, Scope, Send

from integration.test_leases import NAME, Leased
from nodevitals.checks.model import Requester
from nodevitals.probes.fabric.settings import FabricTlsSettings
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.leases import lease_routes
from nodevitals_hub.leases.lease_client import LeaseClient
from nodevitals_hub.leases.leases import Leases
from nodevitals_hub.settings.agents import AgentsSettings
from nodevitals_hub.settings.hub import LeasesSettings
from testbed.node import ROOT, free_port, run, wait_until
from testbed.ordering import HUB_NAME
from testbed.servers import PrometheusProcess

STATUSES = {"invalid": 422, "forbidden": 403, "not_found": 404, "busy": 429}


def refused(_: Request[Any, Any, Any], error: RefusedError) -> Response[dict[str, str]]:
    return Response({"detail": str(error)}, status_code=STATUSES[error.kind])


def as_person(app: ASGIApp) -> ASGIApp:
    """Make every client a person with the role `run`."""

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        scope["user"] = Requester(trigger="command", name="li", role="run")
        await app(scope, receive, send)

    return middleware


class LeaseHub:
    """The leases of a hub and their routes, in a thread."""

    def __init__(self, made: Leased) -> None:
        folder = made.folder / HUB_NAME
        self.agents = AgentsSettings(
            token_file=str(made.folder / "hub-token"),
            tls=FabricTlsSettings(
                cert_file=str(folder / "cert.pem"),
                key_file=str(folder / "key.pem"),
                ca_file=str(made.folder / "ca.pem"),
            ),
            metrics_port=made.node.port,
        )
        ports = {NAME: made.proxies[NAME].port, "127.0.0.99": 9}
        self.members = [Member(name=name, host=name, port=port) for name, port in ports.items()]
        self.folder = made.folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> LeaseHub:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        wait_until(self._accepts)
        return self

    def _accepts(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    async def _serve(self) -> None:
        settings = LeasesSettings()
        client = LeaseClient(self.agents)
        leases = Leases(lambda: settings, str(self.folder), lambda: self.members, client.send)
        hub: Any = SimpleNamespace(settings=SimpleNamespace(agents=self.agents))
        app: Any = Litestar(
            lease_routes.handlers(hub, leases),
            middleware=[as_person],
            exception_handlers={RefusedError: refused},
        )
        config = Config.from_mapping(bind=[f"127.0.0.1:{self.port}"], errorlog=None)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        running = asyncio.ensure_future(leases.run())
        await serve(app, config, shutdown_trigger=self._stop.wait)
        running.cancel()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `nodevitals fast` with this hub."""
        return run("fast", *arguments, "--hub", self.url)


@pytest.fixture(scope="module")
def leased(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leased]:
    with Leased(tmp_path_factory.mktemp("leased")) as made:
        yield made


@pytest.fixture(scope="module")
def shared(leased: Leased) -> Iterator[LeaseHub]:
    with LeaseHub(leased) as made:
        yield made


@pytest.fixture
def hub(leased: Leased, shared: LeaseHub) -> Iterator[LeaseHub]:
    """The hub; after each test, it has no lease."""
    yield shared
    url = f"{shared.url}{lease_routes.LEASES_PATH}"
    for lease in requests.get(url, timeout=60).json()["leases"]:
        assert requests.delete(f"{url}/{lease['id']}", timeout=60).status_code == 200
    wait_until(lambda: leased.interval() is None)


def listed(hub: LeaseHub) -> dict[str, Any]:
    """Return what the hub lists."""
    found: dict[str, Any] = json.loads(hub.command("--json").stdout)
    return found


def test_command_begins_lists_and_ends_a_lease(leased: Leased, hub: LeaseHub) -> None:
    done = hub.command(NAME, "--probe", "node", "--for", "5m", "--note", "slow")
    assert done.returncode == 0, done.stderr
    assert re.match(r"lease [0-9a-f]{12}: node on 1 node, until ", done.stdout)
    wait_until(lambda: leased.interval() == 1)
    wait_until(lambda: listed(hub)["nodes"][0]["state"] == "active")
    table = hub.command()
    assert table.returncode == 0
    assert "node active" in table.stdout
    identity = listed(hub)["leases"][0]["id"]
    assert hub.command("--end", identity).stdout.rstrip().endswith("ended")
    wait_until(lambda: leased.interval() is None)
    again = hub.command("--end", identity)
    assert again.returncode == 2
    assert "it may have ended" in again.stderr


def test_node_that_is_not_reached_is_listed_with_its_reason(leased: Leased, hub: LeaseHub) -> None:
    assert hub.command("127.0.0.99", "--probe", "node").returncode == 0
    wait_until(lambda: listed(hub)["nodes"][0]["state"] == "unreachable")
    table = hub.command()
    assert table.returncode == 1
    assert "127.0.0.99:9: " in table.stdout


def test_mistakes_are_one_line(hub: LeaseHub) -> None:
    mistakes: dict[tuple[str, ...], str] = {
        (NAME,): "--probe is missing",
        ("--probe", "node"): "name nodes",
        (NAME, "--probe", "node", "--for", "soon"): "--for: ",
        (NAME, "--probe", "node", "--for", "3h"): "over 7200",
        ("gpu-9", "--probe", "node"): "not on the hub's lists",
        ("--where", "pool", "--probe", "node"): "write LABEL=VALUE",
        ("--end", "../checks"): "is no lease",
        ("--end", "0", "--probe", "node"): "only the lease to end",
    }
    for arguments, error in mistakes.items():
        done = hub.command(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert error in done.stderr
        assert done.stderr.count("\n") == 1


class FastPrometheus(PrometheusProcess):
    """Prometheus with the scrape jobs of the page, and this hub."""

    flags = ("--scrape.discovery-reload-interval=1s",)

    def __init__(self, folder: Path, hub: LeaseHub) -> None:
        super().__init__(folder, "prometheus")
        page = (ROOT / "docs/second-level.md").read_text()
        jobs = yaml.safe_load(re.findall(r"```yaml[^\n]*\n(.*?)```", page, re.DOTALL)[0])
        fast = next(job for job in jobs if job["job_name"] == "nodevitals-fast")
        fast["http_sd_configs"] = [
            {"url": f"{hub.url}{lease_routes.SD_PATH}", "refresh_interval": "1s"}
        ]
        # The agent listens on another address than its fabric port.
        fast["relabel_configs"].append(
            {
                "source_labels": ["__address__"],
                "regex": r"[^:]+:(.*)",
                "target_label": "__address__",
                "replacement": "127.0.0.1:$1",
            }
        )
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [fast]}))

    def count(self, expression: str) -> float:
        """Return the sum of an instant vector."""
        query = {"query": f"sum({expression})"}
        found = requests.get(f"{self.url}/api/v1/query", params=query, timeout=60).json()
        return sum(float(one["value"][1]) for one in found["data"]["result"])


def test_prometheus_scrapes_leased_probes_every_second(
    tmp_path: Path, leased: Leased, hub: LeaseHub
) -> None:
    """Samples change from scrape to scrape; nothing that a rule of the agent's reads is doubled."""
    with FastPrometheus(tmp_path, hub) as prometheus:
        assert hub.command(NAME, "--probe", "node", "--for", "5m").returncode == 0
        series = f'nodevitals_node_time_seconds{{job="nodevitals-fast", instance="{NAME}"}}'
        wait_until(lambda: prometheus.count(f"changes({series}[10s])") >= 4, 40)
        assert prometheus.count(f"count_over_time({series}[10s])") <= 11
        assert prometheus.count("count(nodevitals_build_info) or vector(0)") == 0
        assert prometheus.count("count(nodevitals_fabric_members) or vector(0)") == 0
        (lease,) = listed(hub)["leases"]
        assert hub.command("--end", lease["id"]).returncode == 0
        wait_until(
            lambda: requests.get(f"{hub.url}{lease_routes.SD_PATH}", timeout=60).json() == []
        )
