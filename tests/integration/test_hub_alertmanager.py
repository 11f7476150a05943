"""The shipped Alertmanager configurations, with the entries of the hub: what its channels get."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from testbed.hub import HubProcess
from testbed.hubalerts import stamp
from testbed.node import ROOT, wait_until
from testbed.notifykills import TOKEN, FarSide
from testbed.shipped import Shipped, filled_in

HUB = "http://nodevitals-hub:9857/"
CHANNELS = ("pager", "chat", "jobs", "operations")


class Site:
    """An Alertmanager, the hub and the far side."""

    def __init__(self, folder: Path, name: str) -> None:
        self.far = FarSide()
        self.manager = Shipped(folder, "hub")
        self.hub = self._hub(folder)
        config = filled_in(name)
        del config["global"]
        config["templates"] = [str(ROOT / "alertmanager/templates/*.tmpl")]
        for route in (config["route"], *config["route"]["routes"]):
            if route.get("group_wait") not in ("30m", "2h"):
                route |= {"group_wait": "1s", "group_interval": "500ms"}
            if "Watchdog" in str(route.get("matchers")):
                route["repeat_interval"] = "1s"
        config["receivers"] = [self._of_the_hub(one, folder) for one in config["receivers"]]
        (self.manager.folder / "alertmanager.yaml").write_text(yaml.safe_dump(config))

    def _of_the_hub(self, receiver: dict[str, Any], folder: Path) -> dict[str, Any]:
        """A receiver with its entry of the hub only, at the hub of this test."""
        entries = [one for one in receiver.get("webhook_configs", []) if one["url"].startswith(HUB)]
        for one in entries:
            one["url"] = one["url"].replace(HUB, f"http://127.0.0.1:{self.hub.port}/")
            one["http_config"]["authorization"]["credentials_file"] = str(folder / "token")
        return {"name": receiver["name"], "webhook_configs": entries}

    def _hub(self, folder: Path) -> HubProcess:
        (folder / "token").write_text(TOKEN)
        tokens = folder / "tokens.yaml"
        tokens.write_text(yaml.safe_dump([{"name": "alerts", "role": "run", "token": TOKEN}]))
        tokens.chmod(0o600)
        channels = {}
        for name in CHANNELS:
            place = folder / f"{name}-url"
            place.write_text(f"json://127.0.0.1:{self.far.port}/{name}\n")
            place.chmod(0o600)
            channels[name] = {"url_file": str(place), "per_minute": 1000}
        hub = HubProcess(
            folder,
            simulated=True,
            cluster="test",
            access={"tokens_file": str(tokens)},
            nodes={"static": [{"targets": ["gpu-1", "gpu-2", "gpu-3"]}]},
            alertmanager={"url": self.manager.url},
            incidents={},
            notify={
                "channels": channels,
                "routes": [
                    {"channels": ["pager"], "receivers": ["on-call", "operators"]},
                    {"channels": ["chat"], "receivers": ["chat"]},
                ],
                "owners": {"channel": "jobs"},
                "watchdog": {"channels": ["operations"], "after": "5s"},
            },
        )
        hub.environment = {"ASK_SECONDS": "0.2", "VANISHED_SECONDS": "1"}
        return hub

    def __enter__(self) -> Site:
        self.far.__enter__()
        self.hub.__enter__()
        self.manager.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.manager.__exit__(*exception)
        self.hub.__exit__(*exception)
        self.far.__exit__(*exception)

    def post(self, *alerts: dict[str, str], resolved: bool = False) -> None:
        """Alerts as Prometheus sends them."""
        now = time.time()
        body = [
            {
                "labels": {"cluster": "test", **labels},
                "annotations": {"summary": f"{labels['alertname']} on {labels.get('instance')}"},
                # An alert that is older than group_wait when it arrives is sent at once, without
                # the rest of its group; one that starts in the future never is.
                "startsAt": stamp(now - 60 if resolved else now + 60),
                "endsAt": stamp(now - 1 if resolved else now + 3600),
            }
            for labels in alerts
        ]
        url = f"{self.manager.url}/api/v2/alerts"
        requests.post(url, json=body, timeout=60).raise_for_status()

    def titles(self, channel: str) -> list[str]:
        """What a channel got."""
        return [title for name, title, _ in list(self.far.taken) if name == channel]

    def wait_for(self, channel: str, *words: str) -> str:
        """Wait for a message with these words; its title and text."""

        def found() -> str:
            texts = (f"{a}\n{b}" for name, a, b in list(self.far.taken) if name == channel)
            return next((one for one in texts if all(word in one for word in words)), "")

        return str(wait_until(found, 30, f"{words} at {channel}; the hub's log: {self.hub.log}"))

    def incidents(self) -> dict[str, bool]:
        """By node, whether its incident is resolved."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"http://127.0.0.1:{self.hub.port}/api/v1/incidents"
        rows = requests.get(url, headers=headers, timeout=60).json()["incidents"]
        return {one["node"]: one.get("resolved") is not None for one in rows}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site"), "alertmanager.yaml") as found:
        yield found


def lost(node: str) -> dict[str, str]:
    return {
        "alertname": "AcceleratorLost",
        "fault": "accelerator_lost",
        "severity": "critical",
        "component": "accelerator",
        "scope": "device",
        "action": "reset_device",
        "instance": node,
        "uuid": f"GPU-{node}",
        "device": "0",
        "vendor": "nvidia",
    }


