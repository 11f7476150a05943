"""The families of the probe `ascend` beside those that all accelerators share."""

from __future__ import annotations

from nodevitals.probe import Family
from nodevitals.probes.ascend.faults import LEVELS
from nodevitals.probes.ascend.hccn import NET_HEALTH
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import ACTIONS, ECC_KINDS

VENDOR = "ascend"
_CHIP = ("device", "uuid")
ERROR_COUNTERS = (
    *("roce_rx_err_pkt_num", "roce_tx_err_pkt_num", "roce_qp_status_err_num"),
    *("roce_out_of_order_num", "roce_new_pkt_rty_num", "mac_rx_bad_pkt_num"),
    "mac_tx_bad_pkt_num",
)
COMMANDS = ("info", "mapping", "board", "health", "ecc")


def _gauge(name: str, text: str, *labels: str, **closed: tuple[str, ...]) -> Family:
    return Family(
        name=f"nodevitals_ascend_{name}",
        kind="gauge",
        help=text,
        labels=(*_CHIP, *labels),
        closed=closed,
    )


HEALTH_LEVEL = _gauge("health_level", "npu-smi's verdict: 0 OK, 1 Warning, 2 Alarm, 3 Critical.")
FAULT_CODE = _gauge(
    "fault_code",
    "Always 1; a fault that the chip reports now, with Huawei's level of handling it.",
    *("code", "level", "action"),
    level=tuple(LEVELS),
    action=ACTIONS,
)
ISOLATED_PAGES = _gauge(
    "isolated_pages", "HBM pages taken out of use in the chip's life.", "kind", kind=ECC_KINDS
)
NEXT_ISOLATED_PAGES = _gauge(
    "next_isolated_pages", "HBM pages that the next reset takes out of use.", "kind", kind=ECC_KINDS
)
LINK_UP = _gauge("link_up", "Whether the chip's own RoCE port is up.")
NETWORK_REACHABLE = _gauge(
    "network_reachable", "Whether the chip's port reaches its detection address."
)
NETWORK_HEALTH = _gauge(
    "network_health",
    "Always 1; what the chip says of reaching its detection address.",
    "state",
    state=NET_HEALTH,
)
LINK_SPEED = _gauge("link_speed_bytes_per_second", "Rate of the chip's RoCE port.")
RECEIVE_POWER = _gauge(
    "optical_receive_watts", "Light that a lane of the optical module receives.", "lane"
)
RECEIVE_POWER_LOW = _gauge("optical_receive_low_watts", "The module's own lower threshold for it.")
NETWORK_ERRORS = Family(
    name="nodevitals_ascend_network_errors_total",
    kind="counter",
    help="Errors of the chip's RoCE port, by hccn_tool's name for them.",
    labels=(*_CHIP, "counter"),
    closed={"counter": ERROR_COUNTERS},
)
DEVICES = Family(
    name="nodevitals_ascend_devices",
    kind="gauge",
    help="NPUs by who lists them: the PCI bus, or npu-smi (chips; a PCI device may have two).",
    labels=("source",),
    closed={"source": ("pci", "npu_smi")},
)
UNPARSED = Family(
    name="nodevitals_ascend_unparsed_total",
    kind="counter",
    help="Rows and answers of npu-smi that could not be read; what they hold is missing.",
    labels=("command",),
    closed={"command": COMMANDS},
)
TOOL_SECONDS = Family(
    name="nodevitals_ascend_tool_seconds_total",
    kind="counter",
    help="Time for which we had npu-smi or hccn_tool running.",
)

FAMILIES = (
    *accelerators.INVENTORY_FAMILIES,
    *(accelerators.HEALTHY, accelerators.ECC_ERRORS, accelerators.UTILIZATION),
    *(accelerators.MEMORY_USED, accelerators.MEMORY_TOTAL, accelerators.TEMPERATURE),
    *(accelerators.POWER, accelerators.PROCESSES),
    *(HEALTH_LEVEL, FAULT_CODE, ISOLATED_PAGES, NEXT_ISOLATED_PAGES, LINK_UP),
    *(NETWORK_REACHABLE, NETWORK_HEALTH, LINK_SPEED, RECEIVE_POWER, RECEIVE_POWER_LOW),
    *(NETWORK_ERRORS, DEVICES, UNPARSED, TOOL_SECONDS),
)
