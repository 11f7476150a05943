"""What the two sources, ipmitool and Redfish, return, and what the probe keeps between runs.

In: `Part`s. Out: samples and conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Literal, Optional, Protocol

import msgspec

from nodevitals.probe import Readings
from nodevitals.probes.bmc import families

# More are not exposed; large chassis have about 200.
MAX_PARTS = 512
_MAX_NAME = 64
_MAX_NUMBER = 16
_INLET_NAME = re.compile(r"inlet|ambient|air[ _-]?in|front[ _-]?panel", re.IGNORECASE)
_NOT_INLET = re.compile(r"psu?\d|gpu|npu|cpu|dimm|pcie|ocp|nic", re.IGNORECASE)

Kind = Literal["power supply", "fan", "temperature", "redundancy", "battery"]


class PartError(Exception):
    """A call failed: `reason` is one of `families.REASONS`, or `missing`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part. `state` is one of the states of its kind in `families`, None if unknown; `value` is
    a temperature in degrees Celsius, or a speed in `rpm` or as a `ratio`; `of` names the redundant
    component. `number` distinguishes parts with the same name.
    """

    kind: Kind
    name: str
    state: Optional[str]
    value: Optional[float] = None
    unit: str = ""
    of: str = ""
    inlet: bool = False
    number: str = ""


class LogInfo(msgspec.Struct, frozen=True):
    """State of the event log; None means unknown."""

    entries: Optional[int]
    used: Optional[float]
    overflow: Optional[bool]


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A new entry that reports a fault. `kind` is one of `families.EVENT_TYPES`, `severity` of
    `families.SEVERITIES`; `time` is in seconds since the epoch, 0 if unknown.
    """

    kind: str
    severity: str
    time: float
    detail: str


def shown_name(text: str) -> str:
    """A name as the value of a label."""
    return "".join(c for c in text if c.isprintable() and c.isascii()).strip()[:_MAX_NAME]


def is_inlet(name: str, is_known: bool = False) -> bool:
    """Whether a temperature is measured at the air inlet of the chassis, not at a part."""
    return not _NOT_INLET.search(name) and (is_known or _INLET_NAME.search(name) is not None)


def unique(parts: Iterable[Part]) -> list[Part]:
    """The parts, with names that are unique within a kind."""
    named = [part for part in parts if part.name][:MAX_PARTS]
    names = [(part.kind, part.name) for part in named]
    taken: dict[tuple[str, str], Part] = {}
    for part in named:
        if names.count((part.kind, part.name)) > 1 and part.number:
            number = part.number[:_MAX_NUMBER]
            name = f"{part.name[: _MAX_NAME - len(number) - 1]} {number}"
            part = msgspec.structs.replace(part, name=name)
        taken.setdefault((part.kind, part.name), part)
    return list(taken.values())


def report(parts: Iterable[Part], exclude: tuple[str, ...], readings: Readings) -> None:
    """Add the samples of all parts that are not excluded."""
    shown = [
        part
        for part in unique(parts)
        if not any(fnmatchcase(part.name, pattern) for pattern in exclude)
    ]
    inlets = [part.value for part in shown if part.inlet and part.value is not None]
    readings.add(families.INLET, max(inlets, default=None))
    for part in shown:
        _report(part, readings)


def _report(part: Part, readings: Readings) -> None:
    if part.kind == "temperature":
        readings.add(families.TEMPERATURE, part.value, part.name)
    elif part.kind == "fan" and part.value is not None:
        family = families.FAN_SPEED if part.unit == "rpm" else families.FAN_DUTY
        readings.add(family, part.value, part.name)
    if part.state is None:
        return
    if part.kind == "redundancy":
        readings.add(families.REDUNDANCY, 1, part.name, part.of, part.state)
    elif part.kind == "temperature":
        readings.add(families.TEMPERATURE_STATE, 1, part.name, part.state)
    else:
        family = {
            "power supply": families.SUPPLY_STATE,
            "fan": families.FAN_STATE,
            "battery": families.BATTERY_STATE,
        }[part.kind]
        readings.add(family, 1, part.name, part.state)
        readings.condition(part.name, part.state, part.kind)


class BmcState(msgspec.Struct):
    """How far the event log was read. `content` identifies the last entry: after the log was
    cleared, another entry may have the same record ID or path. `read_at` is the Unix time of the
    reading.
    """

    started: bool = False
    record: int = 0
    content: str = ""
    read_at: float = 0.0
    source: str = ""
    """Path of the log's entries in Redfish; '' for the log that ipmitool reads."""
    page: str = ""
    """Redfish: the page of the last entry, if the newest entries are on the last page."""
    entry: str = ""
    """Redfish: path of the last entry."""
    time: float = 0.0
    """Redfish: the latest time of an entry so far."""


class Source(Protocol):
    """ipmitool or Redfish. All methods raise PartError, or ProbeError if further calls would fail,
    too.
    """

    failed: Optional[PartError]
    """The first failure of a part that was read incompletely."""

    @property
    def log(self) -> Optional[str]:
        """After log_info(): the `BmcState.source` of the event log; None if there is no log."""

    def controller(self) -> tuple[str, str]:
        """Firmware and manufacturer of the BMC."""

    def log_info(self) -> LogInfo:
        """State of the event log."""

    def newest(self, state: BmcState, /) -> BmcState:
        """The end of a log that was not read before; not `started` if this call did not reach
        it.
        """

    def new_entries(self, state: BmcState) -> Iterator[tuple[BmcState, Optional[LogEvent]]]:
        """Entries since `state`, oldest first, each with the state after it."""

    def power(self) -> Optional[float]:
        """The power that the chassis draws, in watts."""

    def parts(self) -> list[Part]:
        """Power supplies, fans, temperatures, redundancy and batteries."""

    def close(self) -> None:
        """Close what the run has opened."""