def slow(device: str) -> dict[str, str]:
    return {
        "alertname": "RdmaPortDown",
        "fault": "rdma_port_down",
        "severity": "critical",
        "component": "rdma",
        "scope": "device",
        "action": "investigate",
        "instance": "gpu-2",
        "device": device,
        "port": "1",
    }


def test_a_page_has_its_end_on_both_receivers(site: Site) -> None:
    site.post(lost("gpu-1"))
    for channel in ("pager", "chat"):
        site.wait_for(channel, "FIRING", "AcceleratorLost on gpu-1")
    wait_until(lambda: site.incidents() == {"gpu-1": False}, 20, "its incident")
    site.post(lost("gpu-1"), resolved=True)
    for channel in ("pager", "chat"):
        site.wait_for(channel, "RESOLVED", "AcceleratorLost on gpu-1")
    wait_until(lambda: site.incidents()["gpu-1"], 20, "the end of its incident")


def test_a_fault_that_comes_again_with_its_start_is_notified_again(site: Site) -> None:
    """As Prometheus restores it, after an outage in which Alertmanager let it end."""
    start = time.time() - 1

    def post(ends: float) -> None:
        one = {
            "labels": {"cluster": "test", **lost("gpu-4")},
            "annotations": {"summary": "AcceleratorLost on gpu-4"},
            "startsAt": stamp(start),
            "endsAt": stamp(ends),
        }
        url = f"{site.manager.url}/api/v2/alerts"
        requests.post(url, json=[one], timeout=60).raise_for_status()

    def states() -> list[str]:
        titles = [one for one in site.titles("pager") if "AcceleratorLost on gpu-4" in one]
        return [title.split()[0].strip("[") for title in titles]

    def has(number: int) -> bool:
        return len(states()) == number

    for number in (1, 2, 3):
        post(time.time() + (-0.1 if number == 2 else 3600))
        wait_until(partial(has, number), 30, f"message {number}")
    assert states() == ["FIRING", "RESOLVED", "FIRING"]
    wait_until(lambda: site.incidents()["gpu-4"] is False, 20, "its incident, which goes on")
    post(time.time() - 0.1)
    wait_until(lambda: site.incidents()["gpu-4"], 20, "its end")


def test_alerts_of_a_node_are_one_message(site: Site) -> None:
    site.post(slow("mlx5_0"), slow("mlx5_1"), slow("mlx5_2"))
    for channel in ("pager", "chat"):
        site.wait_for(channel, "gpu-2", "3")
        assert len([one for one in site.titles(channel) if "gpu-2" in one]) == 1


def test_the_owner_of_a_job_is_notified(site: Site) -> None:
    names = {"namespace": "vision", "pod": "train-0", "job_name": "train", "owner": "ada"}
    site.post(
        {
            "alertname": "JobOwnerImpact",
            "fault": "job_impact",
            "severity": "info",
            "component": "job",
            "scope": "device",
            "action": "none",
            "instance": "gpu-3",
            **names,
        }
    )
    site.wait_for("jobs", "train")


def test_the_watchdog_is_no_notification_and_its_end_is(site: Site) -> None:
    watchdog = {"alertname": "Watchdog", "severity": "none"}
    site.post(watchdog)
    headers = {"Authorization": f"Bearer {TOKEN}"}

    def accepted() -> float:
        url = f"http://127.0.0.1:{site.hub.port}/metrics"
        text = requests.get(url, headers=headers, timeout=60).text
        name = 'nodevitals_hub_messages_total{outcome="accepted"} '
        return next(float(line[len(name) :]) for line in text.splitlines() if line.startswith(name))

    before = accepted()
    wait_until(lambda: accepted() >= before + 2, 30, "messages of it")
    assert not any("Watchdog" in title for _, title, _ in list(site.far.taken))
    site.post(watchdog, resolved=True)
    site.wait_for("operations", "Watchdog")


def test_an_incident_of_a_silenced_alert_ends_with_the_alert(site: Site) -> None:
    """Alertmanager sends no end of it."""
    site.post(lost("gpu-3"))
    wait_until(lambda: site.incidents().get("gpu-3") is False, 30, "its incident")
    site.wait_for("pager", "FIRING", "AcceleratorLost on gpu-3")
    now = time.time()
    matcher = {"name": "instance", "value": "gpu-3", "isRegex": False, "isEqual": True}
    silence = {"matchers": [matcher], "startsAt": stamp(now), "endsAt": stamp(now + 3600)}
    body = {**silence, "createdBy": "ada", "comment": "known"}
    requests.post(f"{site.manager.url}/api/v2/silences", json=body, timeout=60).raise_for_status()
    site.post(lost("gpu-3"), resolved=True)
    wait_until(lambda: site.incidents()["gpu-3"], 30, "the end of its incident")
    assert not any("RESOLVED" in one and "gpu-3" in one for one in site.titles("pager"))


def test_the_smallest_configuration_pages_by_the_hub(tmp_path: Path) -> None:
    with Site(tmp_path, "minimal.yaml") as site:
        site.post(lost("gpu-1"))
        site.wait_for("pager", "FIRING", "AcceleratorLost on gpu-1")
