"""A real Alertmanager sends alerts to a hub, whose runs are simulated."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml

from testbed.hub import HubProcess
from testbed.hubalerts import FAILED, HubAlertmanager
from testbed.node import wait_until

TOKEN = "a token of alertmanager"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SLOW = "gpu-3"
NODES = [f"gpu-{number}" for number in range(1, 121)]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    (tmp_path / "token").write_text(TOKEN)
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(yaml.safe_dump([{"name": "alerts", "role": "run", "token": TOKEN}]))
    tokens.chmod(0o600)
    leaves = {"a": NODES[:60], "b": NODES[60:]}
    process = HubProcess(
        tmp_path,
        simulated=True,
        access={"tokens_file": str(tokens)},
        nodes={"static": [{"targets": t, "labels": {"leaf": leaf}} for leaf, t in leaves.items()]},
        presets={"links": {"kind": "matrix", "test": {"device": "mlx5_0"}}},
        alerts=[{"alertname": "NodeFabricSlow", "preset": "links", "group_by": "leaf"}],
    )
    process.environment = {"SLOW": SLOW, "RUN_SECONDS": "0.01"}
    with process:
        wait_until(lambda: answers(process), 20, "the web server")
        yield process


@pytest.fixture
def alertmanager(tmp_path: Path, hub: HubProcess) -> Iterator[HubAlertmanager]:
    with HubAlertmanager(tmp_path, url(hub), tmp_path / "token") as found:
        yield found


def url(hub: HubProcess) -> str:
    return f"http://127.0.0.1:{hub.port}"


def answers(hub: HubProcess) -> bool:
    try:
        return requests.get(f"{url(hub)}/healthz", timeout=60).ok
    except requests.ConnectionError:
        return False


def shown(hub: HubProcess, fingerprint: str) -> requests.Response:
    """The page of an alert, without following it."""
    page = {"Accept": "text/html"}
    address = f"{url(hub)}/alerts/{fingerprint}"
    return requests.get(address, headers=page, timeout=60, allow_redirects=False)


def test_an_alert_starts_one_check_until_it_is_resolved(
    hub: HubProcess, alertmanager: HubAlertmanager
) -> None:
    alertmanager.post(f"{SLOW}:9855")
    fingerprint = alertmanager.fingerprint(f"{SLOW}:9855")
    wait_until(lambda: shown(hub, fingerprint).status_code == 303, 20, "the check")
    alertmanager.wait_for_more(2)
    [check] = hub.list()
    assert shown(hub, fingerprint).headers["location"] == f"/checks/{check.id}"
    assert (check.requester.trigger, check.requester.name) == ("alert", "NodeFabricSlow")
    verdict = hub.ended(check.id).check.verdict
    assert verdict is not None
    assert [one.subject for one in verdict.findings] == [SLOW]
    alertmanager.post(f"{SLOW}:9855", resolved=True)
    stored = hub.state / "alerts.json"
    wait_until(lambda: json.loads(stored.read_bytes())[fingerprint].get("firing") is False)
    assert len(hub.list()) == 1
    assert alertmanager.count(FAILED) == 0
    page = requests.get(f"{url(hub)}/alerts/{fingerprint}", timeout=60)
    assert "NodeFabricSlow" in page.text


def test_the_hub_knows_its_alerts_after_it_was_killed(
    hub: HubProcess, alertmanager: HubAlertmanager
) -> None:
    alertmanager.post(SLOW)
    fingerprint = alertmanager.fingerprint(SLOW)
    wait_until(lambda: shown(hub, fingerprint).status_code == 303, 20, "the check")
    hub.kill()
    hub.start()
    wait_until(lambda: answers(hub), 20, "the web server")
    assert shown(hub, fingerprint).status_code == 303
    alertmanager.wait_for_more(2)
    assert len(hub.list()) == 1


def test_a_hundred_nodes_at_once_are_a_check_per_leaf(
    hub: HubProcess, alertmanager: HubAlertmanager
) -> None:
    alertmanager.post(*NODES[:40], *NODES[60:100])
    wait_until(lambda: len(hub.list()) >= 2, 20, "the checks")
    wait_until(lambda: "without a check: more than 16 nodes of leaf=a" in hub.log.read_text())
    assert all(len(check.request.nodes) <= 16 + 3 for check in hub.list())
    assert alertmanager.count(FAILED) == 0


def test_what_cannot_be_tested_is_shown_and_not_sent_for_ever(
    hub: HubProcess, alertmanager: HubAlertmanager
) -> None:
    alertmanager.post("pc-1")
    fingerprint = alertmanager.fingerprint("pc-1")
    reason = "pc-1&#39; is not on the lists of nodes"
    wait_until(lambda: reason in shown(hub, fingerprint).text, 20, "the reason")
    assert alertmanager.count(FAILED) == 0
    assert hub.list() == []


def announced(hub: HubProcess, length: int) -> int:
    """The status of a body of which only the length was sent."""
    connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=60)
    try:
        connection.putrequest("POST", "/api/v1/alerts")
        for name, value in {**HEADERS, "Content-Type": "application/json"}.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(length))
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_body_that_is_no_message(hub: HubProcess) -> None:
    def post(body: bytes, headers: dict[str, str]) -> tuple[int, int]:
        sent = {**headers, "Content-Type": "application/json"}
        answer = requests.post(f"{url(hub)}/api/v1/alerts", data=body, headers=sent, timeout=60)
        return answer.status_code, len(answer.text.splitlines())

    empty = b'{"version": "4", "alerts": []}'
    assert post(b"garbage", HEADERS) == (400, 1)
    assert post(b'{"version": "4", "alerts": [{}]}', HEADERS) == (400, 1)
    assert post(b'{"version": "4", "alerts": ' + b"[" * 200_000, HEADERS) == (400, 1)
    assert announced(hub, 9_000_000) == 413
    assert post(empty, {}) == (401, 1)
    assert post(empty, HEADERS) == (200, 1)
    assert "Traceback" not in hub.log.read_text()
