"""Links in notifications: those who got the message acknowledge one incident, for a day."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from nodevitals_hub.incidents import signed_links
from testbed.hub import HubProcess
from testbed.node import PATIENCE_SECONDS, wait_until
from testbed.notifykills import TOKEN, FarSide, hub_with_channels, message, send

LINK = re.compile(r"/incidents/([0-9a-z-]+)\?until=([0-9]+)&s=([0-9a-f]+)$", re.MULTILINE)
FIELD = re.compile(r'name="(until|s)" value="([^"]*)"')


class Site:
    """A hub without a login for readers, and what its channel got."""

    def __init__(self, hub: HubProcess, far: FarSide) -> None:
        self.hub, self.far = hub, far
        self.url = f"http://127.0.0.1:{hub.port}"

    def get(self, path: str, **query: str) -> requests.Response:
        """Open a page as a browser without a login."""
        wanted = {"Accept": "text/html", "Accept-Language": "en"}
        return requests.get(
            self.url + path, params=query, headers=wanted, timeout=60, allow_redirects=False
        )

    def press(self, identity: str, **fields: str) -> requests.Response:
        """The button of an incident's page."""
        return requests.post(
            f"{self.url}/incidents/{identity}/acknowledge",
            data=fields,
            headers={"Accept": "text/html"},
            timeout=PATIENCE_SECONDS,
            allow_redirects=False,
        )

    def incidents(self) -> dict[str, dict[str, Any]]:
        """By id."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        found = requests.get(f"{self.url}/api/v1/incidents", headers=headers, timeout=60).json()
        return {one["id"]: one for one in found["incidents"]}

    def link(self, number: int, status: str = "firing") -> tuple[str, dict[str, str]]:
        """The incident and the fields of the link in the notification of a new message."""
        before = len(self.far.taken)
        assert send(self.hub, message(number, status)).json() == {"new": True}
        wait_until(lambda: len(self.far.taken) > before, 20, "the notification")
        found = LINK.search(self.far.taken[-1][2])
        assert found is not None, self.far.taken[-1][2]
        return found[1], {"until": found[2], "s": found[3]}

    def signed(self, identity: str, until: int) -> dict[str, str]:
        """The fields of a link, made with the hub's key."""
        with closing(sqlite3.connect(self.hub.state / "respond.db")) as connection:
            select = "SELECT value FROM facts WHERE name = 'link key'"
            [key] = connection.execute(select).fetchone()
        said = json.dumps(["acknowledge", identity, until], separators=(",", ":")).encode()
        signature = hmac.new(key, said, hashlib.sha256).hexdigest()[:32]
        return {"until": str(until), "s": signature}


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Site]:
    with FarSide() as far:
        hub = hub_with_channels(tmp_path, far)
        settings = yaml.safe_load(hub.config.read_text())
        external = f"http://127.0.0.1:{hub.port}"
        hub.config.write_text(yaml.safe_dump({**settings, "external_url": external}))
        with hub:
            yield Site(hub, far)


def test_a_link_acknowledges_its_incident_once(found: Site) -> None:
    identity, fields = found.link(1)
    page = found.get(f"/incidents/{identity}", **fields).text
    assert dict(FIELD.findall(page)) == fields
    assert found.press(identity, **fields, name="Zhang").status_code == 303
    assert found.incidents()[identity]["acknowledged_by"] == "Zhang"
    used = found.press(identity, **fields, name="Other")
    assert used.status_code == 409
    assert "Zhang has acknowledged it" in used.text
    assert "<form" not in found.get(f"/incidents/{identity}", **fields).text
    assert "incident " + identity + ": acknowledged by Zhang, with the link of a notification" in (
        found.hub.log.read_text()
    )


def test_what_can_be_read_without_a_login_has_no_link(found: Site) -> None:
    """Neither of what was sent, nor of what waits, nor in the database, nor in the log."""
    _, fields = found.link(1)
    found.far.status = 503
    send(found.hub, message(2))
    wait_until(lambda: found.far.refused, 20, "an attempt")
    identity = next(iter(found.incidents()))
    paths = ("/api/v1/deliveries", "/notifications", "/incidents", "/api/v1/incidents", "/metrics")
    for path in (*paths, f"/incidents/{identity}", f"/api/v1/incidents/{identity}", "/"):
        text = found.get(path).text
        assert fields["s"] not in text
        assert "until=" not in text
    listed = found.get("/api/v1/deliveries").json()
    shown = [one["text"] for one in (*listed["sent"], *listed["waiting"])]
    assert len(shown) == 2
    assert all(re.search(r"/incidents/of/[0-9a-f]{16}$", text) for text in shown)
    assert fields["s"] not in found.hub.log.read_text()
    stored = b"".join(path.read_bytes() for path in found.hub.state.glob("respond.db*"))
    assert fields["s"].encode() not in stored


def test_a_link_is_worth_nothing_for_another_incident_or_later(found: Site) -> None:
    """Forged, of another incident, with another end, or past its end: refused, and said why."""
    first, fields = found.link(1)
    second, _ = found.link(2)
    later = str(int(fields["until"]) + 1)
    past = found.signed(first, int(time.time()) - 1)
    assert found.signed(first, int(fields["until"])) == fields
    assert 0 < int(fields["until"]) - time.time() <= signed_links.LINK_SECONDS
    for identity, sent, why in (
        (second, fields, "not valid"),
        (first, {**fields, "until": later}, "not valid"),
        (first, {**fields, "s": "0" * 32}, "not valid"),
        (first, {**fields, "s": ""}, "not valid"),
        (first, {**fields, "s": "\udcff\x00é"}, "not valid"),
        (first, {**fields, "until": "9" * 400}, "not valid"),
        (first, {**fields, "until": "-1"}, "not valid"),
        (first, {"of": "0000000000000001", "s": "0" * 32}, "not valid"),
        (first, past, "has expired"),
        (first, {}, "use the link of the notification"),
    ):
        safe = {name: value.encode("utf-8", "replace").decode() for name, value in sent.items()}
        answer = found.press(identity, **safe, name="Mallory")
        assert answer.status_code == 403
        assert why in answer.text
        page = found.get(f"/incidents/{identity}", **safe)
        assert page.status_code == 200
        assert "<form" not in page.text
        assert why in page.text
    assert not [one for one in found.incidents().values() if "acknowledged_by" in one]


