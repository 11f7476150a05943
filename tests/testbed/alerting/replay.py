"""Faults of the trace, played on one node of a small cluster.

In: faults. Out: what people were notified of, and when, from the rules and a real Alertmanager. A
fault of weeks is played for its first minutes, then it ends as it did in the trace: repaired, with
a reboot that is marked as planned work where the repair needs one. Faults of one kind that last
equally long differ only in when they begin between two runs of the agent, two scrapes: they share
a few runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from testbed.alerting import pager, timeline
from testbed.alerting.faults import FOREVER, Node
from testbed.alerting.node import Hardware
from testbed.alerting.outcome import Outcome
from testbed.alerting.pager import Notification
from testbed.alerting.scenario import MINUTE, Fleet
from testbed.alerting.series import STEP_SECONDS
from testbed.alerting.trace import Fault
from testbed.alerting.trace_kinds import KINDS, Kind, Moment

FAULTY = "n001"
REBOOT_MINUTES = 5.0
MARKED_BEFORE = MARKED_AFTER = 60.0
ROUND_MINUTES = 5
# Their multiples fill an interval evenly, and independently of each other.
GOLDEN_RATIO = 0.6180339887
SQUARE_ROOT = 0.4142135624
# Actions that need an empty node.
REPAIRS = ("drain", "reset_device", "reboot_node", "replace")
COUNTED = ("accelerator", "network", "node", "rdma")
# A notification until then belongs to the fault and its repair.
REST_SECONDS = 600.0
# promtool's limit is 10,000 samples per query: a subquery of 60 steps over this many nodes.
BATCH_NODES = 128
PROMTOOLS = 2


class Plan(msgspec.Struct, frozen=True):
    """How long to play: minutes of health, of the fault at most, and after it."""

    nodes: int = 8
    before: float = 10
    longest: float = 40
    after: float = 20
    spread: int = 48
    """Faults begin at this many different scrapes, so that they are not notified all at once."""
    phases: int = 3
    """Number of runs for faults of the same kind and length."""
    speed: float = 60
    """Alertmanager's waits are divided by it."""

    @property
    def seconds(self) -> float:
        """The whole length."""
        return (self.before + self.longest + self.after) * MINUTE + self.spread * STEP_SECONDS

    def minutes(self, fault: Fault) -> int:
        """For how long a fault is played: its length in fives of minutes. A crash of the trace has
        no length at all.
        """
        fives = math.ceil(fault.seconds / (ROUND_MINUTES * MINUTE))
        return max(ROUND_MINUTES, min(fives * ROUND_MINUTES, int(self.longest)))


class Run(msgspec.Struct, frozen=True):
    """What is played: a kind of fault in a cluster of its own."""

    kind: tuple[str, str]
    cluster: str
    moment: Moment


class Played(msgspec.Struct):
    """A run and what came of it.

    `seconds` from the fault to its first page or ticket, None without. `elsewhere` are pages and
    tickets before it, ten minutes and more after its return, or for another node.
    `counted`: it is one of the faults of the node that RepeatedFaults counts.
    """

    run: Run
    pages: int = 0
    tickets: int = 0
    seconds: float | None = None
    elsewhere: list[str] = []
    titles: list[str] = []
    counted: bool = False


def plan_runs(faults: Sequence[Fault], plan: Plan) -> dict[Fault, Run]:
    """Return the run of each fault whose kind can be shown; equal faults have equal runs."""
    sharing: dict[tuple[tuple[str, str], int], list[Fault]] = defaultdict(list)
    for one in faults:
        if KINDS[one.kind].play:
            sharing[one.kind, plan.minutes(one)].append(one)
    found: dict[Fault, Run] = {}
    number = 0
    for (kind, minutes), equal in sharing.items():
        count = min(plan.phases, len(equal))
        runs = [_run(kind, minutes, number + index, plan) for index in range(count)]
        found |= {one: runs[index % count] for index, one in enumerate(equal)}
        number += count
    return found


def _run(kind: tuple[str, str], minutes: int, number: int, plan: Plan) -> Run:
    """Between two scrapes, and between two runs of the probe, it begins at a place of its own."""
    start = plan.before * MINUTE + (number % plan.spread + number * GOLDEN_RATIO % 1) * STEP_SECONDS
    moment = Moment(start, start + minutes * MINUTE, number * SQUARE_ROOT % 1)
    return Run(kind, f"fault-{number}", moment)


