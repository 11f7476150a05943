"""Graphs of the node's accelerators: load, memory, temperature, power, errors, links and clocks."""

from __future__ import annotations

from collections.abc import Callable

from grafana_foundation_sdk.builders import prometheus, timeseries

from dashboards.language import Say
from dashboards.node_queries import INTERVAL, accelerator, gpu, npu
from dashboards.panels import chart
from dashboards.queries import over_time

GPU, NPU = "GPU {{device}}", "NPU {{device}}"
WIDTH = 8
Graphs = list[timeseries.Panel]


def rate(labels: str, selector: str) -> str:
    """Return the increase per second, for each set of labels."""
    return f"sum by ({labels}) (rate({selector}{INTERVAL}))"


def increase(labels: str, selector: str) -> str:
    """Return the increase per step of the graph, where there was one: quiet series are no lines."""
    return f"sum by ({labels}) (increase({selector}{INTERVAL})) > 0"


def of_both(
    expression: Callable[[str], str], legend: str = ""
) -> tuple[prometheus.Dataquery, prometheus.Dataquery]:
    """Return a query for each vendor, whose devices have another name."""
    return (
        over_time(expression('vendor="nvidia"'), GPU + legend),
        over_time(expression('vendor="ascend"'), NPU + legend),
    )


def quiet(say: Say, panel: timeseries.Panel) -> timeseries.Panel:
    """Return a graph of errors that says so where there are none."""
    return panel.no_value(say("none", "无"))


def accelerators(say: Say) -> Graphs:
    """What all vendors report."""
    return [
        chart(
            say("Utilization", "利用率"),
            say(
                "Share of time in which each accelerator was busy. One that is idle while the "
                "others work holds up the job.",
                "各加速器的忙碌时间占比。若其他设备在忙而某一个空闲，则它正在拖慢作业。",
            ),
            *of_both(lambda one: accelerator("utilization_ratio", one)),
            unit="percentunit",
            highest=1,
            width=WIDTH,
        ),
        chart(
            say("Memory used", "显存占用"),
            say(
                "Device memory in use. Used without a job: a process was left behind.",
                "设备内存占用比例。无作业却被占用：有残留进程。",
            ),
            *of_both(_memory_used),
            unit="percentunit",
            highest=1,
            width=WIDTH,
        ),
        chart(
            say("Temperature", "温度"),
            say(
                "Temperature of the chips. One hotter than the others: its cooling; all of them: "
                "fans, air flow or the room.",
                "芯片温度。仅一个偏高：检查其散热；全部偏高：检查风扇、风道或机房环境。",
            ),
            *of_both(lambda one: accelerator("temperature_celsius", one)),
            unit="celsius",
            lowest=None,
            width=WIDTH,
        ),
        chart(
            say("Power", "功耗"),
            say(
                "Power draw. Lower than the others at the same utilization: that device is slowed "
                "down.",
                "功耗。相同利用率下明显低于其他设备：该设备可能被降频。",
            ),
            *of_both(lambda one: accelerator("power_watts", one)),
            unit="watt",
            width=WIDTH,
        ),
        quiet(
            say,
            chart(
                say("New ECC errors", "新增 ECC 错误"),
                say(
                    "Memory errors per step. Uncorrected ones end the job: reset the device. "
                    "Empty: "
                    "none, which is good.",
                    "每个采样步长内新增的内存错误。不可纠正错误会导致作业失败，需复位设备。"
                    "为空：没有新增错误。",
                ),
                *of_both(_memory_errors, " {{kind}}"),
                unit="short",
                width=WIDTH,
            ),
        ),
        chart(
            say("Processes", "进程数"),
            say(
                "Number of compute processes on each accelerator.",
                "各加速器上的计算进程数。",
            ),
            *of_both(lambda one: accelerator("processes", one)),
            unit="short",
            width=WIDTH,
        ),
    ]


def _memory_used(vendor: str) -> str:
    used, total = (accelerator(f"memory_{what}_bytes", vendor) for what in ("used", "total"))
    return f"{used} / {total}"


def _memory_errors(vendor: str) -> str:
    """The total where the device reports one, or else the sum of its parts."""
    return " or ".join(
        increase(
            "device, kind", accelerator("ecc_errors_total", vendor, 'lifetime="volatile"', location)
        )
        for location in ('location="all"', 'location!="all"')
    )


