"""Prometheus, targets and agents."""

from __future__ import annotations

from testbed.alerting.outcome import Wanted
from testbed.alerting.scenario import MINUTE, Fleet
from testbed.alerting.scenarios.table import each, rows, scenario


@scenario("a target leaves service discovery", Wanted(tickets=1), minutes=60)
def target_leaves_discovery(fleet: Fleet) -> None:
    fleet.add(8, rows())
    fleet.nodes[2].leaves_discovery(10 * MINUTE)


@scenario("half the fleet is scraped under another job name", Wanted(tickets=1), minutes=60)
def other_job_name(fleet: Fleet) -> None:
    fleet.add(8, rows())
    each(fleet.nodes[4:], lambda node: node.scraped_as("node-health"))


@scenario("the agent of a node is in a crash loop", Wanted(tickets=1), minutes=60)
def agent_in_crash_loop(fleet: Fleet) -> None:
    fleet.add(8, rows())
    for number in range(12):
        fleet.nodes[2].agent_restart((10 + 4 * number) * MINUTE, gap=45)


@scenario(
    "Prometheus is away for 5 min during an incident",
    Wanted(pages=1, titles=("leaf-1",)),
    minutes=50,
)
def prometheus_restarts(fleet: Fleet) -> None:
    fleet.add(48, rows())
    each(fleet.nodes[:16], lambda node: node.port_down(0, 8 * MINUTE))
    fleet.prometheus_restarts(15 * MINUTE, 20 * MINUTE)


@scenario("Prometheus restarts within a minute while one GPU is lost", Wanted(pages=1), minutes=40)
def prometheus_restarts_quickly(fleet: Fleet) -> None:
    fleet.add(8, rows(gpus=1))
    fleet.nodes[2].gpu_lost(0, 8 * MINUTE)
    fleet.prometheus_restarts(15 * MINUTE, 16 * MINUTE)


@scenario("the time server is away for 2 min", Wanted())
def time_server_away(fleet: Fleet) -> None:
    fleet.add(24, rows())
    for node in fleet.nodes:
        node.change("node_clock_synchronized", 0, 10 * MINUTE, 12 * MINUTE)


@scenario(
    "the time server is away for an hour",
    Wanted(tickets=1),
    minutes=90,
)
def time_server_away_for_an_hour(fleet: Fleet) -> None:
    fleet.add(24, rows())
    for node in fleet.nodes:
        node.change("node_clock_synchronized", 0, 10 * MINUTE, 70 * MINUTE)


@scenario("the agent of a node stops; for Kubernetes the node is ready", Wanted(tickets=1))
def agent_stops(fleet: Fleet) -> None:
    fleet.add(8, rows())
    fleet.nodes[2].down(10 * MINUTE)
    ready = {"condition": "Ready", "status": "true"}
    for node in fleet.nodes:
        fleet.other("kube_node_status_condition", node=node.name, **ready).set(1)


@scenario("a node reboots by itself, and is back after 4 min", Wanted())
def one_reboot(fleet: Fleet) -> None:
    fleet.add(8, rows(gpus=1))
    fleet.nodes[2].reboot(10 * MINUTE, minutes=4)


@scenario("the probe `node` of one node fails for an hour", Wanted(tickets=1), minutes=80)
def probe_fails(fleet: Fleet) -> None:
    fleet.add(8, rows())
    fleet.nodes[2].change("probe_success", 0, 10 * MINUTE, 70 * MINUTE, probe="node", target="node")


@scenario(
    "a wrong configuration is pushed to all agents, which keep the old one", Wanted(tickets=1)
)
def wrong_configuration(fleet: Fleet) -> None:
    fleet.add(48, rows())
    each(fleet.nodes, lambda node: node.change("config_last_reload_successful", 0, 10 * MINUTE))
