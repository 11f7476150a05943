"""The families of the probe `nvidia`; `card.py` fills them.

They stand apart from it because the agent, which renders them, must not import pynvml.
"""

from __future__ import annotations

from nodevitals.probe import Family
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import ACTIONS, ECC_KINDS
from nodevitals.probes.kernel_log.xid import RECOVERY_ACTIONS

VENDOR = "nvidia"
_CARD = ("device", "uuid")

SLOWDOWN_REASONS = (
    *("hw_thermal", "hw_power_brake", "hw_slowdown", "sw_thermal", "sw_power_cap", "thermal"),
)
NVLINK_ERROR_KINDS = (
    *("replay", "recovery", "crc", "crc_data", "ecc_data"),
    *("malformed_packet", "buffer_overrun", "receive", "receive_remote", "receive_general"),
    *("local_link_integrity", "transmit_discard", "recovery_failed", "effective", "symbol"),
)
FABRIC_STATES = ("not_started", "in_progress", "completed", "failed")
FABRIC_FAULTS = (
    *("degraded_bandwidth", "route_recovery", "route_unhealthy", "access_timeout"),
    "incorrect_configuration",
)


def _gauge(name: str, text: str, *labels: str, **closed: tuple[str, ...]) -> Family:
    return Family(
        name=f"nodevitals_nvidia_{name}",
        kind="gauge",
        help=text,
        labels=(*_CARD, *labels),
        closed=closed,
    )


def _counter(name: str, text: str, *labels: str, **closed: tuple[str, ...]) -> Family:
    return Family(
        name=f"nodevitals_nvidia_{name}",
        kind="counter",
        help=text,
        labels=(*_CARD, *labels),
        closed=closed,
    )


MODE_INFO = _gauge(
    "mode_info",
    "Always 1; which modes are on; a mode that the card does not have is empty.",
    *("persistence", "mig", "ecc"),
)
SRAM_THRESHOLD = _gauge(
    "sram_threshold_exceeded",
    "Whether uncorrected SRAM errors passed the driver's threshold for replacing the card.",
)
REMAPPED_ROWS = _gauge(
    "remapped_rows",
    "Memory rows remapped in the card's life, by the kind of error that led to it.",
    "cause",
    cause=ECC_KINDS,
)
ROW_REMAP_PENDING = _gauge(
    "row_remap_pending", "Whether a remapped row waits for a reset of the card."
)
ROW_REMAP_FAILURE = _gauge(
    "row_remap_failure", "Whether a row could not be remapped: the card is to be replaced."
)
RETIRED_PAGES = _gauge(
    "retired_pages",
    "Memory pages retired in the card's life (Volta and older).",
    "cause",
    cause=("single_bit", "double_bit"),
)
RETIRED_PAGES_PENDING = _gauge(
    "retired_pages_pending", "Whether a page waits for a restart of the card to be retired."
)
NVLINK_UP = _gauge("nvlink_up", "Whether a link that the card has is active.", "link")
NVLINKS_EXPECTED = _gauge(
    "nvlinks_expected", "Links as configured, or else the most that were ever active."
)
NVLINK_ERRORS = _counter(
    "nvlink_errors_total",
    "NVLink errors since the driver was loaded; link is empty where all links are summed.",
    *("link", "kind"),
    kind=NVLINK_ERROR_KINDS,
)
FABRIC_STATE = _gauge(
    "fabric_state",
    "Always 1; how far the card's registration with the NVLink fabric has come.",
    "state",
    state=FABRIC_STATES,
)
FABRIC_HEALTHY = _gauge("fabric_healthy", "Whether the fabric's summary of its health is healthy.")
FABRIC_FAULT = _gauge(
    "fabric_fault", "Whether the fabric tells of this fault.", "fault", fault=FABRIC_FAULTS
)
PCIE_WIDTH = _gauge("pcie_link_width", "PCIe lanes in use.")
PCIE_WIDTH_MAX = _gauge("pcie_link_width_max", "PCIe lanes of card and slot.")
PCIE_GENERATION = _gauge(
    "pcie_link_generation", "PCIe generation in use; an idle card goes down to 1."
)
PCIE_GENERATION_MAX = _gauge("pcie_link_generation_max", "PCIe generation of card and slot.")
PCIE_REPLAYS = _counter("pcie_replays_total", "PCIe packets sent again since the card's reset.")
SLOWDOWN_ACTIVE = _gauge(
    "slowdown_active",
    "Whether the clocks are held down now for this reason.",
    "reason",
    reason=SLOWDOWN_REASONS,
)
SLOWDOWN_SECONDS = _counter(
    "slowdown_seconds_total",
    "Time for which the clocks were held down for this reason since the driver was loaded.",
    "reason",
    reason=SLOWDOWN_REASONS,
)
MEMORY_TEMPERATURE = _gauge("memory_temperature_celsius", "Temperature of the card's memory.")
TEMPERATURE_MARGIN = _gauge(
    "temperature_margin_celsius", "How much hotter the chip may get before it slows down."
)
POWER_LIMIT = _gauge("power_limit_watts", "The limit that the card is held to.")
SM_CLOCK = _gauge("sm_clock_hertz", "Clock of the streaming multiprocessors.")
RECOVERY_ACTION = _gauge(
    "recovery_action",
    "Always 1; what the driver says the card needs.",
    *("vendor_action", "action"),
    vendor_action=tuple(name for name, _ in RECOVERY_ACTIONS.values()),
    action=ACTIONS,
)

DRIVER_INFO = Family(
    name="nodevitals_nvidia_driver_info",
    kind="gauge",
    help="Always 1; versions of the loaded driver, of the library and of CUDA.",
    labels=("driver_version", "library_version", "cuda_version"),
)
VERSION_MISMATCH = Family(
    name="nodevitals_nvidia_version_mismatch",
    kind="gauge",
    help="Whether the library refuses the loaded driver for being of another version.",
)
DEVICES = Family(
    name="nodevitals_nvidia_devices",
    kind="gauge",
    help="GPUs by who lists them: the PCI bus (without those of virtual machines), driver, NVML.",
    labels=("source",),
    closed={"source": ("pci", "driver", "nvml")},
)

FAMILIES = (
    *(accelerators.HEALTHY, accelerators.ECC_ERRORS, accelerators.UTILIZATION),
    *(accelerators.MEMORY_USED, accelerators.MEMORY_TOTAL, accelerators.TEMPERATURE),
    *(accelerators.POWER, accelerators.PROCESSES),
    *(MODE_INFO, SRAM_THRESHOLD, REMAPPED_ROWS, ROW_REMAP_PENDING, ROW_REMAP_FAILURE),
    *(RETIRED_PAGES, RETIRED_PAGES_PENDING, NVLINK_UP, NVLINKS_EXPECTED, NVLINK_ERRORS),
    *(FABRIC_STATE, FABRIC_HEALTHY, FABRIC_FAULT, PCIE_WIDTH, PCIE_WIDTH_MAX),
    *(PCIE_GENERATION, PCIE_GENERATION_MAX, PCIE_REPLAYS, SLOWDOWN_ACTIVE, SLOWDOWN_SECONDS),
    *(MEMORY_TEMPERATURE, TEMPERATURE_MARGIN, POWER_LIMIT, SM_CLOCK, RECOVERY_ACTION),
    *(DRIVER_INFO, VERSION_MISMATCH, DEVICES),
    *accelerators.INVENTORY_FAMILIES,
)
