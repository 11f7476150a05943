"""A far side that takes notifications, and kills of a hub while it sends them."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import requests
import yaml

from testbed.http_server import HttpServer, Request, Response
from testbed.hub import HubProcess
from testbed.node import PATIENCE_SECONDS, wait_until

KILL_WITHIN_SECONDS = 1.0
TOKEN = "a token of alertmanager"
_NUMBER = re.compile(r"fault (\d+) of the test")


class FarSide(HttpServer):
    """A server that takes Apprise's JSON notifications; the path names the channel."""

    def __init__(self) -> None:
        super().__init__(self._respond)
        self.taken: list[tuple[str, str, str]] = []
        """Channel, title and text of each message that was accepted."""
        self.refused = 0
        self.status = 200
        """What it responds."""
        self.hold = threading.Event()
        """Cleared, it responds nothing."""
        self.hold.set()
        self.pending = 0
        """Messages that wait for a response, or for its client to go."""

    def __exit__(self, *exception: object) -> None:
        self.hold.set()
        super().__exit__(*exception)

    def _respond(self, request: Request) -> Response:
        self.pending += 1
        self.hold.wait()
        self.pending -= 1
        body, status = json.loads(request.body), self.status
        if status == 200:
            self.taken.append((request.path.strip("/"), body["title"], body["message"]))
        else:
            self.refused += 1
        return Response(status)

    def numbers(self, channel: str) -> Counter[int]:
        """How often the fault of each number arrived at a channel."""
        return Counter(
            int(number)
            for name, _, text in list(self.taken)
            if name == channel
            for number in set(_NUMBER.findall(text))
        )


def hub_with_channels(
    folder: Path, far: FarSide, channels: Iterable[str] = ("first",), **notify: Any
) -> HubProcess:
    """A hub whose channels are at the far side; all alerts go to all channels."""
    names = list(channels)
    (folder / "token").write_text(TOKEN)
    tokens = folder / "tokens.yaml"
    tokens.write_text(yaml.safe_dump([{"name": "alerts", "role": "run", "token": TOKEN}]))
    tokens.chmod(0o600)
    found = {}
    for name in names:
        place = folder / f"{name}-url"
        place.write_text(f"json://127.0.0.1:{far.port}/{name}\n")
        place.chmod(0o600)
        found[name] = {"url_file": str(place), "per_minute": notify.pop("per_minute", 1000)}
    return HubProcess(
        folder,
        simulated=True,
        cluster="test",
        access={"tokens_file": str(tokens)},
        nodes={"static": [{"targets": ["gpu-1", "gpu-2"], "labels": {"pool": "train"}}]},
        notify={"channels": found, "routes": [{"channels": names}], **notify},
    )


def sends_something(hub: HubProcess) -> bool:
    """Whether a message waits, or was sent and is not noted as sent: after a kill, that one is sent
    again.
    """
    with closing(sqlite3.connect(hub.state / "respond.db")) as connection:
        select = "SELECT count(*) FROM"
        rows = connection.execute(
            f"{select} inbox UNION ALL {select} deliveries WHERE state = 'waiting'"
        )
        return any(number for (number,) in rows)


def message(number: int, status: str = "firing", **labels: str) -> dict[str, Any]:
    """A message of Alertmanager with one alert."""
    own = {
        "alertname": "AcceleratorLost",
        "instance": f"gpu-{number}:9855",
        "severity": "critical",
        "component": "accelerator",
        "scope": "device",
        **labels,
    }
    ended = status == "resolved"
    alert = {
        "status": status,
        "fingerprint": f"{number:016x}",
        "labels": own,
        "annotations": {
            "summary": f"fault {number} of the test",
            "description": "Jobs on it fail.",
            "action": "Drain the node.",
        },
        "startsAt": "2026-11-22T08:00:00Z",
        "endsAt": "2026-11-22T09:00:00Z" if ended else "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.example.org/graph",
    }
    return {
        "version": "4",
        "groupKey": f'{{}}:{{instance="gpu-{number}:9855"}}',
        "receiver": "chat",
        "status": status,
        "alerts": [alert],
        "groupLabels": {"instance": own["instance"]},
        "commonLabels": own,
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example.org",
        "truncatedAlerts": 0,
    }


def send(hub: HubProcess, body: Any, timeout: float = PATIENCE_SECONDS) -> requests.Response:
    """Post a message as Alertmanager does."""
    return requests.post(
        f"http://127.0.0.1:{hub.port}/api/v1/notifications",
        json=body,
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=timeout,
    )


class NotifyOutcome(NamedTuple):
    """What came of kills."""

    deliveries: int
    lost: int
    duplicates: int
    kills: int


def kill_while_notifying(folder: Path, messages: int, kills: int, seed: int) -> NotifyOutcome:
    """Send messages to two channels, and kill the hub meanwhile; a message that was not
    acknowledged is sent again, as Alertmanager does.
    """
    moments = random.Random(seed)
    channels = ("first", "second")
    with FarSide() as far, hub_with_channels(folder, far, channels) as hub:
        kill_at = set(moments.sample(range(messages), kills))
        for number in range(messages):
            while not _acknowledged(hub, number):
                hub.start()
            if number in kill_at:
                # Also while nothing is under way.
                time.sleep(moments.uniform(0.0, KILL_WITHIN_SECONDS))
                hub.kill()
                hub.start(wait=moments.random() < 0.7)
        wait_until(hub._is_up, 30, "the hub")
        wait_until(
            lambda: all(len(far.numbers(name)) == messages for name in channels),
            120,
            f"all notifications; the log: {hub.log}",
        )
        arrived = [far.numbers(name) for name in channels]
    wanted = messages * len(channels)
    return NotifyOutcome(
        wanted,
        wanted - sum(len(one) for one in arrived),
        sum(sum(one.values()) - len(one) for one in arrived),
        kills,
    )


def _acknowledged(hub: HubProcess, number: int) -> bool:
    try:
        return send(hub, message(number)).ok
    except requests.ConnectionError:
        assert hub.process is not None
        if hub.process.poll() is None:  # starting
            time.sleep(0.05)
            return _acknowledged(hub, number)
        return False
