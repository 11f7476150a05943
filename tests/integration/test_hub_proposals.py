"""From a node, an alert or a job to the form of a check, with partners: no further typing."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from nodevitals.checks.model import CheckRequest
from nodevitals_hub.checks.runners import Runner
from nodevitals_hub.triggers.alert_plan import Alert, Message
from testbed.hubpages import Site, keep, matrix_check, site

LEAVES = {"a": [f"gpu-{n}" for n in range(1, 7)], "b": [f"gpu-{n}" for n in range(7, 13)]}


class BusyRunner(Runner):
    """Jobs use gpu-3."""

    async def in_use(self, request: CheckRequest) -> Sequence[str]:
        return [name for name in request.nodes if name == "gpu-3"]


def run(folder: Path, steps: Any, **more: Any) -> None:
    settings: dict[str, Any] = {
        "presets": {
            "links": {"kind": "matrix", "test": {"tool": "iperf3"}},
            "own": {"kind": "node"},
        },
        "alerts": [{"alertname": "NodeFabricSlow", "preset": "links", "group_by": "leaf"}],
        "nodes": {
            "static": [
                {"targets": names, "labels": {"leaf": leaf}} for leaf, names in LEAVES.items()
            ]
        },
        **more,
    }

    async def whole() -> None:
        async with site(folder, {"anonymous": "run"}, {}, runner=BusyRunner(), **settings) as found:
            await steps(found)

    asyncio.run(whole())


async def fields_of(found: Site, query: str) -> dict[str, str]:
    """The fields of the form to which an address leads."""
    answer = await found.call("GET", f"/checks/for?{query}")
    assert answer.status_code == 303, answer.text
    place = urlsplit(answer.headers["location"])
    assert place.path == "/checks/new"
    form = await found.call("GET", answer.headers["location"])
    assert form.status_code == 200
    fields = dict(parse_qsl(place.query))
    for name in fields["nodes"].split():
        assert name in form.text
    return fields


async def alert(found: Site, node: str) -> None:
    one = Alert(
        status="firing",
        fingerprint="00ff",
        labels={"alertname": "Other", "instance": f"{node}:9855"},
    )
    await found.parts.alerts.take(Message(version="4", alerts=(one,)))


def test_a_node_gets_idle_partners_of_its_group_without_an_alert(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        await alert(found, "gpu-4")
        fields = await fields_of(found, "nodes=gpu-2:9855")
        assert fields["nodes"].split() == ["gpu-2", "gpu-5", "gpu-6", "gpu-1"]
        assert fields["kind"] == "matrix"
        assert "preset" not in fields

    run(tmp_path, steps)


def test_an_alert_brings_its_preset(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        fields = await fields_of(found, "nodes=gpu-7&alert=NodeFabricSlow")
        assert fields["preset"] == "links"
        assert fields["note"] == "alert NodeFabricSlow of gpu-7"
        assert fields["nodes"].split() == ["gpu-7", "gpu-8", "gpu-9", "gpu-10"]

    run(tmp_path, steps)


def test_the_nodes_of_a_job_need_no_partners(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        fields = await fields_of(found, "nodes=gpu-1,gpu-2,gpu-3,gpu-8&preset=links")
        assert fields["nodes"].split() == ["gpu-1", "gpu-2", "gpu-3", "gpu-8"]
        assert (fields["preset"], fields["kind"]) == ("links", "matrix")

    run(tmp_path, steps)


def test_a_finding_leads_to_the_same_test_of_its_node(tmp_path: Path) -> None:
    """With the parameters of the check, and partners that have no alert and are idle."""

    async def steps(found: Site) -> None:
        identity = "20260101-000000-abcdef"
        await keep(found.hub.store, *matrix_check(8, "gpu-1", identity))
        page = (await found.call("GET", f"/checks/{identity}")).text
        address = f"nodes=gpu-1&copy={identity}"
        assert f'href="/checks/for?{html.escape(address)}"' in page
        fields = await fields_of(found, address)
        assert fields["nodes"].split() == ["gpu-1", "gpu-2", "gpu-4", "gpu-5"]
        form = (await found.call("GET", f"/checks/new?{urlencode(fields)}")).text
        assert 'value="64KiB"' in form
        assert "<option selected>iperf3</option>" in form
        assert (await found.call("GET", "/checks/for?nodes=gpu-1&copy=none")).status_code == 404
        listed = (await found.call("GET", "/?node=gpu-1")).text
        assert 'href="/checks/for?nodes=gpu-1"' in listed

    run(tmp_path, steps)


def test_a_check_of_a_node_by_itself_has_no_partners(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        fields = await fields_of(found, "nodes=gpu-1&preset=own")
        assert (fields["nodes"], fields["kind"]) == ("gpu-1", "node")

    run(tmp_path, steps)


@pytest.mark.parametrize("query", ["", "nodes=", "nodes=gpu-99", "nodes=%3Cscript%3E&alert=%22%3E"])
def test_any_address_leads_to_a_form(tmp_path: Path, query: str) -> None:
    async def steps(found: Site) -> None:
        answer = await found.call("GET", f"/checks/for?{query}")
        assert answer.status_code == 303
        form = await found.call("GET", answer.headers["location"])
        assert form.status_code == 200
        assert "<script>" not in form.text

    run(tmp_path, steps)
