"""Refusals on Chinese pages: every reason that a form or a page can cause is translated."""

from __future__ import annotations

import asyncio
import html
import re
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from nodevitals.checks.model import CheckRequest
from nodevitals.errors import Wording
from nodevitals_hub.checks.members import Members
from nodevitals_hub.incidents import incident_tables, signed_links
from nodevitals_hub.launch.kind_runner import KindRunner
from nodevitals_hub.records import Incident
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.web.texts.translations import translated
from testbed.hub import SimulatedRunner
from testbed.hubpages import ORIGIN, Site, keep, matrix_check, site

IDENTITY = "20260101-000000-abcdef"
CHINESE = re.compile(r"[\u4e00-\u9fff]")
PROBLEM = re.compile(
    r'(?:<strong class="bad"[^>]*>|<li>|role="alert">[0-9]{3}(?:: |\uff1a))<bdi>(.*?)</bdi>'
)
FOUND = {"nodes": "gpu-1 gpu-2", "device": "mlx5_0"}
TWO = {"kind": "matrix", **FOUND}
NCCL = {"kind": "collective", "nodes": "gpu-1"}
HCCL = {**NCCL, "tool": "hccl"}
START = {"kind": "pair", "nodes": "gpu-1 gpu-2", "tool": "iperf3", "do": "start"}
LONG = "x" * 257
CHECK, LEASE = "/checks/new", "/leases"
# In this order: a check that runs, one that waits, and no room for a third.
FORMS: list[tuple[str, dict[str, str]]] = [
    (CHECK, {"kind": "matrix", "nodes": "-x", "port": "0", "share": "abc", "limit": "soon"}),
    (CHECK, {**TWO, "tool": "ping", "expected": "fast", "where": "pool", "note": "x" * 501}),
    (CHECK, {**TWO, "where": "pool=a\npool=b", "expected": "0", "limit": "2d", "share": "200"}),
    (CHECK, {**TWO, "where": "pool=a", "where.pool": "a", "expected": "2000Tb/s"}),
    *[(CHECK, {**TWO, "sizes": sizes}) for sizes in ("7x", "100GiB", "8B..64MiB x1", "2B..1B x2")],
    *[(CHECK, {**TWO, "sizes": sizes}) for sizes in ("1B," * 300, "1B..64GiB x2", "2GiB")],
    *[(CHECK, {**TWO, "nodes": nodes}) for nodes in ("gpu-99", "gpu-1", "gpu-1 gpu-2 gpu-8")],
    (CHECK, {**TWO, "where": "pool=none"}),
    (CHECK, {**TWO, "where": "\n".join(f"l{n}=1" for n in range(17)) + "\npool=a"}),
    (CHECK, {"kind": "matrix", "where.pool": "many", "device": "mlx5_0"}),
    (CHECK, {"kind": "node", "where.pool": "many"}),
    (CHECK, {**TWO, "sizes": "8B..64MiB x2", "seconds": "600"}),
    (CHECK, {**TWO, "where": f"long={LONG}"}),
    (CHECK, {"kind": "pair", "nodes": "gpu-1 gpu-2 gpu-3", "device": "mlx5_0"}),
    (CHECK, {"kind": "node"}),
    (CHECK, {"kind": "node", "nodes": "gpu-1", "tool": "iperf3", "expected": "1Gb/s"}),
    (CHECK, {**TWO, "preset": "no-such"}),
    (CHECK, {**NCCL, "preset": "links"}),
    (CHECK, {**TWO, "tool": "nccl"}),
    (CHECK, {**TWO, "operation": "tcp"}),
    (CHECK, {**TWO, "devices_per_node": "8"}),
    (CHECK, {**TWO, "device": ""}),
    (CHECK, {**TWO, "device": "mlx5/0"}),
    (CHECK, {**TWO, "seconds": "5", "iterations": "5"}),
    (CHECK, {**TWO, "sizes": "1GiB", "iterations": "100000"}),
    (CHECK, {**TWO, "operation": "send_lat", "queue_pairs": "2", "seconds": "5"}),
    (CHECK, {**TWO, "operation": "send_lat", "expected": "1Gb/s"}),
    (CHECK, {**NCCL, "port": "2"}),
    (CHECK, {**NCCL, "device": "mlx5_0", "environment": "NCCL_IB_HCA=mlx5_0"}),
    (CHECK, {**HCCL, "queue_pairs": "33", "traffic_class": "3"}),
    (CHECK, {**NCCL, "environment": "LD_PRELOAD=x"}),
    (CHECK, {**HCCL, "environment": "HCCL_RDMA_TC=3"}),
    (CHECK, {**NCCL, "environment": "NCCL_IB_TC=x", "mca": "btl=x"}),
    (CHECK, {**NCCL, "mca": "btl_tcp_if_include=;"}),
    (CHECK, {**NCCL, "force": "yes"}),
    (CHECK, NCCL),
    (CHECK, {"kind": "node", "nodes": "gpu-1"}),
    (CHECK, {"kind": "pair", "nodes": "gpu-1 gpu-3", "tool": "iperf3", "do": "start"}),
    (LEASE, {"nodes": "gpu-1", "duration": "3h"}),
    (LEASE, {"nodes": "gpu-1", "other_probes": " ".join("abcdefghi")}),
    (LEASE, {"nodes": "gpu-99", "probe.rdma": "yes", "duration": "3h"}),
    (LEASE, {"nodes": "gpu-99", "probe.rdma": "yes"}),
    (LEASE, {"probe.rdma": "yes"}),
    (LEASE, {"where.pool": "a", "probe.rdma": "yes"}),
    (LEASE, {"nodes": "gpu-1", "other_probes": " ".join("abcdefgh")}),
    (LEASE, {"nodes": "gpu-1", "probe.rdma": "yes"}),
    ("/leases/0123/end", {}),
    ("/nothing", {}),
    ("/schedules", {}),
    (CHECK, {}),
    (CHECK, {"note": "x" * 300_000}),
    (f"/?{'x' * 5000}", {}),
    (f"/checks/{IDENTITY}/cancel", {}),
    ("/checks/20260101-000000-zzzzzz/cancel", {}),
    (CHECK, START),
    (CHECK, START),
    (CHECK, START),
]


