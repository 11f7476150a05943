"""Switches, ports, and whole racks."""

from __future__ import annotations

from testbed.alerting.node import Hardware
from testbed.alerting.outcome import Wanted
from testbed.alerting.scenario import MINUTE, Fleet
from testbed.alerting.scenarios.table import each, rows, scenario


@scenario(
    "a leaf switch reboots: its 32 nodes have no InfiniBand for 3 min",
    Wanted(pages=1, titles=("leaf-1",)),
    minutes=60,
)
def leaf_switch_reboots(fleet: Fleet) -> None:
    fleet.add(48, rows(leaf=32, rack=8))
    each(fleet.nodes[:32], lambda node: node.port_down(0, 10 * MINUTE, 13 * MINUTE))


@scenario(
    "a RoCE leaf is away for 3 min: RDMA ports, interfaces and bonds of 16 nodes at once",
    Wanted(pages=1, titles=("leaf-1",)),
    minutes=60,
)
def roce_leaf_reboots(fleet: Fleet) -> None:
    fleet.add(40, rows(bond=True))
    each(fleet.nodes[:16], lambda node: node.port_down(0, 10 * MINUTE, 13 * MINUTE))


@scenario(
    "a leaf of a rail-optimised fabric is away: port 3 of 16 of 32 nodes (four leaves per node)",
    Wanted(pages=1, titles=("rail-3",)),
    minutes=60,
)
def rail_leaf_fails(fleet: Fleet) -> None:
    fleet.add(32, _on_four_rails)
    each(fleet.nodes[:16], lambda node: node.port_down(3, 10 * MINUTE, 20 * MINUTE))


def _on_four_rails(number: int) -> Hardware:
    group = number // 16 + 1
    return Hardware(
        domains={"rack": f"rack-{number // 8 + 1}", "pool": "train"},
        ports=4,
        switches=tuple(f"group-{group}-rail-{rail}" for rail in range(4)),
    )


@scenario(
    "a second leaf fails 6 min after the first; both stay down",
    Wanted(pages=2, titles=("leaf-1", "leaf-2")),
)
def second_leaf_fails(fleet: Fleet) -> None:
    fleet.add(40, rows())
    each(fleet.nodes[:16], lambda node: node.port_down(0, 10 * MINUTE))
    each(fleet.nodes[16:32], lambda node: node.port_down(0, 16 * MINUTE))


@scenario(
    "three leaves of five fail at once, for 10 min",
    Wanted(pages=(1, 3), texts=("RDMA",)),
    minutes=60,
)
def three_leaves_fail(fleet: Fleet) -> None:
    fleet.add(40, rows(leaf=8, rack=4))
    each(fleet.nodes[:24], lambda node: node.port_down(0, 10 * MINUTE, 20 * MINUTE))


@scenario(
    "a leaf goes down four times in 20 min, for 90 s each time",
    Wanted(pages=(0, 1), tickets=(0, 1)),
    minutes=80,
)
def leaf_flaps(fleet: Fleet) -> None:
    fleet.add(40, rows())
    for minute in (10, 15, 20, 28):
        for node in fleet.nodes[:16]:
            node.port_down(0, minute * MINUTE, minute * MINUTE + 90)


@scenario(
    "a leaf is away for 10 min; two of its nodes stay without a link",
    Wanted(pages=(2, 3), titles=("leaf-1",)),
    minutes=80,
)
def two_nodes_stay_broken(fleet: Fleet) -> None:
    fleet.add(40, rows())
    each(fleet.nodes[2:16], lambda node: node.port_down(0, 10 * MINUTE, 20 * MINUTE))
    each(fleet.nodes[:2], lambda node: node.port_down(0, 10 * MINUTE))


@scenario(
    "one port of one node is down",
    Wanted(pages=1, titles=("n005",), first_page_within=10 * MINUTE + 180),
)
def one_port_down(fleet: Fleet) -> None:
    fleet.add(12, rows())
    fleet.nodes[4].port_down(0, 10 * MINUTE)


@scenario(
    "a rack loses power: 8 nodes of 32",
    Wanted(pages=1, titles=("rack-3",)),
)
def rack_loses_power(fleet: Fleet) -> None:
    fleet.add(32, rows())
    each(fleet.nodes[16:24], lambda node: node.down(10 * MINUTE))


@scenario(
    "half the fleet cannot be scraped for 8 min: the network that Prometheus uses",
    Wanted(pages=1),
    minutes=60,
)
def scrape_network_away(fleet: Fleet) -> None:
    fleet.add(32, rows())
    each(fleet.nodes[::2], lambda node: node.down(10 * MINUTE, 18 * MINUTE))