def test_a_link_that_is_opened_or_comes_too_late_acknowledges_nothing(found: Site) -> None:
    """Robots open links for previews, by GET and HEAD; an end needs no acknowledgement."""
    identity, fields = found.link(1)
    url = f"{found.url}/incidents/{identity}"
    query = {**fields, "name": "Bot"}
    assert requests.get(url, params=query, timeout=PATIENCE_SECONDS).ok
    assert requests.head(url, params=query, timeout=PATIENCE_SECONDS).ok
    for path in (f"{url}/acknowledge", f"{url}/mark"):
        assert requests.get(path, params=query, timeout=PATIENCE_SECONDS).status_code == 405
        assert requests.head(path, params=query, timeout=PATIENCE_SECONDS).status_code == 405
    # In the address, a signature is no form: a page of another site cannot send it either.
    refused = requests.post(f"{url}/acknowledge", params=query, timeout=PATIENCE_SECONDS)
    assert refused.status_code == 403
    cross = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    answer = requests.post(
        f"{url}/acknowledge", data=query, headers=cross, timeout=PATIENCE_SECONDS
    )
    assert answer.status_code == 403
    marked = requests.post(
        f"{url}/mark", data={**fields, "false_alarm": "yes"}, timeout=PATIENCE_SECONDS
    )
    assert marked.status_code == 401, "a link permits the acknowledgement only"
    assert send(found.hub, message(1, "resolved")).ok
    wait_until(lambda: "resolved" in found.incidents()[identity], 20, "its end")
    assert found.press(identity, **fields, name="Late").status_code == 409
    assert "acknowledged_by" not in found.incidents()[identity]


def test_the_end_of_a_fault_has_a_link_that_is_not_signed(found: Site) -> None:
    identity, _ = found.link(1)
    assert send(found.hub, message(1, "resolved")).ok
    wait_until(lambda: len(found.far.taken) == 2, 20, "the end")
    text = found.far.taken[-1][2]
    assert text.endswith("/incidents/of/0000000000000001")
    place = text.rpartition(found.url)[2]
    assert found.get(place).headers["location"] == f"/incidents/{identity}"


def test_links_of_a_digest_are_those_of_their_incidents(found: Site) -> None:
    found.hub.kill()
    settings = yaml.safe_load(found.hub.config.read_text())
    settings["notify"]["channels"]["first"]["per_minute"] = 2
    found.hub.config.write_text(yaml.safe_dump(settings))
    found.hub.start()
    found.far.hold.clear()
    for number in (1, 2, 3):
        assert send(found.hub, message(number)).ok
    wait_until(lambda: found.far.pending, 20, "an attempt")
    listed = "/api/v1/deliveries"
    wait_until(lambda: len(found.get(listed).json()["waiting"]) == 3, 20, "the others behind it")
    found.far.hold.set()
    wait_until(lambda: len(found.far.numbers("first")) == 3, 30, "all of them")
    [_, (_, title, text)] = found.far.taken
    assert "2 NOTIFICATIONS" in title
    for identity, until, signature in LINK.findall(text):
        answer = found.press(identity, until=until, s=signature, name="Li")
        assert answer.status_code == 303
    names = {one["title"]: one.get("acknowledged_by") for one in found.incidents().values()}
    expected = {1: None, 2: "Li", 3: "Li"}
    assert names == {f"fault {number} of the test": name for number, name in expected.items()}


def test_without_anonymous_access_a_link_needs_a_login(found: Site) -> None:
    identity, fields = found.link(1)
    found.hub.kill()
    settings = yaml.safe_load(found.hub.config.read_text())
    settings["access"]["anonymous"] = None
    found.hub.config.write_text(yaml.safe_dump(settings))
    found.hub.start()
    for path in ("/incidents/of/0000000000000001", "/incidents", f"/incidents/{identity}"):
        assert found.get(path, **fields).status_code == 401
    assert found.press(identity, **fields, name="Other").status_code == 401
    assert "acknowledged_by" not in found.incidents()[identity]


def test_refusals_of_links_are_in_chinese_as_well(found: Site) -> None:
    identity, fields = found.link(1)
    chinese = {"Accept": "text/html", "Accept-Language": "zh"}
    url = f"{found.url}/incidents/{identity}/acknowledge"
    for sent, words in (
        ({**fields, "s": "0" * 32}, "该链接无效"),
        (found.signed(identity, 1), "该链接已过期"),
        ({}, "请使用通知中的链接"),
        ({**fields, "name": "  "}, "请填写您的姓名"),
    ):
        answer = requests.post(url, data=sent, headers=chinese, timeout=PATIENCE_SECONDS)
        assert words in answer.text
        page = requests.get(
            url.removesuffix("/acknowledge"), params=sent, headers=chinese, timeout=60
        )
        assert words in page.text or "name" in sent
    assert found.press(identity, **fields, name="Li").status_code == 303
    used = requests.post(url, data={**fields, "name": "x"}, headers=chinese, timeout=60)
    assert "Li 已响应该事件" in used.text