class Occupied(SimulatedRunner):
    """A job uses gpu-3; the settings have neither a launcher nor agents for checks of nodes."""

    def __init__(self, settings: HubSettings) -> None:
        super().__init__(0.0, frozenset(), held=frozenset(["gpu-1"]))
        self._kinds = KindRunner(settings, Members())

    def refusal(self, request: CheckRequest) -> str:
        """Pairs only."""
        return "" if request.kind in ("pair", "matrix") else self._kinds.refusal(request)

    async def in_use(self, request: CheckRequest) -> Sequence[str]:
        """The nodes in use."""
        return [name for name in request.nodes if name == "gpu-3"]


def shown(answer: Any) -> list[str]:
    return [html.unescape(one) for one in PROBLEM.findall(answer.text)]


async def in_both(found: Site, method: str, path: str, body: dict[str, str], **more: str) -> Any:
    """The reasons of a refusal in English and in Chinese, and that each of these is translated."""
    pages = []
    for language in ("en", "zh"):
        sent = {"accept-language": language, "accept": "text/html", "origin": ORIGIN, **more}
        sent["content-type"] = "application/x-www-form-urlencoded"
        data = urlencode(body).encode() if method == "POST" else None
        answer = await found.client.request(method, path, content=data, headers=sent)
        pages.append(shown(answer) if answer.status_code >= 400 else [])
        if answer.status_code < 400:
            return []
    english, chinese = pages
    assert english, (path, body)
    assert len(chinese) == len(english)
    for one, other in zip(english, chinese, strict=True):
        assert not CHINESE.search(one)
        assert CHINESE.search(other), one
    return english


async def of_forms(folder: Path) -> list[str]:
    many = [f"many-{number}" for number in range(10_001)]
    few = [f"gpu-{number}" for number in range(1, 9)]
    nodes = [
        {
            "targets": few,
            "labels": {"pool": "a", "long": LONG, **{f"l{n}": "1" for n in range(17)}},
        },
        {"targets": many, "labels": {"pool": "many"}},
    ]
    more: dict[str, Any] = {
        "limits": {"queued": 1, "node_hours": 1},
        "leases": {"max_nodes": 6},
        "nodes": {"static": nodes},
    }
    settings = msgspec.convert({"state_directory": str(folder), **more}, HubSettings)
    presets = {"links": {"kind": "matrix", "test": {"tool": "iperf3"}}}
    found: list[str] = []
    async with site(
        folder, {"anonymous": "run"}, {}, runner=Occupied(settings), presets=presets, **more
    ) as hub:
        await keep(hub.hub.store, *matrix_check(8, "gpu-7", IDENTITY))
        for path, body in FORMS:
            found += await in_both(hub, "POST", path, body)
        found += await in_both(hub, "POST", "/leases", {}, origin="https://evil.example")
        found += await in_both(hub, "GET", "/login", {})
        many_fields = {f"field-{number}": "1" for number in range(61)}
        found += await in_both(hub, "POST", CHECK, many_fields)
        for number in range(1, 101):
            probes = " ".join(f"p{bit}" for bit in range(8) if number >> bit & 1)
            found += await in_both(hub, "POST", LEASE, {"nodes": "gpu-2", "other_probes": probes})
        await hub.hub.checks.stop()
    return found


