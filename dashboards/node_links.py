"""Tables of the node dashboard: RDMA ports, network interfaces, bonds and mounts."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models.dashboard import ValueMap

from dashboards.language import Say
from dashboards.node_queries import RANGE, per, recorded, scraped
from dashboards.panels import Steps
from dashboards.queries import rows
from dashboards.states import GREEN, GREY, RED, YELLOW, mapping, states, up_down, yes_no
from dashboards.tables import Column, grid

PORT = "device, port"
NAMED_PORT, NAMED_SOURCE = 'port!=""', 'source!=""'
NONE_OR: Steps = ((None, GREEN), (1, YELLOW))
SHARE: Steps = ((None, RED), (0.99, GREEN))
FREE: Steps = ((None, RED), (0.05, YELLOW), (0.2, GREEN))


def rdma_ports(say: Say) -> table.Panel:
    """One row per RDMA port."""
    rate, expected = (
        per(PORT, scraped(f"rdma_port_{name}rate_bytes_per_second")) for name in ("", "expected_")
    )
    switch = (
        f"max by ({PORT}, switch, switch_port) (topk by ({PORT}) (1, "
        f"last_over_time({scraped('port_switch_info', NAMED_PORT)}{RANGE})))"
    )
    interface = f"group by ({PORT}, interface) ({recorded('nodevitals:rdma_port_interface')})"
    port = say("Port", "端口号")
    return grid(
        say("RDMA ports", "RDMA 端口"),
        say(
            "One row per port. Down: check cable, transceiver and the switch port named here. "
            "Rate below the expected one: the link trained to fewer lanes. Errors, flaps and time "
            "down are of the time range, the longest outage of the last hour: jobs fail from some "
            "seconds on. GID: RoCE only.",
            "每个端口一行。断开：请检查线缆、光模块及所列交换机端口。速率低于预期：链路降速。"
            "错误数、抖动次数与断开时长为所选时间范围内，最长中断为最近一小时内：达到数秒作业即会失败。"
            "GID 仅适用于 RoCE。",
        ),
        [
            Column(say("Device", "设备"), "device", width=110),
            Column(port, "port", width=70),
            Column(
                say("State", "状态"),
                rows(per(PORT, scraped("rdma_port_up"))),
                mappings=[up_down(say)],
            ),
            Column(
                say("Physical", "物理状态"),
                rows(per(PORT, scraped("rdma_port_physical_state_id"))),
                mappings=[_physical(say)],
            ),
            Column(say("Rate", "速率"), rows(f"8 * {rate}"), "bps"),
            Column(
                say("Of expected", "达标率"),
                rows(f"{rate} / {expected}"),
                "percentunit",
                SHARE,
                decimals=0,
            ),
            _increase(say("Errors", "错误数"), PORT, scraped("rdma_port_errors_total")),
            _increase(say("Flaps", "抖动次数"), PORT, scraped("rdma_port_flaps_total")),
            _increase(
                say("Time down", "断开时长"),
                PORT,
                scraped("rdma_port_down_seconds_total"),
                unit="s",
            ),
            Column(
                say("Longest outage", "最长中断"),
                rows(per(PORT, scraped("rdma_port_longest_down_seconds"))),
                "s",
                NONE_OR,
            ),
            Column(
                say("GID usable", "GID 可用"),
                rows(per(PORT, scraped("rdma_port_gid_usable"))),
                mappings=[yes_no(say)],
            ),
            Column(say("GID index", "GID 索引"), rows(per(PORT, scraped("rdma_port_gid_index")))),
            Column("", rows(interface)),
            Column(say("Interface", "网络接口"), "interface"),
            Column("", rows(switch)),
            Column(say("Switch", "交换机"), "switch"),
            Column(say("Switch port", "交换机端口"), "switch_port"),
        ],
        height=9,
        sort_by=say("Device", "设备"),
        descending=False,
    )


def _physical(say: Say) -> ValueMap:
    return mapping(
        {
            "2": (say("polling", "轮询"), RED),
            "3": (say("disabled", "已禁用"), GREY),
            "4": (say("training", "训练中"), YELLOW),
            "5": (say("link up", "已连通"), GREEN),
            "6": (say("error recovery", "错误恢复"), YELLOW),
        }
    )


def _increase(title: str, labels: str, selector: str, unit: str = "short") -> Column:
    return Column(
        title, rows(f"round(sum by ({labels}) (increase({selector}{RANGE})))"), unit, NONE_OR
    )


def interfaces(say: Say) -> table.Panel:
    """One row per network interface or bond."""
    interface = "interface, kind"
    speed, expected = (
        per(interface, scraped(f"network_{name}speed_bytes_per_second"))
        for name in ("", "expected_")
    )
    info = scraped("port_switch_info", 'port=""')
    switch = f'label_replace({info}, "interface", "$1", "device", "(.+)")'
    place = f"max by (interface, switch, switch_port) (topk by (interface) (1, {switch}))"
    name = say("Interface", "接口")

    def with_kind(expression: str, kept: str = "") -> str:
        """Rows merge by the label `kind`, which these series lack."""
        return (
            f"max by ({interface}{kept}) (({expression}) "
            f"* on (interface) group_left (kind) ({scraped('network_up')} >= bool 0))"
        )

    errors = f"sum by (interface) (increase({scraped('network_errors_total')}{RANGE}))"
    return grid(
        say("Network interfaces", "网络接口"),
        say(
            "Physical interfaces and bonds. Down, slow or many carrier changes: check cable, "
            "transceiver and switch port. Errors and drops are of the time range.",
            "物理接口与 bond。断开、降速或频繁闪断时，请检查线缆、光模块与交换机端口。"
            "错误与丢包为所选时间范围内。",
        ),
        [
            Column(name, "interface", width=110),
            Column(say("Kind", "类型"), "kind", width=90),
            Column(
                say("State", "状态"),
                rows(per(interface, scraped("network_up"))),
                mappings=[up_down(say)],
            ),
            Column(say("Speed", "速率"), rows(f"8 * {speed}"), "bps"),
            Column(
                say("Of expected", "达标率"),
                rows(f"{speed} / {expected}"),
                "percentunit",
                SHARE,
                decimals=0,
            ),
            _increase(
                say("Carrier changes", "闪断次数"),
                interface,
                scraped("network_carrier_changes_total"),
            ),
            Column(
                say("Errors and drops", "错误与丢包"), rows(f"round({with_kind(errors)})"), "short"
            ),
            Column("MTU", rows(per(interface, scraped("network_mtu_bytes")))),
            Column("", rows(with_kind(place, ", switch, switch_port"))),
            Column(say("Switch", "交换机"), "switch"),
            Column(say("Switch port", "交换机端口"), "switch_port"),
        ],
        width=16,
        height=8,
        sort_by=name,
        descending=False,
    )


def bonds(say: Say) -> table.Panel:
    """One row per member of a bond."""
    return grid(
        say("Bond members", "bond 成员"),
        say(
            "Links of each bond. A bond with a member down runs on the others, without "
            "redundancy: check that member's cable and switch port. Empty: no bonds.",
            "各 bond 的成员链路。有成员断开时 bond 仍可用但失去冗余，"
            "请检查该成员的线缆与交换机端口。"
            "为空：没有 bond。",
        ),
        [
            Column("Bond", "interface"),
            Column(say("Member", "成员"), "member"),
            Column(
                say("State", "状态"),
                rows(per("interface, member", scraped("network_bond_member_up"))),
                mappings=[up_down(say)],
            ),
        ],
        width=8,
        height=8,
    )


def mounts(say: Say) -> table.Panel:
    """One row per mount point that is configured."""
    point = "mountpoint"

    def value(name: str) -> str:
        return per(point, scraped(f"mount_{name}"))

    info = f"last_over_time({scraped('mount_present', NAMED_SOURCE)}{RANGE})"
    good = [yes_no(say)]
    mount = say("Mount point", "挂载点")
    return grid(
        say("Mounts", "挂载点"),
        say(
            "One row per mount point. Hung: no call returns, and every process that accesses the "
            "mount hangs too; check the filer, not the node, if others have it as well. Latency is "
            "of the last check; usual: its median of an hour.",
            "每个挂载点一行。挂起：调用均未返回，访问该挂载点的进程都会挂起；"
            "若其他节点同样如此，请检查存储端。"
            "延迟为最近一次检查的耗时；平时延迟为一小时中位数。",
        ),
        [
            Column(mount, point, width=200),
            Column(
                "", rows(f"topk by (mountpoint) (1, group by ({point}, source, fstype) ({info}))")
            ),
            Column(say("Source", "来源"), "source", width=200),
            Column(say("Type", "类型"), "fstype", width=100),
            Column(say("State", "状态"), rows(_mount_state()), mappings=[states(say)]),
            Column(
                say("Hung for", "挂起时长"),
                rows(
                    f"{_of_mounts('probe_unanswered_seconds')} > 0"
                    f" or {_of_mounts('probe_stuck_seconds')} > 0"
                ),
                "s",
                ((None, RED),),
            ),
            Column(say("Present", "已挂载"), rows(value("present")), mappings=good),
            Column(say("Writable", "可写"), rows(value("writable")), mappings=good),
            Column(say("Readable", "可读"), rows(value("readable")), mappings=good),
            Column(say("Intact", "数据完整"), rows(value("content_intact")), mappings=good),
            Column(say("Free", "可用空间"), rows(value("free_bytes")), "bytes"),
            Column(
                say("Free share", "可用比例"),
                rows(f"{value('free_bytes')} / {value('size_bytes')}"),
                "percentunit",
                FREE,
                decimals=0,
            ),
            Column(
                say("Free inodes", "可用 inode"),
                rows(f"{value('inodes_free')} / ({value('inodes')} > 0)"),
                "percentunit",
                FREE,
                decimals=0,
            ),
            Column(say("Write", "写延迟"), rows(value("write_seconds")), "s"),
            Column(say("Read", "读延迟"), rows(value("read_seconds")), "s"),
            Column(
                say("Usual", "平时延迟"),
                rows(per(point, recorded("nodevitals:mount_seconds:median1h"))),
                "s",
            ),
        ],
        height=7,
        sort_by=mount,
        descending=False,
    )


def _of_mounts(name: str) -> str:
    """Return a metric of the mounts' probes by the mount point."""
    probes = scraped(name, 'probe="mounts"')
    return f'max by (mountpoint) (label_replace({probes}, "mountpoint", "$1", "target", "(.+)"))'


def _mount_state() -> str:
    """As nodevitals:component_state, per mount: 2 unknown, 3 degraded, 4 failed, 5 lost."""
    success = _of_mounts("probe_success")
    faults = {
        5: recorded("nodevitals:fault", 'fault="mount_missing"'),
        4: recorded("nodevitals:fault", 'severity="critical"', 'component="mount"'),
        3: recorded("nodevitals:fault", 'severity="warning"', 'component="mount"'),
    }
    by_fault = " or on (mountpoint, fault) ".join(
        f"0 * {fault} + {value}" for value, fault in faults.items()
    )
    return f"max by (mountpoint) ({by_fault}) or on (mountpoint) 2 * (1 - {success})"
