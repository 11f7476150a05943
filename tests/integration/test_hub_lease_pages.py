"""The page /leases: leases begin and end there, by persons with the role run, from this page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import anyio.lowlevel
import bcrypt
import pytest

from testbed.hubpages import ORIGIN, Site, site

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
ASKED = {"nodes": "gpu-2 gpu-1", "probe.rdma": "yes", "other_probes": "network", "note": "why"}
ELSEWHERE = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)


def run(folder: Path, steps: Any, anonymous: str = "run") -> None:
    """Run a coroutine function of a site."""

    async def whole() -> None:
        async with site(folder, {"anonymous": anonymous}, {"alice": HASH}) as found:
            await steps(found)

    asyncio.run(whole())


async def post(found: Site, path: str, fields: dict[str, str], **headers: str) -> Any:
    """What a browser sends from a form of this site."""
    kind = {"content-type": "application/x-www-form-urlencoded", "origin": ORIGIN}
    sent = {**kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await found.client.request("POST", path, content=urlencode(fields), headers=sent)


async def listed(found: Site) -> list[dict[str, Any]]:
    """The leases, by REST."""
    body = (await found.call("GET", "/api/v1/leases")).json()
    leases: list[dict[str, Any]] = body["leases"]
    return leases


async def begun(found: Site) -> str:
    """A lease from the page; its address for the end."""
    answer = await post(found, "/leases", ASKED)
    assert (answer.status_code, answer.headers["location"]) == (303, "/leases")
    [place] = re.findall(r'action="(/leases/[^"]+/end)"', (await found.call("GET", "/leases")).text)
    return str(place)


def test_a_lease_begins_by_the_form_and_is_shown(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        await begun(found)
        [lease] = await listed(found)
        assert lease["nodes"] == ["gpu-1", "gpu-2"]
        assert lease["probes"] == ["network", "rdma"]
        assert lease["until"] - lease["created"] == pytest.approx(1800, abs=1)
        assert lease["requester"]["trigger"] == "page"
        page = (await found.call("GET", "/leases")).text
        for text in ("gpu-1, gpu-2", "network, rdma", "why", "not asked yet"):
            assert text in page

    run(tmp_path, steps)


def test_a_double_click_begins_one_lease(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        place = await begun(found)
        assert await begun(found) == place
        assert len(await listed(found)) == 1

    run(tmp_path, steps)


def test_nodes_by_label_for_a_time(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        fields = {"where.pool": "a", "probe.rdma": "yes", "duration": "90s"}
        assert (await post(found, "/leases", fields)).status_code == 303
        [lease] = await listed(found)
        assert len(lease["nodes"]) == 8
        assert lease["until"] - lease["created"] == pytest.approx(90, abs=1)

    run(tmp_path, steps)


def test_a_refused_form_keeps_what_was_typed_and_names_each_field(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        fields = {"nodes": "-x", "other_probes": "", "duration": "soon", "note": "<b>why</b>"}
        answer = await post(found, "/leases", fields)
        assert answer.status_code == 422
        for name in ("nodes", "probes", "duration"):
            assert f'id="e-{name}"' in answer.text
            assert f'href="#f-{name}"' in answer.text
        assert 'value="soon"' in answer.text
        assert "&lt;b&gt;why&lt;/b&gt;" in answer.text
        assert await listed(found) == []

    run(tmp_path, steps)


def test_what_a_page_of_another_site_sends_neither_begins_nor_ends_a_lease(
    tmp_path: Path,
) -> None:
    async def steps(found: Site) -> None:
        for headers in ELSEWHERE:
            sent = {"origin": "", **headers}
            own = {name: value for name, value in sent.items() if value}
            for path in ("/leases", "/leases/0123/end"):
                kind = {"content-type": "application/x-www-form-urlencoded", **own}
                data = urlencode(ASKED)
                answer = await found.client.request("POST", path, content=data, headers=kind)
                assert answer.status_code == 403, (path, headers)
        assert await listed(found) == []
        place = await begun(found)
        assert (await post(found, place, {}, origin="https://evil.example")).status_code == 403
        assert len(await listed(found)) == 1
        assert (await found.call("GET", place)).status_code == 405

    run(tmp_path, steps)


def test_a_lease_ends_by_the_page_once(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        place = await begun(found)
        answer = await post(found, place, {})
        assert (answer.status_code, answer.headers["location"]) == (303, "/leases")
        assert await listed(found) == []
        assert "No node is monitored every second now." in (await found.call("GET", "/leases")).text
        again = await post(found, place, {}, accept="text/html", accept_language="zh")
        assert again.status_code == 404
        assert "没有租约" in again.text

    run(tmp_path, steps)


def test_a_reader_sees_leases_and_has_no_buttons(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        login = {"authorization": "Basic YWxpY2U6c2VjcmV0"}
        denied = await post(found, "/leases", ASKED, **login)
        assert denied.status_code == 403
        assert (await post(found, "/leases", ASKED)).status_code == 401
        page = (await found.call("GET", "/leases")).text
        assert "<form" not in page
        assert 'href="/login"' in page

    run(tmp_path, steps, anonymous="read")


def test_an_agent_that_does_not_answer_is_shown(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        await begun(found)
        running = asyncio.ensure_future(found.parts.leases.run())

        page = ""
        try:
            with anyio.fail_after(30):
                while page.count("agent does not answer") != 2:
                    await anyio.lowlevel.checkpoint()
                    page = (await found.call("GET", "/leases")).text
        finally:
            running.cancel()
        assert "the hub&#39;s configuration has no section agents" in page

    run(tmp_path, steps)
