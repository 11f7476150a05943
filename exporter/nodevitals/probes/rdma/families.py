"""The families of the probe `rdma`."""

from __future__ import annotations

from nodevitals.probe import Families

LINK_LAYERS = ("", "InfiniBand", "Ethernet")

metrics = Families("rdma")
PRESENT = metrics.gauge("ports_present", "Number of RDMA ports that exist and are not excluded.")
EXPECTED = metrics.gauge(
    "ports_expected",
    "Number of RDMA ports that the configuration names or that ever existed, less the forgotten.",
)
DEVICE_INFO = metrics.gauge(
    "device_info",
    "Always 1; identity of the RDMA device.",
    "device",
    "node_guid",
    "pci_bus_id",
    "hca_type",
    "board_id",
    "firmware_version",
)

port_metrics = Families("rdma_port", "device", "port", link_layer=LINK_LAYERS)
UP = port_metrics.gauge(
    "up", "Whether the port is active; 0 also for a known port that is missing."
)
STATE = port_metrics.gauge(
    "state_id", "Logical state: 1 down, 2 initializing, 3 armed, 4 active, 5 active deferred."
)
PHYSICAL_STATE = port_metrics.gauge(
    "physical_state_id",
    "Physical state: 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery.",
)
RATE = port_metrics.gauge(
    "rate_bytes_per_second", "Signalling rate; missing while the port is down."
)
EXPECTED_RATE = port_metrics.gauge(
    "expected_rate_bytes_per_second",
    "Rate that the configuration expects, or else the highest that the port ever had.",
)
INTERFACE_UP = port_metrics.gauge(
    "interface_up", "Whether the network interface of a RoCE port is up.", "interface"
)
GID_USABLE = port_metrics.gauge(
    "gid_usable",
    "Whether a RoCE port has a routable RoCE v2 GID on a network interface that is up.",
)
GID_INDEX = port_metrics.gauge(
    "gid_index",
    "Index of the RoCE v2 GID to use: IPv4 before IPv6 before link-local; missing without one.",
)
RECEIVED = port_metrics.counter("received_bytes_total", "Number of bytes received.")
TRANSMITTED = port_metrics.counter("transmitted_bytes_total", "Number of bytes transmitted.")
FLAPS = port_metrics.counter(
    "flaps_total",
    "Number of times the port went down: by the driver's count, or as observed where it has none.",
)
DOWN_SECONDS = port_metrics.counter(
    "down_seconds_total",
    "Time that the port was down after it had been up, to about a second; not while it is "
    "switched off or gone.",
)
LONGEST_DOWN = port_metrics.gauge(
    "longest_down_seconds",
    "Length of the longest outage of the port that goes on or has ended within the last hour.",
)
ERRORS = port_metrics.counter(
    "errors_total", "Number of errors, by the driver's name of the counter.", "counter"
)
CONGESTION = port_metrics.counter(
    "congestion_total",
    "Number of congestion events, by the driver's name of the counter; none of them is an error.",
    "counter",
)
OTHER = port_metrics.counter(
    "other_total",
    "Value of other counters that the configuration selects, by the driver's name.",
    "counter",
)
SATURATED = port_metrics.gauge(
    "saturated",
    "Whether a counter has its maximum value; it then counts no further until it is reset.",
    "counter",
)
