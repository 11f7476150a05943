"""A hub as a process is killed while it starts a repair, and goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import requests

from testbed.faultprometheus import FaultPrometheus
from testbed.hub import HubProcess
from testbed.kubernetes_api.failures import AFTER_HANG, HANG
from testbed.kubernetes_api.nodes import JOBS, REPAIR_ROLE, NodeApi
from testbed.node import PATIENCE_SECONDS, wait_until
from testbed.repairs import Ticket, manifest
from testbed.respond import Site

NODES = [f"gpu-{number}" for number in range(1, 21)]


def hub(folder: Path, prometheus: str, entry: dict[str, Any], kubeconfig: Path) -> HubProcess:
    site = Site(folder, NODES)
    made = HubProcess(
        folder,
        simulated=True,
        nodes={"static": [{"targets": NODES, "labels": {"pool": "a"}}]},
        prometheus={"url": prometheus},
        out_of_service={
            "scheduler": "command",
            "command": site.commands(),
            "where": [{"pool": "a"}],
            "dry_run": False,
            "grace": "100ms",
            "every": "50ms",
            "repairs": [{**entry, "when_empty": False}],
        },
    )
    made.environment = {"KUBECONFIG": str(kubeconfig)}
    return made


def repair(process: HubProcess) -> dict[str, Any]:
    """The only repair, as REST has it; {} while there is none or no hub."""
    try:
        address = f"http://127.0.0.1:{process.port}/api/v1/isolations"
        found = requests.get(address, timeout=PATIENCE_SECONDS).json()["repairs"]
    except requests.ConnectionError:
        return {}
    assert len(found) <= 1
    return dict(found[0]) if found else {}


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_hub_that_is_killed_while_it_creates_a_job(tmp_path: Path, is_done: bool) -> None:
    """Directly before the API server has made it, and directly after."""
    with FaultPrometheus(time.time) as prometheus, NodeApi(tmp_path, NODES) as api:
        prometheus.nodes, prometheus.faults = tuple(NODES), {("gpu-1", "nvidia_xid")}
        process = hub(tmp_path, prometheus.url, manifest(tmp_path), api.kubeconfig)
        kill: Any = process.kill
        api.role |= REPAIR_ROLE
        api.fail(AFTER_HANG if is_done else HANG, "create", resource=JOBS, times=1)
        api.hanging = kill
        process.start(wait=False)
        try:
            started = process.process
            assert started is not None
            wait_until(lambda: started.poll() is not None, 60, "the kill")
            process.start()
            wait_until(lambda: repair(process).get("state") == "started", 30, "the repair")
            api.say(JOBS, conditions=[{"type": "Complete", "status": "True"}])
            wait_until(lambda: repair(process).get("state") == "succeeded", 30, "its end")
        finally:
            process.kill()
        assert len(api.created) == 1
        assert "Traceback" not in process.log.read_text()


def test_a_command_that_ran_when_the_hub_was_killed_is_not_started_again(tmp_path: Path) -> None:
    ticket = Ticket(tmp_path, "time.sleep(600)")
    with FaultPrometheus(time.time) as prometheus:
        prometheus.nodes, prometheus.faults = tuple(NODES), {("gpu-1", "nvidia_xid")}
        process = hub(tmp_path, prometheus.url, ticket.entry(), tmp_path / "none")
        with process:
            wait_until(lambda: len(ticket.calls()) == 1, 60, "the command")
            process.kill()
            process.start()
            wait_until(lambda: repair(process).get("state") == "unknown", 30, "the repair")
            asked = prometheus.queries
            wait_until(lambda: prometheus.queries > asked + 6, 30, "more rounds")
        assert len(ticket.calls()) == 1
        assert "not started again" in process.log.read_text()
