"""Upgrades, reboots and maintenance."""

from __future__ import annotations

from testbed.alerting.outcome import Wanted
from testbed.alerting.scenario import MINUTE, Fleet
from testbed.alerting.scenarios.table import each, rows, scenario


@scenario(
    "rolling driver upgrade without a word to anybody: 50 nodes by tens, each 2 min without a "
    "driver, then a reboot",
    Wanted(pages=(0, 1), tickets=(0, 3), updates=(0, 10)),
    minutes=70,
)
def rolling_driver_upgrade(fleet: Fleet) -> None:
    fleet.add(50, rows(gpus=1, leaf=20, rack=10))
    for number, node in enumerate(fleet.nodes):
        at = (5 + 6 * (number // 10)) * MINUTE
        node.driver_away(at, at + 4 * MINUTE, mismatch=True)
        node.driver_version("560.2", at + 4 * MINUTE)
        node.reboot(at + 2 * MINUTE, minutes=4)


@scenario(
    "the same upgrade with maintenance set on each node",
    Wanted(),
    minutes=60,
)
def rolling_upgrade_in_maintenance(fleet: Fleet) -> None:
    fleet.add(30, rows(gpus=1, leaf=20, rack=10))
    for number, node in enumerate(fleet.nodes):
        at = (10 + 8 * (number // 10)) * MINUTE
        node.maintenance(at - 60, at + 9 * MINUTE)
        node.driver_away(at, at + 5 * MINUTE, mismatch=True)
        node.reboot(at + 3 * MINUTE, minutes=4)


@scenario(
    "rolling reboot, one node at a time, with maintenance set",
    Wanted(),
    minutes=60,
)
def rolling_reboot(fleet: Fleet) -> None:
    fleet.add(12, rows())
    for number, node in enumerate(fleet.nodes[:6]):
        at = (6 + 8 * number) * MINUTE
        node.maintenance(at - 60, at + 7 * MINUTE)
        node.reboot(at, minutes=5)


@scenario(
    "a GPU is lost during maintenance, and still is when the maintenance ends after 20 min",
    Wanted(pages=1, titles=("GPU 0 lost", "n003"), not_before=29 * MINUTE),
    minutes=60,
)
def fault_outlasts_maintenance(fleet: Fleet) -> None:
    fleet.add(12, rows(gpus=1))
    node = fleet.nodes[2]
    node.maintenance(10 * MINUTE, 30 * MINUTE)
    node.gpu_lost(0, 15 * MINUTE)


@scenario(
    "another node fails while one is in maintenance",
    Wanted(pages=1, titles=("n009",)),
)
def fault_beside_maintenance(fleet: Fleet) -> None:
    fleet.add(12, rows(gpus=1))
    fleet.nodes[2].maintenance(5 * MINUTE, 40 * MINUTE)
    fleet.nodes[2].reboot(6 * MINUTE, minutes=20)
    fleet.nodes[8].gpu_lost(0, 15 * MINUTE)


@scenario(
    "50 nodes lose contact with their GPUs after an upgrade of the library",
    Wanted(pages=1, texts=("50 of 60 nodes",), never=("driver 550.1", "driver_version 550.1")),
)
def library_upgrade(fleet: Fleet) -> None:
    fleet.add(60, rows(gpus=1, leaf=20, rack=10))
    each(fleet.nodes[:50], lambda node: node.driver_away(10 * MINUTE, 90 * MINUTE, mismatch=True))


@scenario("the agents of a rack restart one after the other", Wanted())
def agents_restart(fleet: Fleet) -> None:
    fleet.add(24, rows())
    for number, node in enumerate(fleet.nodes[:8]):
        node.agent_restart(10 * MINUTE + 30 * number, gap=30)


@scenario("the agents of all nodes are upgraded at once, and miss two scrapes", Wanted())
def all_agents_restart(fleet: Fleet) -> None:
    fleet.add(32, rows())
    each(fleet.nodes, lambda node: node.agent_restart(10 * MINUTE, gap=30))
