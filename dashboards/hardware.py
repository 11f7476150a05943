"""The hardware of one node and what it needs to run: chassis, disks, optical modules, services,
scripts. What is wrong comes first, by the rules' own verdicts, and so by their thresholds.

The rows are in modules of their own, hardware_*.py.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table

from dashboards import hardware_chassis as chassis
from dashboards import hardware_disks as disks
from dashboards import hardware_modules as modules
from dashboards import hardware_services as services
from dashboards.board import Board, link_here
from dashboards.language import Say
from dashboards.node_queries import HERE, RANKS, named_object, per, ranked, recorded, scraped
from dashboards.node_summary import RUNBOOKS
from dashboards.panels import number
from dashboards.queries import over_time, rows
from dashboards.states import GREEN, ORANGE, RED, YELLOW, actions, mapping, severity_ranks
from dashboards.tables import Column, grid

# Faults, as the rules name them, by the number that counts them.
FAULTS = {
    "chassis": (
        *("power_supply_failed", "power_input_lost", "chassis_fan_failed", "chassis_hot"),
        *("chassis_redundancy_lost", "chassis_event", "bmc_unreachable"),
    ),
    "disks": (
        *("disk_failing", "disk_media_errors", "disk_hot", "disk_missing", "disk_wear_high"),
        *("array_degraded", "nvme_failed"),
    ),
    "modules": (
        *("transceiver_receive_low", "transceiver_receive_dropped"),
        "transceiver_receive_falling",
        *("fec_uncorrected", "fec_corrected_outlier"),
    ),
    "outages": ("rdma_port_outage", "network_interface_outage"),
    "services": ("service_down", "service_flapping"),
    "system": (
        *("filesystem_read_only", "filesystem_errors"),
        *("processes_blocked", "zombie_processes", "threads_high"),
        *("hung_task", "kernel_lockup", "kernel_bug"),
    ),
    "scripts": ("script_critical", "script_warning", "script_unknown"),
    "profile": ("profile_differs",),
}
ALERT = "alertname, action, object"


def board(say: Say) -> Board:
    """Return the dashboard."""
    made = Board(
        say,
        "hardware",
        ("Node hardware", "节点硬件"),
        (
            "One node: chassis, disks, optical modules, services and a site's scripts.",
            "单个节点：机箱、磁盘、光模块、系统服务与自定义脚本。",
        ),
        ["cluster", "pool", "instance"],
        single=["instance"],
    )
    made.alerts(f"{HERE}, {_of(*FAULTS)}")
    return made.rows(
        ("", [*counts(say), alerts(say)]),
        (say("Power, cooling, BMC", "电源、散热与 BMC"), chassis.panels(say)),
        (say("Disks", "磁盘"), disks.panels(say)),
        (say("Optical modules and cables", "光模块与线缆"), modules.panels(say)),
        (say("Services, scripts, processes", "服务、脚本与进程"), services.panels(say)),
    )


def _of(*groups: str) -> str:
    """Return the matcher of the faults of some groups."""
    return f'fault=~"{"|".join(fault for group in groups for fault in FAULTS[group])}"'


def counts(say: Say) -> list[stat.Panel]:
    """Return the number of faults of each group: 0 only where the group is monitored."""

    def faults(group: str, title: str, description: str, alive: str, severe: bool) -> stat.Panel:
        fault = recorded("nodevitals:fault", _of(group))
        if group == "modules":
            fault = f"last_over_time({fault}{modules.LAST})"
        return number(
            title,
            f"{description}" + say(" Empty: not monitored.", "为空：未监控。"),
            over_time(f"count({fault}) or 0 * max({alive})"),
            unit="short",
            steps=((None, GREEN), (1, RED if severe else ORANGE)),
            link=link_here(say, "conformity", say("Conformity", "配置一致性"))
            if group == "profile"
            else None,
        )

    return [
        faults(group, *text, alive, group == "system")
        for (group, text), alive in zip(
            _texts(say).items(),
            (
                # A BMC that does not answer is not known to be healthy.
                scraped("bmc_up") + " == 1",
                scraped("disks_present"),
                scraped("transceiver_readable"),
                scraped("rdma_port_longest_down_seconds"),
                scraped("services_failed_units"),
                scraped("node_threads"),
                scraped("scripts_status"),
                scraped("profile_checks"),
            ),
            strict=True,
        )
    ]


def _texts(say: Say) -> dict[str, tuple[str, str]]:
    return {
        "chassis": (
            say("Chassis", "机箱"),
            say(
                "Faults of power supplies, fans, temperatures and the BMC.",
                "电源、风扇、温度和 BMC 的故障数。",
            ),
        ),
        "disks": (
            say("Disks", "磁盘"),
            say("Faults of disks and arrays.", "磁盘与阵列的故障数。"),
        ),
        "modules": (
            say("Modules", "光模块"),
            say(
                "Links with too little light or too many errors.",
                "接收光功率过低或误码过多的链路数。",
            ),
        ),
        "outages": (
            say("Port outages", "端口中断"),
            say(
                "Ports that were down within the last hour for longer than jobs wait, and are up "
                "again.",
                "最近一小时内中断时间超过作业等待时间、现已恢复的端口数。",
            ),
        ),
        "services": (
            say("Services", "系统服务"),
            say(
                "Units of systemd that are not active but must be, or restart again and again.",
                "应运行而未运行或反复重启的 systemd 单元数。",
            ),
        ),
        "system": (
            say("Kernel and root", "内核与文件系统"),
            say(
                "Read-only file systems, processes that hang, lockups of the kernel, too many "
                "zombies or threads.",
                "只读文件系统、挂起的进程、内核死锁、僵尸进程或线程过多的故障数。",
            ),
        ),
        "scripts": (
            say("Scripts", "脚本"),
            say("Scripts of the site that are not ok.", "状态不正常的自定义脚本数。"),
        ),
        "profile": (
            say("Profile", "配置基线"),
            say(
                "1: some facts differ from the profile; the link leads to them.",
                "为 1：有配置与基线不一致，点击链接查看。",
            ),
        ),
    }


def alerts(say: Say) -> table.Panel:
    """The alerts of these faults, also those that wait to fire."""
    chosen = _of(*FAULTS)
    alert = say("Alert", "告警")
    runbook = f'{RUNBOOKS}/${{__data.fields["{alert}"]:percentencode}}.md'
    firing = recorded("ALERTS", 'alertstate="firing"', chosen)
    pending = recorded("ALERTS", 'alertstate="pending"', chosen)
    since = recorded("ALERTS_FOR_STATE", chosen, f'severity=~"{"|".join(RANKS)}"')
    return grid(
        say("Hardware alerts", "硬件告警"),
        say(
            "What is wrong with the node's hardware and services, the worst first, also what does "
            "not last long enough to be notified yet. Select the alert for its runbook.",
            "该节点硬件与服务的异常，最严重的在前，包括尚未达到通知时长的。点击告警打开处理手册。",
        ),
        [
            Column(
                say("Severity", "级别"),
                rows(per(ALERT, named_object(ranked("ALERTS", chosen)))),
                mappings=[severity_ranks(say)],
                width=100,
            ),
            Column(alert, "alertname", link=(say("Runbook", "处理手册"), runbook), width=240),
            Column(say("Object", "对象"), "object"),
            Column(
                say("State", "状态"),
                rows(per(ALERT, named_object(f"0 * {pending} or 0 * {firing} + 1"))),
                mappings=[
                    mapping(
                        {
                            "1": (say("firing", "已触发"), RED),
                            "0": (say("pending", "待触发"), YELLOW),
                        }
                    )
                ],
                width=100,
            ),
            Column(
                say("Since", "开始时间"),
                rows(f"min by ({ALERT}) ({named_object(since)}) * 1000"),
                "dateTimeFromNow",
                width=160,
            ),
            Column(say("Action", "处理"), "action", mappings=[actions(say)], width=160),
        ],
        height=8,
        sort_by=say("Severity", "级别"),
        empty=say("Nothing is wrong", "无异常"),
    )