async def of_logins(folder: Path) -> list[str]:
    tokens = folder / "tokens.yaml"
    tokens.write_text(yaml.safe_dump([{"name": "viewer", "role": "read", "token": "a" * 20}]))
    tokens.chmod(0o600)
    found: list[str] = []
    async with site(folder, {"anonymous": "run"}, {}, "https://other.example.org") as hub:
        found += await in_both(hub, "GET", "/", {})
    for anonymous in ("read", None):
        access = {"anonymous": anonymous, "tokens_file": str(tokens)}
        async with site(folder / str(anonymous), access, {}) as hub:
            found += await in_both(hub, "POST", LEASE, {})
            for token in ("a" * 20, "b" * 20):
                sent = {"authorization": f"Bearer {token}"}
                found += await in_both(hub, "POST", LEASE, {}, **sent)
            sent = {"authorization": "Basic eDp5"}
            found += await in_both(hub, "POST", LEASE, {}, **sent)
    return found


async def of_incidents(folder: Path) -> list[str]:
    """Of the button of an incident, without a login."""
    names = [f"20260101-00000{number}-abcdef" for number in range(3)]
    opened, working, over = (
        Incident(id=name, key=name, title="t", severity="critical", opened=1.0) for name in names
    )
    working = replace(working, acknowledged=2.0, acknowledged_by="Li")
    over = replace(over, resolved=2.0)
    found: list[str] = []
    async with site(folder, {"anonymous": "read"}, {}) as hub:
        database = hub.hub.database

        def write(connection: sqlite3.Connection) -> None:
            for one in (opened, working, over):
                incident_tables.write(connection, one)

        await database.do(write)
        await hub.parts.incidents.read_link_key()
        select = "SELECT value FROM facts"
        [key] = await database.do(lambda connection: connection.execute(select).fetchone())

        def fields(identity: str, now: float) -> dict[str, str]:
            text = signed_links.signed("https://hub/incidents/of/a", key, identity, now)
            return dict(parse_qsl(text.partition("?")[2]))

        now = time.time()
        for identity, sent in (
            (opened.id, {}),
            (opened.id, fields(opened.id, 0.0)),
            (opened.id, fields(working.id, now)),
            (opened.id, fields(opened.id, now)),
            (working.id, {**fields(working.id, now), "name": "x"}),
            (over.id, {**fields(over.id, now), "name": "x"}),
            ("20260101-000009-abcdef", {}),
        ):
            found += await in_both(hub, "POST", f"/incidents/{identity}/acknowledge", sent)
        found += await in_both(hub, "GET", "/incidents/of/a", {})
        found += await in_both(hub, "GET", "/incidents?month=x", {})
        found += await in_both(hub, "GET", "/alerts/a", {})
    return found


def test_every_reason_of_a_form_is_translated(tmp_path: Path) -> None:
    async def all_of_them() -> list[str]:
        found = [*await of_forms(tmp_path / "forms"), *await of_logins(tmp_path / "logins")]
        return [*found, *await of_incidents(tmp_path / "incidents")]

    for name in ("forms", "logins", "logins/read", "logins/None", "incidents"):
        (tmp_path / name).mkdir()
    assert asyncio.run(all_of_them())


NAMES = Wording("{names} and {count} more", names="'a', 'b'", count=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            Wording(
                "{value} is outside {low} to {high}: choose a duration within",
                value="0",
                low="1s",
                high="24h",
            ),
            "0 超出范围\uff081s 到 24h\uff09",
        ),
        (
            Wording("{names}: not on the lists of nodes", names=NAMES),
            "'a', 'b' 等\uff0c另有 2 个 不在 hub 的节点列表中",
        ),
        (Wording("no check {name}", name="'{name}'"), "没有检测 '{name}'"),
        ("free text of a tool", "free text of a tool"),
    ],
)
def test_a_message_keeps_its_values(text: str, expected: str) -> None:
    assert translated("zh", text) == expected
    assert translated("en", text) == text
