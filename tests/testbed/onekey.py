"""Faults of a fabric, the ways to start a check, and whether its verdict names the fault.

In: a fabric with several links per node (rails.py), whose agents run. Out: for a fault and a way,
`named`, `missed` or `wrong`, with the verdict's own text.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from testbed.hubalerts import HubAlertmanager
from testbed.hubcluster import HubProcess, hub_config
from testbed.kubernetes_api.checks import CheckApi
from testbed.node import PYTHON, environment, wait_until
from testbed.rails import LINK_RATE, Direction, RailFabric

HALF_RATE = "10mbit"
EXPECTED = "20Mb/s"
CHECKS = "/api/v1/checks"
ALERT, PRESET, SCHEDULE = "NodeFabricSlow", "links", "nightly"
MESSAGE_BYTES = 131_072
"""iperf3's block."""
PATIENCE_SECONDS = 1800.0
STATUSES = {"ok": 0, "bad": 1, "unknown": 2}
Outcome = Literal["named", "missed", "wrong"]


class Fault(NamedTuple):
    """Links with half of their rate, and what a verdict must name: a node, or the rail `fab2`, with
    `ports` if these are not all of the node; '' means that all links are slow.
    """

    name: str
    subject: str
    nodes: Sequence[str]
    devices: Sequence[str] = ()
    direction: Direction = ""

    @property
    def ports(self) -> set[str]:
        """The ports of a node that the verdict has to name."""
        way = f", {self.direction}" if self.direction else ""
        return {f"port {device}{way}" for device in self.devices}


def faults_of(fabric: RailFabric) -> list[Fault]:
    """The faults of the table; each is at another place."""
    names, devices = fabric.names, fabric.devices
    return [
        Fault("one node", names[2], names[2:3]),
        Fault("all nodes", "", names),
        Fault("one port sending", names[3], names[3:4], devices[1:2], "sending"),
        Fault("one port receiving", names[1], names[1:2], devices[-1:], "receiving"),
        Fault("one rail", devices[1], names, devices[1:2]),
        Fault("one port", names[0], names[:1], devices[:1]),
    ]


@contextmanager
def happening(fabric: RailFabric, fault: Fault | None) -> Iterator[None]:
    """The links are slow inside the with block; none where there is no fault."""
    if fault is None:
        yield
        return
    fabric.shape(fault.nodes, HALF_RATE, fault.devices, fault.direction)
    try:
        yield
    finally:
        fabric.shape(fault.nodes, LINK_RATE, fault.devices, fault.direction)


class Found(NamedTuple):
    """What a way found: the outcome, its findings, and its text."""

    outcome: str
    findings: Sequence[Mapping[str, Any]]
    text: str


def judged(fabric: RailFabric, fault: Fault, found: Found) -> Outcome:
    """Whether the verdict names the fault, and nothing else."""
    subjects = [str(finding["subject"]) for finding in found.findings]
    if found.outcome != "bad" or not subjects:
        return "missed"
    if not fault.subject:
        # All nodes, all rails or, in a tournament of few rounds, all pairs.
        named = {name for subject in subjects for name in subject.split(" - ")}
        return "named" if named in (set(fabric.names), set(fabric.devices)) else "wrong"
    if subjects != [fault.subject]:
        return "wrong" if fault.subject in subjects else "missed"
    if fault.subject in fabric.devices:
        return "named"
    every = {f"port {device}" for device in fabric.devices}
    return "named" if set(found.findings[0]["suspects"]) == (fault.ports or every) else "wrong"


class Bed:
    """The fabric with a new hub, an Alertmanager and an API server; all ways start the same check
    of all nodes and all devices.
    """

    def __init__(
        self, folder: Path, fabric: RailFabric, api: CheckApi, iterations: int, **request: Any
    ) -> None:
        self.fabric, self.api = fabric, api
        self.folder = folder
        test = {"tool": "iperf3", "operation": "tcp", "device": ",".join(fabric.devices)}
        self.test = {**test, "sizes": f"{MESSAGE_BYTES}B", "iterations": iterations}
        self.request = {"kind": "matrix", "nodes": fabric.names, "preset": PRESET, **request}

    def __enter__(self) -> Bed:
        with ExitStack() as stack:
            self.folder.mkdir()
            config = hub_config(self.fabric, **self._settings())
            hub = HubProcess(self.folder, config)
            hub.environment["KUBECONFIG"] = str(self.api.kubeconfig)
            self.hub = stack.enter_context(hub)
            operator = self.hub.token_file("operator")
            alertmanager = HubAlertmanager(self.folder, self.hub.url, operator)
            self.alertmanager = stack.enter_context(alertmanager)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _settings(self) -> dict[str, Any]:
        preset = {"kind": "matrix", "test": self.test, "expected": EXPECTED}
        if "rounds" in self.request:
            preset["rounds"] = self.request["rounds"]
        others = len(self.fabric.names) - 1
        return {
            "presets": {PRESET: preset},
            "resources": {"enabled": True, "list_every": "1s"},
            "alerts": [{"alertname": ALERT, "preset": PRESET, "with_healthy": others}],
            "schedules": {SCHEDULE: {"check": self.request, "every": "7d"}},
        }

    def ended(self, identity: str) -> dict[str, Any]:
        """A check with its results, once it has ended."""

        def detail() -> dict[str, Any] | None:
            body: dict[str, Any] = self.hub.request("GET", f"{CHECKS}/{identity}").json()
            return body if body["check"]["phase"] in ("done", "canceled") else None

        detail_of_it: dict[str, Any] = wait_until(detail, PATIENCE_SECONDS, f"check {identity}")
        return detail_of_it

    def found(self, identity: str) -> Found:
        """The verdict of a check."""
        return found_in(self.ended(identity)["check"]["verdict"])

    def submit(self, request: Mapping[str, Any]) -> str:
        """Start a check by REST; returns its id."""
        key = {"Idempotency-Key": str(uuid.uuid4())}
        answer = self.hub.request("POST", CHECKS, json=request, headers=key)
        assert answer.status_code in (200, 201, 202), answer.text
        return str(answer.json()["id"])


