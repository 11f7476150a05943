"""The row of the hardware dashboard on optical modules and cables, and on outages of RDMA ports."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.models.dashboard import ValueMap

from dashboards.language import Say
from dashboards.node_graphs import quiet, rate
from dashboards.node_queries import INTERVAL, RANGE, per, recorded, scraped
from dashboards.panels import Steps, chart
from dashboards.queries import over_time, rows
from dashboards.states import GREEN, GREY, ORANGE, RED, YELLOW, mapping, up_down
from dashboards.tables import Column, grid

MODULE = "device, port, interface"
NAME = "{{device}} {{interface}}"
# Rules evaluate these faults every five minutes: in between there is a moment without a sample.
LAST = "[10m]"
# No light is -40 dBm, as many tools show it.
DARK_WATTS = 1e-7
# As in the rules: below its lower limit a module receives too little.
MARGIN: Steps = ((None, RED), (0, GREEN))
VERDICTS = (
    *("transceiver_receive_falling", "fec_corrected_outlier", "transceiver_receive_dropped"),
    *("transceiver_receive_low", "fec_uncorrected"),
)


def panels(say: Say) -> list[table.Panel | timeseries.Panel]:
    """Return the row."""
    unset = say(" Empty: no module is read.", "为空：未读取到光模块。")
    received = f"10 * log10(1000 * {_weakest('receive')})"
    down = f"increase({scraped('rdma_port_down_seconds_total')}{INTERVAL})"
    return [
        modules(say),
        chart(
            say("Received light", "接收光功率"),
            say(
                "Weakest lane of each module; no light is -40 dBm. A line that falls over days: a "
                "dirty connector, or the laser at the far end is ageing.",
                "各模块最弱通道的接收光功率；无光为 -40 dBm。"
                "数日内持续下降：接头脏污或对端激光器老化。",
            )
            + unset,
            over_time(received, NAME),
            unit="suffix:dBm",
            lowest=None,
            width=8,
        ),
        chart(
            say("Corrections by FEC", "FEC 纠错"),
            say(
                "Blocks, or bits, that FEC corrected. Links with PAM4 correct all the time: one "
                "far above like cables is the bad one.",
                "FEC 每秒纠正的码块或比特数。PAM4 链路始终有纠错；明显高于同类线缆者有问题。",
            )
            + unset,
            over_time(_corrections(INTERVAL), NAME),
            unit="cps",
            width=8,
        ),
        quiet(
            say,
            chart(
                say("Down time of RDMA ports", "RDMA 端口中断时长"),
                say(
                    "Seconds per step that a port was down after it had been up; each is an "
                    "outage. Empty: none, which is good.",
                    "每个采样步长内端口断开的秒数（曾连通之后）。为空：没有中断。",
                ),
                over_time(f"sum by (device, port) ({down}) > 0", "{{device}}/{{port}}"),
                unit="s",
                width=8,
            ),
        ),
    ]


def _weakest(way: str) -> str:
    """Return the power of the weakest lane of each module in watts."""
    lanes = scraped(f"transceiver_{way}_watts")
    return f"clamp_min(min by ({MODULE}) ({lanes}), {DARK_WATTS})"


def _corrections(range_: str) -> str:
    """Blocks by the driver, or else bits by mlxlink, as the rules compare them."""
    of = {"transceiver_corrected_blocks_total": "", "transceiver_raw_errors_total": ""}
    found = (rate(MODULE, scraped(name)).replace(INTERVAL, range_) for name in of)
    return " or ".join(found)


def modules(say: Say) -> table.Panel:
    """One row per module or cable, the worst first."""
    info = f"last_over_time({scraped('transceiver_info')}{RANGE})"
    low = per(MODULE, scraped("transceiver_receive_low_watts"))
    hot, temperature = (
        per(MODULE, scraped(f"transceiver_temperature_{end}celsius")) for end in ("high_", "")
    )
    lost = " or ".join(
        f"increase({scraped(f'transceiver_{name}_total')}{RANGE})"
        for name in ("uncorrected_blocks", "effective_errors")
    )
    verdict = say("Verdict", "结论")
    return grid(
        say("Modules and cables", "光模块与线缆"),
        say(
            "One row per module, the worst first. Verdict: by the rules. Light: of the weakest "
            "lane; above limit: over the module's own lower limit. Lost: blocks of the time range "
            "that FEC could not correct, each a lost packet. Clean both ends, then replace.",
            "每个模块一行，最差的在前。结论来自告警规则。光功率取最弱通道；余量对照模块自身下限。"
            "丢失：时间范围内 FEC 无法纠正的码块，每个都是一次丢包。请先清洁两端，再考虑更换。",
        ),
        [
            Column(say("Device", "设备"), "device", width=90),
            Column(say("Port", "端口号"), "port", width=60),
            Column(say("Interface", "网络接口"), "interface", width=100),
            Column(verdict, rows(per(MODULE, _verdict())), mappings=[_verdicts(say)], width=130),
            Column(
                say("Link", "链路"),
                rows(per(MODULE, scraped("transceiver_link_up"))),
                mappings=[up_down(say)],
                width=70,
            ),
            Column("", rows(f"topk by ({MODULE}) (1, group by ({MODULE}, part_number) ({info}))")),
            Column(say("Part", "型号"), "part_number"),
            Column(
                say("Received", "接收光功率"),
                rows(f"10 * log10(1000 * {_weakest('receive')})"),
                "suffix:dBm",
                decimals=1,
            ),
            Column(
                say("Above limit", "接收余量"),
                rows(f"10 * log10({_weakest('receive')} / {low})"),
                "suffix:dB",
                MARGIN,
                decimals=1,
            ),
            Column(
                say("Sent", "发送光功率"),
                rows(f"10 * log10(1000 * {_weakest('transmit')})"),
                "suffix:dBm",
                decimals=1,
            ),
            Column(
                say("Bias", "偏置电流"),
                rows(per(MODULE, scraped("transceiver_bias_amperes"))),
                "amp",
            ),
            Column(say("Temperature", "温度"), rows(temperature), "celsius", decimals=0),
            Column(
                say("Below limit", "距温度上限"),
                rows(f"{hot} - {temperature}"),
                "celsius",
                MARGIN,
                decimals=0,
            ),
            Column(say("Corrected", "已纠正"), rows(_corrections(RANGE)), "cps", decimals=0),
            Column(say("Lost", "丢失"), rows(f"round({per(MODULE, lost)})"), "short"),
        ],
        height=8,
        sort_by=verdict,
        empty=say("No module is read", "未读取到光模块"),
    )


def _fault(name: str) -> str:
    return recorded("nodevitals:fault", f'fault="{name}"')


def _verdict() -> str:
    """The place of the worst fault in VERDICTS, from 2 on; 1 not readable, 0 neither."""
    faults = (
        f"0 * last_over_time({_fault(fault)}{LAST}) + {place}"
        for place, fault in enumerate(VERDICTS, 2)
    )
    readable = scraped("transceiver_readable")
    return " or ".join((*faults, f"1 - {readable}", f"0 * {scraped('transceiver_info')}"))


def _verdicts(say: Say) -> ValueMap:
    return mapping(
        {
            "6": (say("loses packets", "丢包"), RED),
            "5": (say("little light", "光功率过低"), ORANGE),
            "4": (say("less light", "光功率下降"), YELLOW),
            "3": (say("many errors", "误码偏多"), YELLOW),
            "2": (say("light falls", "光功率持续下降"), YELLOW),
            "1": (say("not read", "未读取"), GREY),
            "0": (say("ok", "正常"), GREEN),
        }
    )
