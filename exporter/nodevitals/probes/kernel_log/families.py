"""The families of the probe `kernel_log`."""

from __future__ import annotations

from nodevitals.probe import Families
from nodevitals.probes.common.accelerators import ACTIONS
from nodevitals.probes.kernel_log.drivers import DRIVER_EVENTS, DRIVERS
from nodevitals.probes.kernel_log.events import EVENTS

_nvidia = Families("nvidia")
XID_ERRORS = _nvidia.counter(
    "xid_errors_total",
    "Number of GPU errors (Xid) since boot, from the kernel log or NVML, each counted once.",
    *("device", "uuid", "xid"),
    action=ACTIONS,
)
XID_LAST = _nvidia.gauge(
    "xid_last_timestamp_seconds",
    "Unix time of the last Xid of this code in this boot, by the node's clock as it is set now.",
    *("device", "uuid", "xid"),
    action=ACTIONS,
)
SXID_ERRORS = _nvidia.counter(
    "sxid_errors_total",
    "Number of NVSwitch errors (SXid) in the kernel log since boot.",
    *("device", "pci_bus_id", "sxid"),
    action=ACTIONS,
)
SXID_LAST = _nvidia.gauge(
    "sxid_last_timestamp_seconds",
    "Unix time of the last SXid of this code in this boot, by the node's clock as it is set now.",
    *("device", "pci_bus_id", "sxid"),
    action=ACTIONS,
)

_kernel = Families("kernel")
KERNEL_EVENTS = _kernel.counter(
    "events_total",
    "Number of kernel messages since boot that report one of these events.",
    event=EVENTS,
)
DEVICE_EVENTS = _kernel.counter(
    "device_events_total",
    "Number of messages since boot in which a GPU's or NIC's driver reports one of these events.",
    "pci_bus_id",
    driver=DRIVERS,
    event=DRIVER_EVENTS,
)
DEVICE_EVENT_LAST = _kernel.gauge(
    "device_event_last_timestamp_seconds",
    "Unix time of the last such message in this boot, by the node's clock as it is set now.",
    "pci_bus_id",
    driver=DRIVERS,
    event=DRIVER_EVENTS,
)
NIC_FAILED = _kernel.gauge(
    "nic_failed",
    "Whether the NIC's driver has reported a failure in this boot and no recovery or start since.",
    "pci_bus_id",
    driver=DRIVERS,
)
LOST = _kernel.counter(
    "log_lost_total",
    "Number of records since boot that the kernel overwrote before they were read.",
)
SUPPRESSED = _kernel.counter(
    "log_suppressed_total",
    "Number of messages since boot that the kernel's rate limits kept out of its log.",
)

FAMILIES = (*_nvidia, *_kernel)