def play(runs: Sequence[Run], plan: Plan, folder: Path) -> list[Played]:
    """Play runs and return what came of them, in the same order."""
    per_batch = min(BATCH_NODES // plan.nodes, math.ceil(len(runs) / PROMTOOLS))
    batches = [runs[at : at + per_batch] for at in range(0, len(runs), per_batch)]

    def evaluated(batch: Sequence[Run]) -> list[timeline.Firing]:
        series = [row for one in batch for row in _series(one, plan)]
        own = folder / batch[0].cluster
        own.mkdir()
        return timeline.evaluate(series, plan.seconds, own)

    with ThreadPoolExecutor(PROMTOOLS) as pool:
        alerts = [alert for found in pool.map(evaluated, batches) for alert in found]
    sent = pager.notify(alerts, plan.seconds, folder, plan.speed)
    return [_judged(one, sent) for one in runs]


def _series(run: Run, plan: Plan) -> list[dict[str, str]]:
    fleet = Fleet(run.cluster)
    fleet.add(plan.nodes, _hardware)
    for node in fleet.nodes:
        _complete(node)
    kind = KINDS[run.kind]
    assert kind.play is not None
    kind.play(fleet.nodes[0], run.moment)
    _repair(fleet.nodes[0], kind, run.moment)
    return fleet.documents(plan.seconds)


def _complete(node: Node) -> None:
    """Add what the agent exposes of a healthy node and rules read here; ports are not bonded."""
    for one in [*node.matching("nodevitals_network", interface="bond0")]:
        one.set(None)
    for port in range(node.hardware.ports):
        node.set("rdma_port_interface_up", 1, **node.port(port), interface=f"ens{port}")
    for event in ("machine_check", "filesystem_error"):
        node.set("kernel_events_total", 0, event=event)


def _hardware(number: int) -> Hardware:
    return Hardware(
        domains={"leaf": "leaf-1", "rack": "rack-1", "pool": "train"},
        gpus=1 if number else 2,
        ports=1 if number else 2,
        bond=True,
        mounts=(("/data", "nfs4", "filer-1:/data"), ("/scratch", "ext4", "/dev/nvme0n1p1")),
    )


def _repair(node: Node, kind: Kind, moment: Moment) -> None:
    """Reboot the node just before the fault's end, which is its return to service."""
    at = moment.end - REBOOT_MINUTES * MINUTE
    if not kind.reboot or at - MARKED_BEFORE <= moment.start:
        return
    node.maintenance(at - MARKED_BEFORE, moment.end + MARKED_AFTER)
    node.reboot(at, REBOOT_MINUTES)
    for one in [*node.matching("nodevitals_nvidia_xid_last")]:
        one.replace(None, at, FOREVER)
    for one in [*node.matching("nodevitals_accelerator_ecc_errors_total")]:
        one.replace(0, at, FOREVER)


def _judged(run: Run, sent: Sequence[Notification]) -> Played:
    outcome = Outcome.of([one for one in sent if _labels(one).get("cluster") == run.cluster])
    moment = run.moment
    played = Played(run, len(outcome.pages), len(outcome.tickets))
    played.counted = any(
        _is_counted(alert["labels"])
        for one in (*outcome.pages, *outcome.tickets)
        for alert in one.alerts
    )
    for name, found in (("page", outcome.pages), ("ticket", outcome.tickets)):
        for one in found:
            title = f"{name} after {one.at - moment.start:.0f} s: {one.title}"
            played.titles.append(title)
            if not moment.start <= one.at <= moment.end + REST_SECONDS or not _of_the_node(one):
                played.elsewhere.append(title)
    first = min((one.at for one in (*outcome.pages, *outcome.tickets)), default=None)
    played.seconds = None if first is None else first - moment.start
    return played


def _is_counted(labels: dict[str, str]) -> bool:
    """Whether it takes the node out of service (docs/automation.md), and not for its storage."""
    out_of_service = labels["severity"] == "critical" or labels["action"] in REPAIRS
    return out_of_service and labels["component"] in COUNTED


def _labels(one: Notification) -> dict[str, str]:
    labels: dict[str, str] = one.alerts[0]["labels"]
    return labels


def _of_the_node(one: Notification) -> bool:
    return all(alert["labels"].get("instance") == FAULTY for alert in one.alerts)
