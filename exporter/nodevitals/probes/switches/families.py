"""The families of the probe `switches`."""

from __future__ import annotations

from nodevitals.probe import Families

CONFIGURATION, LLDP, IBNETDISCOVER = "configuration", "lldp", "ibnetdiscover"
SOURCES = (CONFIGURATION, LLDP, IBNETDISCOVER)

metrics = Families("port_switch")
INFO = metrics.gauge(
    "info",
    "Always 1; switch of an RDMA port or network interface (port is empty), and the switch's port.",
    *("device", "port", "switch", "switch_port"),
    source=SOURCES,
)
WRITTEN = metrics.gauge(
    "ibnetdiscover_timestamp_seconds",
    "Unix time at which the file with the output of ibnetdiscover was written.",
)
