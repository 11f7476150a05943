"""The families of the probe `rdma`."""

from __future__ import annotations

from nodevitals.probe import Family, Kind

LINK_LAYERS = ("", "InfiniBand", "Ethernet")
PORT_LABELS = ("device", "port", "link_layer")
_CLOSED = {"link_layer": LINK_LAYERS}


def _port(name: str, help_text: str, *labels: str, kind: Kind = "gauge") -> Family:
    return Family(
        name=f"nodevitals_rdma_port_{name}",
        kind=kind,
        help=help_text,
        labels=(*PORT_LABELS, *labels),
        closed=_CLOSED,
    )


PRESENT = Family(
    name="nodevitals_rdma_ports_present",
    kind="gauge",
    help="RDMA ports that are there, those of excluded devices left out.",
)
EXPECTED = Family(
    name="nodevitals_rdma_ports_expected",
    kind="gauge",
    help="RDMA ports that the configuration names or that were ever there, less those forgotten.",
)
DEVICE_INFO = Family(
    name="nodevitals_rdma_device_info",
    kind="gauge",
    help="Always 1; which RDMA device it is.",
    labels=(
        "device",
        "node_guid",
        "pci_bus_id",
        "hca_type",
        "board_id",
        "firmware_version",
    ),
)
UP = _port("up", "Whether the port is active; 0 also for a known one that is not there.")
STATE = _port("state_id", "Logical state: 1 down, 2 initialising, 3 armed, 4 active, 5 deferred.")
PHYSICAL_STATE = _port(
    "physical_state_id",
    "Physical state: 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery.",
)
RATE = _port("rate_bytes_per_second", "Signalling rate; missing while the port is down.")
EXPECTED_RATE = _port(
    "expected_rate_bytes_per_second",
    "The rate that the configuration expects, or else the best that the port ever had.",
)
INTERFACE_UP = _port(
    "interface_up", "Whether the network interface of a RoCE port is up.", "interface"
)
GID_USABLE = _port(
    "gid_usable",
    "Whether a RoCE port has a RoCE v2 GID that can be routed, on an interface that is up.",
)
GID_INDEX = _port(
    "gid_index", "Which RoCE v2 GID to use: IPv4 before IPv6 before link-local; missing for none."
)
RECEIVED = _port("received_bytes_total", "Data received.", kind="counter")
TRANSMITTED = _port("transmitted_bytes_total", "Data sent.", kind="counter")
FLAPS = _port(
    "flaps_total",
    "How often the port went down: by the driver's count, and where it has none by our own look.",
    kind="counter",
)
ERRORS = _port(
    "errors_total", "Errors, by the driver's name for what it counts.", "counter", kind="counter"
)
CONGESTION = _port(
    "congestion_total",
    "Signs of congestion, by the driver's name for what it counts; busy is not broken.",
    "counter",
    kind="counter",
)
OTHER = _port(
    "other_total",
    "Other counters, where the configuration asks for them, by the driver's name.",
    "counter",
    kind="counter",
)
SATURATED = _port(
    "saturated",
    "Whether a counter stands at the most it can hold: it does not count on until it is reset.",
    "counter",
)

FAMILIES = (
    PRESENT,
    EXPECTED,
    DEVICE_INFO,
    UP,
    STATE,
    PHYSICAL_STATE,
    RATE,
    EXPECTED_RATE,
    INTERFACE_UP,
    GID_USABLE,
    GID_INDEX,
    RECEIVED,
    TRANSMITTED,
    FLAPS,
    ERRORS,
    CONGESTION,
    OTHER,
    SATURATED,
)
