"""The families of the probe `transceivers`."""

from __future__ import annotations

from nodevitals.probe import Families

metrics = Families("transceiver", "device", "port", "interface")
INFO = metrics.gauge(
    "info",
    "Always 1; what the module or cable at the port is, by its own memory.",
    "kind",
    "manufacturer",
    "part_number",
    "serial",
    medium=("optical", "copper"),
)
READABLE = metrics.gauge(
    "readable",
    "Whether the memory of the module could be read; missing where that is unknown, as "
    "nodevitals_transceiver_unreadable says, and where the driver cannot read it.",
)
UNREADABLE = metrics.gauge(
    "unreadable",
    "Always 1; why the module could not be read: a missing capability, an error while the link is "
    "up, or an error without a link, which an empty cage and a broken module have alike.",
    reason=("permission", "error", "no_link"),
)
LINK_UP = metrics.gauge("link_up", "Whether the link of the port was up when its module was read.")
TEMPERATURE = metrics.gauge("temperature_celsius", "Temperature of the module.")
TEMPERATURE_HIGH = metrics.gauge(
    "temperature_high_celsius", "Upper limit of the module for its temperature."
)
VOLTAGE = metrics.gauge("voltage_volts", "Supply voltage of the module.")
RECEIVE = metrics.gauge(
    "receive_watts", "Optical power received per lane; 0 without light.", "lane"
)
RECEIVE_LOW = metrics.gauge(
    "receive_low_watts", "Lower limit of the module for the received power."
)
TRANSMIT = metrics.gauge("transmit_watts", "Optical power transmitted per lane.", "lane")
TRANSMIT_LOW = metrics.gauge(
    "transmit_low_watts", "Lower limit of the module for the transmitted power."
)
BIAS = metrics.gauge("bias_amperes", "Bias current of the laser per lane.", "lane")
CORRECTED = metrics.counter(
    "corrected_blocks_total", "Number of blocks that forward error correction (FEC) corrected."
)
UNCORRECTED = metrics.counter(
    "uncorrected_blocks_total", "Number of blocks that FEC could not correct: they are lost."
)
CORRECTED_BITS = metrics.counter("corrected_bit_errors_total", "Number of bits that FEC corrected.")
HISTOGRAM = metrics.counter(
    "blocks_total", "Number of blocks by the number of wrong symbols in them.", "symbols"
)
RAW_ERRORS = metrics.counter(
    "raw_errors_total", "Number of wrong bits before FEC, per lane, by mlxlink.", "lane"
)
EFFECTIVE_ERRORS = metrics.counter(
    "effective_errors_total", "Number of errors that are left after FEC, by mlxlink."
)
