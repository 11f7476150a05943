"""Probe `transceivers`: modules and cables of network ports, what their sensors read, and how much
forward error correction (FEC) has to correct.

In: ethtool's netlink for Ethernet, mlxlink for InfiniBand, sysfs. Out: `nodevitals_transceiver_*`.
A read is a call into the driver that may hang: each is bounded, and costs only its own port.
"""

from __future__ import annotations

import shutil
import time
from typing import Optional

import msgspec

from nodevitals.probe import Absent, Families, Probe, ProbeError, ProbeSettings, Readings, Seconds
from nodevitals.probes.transceivers.bounded import Answers, Left, read_all
from nodevitals.probes.transceivers.module import Module
from nodevitals.probes.transceivers.ports import (
    ModulePort,
    Reading,
    find_ports,
    read_by_ethtool,
    read_by_mlxlink,
)
from nodevitals.wire import decode, encode

# Share of the run's time: the run needs some time after its last read.
_READ_SHARE = 0.9
# Each includes the time in which its child reports a failed read.
_ETHTOOL_SECONDS, _MLXLINK_SECONDS = 5.0, 20.0
_ETHTOOL_ANSWER_SECONDS, _MLXLINK_ANSWER_SECONDS = 2.0, 19.0

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


class TransceiversSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ports to leave out, and the program for InfiniBand."""

    interval: Optional[Seconds] = 120.0
    """Time between two runs: a module's memory is slow, and its values change slowly."""
    timeout: Optional[Seconds] = 60.0
    """Time that a run may take; at most the interval."""
    exclude: tuple[str, ...] = ()
    """Patterns of interfaces and RDMA ports to leave out. Example: `["ens1f1*", mlx5_0/1]`"""
    mlxlink: str = "mlxlink"
    """Path of mlxlink, or its name on PATH."""


class TransceiversState(msgspec.Struct):
    """The ports whose last read hung, and their children that could not be ended."""

    hung: tuple[str, ...] = ()
    left: dict[str, Left] = {}


class TransceiversProbe(Probe):
    """Modules and cables: temperature, voltage, optical power and bias per lane, identity, FEC."""

    name = "transceivers"
    families = (*metrics,)
    Settings = TransceiversSettings
    State = TransceiversState
    settings: TransceiversSettings
    state: TransceiversState

    def run(self, readings: Readings) -> None:
        """Read every port."""
        deadline = time.monotonic() + self.timing.timeout_seconds * _READ_SHARE
        self._mlxlink = shutil.which(self.settings.mlxlink)
        all_ports = find_ports(self.host, self.settings.exclude)
        ports = {port.name: port for port in all_ports if port.interface or self._mlxlink}
        left = {name: child for name, child in self.state.left.items() if child.lives()}
        names = sorted((name for name in ports if name not in left), key=self._was_hung)
        slow = any(not port.interface for port in ports.values())
        seconds = _MLXLINK_SECONDS if slow else _ETHTOOL_SECONDS
        answers = read_all(names, lambda name: self._read(ports[name]), seconds, deadline)
        self.state.left = left | answers.left
        self.state.hung = (*left, *answers.hung)
        read = {name: decode(body, Reading) for name, body in answers.read.items()}
        for name, reading in read.items():
            _report(ports[name], reading, readings)
        self._judge(read, answers, [name for name in left if name in ports])

    def _was_hung(self, name: str) -> bool:
        return name in self.state.hung

    def _read(self, port: ModulePort) -> bytes:
        """Read a port; called in the child."""
        if port.interface:
            return encode(read_by_ethtool(port.interface, _ETHTOOL_ANSWER_SECONDS))
        return encode(read_by_mlxlink(self._mlxlink or "", port, _MLXLINK_ANSWER_SECONDS))

    def _judge(self, read: dict[str, Reading], answers: Answers, left: list[str]) -> None:
        """Raise the errors of this run."""
        if left:
            text = f"{', '.join(left)}: a process that reads it still hangs in the driver"
            raise ProbeError("stuck", text)
        if answers.hung:
            raise ProbeError("hung", f"{', '.join(answers.hung)}: the driver does not answer")
        if answers.failed:
            raise ProbeError("crashed", f"{', '.join(answers.failed)}: the read ended by itself")
        if answers.unread:
            text = f"no time for {', '.join(answers.unread)}: raise the probe's timeout"
            raise ProbeError("slow", text)
        if any(reading.denied for reading in read.values()) and self.settings.required:
            raise ProbeError("permission", "modules: needs CAP_NET_ADMIN")
        # Not permitted does not mean absent. The kernel refuses before it asks the driver: whether
        # the port can have a module is unknown.
        if not any(reading.supported or reading.denied for reading in read.values()):
            raise Absent("no driver that can read a module")


def _report(port: ModulePort, reading: Reading, readings: Readings) -> None:
    labels = port.labels
    if reading.supported:
        readings.add(LINK_UP, port.up, *labels)
    # Without a module, drivers fail with any error: only with a link is it known that there is one.
    failed = bool(reading.problem) and port.up is True
    readings.add(READABLE, True if reading.module else False if failed else None, *labels)
    if reading.denied or reading.problem:
        reason = "permission" if reading.denied else "error" if failed else "no_link"
        readings.add(UNREADABLE, 1, *labels, reason)
    if failed:
        readings.condition(port.name, "unreadable", reading.problem)
    counts = reading.error_correction
    readings.add(CORRECTED, counts.corrected_blocks, *labels)
    readings.add(UNCORRECTED, counts.uncorrected_blocks, *labels)
    readings.add(CORRECTED_BITS, counts.corrected_bits, *labels)
    for symbols, blocks in counts.histogram:
        readings.add(HISTOGRAM, blocks, *labels, str(symbols))
    for lane, errors in enumerate(reading.raw_errors, 1):
        readings.add(RAW_ERRORS, errors, *labels, str(lane))
    readings.add(EFFECTIVE_ERRORS, reading.effective_errors, *labels)
    if reading.module is not None:
        detail = (
            f"{reading.module.manufacturer} {reading.module.part_number}, {reading.module.serial}"
        )
        readings.condition(port.name, "ok", detail)
        _report_module(reading.module, labels, readings)


def _report_module(module: Module, labels: tuple[str, str, str], readings: Readings) -> None:
    medium = "copper" if module.copper else "optical"
    identity = (module.kind, module.manufacturer, module.part_number, module.serial, medium)
    readings.add(INFO, 1, *labels, *identity)
    readings.add(TEMPERATURE, module.temperature_celsius, *labels)
    readings.add(TEMPERATURE_HIGH, module.temperature_high_celsius, *labels)
    readings.add(VOLTAGE, module.voltage_volts, *labels)
    readings.add(RECEIVE_LOW, module.receive_low_watts, *labels)
    readings.add(TRANSMIT_LOW, module.transmit_low_watts, *labels)
    for lane in module.lanes:
        number = str(lane.number)
        readings.add(RECEIVE, lane.receive_watts, *labels, number)
        readings.add(TRANSMIT, lane.transmit_watts, *labels, number)
        readings.add(BIAS, lane.bias_amperes, *labels, number)