def gpus(say: Say) -> Graphs:
    """What only NVIDIA GPUs report."""
    slow = gpu("slowdown_seconds_total")
    return [
        chart(
            say("NVLink throughput", "NVLink 吞吐"),
            say(
                "Bytes per second over all NVLinks of each GPU, both directions together.",
                "各 GPU 全部 NVLink 的吞吐（收发合计）。",
            ),
            over_time(rate("device", gpu("nvlink_bytes_total")), GPU),
            unit="Bps",
            width=WIDTH,
        ),
        quiet(
            say,
            chart(
                say("NVLink errors", "NVLink 错误"),
                say(
                    "New errors of NVLinks per step. Replays and recoveries slow collectives "
                    "down; if "
                    "they continue, reset the GPU. Empty: none, which is good.",
                    "每个采样步长内新增的 NVLink 错误。重传与恢复会拖慢集合通信；"
                    "持续出现时请复位 GPU。为空：没有错误。",
                ),
                over_time(
                    increase("device, kind", gpu("nvlink_errors_total")), f"{GPU} {{{{kind}}}}"
                ),
                unit="short",
                width=WIDTH,
            ),
        ),
        chart(
            say("PCIe throughput", "PCIe 吞吐"),
            say(
                "Bytes per second over PCIe of each GPU, both directions together. Where the "
                "driver has no counter for it, the probe's setting `activity` is needed.",
                "各 GPU 的 PCIe 吞吐（收发合计）。驱动没有计数器时，"
                "需要打开探针的 `activity` 设置。",
            ),
            over_time(
                f"{rate('device', gpu('pcie_bytes_total'))} "
                f"or sum by (device) ({gpu('pcie_bytes_per_second')})",
                GPU,
            ),
            unit="Bps",
            width=WIDTH,
        ),
        quiet(
            say,
            chart(
                say("PCIe replays", "PCIe 重传"),
                say(
                    "Packets sent again over PCIe per step. If they continue, reseat the GPU or "
                    "check "
                    "the riser. Empty: none, which is good.",
                    "每个采样步长内的 PCIe 重传次数。持续出现时请重新插拔 GPU 或检查转接板。"
                    "为空：没有重传。",
                ),
                over_time(increase("device", gpu("pcie_replays_total")), GPU),
                unit="short",
                width=WIDTH,
            ),
        ),
        chart(
            say("SM clock", "SM 时钟频率"),
            say(
                "Clock of the streaming multiprocessors. One lower than the others under load: see "
                "the slowdown reasons.",
                "SM 时钟频率。负载下低于其他 GPU 时，请查看降频原因。",
            ),
            over_time(gpu("sm_clock_hertz"), GPU),
            unit="hertz",
            width=WIDTH,
        ),
        quiet(
            say,
            chart(
                say("Slowdown by reason, worst GPU", "降频占比（按原因，取最差 GPU）"),
                say(
                    "Share of time with reduced clocks, of the GPU with the largest share. The "
                    "software power cap is normal under load; "
                    "thermal: cooling; power brake: the power supply. Empty: none.",
                    "降频时间占比，取占比最大的 GPU。负载下出现软件功耗墙属正常；过热：检查散热；"
                    "供电制动：检查电源。为空：没有降频。",
                ),
                over_time(f"max by (reason) (rate({slow}{INTERVAL})) > 0", "{{reason}}"),
                unit="percentunit",
                width=WIDTH,
            ),
        ),
    ]


def npus(say: Say) -> Graphs:
    """What only Ascend NPUs report."""
    return [
        quiet(
            say,
            chart(
                say("NPU network errors", "NPU 网络错误"),
                say(
                    "New errors of the chips' RoCE ports per step, by counter. If they continue: "
                    "check "
                    "the optical module. Empty: none, or no NPUs.",
                    "芯片 RoCE 端口每个采样步长内新增的错误（按计数器）。持续出现时请检查光模块。"
                    "为空：没有错误或没有 NPU。",
                ),
                over_time(
                    increase("device, counter", npu("network_errors_total")),
                    f"{NPU} {{{{counter}}}}",
                ),
                unit="short",
                width=8,
            ),
        ),
        chart(
            say("NPU received optical power", "NPU 接收光功率"),
            say(
                "Weakest lane of each optical module, as a multiple of its lower threshold. Below "
                "1: clean or replace the module or fibre.",
                "各光模块最弱通道的接收功率与其下限阈值之比。低于 1：请清洁或更换光模块、光纤。",
            ),
            over_time(
                f"min by (device) ({npu('optical_receive_watts')} / on (device, uuid) "
                f"group_left () {npu('optical_receive_low_watts')})",
                NPU,
            ),
            unit="none",
            steps=((None, "red"), (1, "green")),
            width=8,
        ),
    ]
