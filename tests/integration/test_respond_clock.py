"""Notifications, incidents and drills of a hub whose clock is set, and over times that pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from testbed.hub import HubProcess
from testbed.longforms import long_forms
from testbed.movedclocks import DAY, MovedClocks
from testbed.node import wait_until
from testbed.notifykills import TOKEN, FarSide, hub_with_channels, message, send

ACT = "a token that may act"
HOUR, MINUTE = 3600, 60
WAITING = 'nodevitals_hub_notifications_waiting{channel="first"}'
TOTAL = 'nodevitals_hub_notifications_total{channel="first",outcome='


@pytest.fixture
def far() -> Iterator[FarSide]:
    with FarSide() as found:
        yield found


@pytest.fixture
def clocks(tmp_path: Path) -> MovedClocks:
    return MovedClocks(tmp_path)


def notifying(folder: Path, far: FarSide, clocks: MovedClocks, **notify: Any) -> HubProcess:
    hub = hub_with_channels(folder, far, **notify)
    hub.environment = clocks.environment
    return hub


def get(hub: HubProcess, path: str) -> requests.Response:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return requests.get(f"http://127.0.0.1:{hub.port}{path}", headers=headers, timeout=60)


def value(hub: HubProcess, sample: str) -> float:
    lines = get(hub, "/metrics").text.splitlines()
    found = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{sample} ")]
    return float(found[0]) if found else 0.0


def is_refused(far: FarSide, before: int) -> bool:
    return far.refused > before


@pytest.mark.parametrize("is_killed", long_forms("kills", (False, True), short=(True,)))
def test_a_clock_that_is_set_by_a_day_loses_and_repeats_no_notification(
    tmp_path: Path, far: FarSide, clocks: MovedClocks, is_killed: bool
) -> None:
    """Forward and back, each while one waits; the alert Watchdog is not missed for it."""
    watchdog = {"channels": ["first"], "after": "1h"}
    with notifying(tmp_path, far, clocks, watchdog=watchdog) as hub:
        assert send(hub, message(9, alertname="Watchdog", severity="none")).ok
        wanted: Counter[int] = Counter()
        for number, moved in enumerate((DAY, 0, -DAY), 1):
            far.status, refused = 503, far.refused
            assert send(hub, message(number)).json() == {"new": True}
            wait_until(partial(is_refused, far, refused), 30, "an attempt")
            clocks.set_by(moved)
            if is_killed:
                hub.kill()
                hub.start()
            far.status = 200
            wanted[number] = 1
            wait_until(lambda: far.numbers("first").keys() == wanted.keys(), 60, str(number))
            assert send(hub, message(10 + number)).json() == {"new": True}
            assert send(hub, message(10 + number)).json() == {"new": False}
            wanted[10 + number] = 1
            wait_until(lambda: far.numbers("first").keys() == wanted.keys(), 60, "the next one")
            wait_until(lambda: value(hub, WAITING) == 0, 30, "a note of both")
        assert far.numbers("first") == wanted
        assert (
            value(hub, 'nodevitals_hub_notifications_total{channel="first",outcome="dropped"}') == 0
        )
        assert not [title for _, title, _ in far.taken if "no alerts arrive" in title]
        clocks.pass_by(HOUR)
        wait_until(
            lambda: any("no alerts arrive" in title for _, title, _ in far.taken),
            30,
            "the end of Watchdog, once an hour has passed",
        )
        assert "Traceback" not in hub.log.read_text()


def test_what_cannot_be_delivered_is_dropped_after_its_time_and_shown(
    tmp_path: Path, far: FarSide, clocks: MovedClocks
) -> None:
    """Counted, logged, on the page and in the API, with the reason; the others are sent."""
    far.status = 503
    with notifying(tmp_path, far, clocks, give_up_after="4h") as hub:
        send(hub, message(1))

        def is_dropped() -> bool:
            # An attempt that is under way as time passes may end before it arrives.
            if value(hub, f'{TOTAL}"failed"}}') >= far.refused > 0:
                clocks.pass_by(MINUTE)
            return value(hub, f'{TOTAL}"dropped"}}') == 1

        wait_until(is_dropped, 60, "its end")
        [dropped] = get(hub, "/api/v1/deliveries").json()["dropped"]
        assert "fault 1 of the test" in dropped["title"]
        assert dropped["error"]
        assert dropped["attempts"] >= 20
        assert dropped["ended"] - dropped["created"] >= 4 * HOUR
        assert "fault 1 of the test" in get(hub, "/notifications").text
        assert "dropped" in hub.log.read_text()
        assert value(hub, WAITING) == 0
        far.status = 200
        send(hub, message(2))

        # Once, over the longest back-off: a clock that moves on in an attempt ends it.
        clocks.pass_by(11 * MINUTE)
        wait_until(lambda: value(hub, WAITING) == 0 and far.numbers("first"), 60, "the next")
        assert far.numbers("first") == Counter([2])


@pytest.mark.parametrize(("opened", "ended"), [(DAY, 0), (0, DAY), (0, -DAY)])
def test_an_incident_ends_whatever_the_clock_is_set_to(
    tmp_path: Path, far: FarSide, clocks: MovedClocks, opened: int, ended: int
) -> None:
    """No time is negative, and the next alert opens another one."""
    clocks.set_by(opened)
    with notifying(tmp_path, far, clocks) as hub:

        def listed() -> list[dict[str, Any]]:
            month = get(hub, "/api/v1/incidents").json()
            return list(month["incidents"])

        send(hub, message(1))
        wait_until(lambda: bool(listed()), 30, "it")
        [incident] = listed()
        clocks.set_by(ended)
        path = f"/api/v1/incidents/{incident['id']}"
        answer = requests.post(
            f"http://127.0.0.1:{hub.port}{path}/acknowledge",
            json={"name": "ann"},
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60,
        )
        assert answer.json()["acknowledged"] >= incident["opened"]
        send(hub, message(1, "resolved"))
        wait_until(lambda: "resolved" in get(hub, path).json(), 30, "its end")
        after = get(hub, path).json()
        assert after["resolved"] >= after["opened"]
        again = message(1)
        again["alerts"][0]["startsAt"] = "2026-11-22T10:00:00Z"
        clocks.pass_by(HOUR)
        send(hub, again)
        wait_until(
            lambda: any("resolved" not in one for one in listed()), 30, "the next one is opened"
        )
        assert get(hub, "/incidents").ok
        assert value(hub, 'nodevitals_hub_incident_repair_seconds_total{severity="critical"}') >= 0


def drilling(folder: Path, clocks: MovedClocks) -> HubProcess:
    tokens = folder / "tokens.yaml"
    rows = [{"name": "lead", "role": "act", "token": ACT}]
    tokens.write_text(yaml.safe_dump(rows))
    tokens.chmod(0o600)
    hub = HubProcess(
        folder,
        simulated=True,
        access={"tokens_file": str(tokens)},
        nodes={"static": [{"targets": ["gpu-1"]}]},
        drill={"enabled": True},
    )
    hub.environment = clocks.environment
    return hub


def drills(hub: HubProcess) -> int:
    text = requests.get(f"http://127.0.0.1:{hub.port}/metrics", timeout=60).text
    return sum(line.startswith("nodevitals_hub_drill{") for line in text.splitlines())


def begun(hub: HubProcess) -> requests.Response:
    return requests.post(
        f"http://127.0.0.1:{hub.port}/api/v1/drills",
        json={"node": "gpu-1", "fault": "accelerator_lost", "seconds": 600},
        headers={"Authorization": f"Bearer {ACT}"},
        timeout=60,
    )


@pytest.mark.parametrize("is_killed", long_forms("kills", (False, True), short=(True,)))
def test_a_drill_ends_by_itself(tmp_path: Path, clocks: MovedClocks, is_killed: bool) -> None:
    with drilling(tmp_path, clocks) as hub:
        assert begun(hub).ok
        clocks.pass_by(500)
        if is_killed:
            hub.kill()
            hub.start()
        assert drills(hub) == 1
        assert begun(hub).status_code == 409
        clocks.pass_by(100)
        assert drills(hub) == 0
        assert begun(hub).ok


@pytest.mark.parametrize("moved", [DAY, 300, -300, -DAY])
def test_a_clock_that_is_set_makes_no_drill_longer(
    tmp_path: Path, clocks: MovedClocks, moved: int
) -> None:
    with drilling(tmp_path, clocks) as hub:
        assert begun(hub).ok
        clocks.set_by(moved)
        clocks.pass_by(300)
        clocks.set_by(0)
        assert drills(hub) == 1
        clocks.set_by(moved)
        clocks.pass_by(300)
        assert drills(hub) == 0
        clocks.set_by(0)
        assert drills(hub) == 0
