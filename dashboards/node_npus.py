"""The tables of the node's NPUs: one row per chip, and the fault codes that they report."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models.dashboard import ValueMap

from dashboards.language import Say
from dashboards.node_devices import DEVICE, NONE_OR, common, memory_errors
from dashboards.node_queries import npu, per
from dashboards.queries import rows
from dashboards.states import GREEN, GREY, ORANGE, RED, YELLOW, actions, mapping, up_down
from dashboards.tables import Column, grid


def npus(say: Say) -> table.Panel:
    """One row per Ascend NPU."""
    device = "NPU"
    up = up_down(say)
    reaches = mapping(
        {"success": (say("ok", "正常"), GREEN), "init": (say("starting", "初始化"), GREY)}
    )
    return grid(
        "NPU" if say.language == "zh" else "NPUs",
        say(
            "One row per NPU. Health and fault codes are the chip's own; link and network are "
            "those of its RoCE port. ECC errors (UE: uncorrected, CE: corrected) are of the time "
            "range, isolated pages of the chip's life. "
            "Empty: not reported, or no NPUs.",
            "每个 NPU 一行。健康状态与故障码由芯片上报；链路与网络为其 RoCE 端口。"
            "ECC 为所选时间范围内，隔离页为芯片全生命周期。空白：未上报或该节点无 NPU。",
        ),
        [
            Column(device, "device", width=60),
            *common(say, "ascend"),
            Column(
                say("Health", "健康状态"),
                rows(per(DEVICE, npu("health_level"))),
                mappings=[_health(say)],
            ),
            Column(
                say("Fault codes", "故障码数"),
                rows(
                    f"count by ({DEVICE}) ({npu('fault_code')}) "
                    f"or on (uuid) 0 * {per(DEVICE, npu('health_level'))}"
                ),
                steps=NONE_OR,
            ),
            *memory_errors(say, "ascend"),
            Column(
                say("Isolated pages", "隔离页数"),
                rows(f"sum by ({DEVICE}) ({npu('isolated_pages')})"),
            ),
            Column(say("Link", "链路"), rows(per(DEVICE, npu("link_up"))), mappings=[up]),
            Column(
                say("Link speed", "链路速率"),
                rows(per(DEVICE, f"8 * {npu('link_speed_bytes_per_second')}")),
                "bps",
            ),
            Column("", rows(f"group by ({DEVICE}, state) ({npu('network_health')})")),
            Column(say("Network health", "网络健康"), "state", mappings=[reaches]),
            Column(
                say("Optical power margin", "光功率余量"),
                rows(
                    f"min by ({DEVICE}) ({npu('optical_receive_watts')} "
                    f"/ on ({DEVICE}) group_left () {npu('optical_receive_low_watts')})"
                ),
                steps=((None, RED), (1, GREEN)),
                decimals=1,
            ),
        ],
        height=10,
        sort_by=device,
        descending=False,
        empty=say("No NPUs", "无 NPU"),
    )


def fault_codes(say: Say) -> table.Panel:
    """The fault codes of the NPUs: one may have several."""
    return grid(
        say("NPU fault codes", "NPU 故障码"),
        say(
            "Codes that the chips report now, with Huawei's handling level. Action is what "
            "repairs the fault.",
            "芯片当前上报的故障码及华为定义的处理级别。“处理”列为修复动作。",
        ),
        [
            Column("NPU", "device", width=60),
            Column(say("Code", "故障码"), "code"),
            Column(say("Level", "处理级别"), "level"),
            Column(say("Action", "处理"), "action", mappings=[actions(say)]),
            Column("", rows(f"group by (device, code, level, action) ({npu('fault_code')})")),
        ],
        width=8,
        height=8,
    )


def _health(say: Say) -> ValueMap:
    return mapping(
        {
            "0": (say("OK", "正常"), GREEN),
            "1": (say("warning", "一般告警"), YELLOW),
            "2": (say("alarm", "重要告警"), ORANGE),
            "3": (say("critical", "紧急告警"), RED),
        }
    )
