"""The table of the node's GPUs, and what it has in common with the one of the NPUs."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models.dashboard import ValueMap

from dashboards.language import Say
from dashboards.node_queries import RANGE, VENDORS, accelerator, gpu, per, recorded, scraped
from dashboards.panels import Steps
from dashboards.queries import rows
from dashboards.states import BLUE, GREEN, ORANGE, RED, YELLOW, mapping, states
from dashboards.tables import Column, grid

DEVICE = "device, uuid"
CLEAR = "transparent"
"""Colour of what is as it should be, where a table would be full of it."""
NONE_OR: Steps = ((None, GREEN), (1, RED))
SOME: Steps = ((None, GREEN), (1, YELLOW))
HOT: Steps = ((None, GREEN), (80, YELLOW), (90, RED))
FULL: Steps = ((None, GREEN), (0.98, YELLOW))
SLOWDOWNS = ("sw_power_cap", "sw_thermal", "thermal", "hw_slowdown", "hw_thermal", "hw_power_brake")


def gpus(say: Say) -> table.Panel:
    """One row per NVIDIA GPU."""
    device = "GPU"
    return grid(
        say("GPUs", "GPU"),
        say(
            "One row per GPU. Red or yellow says what is wrong; recovery is the driver's own "
            "verdict. ECC errors (UE: uncorrected, CE: corrected) and Xid are of the time range, "
            "remapped rows of the GPU's life. NVLinks, PCIe generation and lanes: in use of "
            "possible; an idle GPU uses a lower generation. Empty: not reported.",
            "每个 GPU 一行，红色或黄色表示异常项；恢复动作为驱动自身的结论。"
            "ECC 错误（UE：不可纠正，CE：可纠正）与 Xid 为所选时间范围内，重映射行数为 GPU "
            "全生命周期。"
            "NVLink、PCIe 代数与通道：当前值/最大值；空闲 GPU 会降低代数。空白：未上报。",
        ),
        [
            Column(device, "device", width=50),
            *common(say, "nvidia"),
            *memory_errors(say, "nvidia"),
            Column(
                say("Remapped", "重映射行数"),
                rows(f"sum by ({DEVICE}) ({gpu('remapped_rows')})"),
            ),
            Column(
                say("Remapping", "重映射状态"),
                rows(
                    per(DEVICE, f"2 * {gpu('row_remap_failure')} > 0 or {gpu('row_remap_pending')}")
                ),
                mappings=[
                    mapping(
                        {
                            "0": ("–", CLEAR),
                            "1": (say("reset needed", "待复位"), YELLOW),
                            "2": (say("failed", "失败"), RED),
                        }
                    )
                ],
            ),
            *_links(say),
            Column(say("Slowdown", "降频原因"), rows(_slowdown()), mappings=[_slowdowns(say)]),
            Column("", rows(f"group by ({DEVICE}, vendor_action) ({gpu('recovery_action')})")),
            Column(say("Recovery", "恢复动作"), "vendor_action", mappings=[_recovery(say)]),
            Column("Xid", "xid", width=60),
            Column(
                say("Last Xid", "最近 Xid 时间"),
                rows(
                    f"1000 * max by ({DEVICE}, xid) (topk by (uuid) (1, "
                    f"{gpu('xid_last_timestamp_seconds')} > time() - $__range_s))"
                ),
                "dateTimeFromNow",
            ),
        ],
        height=10,
        sort_by=device,
        descending=False,
        empty=say("No NVIDIA GPUs; for NPUs see the last row", "无 NVIDIA GPU；NPU 请见最后一行"),
    )


def common(say: Say, vendor: str) -> list[Column]:
    """State, model and what every vendor reports. A device from which nothing comes is unknown."""
    of_vendor = f'vendor="{vendor}"'
    state = recorded("nodevitals:accelerator_state", VENDORS, of_vendor)
    info = f"last_over_time({accelerator('info', of_vendor)}{RANGE})"
    unreadable = f"0 * {accelerator('error_info', of_vendor)} + 2"
    silent = (
        f"0 * last_over_time({accelerator('up', of_vendor)}{RANGE}) + 2 unless on (vendor) "
        + scraped("accelerators_present", of_vendor)
    )
    known = f"{state} or on (uuid) {unreadable} or on (uuid) {silent}"
    model = f"topk by (uuid) (1, group by (uuid, model) ({info}))"
    total = accelerator("memory_total_bytes", of_vendor)

    def value(name: str) -> str:
        return per(DEVICE, accelerator(name, of_vendor))

    return [
        Column(
            say("State", "状态"),
            rows(
                f"max by ({DEVICE}, model) (({known}) * on (uuid) group_left (model) {model} "
                f"or on (uuid) ({known}))"
            ),
            mappings=[states(say)],
            width=90,
        ),
        Column(say("Model", "型号"), "model", width=150),
        Column(
            say("Use", "利用率") if vendor == "nvidia" else say("AI Core", "AI Core"),
            rows(value("utilization_ratio")),
            "percentunit",
            decimals=0,
        ),
        Column(
            say("Memory", "显存") if vendor == "nvidia" else say("HBM", "HBM"),
            rows(per(DEVICE, f"{accelerator('memory_used_bytes', of_vendor)} / {total}")),
            "percentunit",
            decimals=0,
        ),
        Column(say("Temperature", "温度"), rows(value("temperature_celsius")), "celsius", HOT),
        Column(say("Power", "功耗"), rows(value("power_watts")), "watt", decimals=0),
    ]


def memory_errors(say: Say, vendor: str) -> list[Column]:
    """New errors since the driver was loaded; by location, or in total where that is all."""

    def errors(kind: str) -> str:
        total, parts = (
            accelerator(
                "ecc_errors_total",
                f'vendor="{vendor}"',
                f'kind="{kind}"',
                'lifetime="volatile"',
                location,
            )
            for location in ('location="all"', 'location!="all"')
        )
        counted = " or ".join(
            f"sum by ({DEVICE}) (increase({one}{RANGE}))" for one in (total, parts)
        )
        return f"round({counted})"

    return [
        Column(say("ECC UE", "ECC UE"), rows(errors("uncorrected")), steps=NONE_OR),
        Column(say("ECC CE", "ECC CE"), rows(errors("corrected")), steps=SOME),
    ]


def _links(say: Say) -> list[Column]:
    """NVLinks and PCIe: as text what is there of what is expected, and as number what lacks."""
    up, expected = per(DEVICE, gpu("nvlinks_up")), per(DEVICE, gpu("nvlinks_expected"))
    width, widest = (per(DEVICE, gpu(f"pcie_link_width{end}")) for end in ("", "_max"))
    generation, newest = (per(DEVICE, gpu(f"pcie_link_generation{end}")) for end in ("", "_max"))
    return [
        Column("NVLinks", "nvlinks", width=80),
        Column(
            say("Down", "断开"),
            rows(_labelled(f"{expected} - {up}", "nvlinks", "/", up, expected)),
            steps=NONE_OR,
            width=65,
        ),
        Column("PCIe", "generations", width=60),
        Column("", rows(_labelled(generation, "generations", "/", generation, newest))),
        Column(say("Lanes", "通道"), "widths", width=70),
        Column(
            say("Missing", "缺失"),
            rows(_labelled(f"{widest} - {width}", "widths", "/", width, widest)),
            steps=NONE_OR,
            width=80,
        ),
    ]


def _labelled(expression: str, label: str, separator: str, one: str, other: str) -> str:
    """Return the series with two numbers as one label, which is a column."""
    joined = (
        f"({expression}) "
        f'* on ({DEVICE}) group_left (one) count_values by ({DEVICE}) ("one", {one}) '
        f'* on ({DEVICE}) group_left (other) count_values by ({DEVICE}) ("other", {other})'
    )
    text = f'label_join({joined}, "{label}", "{separator}", "one", "other")'
    return f"max by ({DEVICE}, {label}) ({text})"


def _slowdown() -> str:
    """The most serious reason, as its place in SLOWDOWNS, from 1 on; 0 for none."""
    reasons = (
        f"{number} * {gpu('slowdown_active', f'reason=&{reason}&')}".replace("&", '"')
        for number, reason in enumerate(SLOWDOWNS, 1)
    )
    return per(DEVICE, " or ".join(reasons))


def _slowdowns(say: Say) -> ValueMap:
    thermal, power = say("too hot", "过热"), say("power brake", "供电制动")
    words = {
        "0": ("–", CLEAR),
        "1": (say("power cap", "功耗墙"), BLUE),
        "2": (say("warm", "温度偏高"), YELLOW),
        "3": (thermal, ORANGE),
        "4": (say("hardware", "硬件降频"), ORANGE),
        "5": (thermal, RED),
        "6": (power, RED),
    }
    return mapping(words)


def _recovery(say: Say) -> ValueMap:
    reset, reboot = say("GPU reset", "复位 GPU"), say("reboot node", "重启节点")
    return mapping(
        {
            "none": ("–", CLEAR),
            "gpu_reset": (reset, RED),
            "node_reboot": (reboot, RED),
            "system_reboot": (reboot, RED),
            "drain_p2p": (say("drain P2P", "排空 P2P"), ORANGE),
            "drain_and_reset": (say("drain, then reset", "排空后复位"), RED),
            "recover_imex_domain": (say("recover IMEX", "恢复 IMEX 域"), RED),
            "bus_reset": (say("bus reset", "复位总线"), RED),
        }
    )
