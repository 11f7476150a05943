"""Reads one port: by ethtool's netlink, or by mlxlink for InfiniBand."""

from __future__ import annotations

import errno
from typing import Optional

import msgspec

from nodevitals.linux import tool
from nodevitals.linux.generic_netlink import Ethtool
from nodevitals.probe import ProbeError
from nodevitals.probes.transceivers.error_correction import (
    ErrorCorrection,
    parse_error_correction,
)
from nodevitals.probes.transceivers.memory import read_module
from nodevitals.probes.transceivers.mlxlink import parse_mlxlink
from nodevitals.probes.transceivers.module import Module
from nodevitals.probes.transceivers.ports import ModulePort

# The driver has no such request, or the interface is of another network namespace.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENODEV, errno.ENOENT)
_DENIED = (errno.EPERM, errno.EACCES)
_SHOWN_CHARACTERS = 120


class Reading(msgspec.Struct, kw_only=True):
    """What was read of one port. `problem` is why its module was not, '' where it was, where there
    is none, and where the driver cannot; `denied` where a capability is missing.
    """

    module: Optional[Module] = None
    problem: str = ""
    denied: bool = False
    supported: bool = False
    error_correction: ErrorCorrection = ErrorCorrection()
    raw_errors: tuple[int, ...] = ()
    effective_errors: Optional[int] = None


def read_by_ethtool(interface: str, seconds: float) -> Reading:
    """An Ethernet interface."""
    reading = Reading()
    try:
        ethtool = Ethtool(seconds)
    except (OSError, ValueError) as error:
        return Reading(problem=f"ethtool: {error}")
    try:
        _read_module(ethtool, interface, reading)
        _read_error_correction(ethtool, interface, reading)
    finally:
        ethtool.close()
    return reading


def _read_module(ethtool: Ethtool, interface: str, reading: Reading) -> None:
    def page(number: int, offset: int, address: int) -> bytes:
        return ethtool.module_page(interface, number, offset, address)

    try:
        reading.module = read_module(page)
        reading.supported = True
    except ValueError as error:
        reading.supported, reading.problem = True, str(error)
    except OSError as error:
        reading.denied = error.errno in _DENIED
        reading.supported = error.errno not in _UNSUPPORTED and not reading.denied
        reading.problem = (error.strerror or str(error)) if reading.supported else ""


def _read_error_correction(ethtool: Ethtool, interface: str, reading: Reading) -> None:
    try:
        answer = ethtool.error_correction(interface)
        reading.error_correction = parse_error_correction(answer)
        reading.supported = True
    except (OSError, ValueError):
        return  # an extra of some drivers


def read_by_mlxlink(program: str, port: ModulePort, seconds: float) -> Reading:
    """A port of InfiniBand."""
    argv = [program, "-d", port.place, "-m", "-c", "--json"]
    try:
        output = tool.run(argv, seconds)
        printed = parse_mlxlink(output.text)
    except ProbeError as error:
        return Reading(problem=error.message, supported=True)
    except ValueError as error:
        text = " ".join(output.text.split())[:_SHOWN_CHARACTERS]
        problem = f"{' '.join(argv)}: exit status {output.status}: {error}: {text!r}"
        return Reading(problem=problem, supported=True)
    return Reading(
        module=printed.module,
        supported=True,
        raw_errors=printed.raw_errors,
        effective_errors=printed.effective_errors,
    )
