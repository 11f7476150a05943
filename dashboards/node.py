"""One node: what it should have and has, what fires, each device, and what happened when.

The rows are in modules of their own, node_*.py. The pool only restricts which nodes can be chosen.
"""

from __future__ import annotations

from dashboards import node_devices as devices
from dashboards import node_expected as expected
from dashboards import node_fast as fast
from dashboards import node_graphs as graphs
from dashboards import node_history as history
from dashboards import node_host as host
from dashboards import node_links as links
from dashboards import node_npus as npus
from dashboards import node_summary as summary
from dashboards import node_traffic as traffic
from dashboards.board import Board
from dashboards.language import Say
from dashboards.node_queries import HERE


def board(say: Say) -> Board:
    """Return the dashboard."""
    made = Board(
        say,
        "node",
        ("Node", "节点详情"),
        (
            "One node: expected and present, alerts, devices, history.",
            "单个节点：应有与实有、告警、各类设备与历史。",
        ),
        ["cluster", "pool", "instance", "vendor", "device", "fabric_name"],
        single=["instance", "fabric_name"],
        hidden=["fabric_name"],
        check="/checks/for?nodes=${instance:percentencode}",
    )
    made.alerts(f'{HERE}, severity=~"critical|warning"')
    return made.rows(
        (
            "",
            [
                summary.state(say),
                summary.schedulable(say),
                summary.maintenance(say),
                summary.components(say),
                *expected.strip(say),
                summary.alerts(say),
            ],
        ),
        ("GPU", [devices.gpus(say)]),
        (
            say("Links and mounts", "链路与挂载点"),
            [links.rdma_ports(say), links.interfaces(say), links.bonds(say), links.mounts(say)],
        ),
        (
            say("What happened", "发生了什么"),
            [
                history.components(say),
                history.alerts(say),
                history.faults(say),
                history.pods_over_time(say),
                history.pods(say),
            ],
        ),
        (say("Accelerators over time", "加速器趋势"), graphs.accelerators(say)),
        (say("GPU links and clocks", "GPU 链路与时钟"), graphs.gpus(say)),
        (
            say("RDMA, network and mounts over time", "RDMA、网络与挂载点趋势"),
            [*traffic.rdma(say), traffic.network(say), *traffic.mount_latency(say)],
        ),
        (
            say("Fabric tests", "互联测试"),
            [traffic.fabric_medians(say), *traffic.fabric_tests(say)],
        ),
        (say("Each second", "秒级监控"), fast.second_level(say)),
        (say("Host", "主机"), host.host(say)),
        (
            say("Probes and disks", "探测项与磁盘"),
            [host.probes(say), host.nvme(say), host.durations(say)],
        ),
        ("NPU", [npus.npus(say), npus.fault_codes(say), *graphs.npus(say)]),
    )
