"""Jobs that use what they are given, and jobs that fail."""

from __future__ import annotations

from testbed.alerting.outcome import Wanted
from testbed.alerting.scenario import MINUTE, Fleet
from testbed.alerting.scenarios.table import FILER, HOUR, each, rows, scenario


@scenario("a job uses 97 % of the CPUs of 16 nodes for 45 min", Wanted(), minutes=60)
def busy_processors(fleet: Fleet) -> None:
    fleet.add(24, rows())
    for node in fleet.nodes[:16]:
        node.change("node_cpu_utilization_ratio", 0.97, 10 * MINUTE, 55 * MINUTE)


@scenario("a job uses 85 % of the memory of 24 nodes for 45 min", Wanted(), minutes=60)
def full_memory(fleet: Fleet) -> None:
    fleet.add(32, rows())
    for node in fleet.nodes[:24]:
        node.change("node_memory_available_bytes", 0.3e12, 10 * MINUTE, 55 * MINUTE)


@scenario("a job fails, and the ranks on its 16 nodes log Xid 45", Wanted())
def all_ranks_log_xid_45(fleet: Fleet) -> None:
    fleet.add(24, rows(gpus=1))
    for node in fleet.nodes[:16]:
        node.xid(0, 45, 10 * MINUTE)


@scenario("a job fails on 18 nodes with Xid 43", Wanted())
def many_ranks_log_xid_43(fleet: Fleet) -> None:
    fleet.add(24, rows(gpus=1))
    for node in fleet.nodes[:18]:
        node.xid(0, 43, 10 * MINUTE)


@scenario(
    "a GPU is lost; the other ranks of its job log Xid 45 on 15 nodes",
    Wanted(pages=1, titles=("GPU 0 lost", "n007")),
)
def one_gpu_and_all_ranks(fleet: Fleet) -> None:
    fleet.add(24, rows(gpus=1))
    for node in fleet.nodes[:16]:
        node.xid(0, 45, 10 * MINUTE + 15)
    fleet.nodes[6].gpu_lost(0, 10 * MINUTE)


@scenario("an application fails with Xid 31 every 10 min, for two hours", Wanted(), minutes=130)
def application_xids(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=1))
    for minute in range(10, 120, 10):
        for node in fleet.nodes[:4]:
            node.xid(0, 31, minute * MINUTE)


@scenario("a process is killed for lack of memory on each node of a job", Wanted())
def out_of_memory(fleet: Fleet) -> None:
    fleet.add(12, rows())
    each(fleet.nodes[:8], lambda node: node.count("kernel_events_total", 600, event="oom_kill"))


@scenario(
    "checkpoints every 20 min make the mounts of 16 nodes slow for 2 min",
    Wanted(),
    minutes=130,
    begin=60,
)
def checkpoints(fleet: Fleet) -> None:
    fleet.add(20, rows(mounts=(FILER,)))
    for node in fleet.nodes[:16]:
        for start in range(int(20 * MINUTE), int(2 * HOUR), int(20 * MINUTE)):
            node.mount_slow("/data", 6, start, start + 120)