def found_in(verdict: Mapping[str, Any]) -> Found:
    """The verdict as JSON has it."""
    return Found(verdict["outcome"], verdict["findings"], verdict["message"])


def by_rest(bed: Bed, fault: Fault | None) -> Found:
    """POST /api/v1/checks."""
    return bed.found(bed.submit(bed.request))


def by_page(bed: Bed, fault: Fault | None) -> Found:
    """The form of the page, as a browser sends it."""
    fields = {**bed.request, "nodes": "\n".join(bed.request["nodes"]), "do": "start"}
    answer = bed.hub.request("POST", "/checks/new", data=fields, allow_redirects=False)
    assert answer.status_code in (302, 303), f"{answer.status_code} {answer.text}"
    return bed.found(answer.headers["Location"].rpartition("/")[2])


def by_resource(bed: Bed, fault: Fault | None) -> Found:
    """The custom resource, whose status has the verdict's outcome and text."""
    bed.api.create(bed.folder.name, bed.request)

    def status() -> dict[str, Any] | None:
        known = bed.api.status(bed.folder.name)
        return known if known.get("phase") == "Done" else None

    ended = wait_until(status, PATIENCE_SECONDS, "the end of the resource's check")
    bed.api.delete(bed.folder.name)
    found = bed.found(ended["checkId"])
    assert (ended["verdict"], ended["message"]) == (found.outcome, found.text)
    return found


def by_alert(bed: Bed, fault: Fault | None) -> Found:
    """An alert of a node, which Alertmanager sends to the hub: the node with all others."""
    node = fault.nodes[0] if fault else bed.fabric.names[0]
    bed.alertmanager.post(f"{node}:9855", name=ALERT)
    return bed.found(_started(bed, "alert"))


def by_schedule(bed: Bed, fault: Fault | None) -> Found:
    """The schedule of the configuration, which is due when the hub starts."""
    return bed.found(_started(bed, "schedule"))


def _started(bed: Bed, trigger: str) -> str:
    def identity() -> str:
        listed = bed.hub.request("GET", CHECKS).json()
        return next((one["id"] for one in listed if one["requester"]["trigger"] == trigger), "")

    return str(wait_until(identity, PATIENCE_SECONDS, f"a check by {trigger}"))


def by_hub_command(bed: Bed, fault: Fault | None) -> Found:
    """`nodevitals fabric check --hub`."""
    rounds = ("--rounds", str(bed.request["rounds"])) if "rounds" in bed.request else ()
    return hub_command(bed, bed.fabric.names, *rounds)


def hub_command(bed: Bed, nodes: Sequence[str], *more: str) -> Found:
    """The verdict on some nodes by a command that starts the hub's check."""
    token = bed.hub.token_file("operator")
    options = ["--hub", bed.hub.url, "--token-file", str(token), "--preset", PRESET]
    return _command(nodes, *options, *more)


def by_ssh_command(bed: Bed, fault: Fault | None) -> Found:
    """`nodevitals fabric check`, which needs no hub."""
    return ssh_command(bed, bed.fabric.names, str(bed.test["device"]))


def ssh_command(bed: Bed, nodes: Sequence[str], device: str) -> Found:
    """The verdict on some nodes by a command that logs in to them."""
    options = ["--tool", "iperf3", "--device", device, "--expected", EXPECTED]
    options += ["--iterations", str(bed.test["iterations"]), "--message-bytes", str(MESSAGE_BYTES)]
    return _command(nodes, *options)


def _command(nodes: Sequence[str], *options: str) -> Found:
    words = ["fabric", "check", "--nodes", ",".join(nodes), *options, "--json"]
    done = subprocess.run(
        [PYTHON, "-m", "nodevitals", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.stdout, done.stderr
    found = found_in(json.loads(done.stdout)["check"]["verdict"])
    assert done.returncode == STATUSES[found.outcome], done
    return found


Way = Callable[[Bed, Fault | None], Found]
WAYS: dict[str, Way] = {
    "schedule": by_schedule,  # it is due first
    "REST": by_rest,
    "page": by_page,
    "command": by_hub_command,
    "resource": by_resource,
    "alert": by_alert,
    "ssh": by_ssh_command,
}
