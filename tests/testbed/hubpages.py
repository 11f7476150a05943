"""The hub's web application on a real store with invented checks, without a network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from nodevitals.checks.model import (
    Check,
    CheckRequest,
    Cost,
    NodeVerdict,
    Requester,
    RunResult,
    Verdict,
)
from nodevitals.probes.fabric.tools.report import Report, ResultRow
from nodevitals.web.passwords import Passwords
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.checks.runners import Runner
from nodevitals_hub.context import Hub
from nodevitals_hub.parts import Parts
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.store.check_store import Store
from nodevitals_hub.web.access import Access
from nodevitals_hub.web.app import build_app
from nodevitals_hub.web.gate import Gate

ORIGIN = "http://hub.example.org"


def matrix_check(
    count: int, slow: str, identity: str, text: str = "41 % of the median"
) -> tuple[Check, list[RunResult]]:
    """A finished matrix check in which one node is slow."""
    names = tuple(f"gpu-{number}" for number in range(1, count + 1))
    test = {"tool": "iperf3", "operation": "tcp", "sizes": "64KiB", "seconds": 1}
    request = msgspec.convert(
        {"kind": "matrix", "nodes": names, "test": test, "note": text[:500]}, CheckRequest
    )
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    results = []
    for number, pair in enumerate(pairs):
        rate = 1e10 * (0.41 if slow in pair else 1.0)
        row = ResultRow(operation="tcp", message_bytes=65536, bandwidth_bytes_per_second=rate)
        report = Report(outcome="ok", message=text, rows=(row,))
        versions = {"iperf3": text}
        results.append(
            RunResult(
                number=number, nodes=pair, reports=(report,), outputs=(text,), versions=versions
            )
        )
    finding = NodeVerdict(
        subject=slow, scope="node", reason="threshold", message=text, suspects=(text,)
    )
    verdict = Verdict(outcome="bad", reason="threshold", message=text, findings=(finding,))
    cost = Cost(nodes=count, runs=len(pairs), node_seconds=60, seconds=60, bytes=1e9)
    check = Check(
        id=identity,
        request=request,
        requester=Requester(trigger="rest", name=text),
        cost=cost,
        created=1.7e9,
        started=1.7e9,
        ended=1.7e9 + 60,
        phase="done",
        runs_done=len(pairs),
        verdict=verdict,
        figure=1e10,
        baseline=1e10,
    )
    return check, results


async def keep(store: Store, check: Check, results: list[RunResult]) -> None:
    """Store a finished check."""
    await store.add(msgspec.structs.replace(check, phase="queued", verdict=None), "")
    await store.finish(check, results)


class Site:
    """A hub's web application and a client of it."""

    def __init__(self, hub: Hub, parts: Parts, client: httpx.AsyncClient) -> None:
        self.hub, self.parts, self.client = hub, parts, client

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """One request; a body is sent as JSON."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        return await self.client.request(method, path, content=data, headers=sent)


@asynccontextmanager
async def site(
    folder: Path,
    access: dict[str, Any],
    users: dict[str, str],
    external_url: str = "",
    runner: Runner | None = None,
    **more: Any,
) -> AsyncIterator[Site]:
    """The application on a store in a folder, with the routes of all modules and more settings."""
    nodes = {"static": [{"targets": [f"gpu-{n}" for n in range(1, 9)], "labels": {"pool": "a"}}]}
    settings = msgspec.convert(
        {
            "state_directory": str(folder / "state"),
            "access": access,
            "nodes": nodes,
            "external_url": external_url,
            **more,
        },
        HubSettings,
    )
    store, members = Store(settings.state_directory), Members()
    members.read(settings.nodes)
    coordinator = Coordinator(settings, store, members, runner or Runner())
    hub = Hub(settings, store, members, coordinator)
    parts = Parts(hub)
    found = Access(settings.access, Passwords(users))
    app = Gate(
        build_app(hub, parts.handlers(), lambda: found, str),
        lambda: found,
        lambda: settings.external_url,
    )
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
    try:
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            yield Site(hub, parts, client)
    finally:
        await parts.servers.close()
        await hub.database.close()
        await store.close()
