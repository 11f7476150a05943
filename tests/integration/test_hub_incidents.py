"""Incidents of a running hub: opened by messages, acknowledged by people, kept over kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from nodevitals_hub.incidents import incident_intake, incident_routes
from testbed.hub import HubProcess
from testbed.node import wait_until
from testbed.notifykills import TOKEN, message, send

READER = "only a reader here"
NODES = {"static": [{"targets": ["gpu-1", "gpu-2"], "labels": {"pool": "train"}}]}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    tokens = tmp_path / "tokens.yaml"
    entries = [{"name": "alerts", "role": "run", "token": TOKEN}]
    entries.append({"name": "reader", "role": "read", "token": READER})
    tokens.write_text(yaml.safe_dump(entries))
    tokens.chmod(0o600)
    access = {"tokens_file": str(tokens)}
    process = HubProcess(
        tmp_path,
        simulated=True,
        cluster="test",
        access=access,
        nodes=NODES,
        incidents={"targets": {"critical": {"acknowledge": "1h", "repair": "10ms"}}},
    )
    with process:
        yield process


def ask(hub: HubProcess, path: str, token: str = READER) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}
    address = f"http://127.0.0.1:{hub.port}{path}"
    return requests.get(address, headers=headers, timeout=60, allow_redirects=False)


def listed(hub: HubProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(hub, "/api/v1/incidents").json()["incidents"]
    return found


def post(hub: HubProcess, path: str, token: str = TOKEN, **body: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"}
    address = f"http://127.0.0.1:{hub.port}/api/v1/incidents/{path}"
    return requests.post(address, json=body, headers=headers, timeout=60)


def opened(hub: HubProcess, number: int = 1) -> dict[str, Any]:
    """The incident of a new message."""
    send(hub, message(number))
    wait_until(lambda: any(one["title"] == title(number) for one in listed(hub)), 20, "it")
    return next(one for one in listed(hub) if one["title"] == title(number))


def title(number: int) -> str:
    return f"fault {number} of the test"


def test_an_incident_from_its_alert_to_its_end(hub: HubProcess) -> None:
    incident = opened(hub)
    assert (incident["node"], incident["pool"], incident["cluster"]) == ("gpu-1", "train", "test")
    assert post(hub, f"{incident['id']}/acknowledge", token=READER, name="Li").status_code == 403
    assert post(hub, f"{incident['id']}/acknowledge", name="Li Wei").ok
    again = post(hub, f"{incident['id']}/acknowledge", name="Other")
    assert (again.status_code, again.json()["error"]) == (409, "Li Wei has acknowledged it")
    hub.kill()
    hub.start()
    send(hub, message(1, "resolved"))
    wait_until(lambda: "resolved" in listed(hub)[0], 20, "its end")
    marked = post(hub, f"{incident['id']}/mark", false_alarm=True, note="a test")
    assert marked.json()["false_alarm"] is True
    [figures] = ask(hub, "/api/v1/incidents").json()["summary"]["severities"]
    assert (figures["count"], figures["false_alarms"]) == (1, 1)
    assert figures["repair"]["in_target"] == 0.0
    post(hub, f"{incident['id']}/mark", false_alarm=True)  # a second click
    text = ask(hub, "/metrics").text
    for answer, number in (("true", 1), ("false", 0)):
        sample = f'incidents_marked_total{{false_alarm="{answer}",severity="critical"}}'
        assert f"nodevitals_hub_{sample} {number}.0" in text
    assert 'nodevitals_hub_incidents_resolved_total{severity="critical"} 1.0' in text
    name = "nodevitals_hub_incident_targets_missed_total"
    assert f'{name}{{severity="critical",target="repair"}} 1.0' in text


def test_pages_in_both_languages(hub: HubProcess) -> None:
    incident = opened(hub)
    page = ask(hub, "/incidents").text
    assert title(1) in page
    assert "not yet" in page
    assert "尚未响应" in ask(hub, "/incidents?lang=zh").text
    shown = ask(hub, f"/incidents/{incident['id']}").text
    assert "Drain the node." in shown
    assert "<form" not in shown, "a reader without the link cannot acknowledge"
    assert "<form" in ask(hub, f"/incidents/{incident['id']}", token=TOKEN).text
    assert ask(hub, "/incidents?month=2020-01").ok
    assert ask(hub, "/incidents?month=never").status_code == 422
    assert ask(hub, "/incidents/20200101-000000-abcdef").status_code == 404


def test_no_label_is_executed_by_a_page(hub: HubProcess) -> None:
    """Whatever the alert, on every page and in both languages."""
    evil = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>javascript:alert(1)\x1b[2J"
    names = ("alertname", "instance", "cluster", "pool", "domain", "device", "fault", "owner")
    body = message(1, **dict.fromkeys(names, evil))
    [alert] = body["alerts"]
    notes = dict.fromkeys(("summary", "description", "action", "runbook_url", "x"), evil)
    body["alerts"] = [
        {**alert, "annotations": notes, "generatorURL": f"javascript:{evil}", "startsAt": evil}
    ]
    assert send(hub, body).ok
    wait_until(lambda: listed(hub), 20, "the incident")
    identity = listed(hub)[0]["id"]
    for path in ("/incidents", f"/incidents/{identity}", "/notifications", "/isolations", "/"):
        for language in ("en", "zh"):
            page = ask(hub, f"{path}?lang={language}", token=TOKEN).text.lower()
            assert "<script" not in page
            assert "<img" not in page
            assert 'href="javascript' not in page
    assert "\x1b" not in hub.log.read_text()


def test_a_large_message_is_taken(hub: HubProcess) -> None:
    """A group of 2,000 alerts, over a megabyte, is one fleet incident."""
    body = message(1, scope="fleet", domain="leaf", domain_name="leaf-1")
    [alert] = body["alerts"]
    body["alerts"] = [{**alert, "fingerprint": f"{number:016x}"} for number in range(2000)]
    assert send(hub, body).ok
    wait_until(lambda: listed(hub), 30, "the incident")
    assert len(listed(hub)) == 1


def test_a_flood_of_incidents_is_shown_in_part(hub: HubProcess) -> None:
    """10,000 alerts of as many nodes, in ten groups: all are kept, the newest are on the page."""
    for group in range(10):
        body = message(group)
        [alert] = body["alerts"]
        body["alerts"] = [
            {
                **alert,
                "fingerprint": f"{group}{number:04}",
                "labels": {**alert["labels"], "instance": f"gpu-{group}-{number}"},
                "annotations": {"summary": f"fault of gpu-{group}-{number}"},
            }
            for number in range(1000)
        ]
        assert send(hub, body).json() == {"new": True}
    current = 'nodevitals_hub_incidents{severity="critical",state="open"} 10000.0'
    wait_until(lambda: current in ask(hub, "/metrics").text, 60, "all incidents")
    page = ask(hub, "/incidents").text
    assert page.count("fault of gpu-9-") == 2 * incident_routes.MOST_SHOWN
    assert page.count(f"not shown: {10_000 - incident_routes.MOST_SHOWN}") == 2
    month = ask(hub, "/api/v1/incidents").json()
    assert len(month["incidents"]) == 1000
    assert [one["count"] for one in month["summary"]["severities"]] == [10_000], "all are counted"


def test_the_wait_for_vanished_alerts_is_alertmanagers() -> None:
    assert incident_intake.VANISHED_SECONDS >= 300
