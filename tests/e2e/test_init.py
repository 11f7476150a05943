"""What `nodevitals init` writes, in real servers: a GPU is missing, and its alert is a message."""

from __future__ import annotations

from pathlib import Path

import requests

from testbed.initialized import DebianAlertmanager, DebianPrometheus, Initialized
from testbed.node import free_port, wait_until
from testbed.servers import show_debian_files
from testbed.trees import write
from testbed.webhook import Receiver

# The site's own choice: the alert does not wait. Prometheus' intervals are those that init writes.
VALUES = "alerts: {AcceleratorLost: {wait: 0s}}\n"


def known_targets(url: str) -> set[tuple[str, str]]:
    """The job and health of each target once each was scraped (the first scrape of a target comes
    at any moment of its interval, so an alert may be earlier); an empty set before.
    """
    targets = requests.get(f"{url}/api/v1/targets", timeout=60).json()["data"]["activeTargets"]
    found = {(one["labels"]["job"], one["health"]) for one in targets}
    return set() if "unknown" in {health for _, health in found} else found


def test_a_gpu_that_is_missing_after_a_reboot_becomes_a_message(tmp_path: Path) -> None:
    show_debian_files()
    node, etc = Initialized(tmp_path), tmp_path / "etc/prometheus"
    manager = DebianAlertmanager(tmp_path, etc)
    prometheus = DebianPrometheus(tmp_path, etc)
    write(node.made, {"rules-values.yaml": VALUES})
    port = free_port()
    with Receiver() as receiver:
        node.init(
            *("--cluster", "atlas", "--node", f"localhost:{port}"),
            *("--prometheus", prometheus.url, "--alertmanager", f"127.0.0.1:{manager.port}"),
            *("--webhook", f"{receiver.url}/operators"),
        )
        node.copy(etc)
        node.machine.vanish(7)
        agent = node.agent(port)
        with manager, agent, prometheus:
            found = wait_until(lambda: receiver.labels("operators"), 75, "a message")
            scraped = wait_until(lambda: known_targets(prometheus.url), 60, "a scrape of each")
            manager_has = requests.get(f"{manager.url}/api/v2/alerts", timeout=60).json()
    assert scraped == {("nodevitals", "up"), ("prometheus", "up"), ("alertmanager", "up")}
    assert found[0] in [one["labels"] for one in manager_has]
    assert {
        "alertname": "AcceleratorLost",
        "cluster": "atlas",
        "instance": "localhost",
        "vendor": "nvidia",
        "fault": "accelerators_missing",
        "component": "accelerator",
        "severity": "critical",
        "scope": "node",
    }.items() <= found[0].items()
    text = receiver.messages[0].body["commonAnnotations"]["summary"]
    assert text == "GPUs missing on localhost: 1 fewer than expected"
