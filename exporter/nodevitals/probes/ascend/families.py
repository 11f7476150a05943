"""The families of the probe `ascend` beside those that all accelerators share, and the fault codes.

A fault code has the level at which Huawei's scheduler handles it, and an action for that level. Of
the hundreds of codes only those that operators meet are listed; any other one has the level
`unlisted`.
"""

from __future__ import annotations

from nodevitals.probe import Families
from nodevitals.probes.ascend.parsers import NET_HEALTH
from nodevitals.probes.common.accelerators import ACTIONS, ECC_KINDS, Action

LEVELS: dict[str, Action] = {
    "not_handle": "none",
    "sub_health": "investigate",
    "restart_request": "restart_app",
    "restart_business": "restart_app",
    "free_restart": "reset_device",
    "restart": "reset_device",
    "pre_separate": "drain",
    "separate": "drain",
    "unlisted": "investigate",
}
_CODES: dict[str, tuple[str, ...]] = {
    # HBM with 16 isolated rows, HBM over 95 °C, RoCE link down
    "not_handle": ("80E18401", "80E00209", "81078603"),
    # chip over its temperature, RoCE lanes, low risk of wrong results
    "sub_health": ("80E20207", "81078605", "80818C06"),
    # multi-bit ECC error in HBM
    "restart_business": ("80E01801",),
    # device dropped off the bus while idle
    "free_restart": ("8C084E00",),
    # storm of uncorrectable errors, parity in HBM; device dropped, heartbeat lost
    "restart": ("80E18404", "80E18005", "40F84E00", "8C03A000"),
    # HBM with 64 isolated rows, HBM fatally hot, power module, high risk of wrong results
    "separate": ("80E18402", "80E0020B", "80E3A201", "80818C05"),
}
_LEVEL_OF = {code: level for level, codes in _CODES.items() for code in codes}


def level_of(code: str) -> str:
    """The handling level of a fault code (hexadecimal, any case)."""
    return _LEVEL_OF.get(code.upper(), "unlisted")


VENDOR = "ascend"
ERROR_COUNTERS = (
    "roce_rx_err_pkt_num",
    "roce_tx_err_pkt_num",
    "roce_qp_status_err_num",
    "roce_out_of_order_num",
    "roce_new_pkt_rty_num",
    "mac_rx_bad_pkt_num",
    "mac_tx_bad_pkt_num",
)
COMMANDS = ("info", "mapping", "board", "health", "ecc")

chip_metrics = Families("ascend", "device", "uuid")
HEALTH_LEVEL = chip_metrics.gauge(
    "health_level", "Health that npu-smi reports: 0 OK, 1 Warning, 2 Alarm, 3 Critical."
)
FAULT_CODE = chip_metrics.gauge(
    "fault_code",
    "Always 1; a fault code that the chip reports now, with Huawei's handling level.",
    "code",
    level=tuple(LEVELS),
    action=ACTIONS,
)
ISOLATED_PAGES = chip_metrics.gauge(
    "isolated_pages", "Number of HBM pages isolated in the life of the chip.", kind=ECC_KINDS
)
NEXT_ISOLATED_PAGES = chip_metrics.gauge(
    "next_isolated_pages",
    "Number of HBM pages that the next reset will isolate.",
    kind=ECC_KINDS,
)
LINK_UP = chip_metrics.gauge("link_up", "Whether the RoCE port of the chip is up.")
NETWORK_REACHABLE = chip_metrics.gauge(
    "network_reachable", "Whether the RoCE port reaches its detection address."
)
NETWORK_HEALTH = chip_metrics.gauge(
    "network_health",
    "Always 1; result of the chip's check of its detection address.",
    state=NET_HEALTH,
)
LINK_SPEED = chip_metrics.gauge("link_speed_bytes_per_second", "Speed of the RoCE port.")
RECEIVE_POWER = chip_metrics.gauge(
    "optical_receive_watts", "Optical power received per lane of the optical module.", "lane"
)
RECEIVE_POWER_LOW = chip_metrics.gauge(
    "optical_receive_low_watts", "Lower threshold of the optical module for the received power."
)
VNPUS = chip_metrics.gauge("vnpus", "Number of vNPUs into which the chip is divided.")
VNPU_INFO = chip_metrics.gauge(
    "vnpu_info", "Always 1; template of a vNPU of the chip.", "vnpu", "template"
)
VNPU_CORES = chip_metrics.gauge("vnpu_ai_cores", "Number of AI Cores that vNPUs may have.")
VNPU_CORES_FREE = chip_metrics.gauge("vnpu_ai_cores_free", "Number of AI Cores that no vNPU has.")
VNPU_MEMORY = chip_metrics.gauge("vnpu_memory_bytes", "Device memory that vNPUs may have.")
VNPU_MEMORY_FREE = chip_metrics.gauge("vnpu_memory_free_bytes", "Device memory that no vNPU has.")
NETWORK_ERRORS = chip_metrics.counter(
    "network_errors_total",
    "Number of errors of the RoCE port, by the counter's name in hccn_tool.",
    counter=ERROR_COUNTERS,
)

metrics = Families("ascend")
DEVICES = metrics.gauge(
    "devices",
    "Number of NPUs that the PCI bus or npu-smi lists (npu-smi: chips; a PCI device may have two).",
    source=("pci", "npu_smi"),
)
UNPARSED = metrics.counter(
    "unparsed_total",
    "Number of rows and outputs of npu-smi that could not be parsed; their values are missing.",
    command=COMMANDS,
)
TOOL_SECONDS = metrics.counter(
    "tool_seconds_total", "Time during which this probe had npu-smi or hccn_tool running."
)
