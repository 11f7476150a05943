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

from nodevitals.probe import Absent, Probe, ProbeError, ProbeSettings, Readings, Seconds
from nodevitals.probes.transceivers import families as transceiver
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

# Share of the run's time: the run itself needs some after its last read.
_READ_SHARE = 0.9
# Each includes what its child takes to report that a read failed.
_ETHTOOL_SECONDS, _MLXLINK_SECONDS = 5.0, 20.0
_ETHTOOL_ANSWER_SECONDS, _MLXLINK_ANSWER_SECONDS = 2.0, 19.0


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
    """Modules and cables of network ports: temperature, voltage, optical power and bias per lane,
    identity, forward error correction.
    """

    name = "transceivers"
    families = (*transceiver.metrics,)
    Settings = TransceiversSettings
    State = TransceiversState
    settings: TransceiversSettings
    state: TransceiversState

    def run(self, readings: Readings) -> None:
        """Read every port."""
        deadline = time.monotonic() + self.timing.timeout_seconds * _READ_SHARE
        self._mlxlink = shutil.which(self.settings.mlxlink)
        found = find_ports(self.host, self.settings.exclude)
        ports = {one.name: one for one in found if one.interface or self._mlxlink}
        left = {name: one for name, one in self.state.left.items() if one.lives()}
        names = sorted((one for one in ports if one not in left), key=self._was_hung)
        slow = any(not one.interface for one in ports.values())
        seconds = _MLXLINK_SECONDS if slow else _ETHTOOL_SECONDS
        answers = read_all(names, lambda name: self._read(ports[name]), seconds, deadline)
        self.state.left = left | answers.left
        self.state.hung = (*left, *answers.hung)
        read = {name: decode(body, Reading) for name, body in answers.read.items()}
        for name, one in read.items():
            _report(ports[name], one, readings)
        self._judge(read, answers, [name for name in left if name in ports])

    def _was_hung(self, name: str) -> bool:
        return name in self.state.hung

    def _read(self, port: ModulePort) -> bytes:
        """In the child."""
        if port.interface:
            return encode(read_by_ethtool(port.interface, _ETHTOOL_ANSWER_SECONDS))
        return encode(read_by_mlxlink(self._mlxlink or "", port, _MLXLINK_ANSWER_SECONDS))

    def _judge(self, read: dict[str, Reading], answers: Answers, left: list[str]) -> None:
        """Raise what people should know of this run."""
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
        if any(one.denied for one in read.values()) and self.settings.required:
            raise ProbeError("permission", "modules: needs CAP_NET_ADMIN")
        # Not permitted is not absent. The kernel refuses before it asks the driver: whether the
        # port can have a module is unknown.
        if not any(one.supported or one.denied for one in read.values()):
            raise Absent("no driver that can read a module")


def _report(port: ModulePort, one: Reading, readings: Readings) -> None:
    labels = port.labels
    if one.supported:
        readings.add(transceiver.LINK_UP, port.up, *labels)
    # Without a module, drivers fail with any error: only with a link is it known that there is one.
    failed = bool(one.problem) and port.up is True
    readings.add(transceiver.READABLE, True if one.module else False if failed else None, *labels)
    if one.denied or one.problem:
        reason = "permission" if one.denied else "error" if failed else "no_link"
        readings.add(transceiver.UNREADABLE, 1, *labels, reason)
    if failed:
        readings.condition(port.name, "unreadable", one.problem)
    counts = one.error_correction
    readings.add(transceiver.CORRECTED, counts.corrected_blocks, *labels)
    readings.add(transceiver.UNCORRECTED, counts.uncorrected_blocks, *labels)
    readings.add(transceiver.CORRECTED_BITS, counts.corrected_bits, *labels)
    for symbols, blocks in counts.histogram:
        readings.add(transceiver.HISTOGRAM, blocks, *labels, str(symbols))
    for lane, errors in enumerate(one.raw_errors, 1):
        readings.add(transceiver.RAW_ERRORS, errors, *labels, str(lane))
    readings.add(transceiver.EFFECTIVE_ERRORS, one.effective_errors, *labels)
    if one.module is not None:
        detail = f"{one.module.manufacturer} {one.module.part_number}, {one.module.serial}"
        readings.condition(port.name, "ok", detail)
        _report_module(one.module, labels, readings)


def _report_module(one: Module, labels: tuple[str, str, str], readings: Readings) -> None:
    medium = "copper" if one.copper else "optical"
    identity = (one.kind, one.manufacturer, one.part_number, one.serial, medium)
    readings.add(transceiver.INFO, 1, *labels, *identity)
    readings.add(transceiver.TEMPERATURE, one.temperature_celsius, *labels)
    readings.add(transceiver.TEMPERATURE_HIGH, one.temperature_high_celsius, *labels)
    readings.add(transceiver.VOLTAGE, one.voltage_volts, *labels)
    readings.add(transceiver.RECEIVE_LOW, one.receive_low_watts, *labels)
    readings.add(transceiver.TRANSMIT_LOW, one.transmit_low_watts, *labels)
    for lane in one.lanes:
        number = str(lane.number)
        readings.add(transceiver.RECEIVE, lane.receive_watts, *labels, number)
        readings.add(transceiver.TRANSMIT, lane.transmit_watts, *labels, number)
        readings.add(transceiver.BIAS, lane.bias_amperes, *labels, number)
