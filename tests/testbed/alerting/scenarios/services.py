"""Services of nodes that end, restart or are upgraded; file systems that become read-only."""

from __future__ import annotations

from testbed.alerting.faults import Node
from testbed.alerting.outcome import Wanted
from testbed.alerting.scenario import HOUR, MINUTE, Fleet
from testbed.alerting.scenarios.table import each, rows, scenario

AT = 10 * MINUTE
KUBELET = "kubelet.service"
ROOT = {"mountpoint": "/", "fstype": "ext4", "source": "/dev/nvme0n1p2"}


def _runs(node: Node) -> None:
    """The node has a kubelet that runs, and a root that is writable."""
    node.set("services_unit_active", 1, unit=KUBELET)
    node.set("services_unit_expected", 1, unit=KUBELET)
    node.set("services_unit_restarts_total", 0, unit=KUBELET)
    node.set("node_filesystem_read_only", 0, **ROOT)
    node.set("kernel_events_total", 0, event="filesystem_error")
    node.set("node_hung_processes", 0, wait="nfs")


def _stopped(node: Node, at: float, until: float) -> None:
    node.change("services_unit_active", 0, at, until, unit=KUBELET)


@scenario(
    "the kubelets of 100 nodes are restarted one after the other, without a word to anybody",
    Wanted(),
    minutes=70,
)
def rolling_kubelet_restart(fleet: Fleet) -> None:
    fleet.add(100, rows(leaf=20, rack=10))
    each(fleet.nodes, _runs)
    for number, node in enumerate(fleet.nodes):
        at = (5 + number * 0.5) * MINUTE
        _stopped(node, at, at + 60)


@scenario("the kubelets of 30 nodes are restarted at once", Wanted())
def kubelets_restart_at_once(fleet: Fleet) -> None:
    fleet.add(30, rows(leaf=20, rack=10))
    each(fleet.nodes, _runs)
    each(fleet.nodes, lambda node: _stopped(node, AT, AT + 75))


@scenario("the kubelet of a node ends", Wanted(tickets=1, ticket_titles=("kubelet", "n003")))
def kubelet_ends(fleet: Fleet) -> None:
    fleet.add(12, rows())
    each(fleet.nodes, _runs)
    _stopped(fleet.nodes[2], AT, HOUR)


@scenario("the kubelet of a node in maintenance is stopped", Wanted())
def kubelet_stopped_in_maintenance(fleet: Fleet) -> None:
    fleet.add(12, rows())
    each(fleet.nodes, _runs)
    fleet.nodes[2].maintenance(AT - 60, HOUR)
    _stopped(fleet.nodes[2], AT, HOUR)


@scenario(
    "a disk fails: the kernel logs it and makes the root read-only",
    # The message comes two minutes before the page is due.
    Wanted(pages=1, tickets=(0, 1), titles=("read-only",)),
)
def root_becomes_read_only(fleet: Fleet) -> None:
    fleet.add(12, rows())
    each(fleet.nodes, _runs)
    node = fleet.nodes[2]
    node.change("node_filesystem_read_only", 1, AT, **ROOT)
    node.count("kernel_events_total", AT, event="filesystem_error")
