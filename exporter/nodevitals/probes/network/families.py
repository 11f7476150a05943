"""The families of the probe `network`."""

from __future__ import annotations

from nodevitals.probe import Families, Family

KINDS = ("physical", "bond")
ERROR_KINDS = ("error", "drop", "missed")
DIRECTIONS = ("receive", "transmit")

metrics = Families("network")
PRESENT = metrics.gauge(
    "interfaces_present", "Number of physical and bond interfaces that exist and are not excluded."
)
EXPECTED = metrics.gauge(
    "interfaces_expected",
    "Number of interfaces that the configuration names or that ever existed, less the forgotten.",
)
ERRORS = metrics.counter(
    "errors_total",
    "Number of packets with errors (error), dropped by the kernel or the driver (drop), or dropped "
    "for lack of buffers in the device (missed).",
    "interface",
    direction=DIRECTIONS,
    kind=ERROR_KINDS,
)
BOND_MEMBER_UP = metrics.gauge(
    "bond_member_up", "Whether the bond considers the member's link up.", "interface", "member"
)
INFO = metrics.gauge(
    "info",
    "Always 1; PCI address, driver and MAC address of the interface.",
    "interface",
    "kind",
    "pci_bus_id",
    "driver",
    "address",
)

interface_metrics = Families("network", "interface", kind=KINDS)
UP = interface_metrics.gauge(
    "up", "Whether the interface can carry traffic; 0 also for a known interface that is missing."
)
SPEED = interface_metrics.gauge(
    "speed_bytes_per_second", "Speed of the link; missing while it is down."
)
EXPECTED_SPEED = interface_metrics.gauge(
    "expected_speed_bytes_per_second",
    "Speed that the configuration expects, or else the highest that the interface ever had.",
)
FULL_DUPLEX = interface_metrics.gauge("full_duplex", "Whether the link is full duplex.")
MTU = interface_metrics.gauge("mtu_bytes", "Maximum transmission unit.")
RECEIVED = interface_metrics.counter("received_bytes_total", "Number of bytes received.")
TRANSMITTED = interface_metrics.counter("transmitted_bytes_total", "Number of bytes transmitted.")
CARRIER_CHANGES = interface_metrics.counter(
    "carrier_changes_total", "Number of times the carrier was lost or came back."
)
DOWN_SECONDS = interface_metrics.counter(
    "down_seconds_total",
    "Time that the interface was down after it had been up, to about a second; not while it "
    "is switched off or gone.",
)
LONGEST_DOWN = interface_metrics.gauge(
    "longest_down_seconds",
    "Length of the longest outage of the interface that goes on or has ended within the last hour.",
)

# By file in `statistics/`: the family, and its labels after the interface.
STATISTICS: dict[str, tuple[Family, tuple[str, ...]]] = {
    "rx_errors": (ERRORS, ("receive", "error")),
    "rx_dropped": (ERRORS, ("receive", "drop")),
    "rx_missed_errors": (ERRORS, ("receive", "missed")),
    "tx_errors": (ERRORS, ("transmit", "error")),
    "tx_dropped": (ERRORS, ("transmit", "drop")),
}
