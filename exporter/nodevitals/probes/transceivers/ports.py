"""Finds the ports of the node that may have a module, and reads one.

In: sysfs, ethtool's netlink, or mlxlink for InfiniBand. Out: modules and statistics of forward
error correction.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Optional

import msgspec

from nodevitals.linux import netdev, tool
from nodevitals.linux.host import Host
from nodevitals.linux.netlink import Ethtool, attributes
from nodevitals.linux.sysfs import link_name, list_names, read_integer, read_text
from nodevitals.probe import ProbeError
from nodevitals.probes.common.interface import Interface, read_interface
from nodevitals.probes.common.links import is_excluded
from nodevitals.probes.common.rdma import ACTIVE, ACTIVE_DEFER, parse_id
from nodevitals.probes.transceivers.mlxlink import parse_mlxlink
from nodevitals.probes.transceivers.module import Module, read_module

_ETHERNET = 1  # ARPHRD_ETHER
MAX_PORTS = 64


class ModulePort(msgspec.Struct, frozen=True, kw_only=True):
    """A port. `interface` is '' for InfiniBand, whose module only mlxlink reads, by the PCI address
    `place`; `device` and `number` are '' for an interface without RDMA. `up` is None where unknown.
    """

    device: str = ""
    number: str = ""
    interface: str = ""
    place: str = ""
    up: Optional[bool] = None

    @property
    def name(self) -> str:
        """For messages and settings: the interface, or DEVICE/PORT."""
        return self.interface or f"{self.device}/{self.number}"

    @property
    def labels(self) -> tuple[str, str, str]:
        """The labels of the port's metrics."""
        return self.device, self.number, self.interface


def find_ports(host: Host, excluded: Iterable[str]) -> list[ModulePort]:
    """The ports, less the excluded ones."""
    patterns = tuple(excluded)
    ports = [*_interfaces(host), *_infiniband_ports(host)]
    return [port for port in ports if not is_excluded(port.name, patterns)][:MAX_PORTS]


def _interfaces(host: Host) -> Iterator[ModulePort]:
    root = str(host.sys("class/net"))
    for name in list_names(root):
        directory = f"{root}/{name}"
        if read_integer(f"{directory}/type") != _ETHERNET:
            continue
        interface = read_interface(directory, Interface())
        if interface.kind != "physical":
            continue
        devices = list_names(f"{directory}/device/infiniband")
        port = read_integer(f"{directory}/dev_port")
        known = len(devices) == 1 and port is not None
        yield ModulePort(
            device=devices[0] if known else "",
            number=str((port or 0) + 1) if known else "",
            interface=name,
            place=interface.place,
            up=netdev.is_up(directory),
        )


def _infiniband_ports(host: Host) -> Iterator[ModulePort]:
    root = str(host.sys("class/infiniband"))
    for device in list_names(root):
        directory = f"{root}/{device}"
        place = link_name(f"{directory}/device") or ""
        function = link_name(f"{directory}/device/physfn")
        driver = link_name(f"{directory}/device/driver")
        if function or driver != "mlx5_core" or not place:
            continue
        for number in list_names(f"{directory}/ports"):
            port = f"{directory}/ports/{number}"
            if number.isdigit() and read_text(f"{port}/link_layer") == "InfiniBand":
                state = parse_id(read_text(f"{port}/state") or "")
                up = None if state is None else state in (ACTIVE, ACTIVE_DEFER)
                yield ModulePort(device=device, number=number, place=place, up=up)


_STATISTICS = 5
_CORRECTED, _UNCORRECTED, _CORRECTED_BITS, _HISTOGRAM = 2, 3, 4, 5
_BIN_LOW, _BIN_VALUE = 2, 4
_UNKNOWN = 2**64 - 1
MAX_BINS = 17


class ErrorCorrection(msgspec.Struct, frozen=True):
    """Counts since the driver was loaded: blocks, bits, and `histogram`: the blocks by the number
    of wrong symbols in them (the lowest of each bin). None if the driver does not count.
    """

    corrected_blocks: Optional[int] = None
    uncorrected_blocks: Optional[int] = None
    corrected_bits: Optional[int] = None
    histogram: tuple[tuple[int, int], ...] = ()


def parse_error_correction(answer: Mapping[int, bytes]) -> ErrorCorrection:
    """The statistics. Raises ValueError if they cannot be decoded."""
    counts: dict[int, int] = {}
    bins: dict[int, int] = {}
    for kind, data in attributes(answer.get(_STATISTICS, b"")):
        if kind == _HISTOGRAM:
            inner = dict(attributes(data))
            low, value = _integer(inner.get(_BIN_LOW, b"")), _integer(inner.get(_BIN_VALUE, b""))
            if low is not None and value is not None and len(bins) < MAX_BINS:
                bins[low] = value
        else:
            value = _integer(data[:8])  # the total; those of the lanes follow
            if value is not None:
                counts[kind] = value
    return ErrorCorrection(
        counts.get(_CORRECTED),
        counts.get(_UNCORRECTED),
        counts.get(_CORRECTED_BITS),
        tuple(sorted(bins.items())),
    )


def _integer(data: bytes) -> int | None:
    if len(data) not in (4, 8):
        return None
    value = struct.unpack("=Q" if len(data) == 8 else "=I", data)[0]
    return None if value == _UNKNOWN else int(value)


# The driver has no such request, or the interface is of another network namespace.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENODEV, errno.ENOENT)
_DENIED = (errno.EPERM, errno.EACCES)
_SHOWN_CHARACTERS = 120


class Reading(msgspec.Struct, kw_only=True):
    """The values of one port. `problem` is why its module could not be read; '' if it was read, if
    there is none, or if the driver cannot read it. `denied`: a capability is missing.
    """

    module: Optional[Module] = None
    problem: str = ""
    denied: bool = False
    supported: bool = False
    error_correction: ErrorCorrection = ErrorCorrection()
    raw_errors: tuple[int, ...] = ()
    effective_errors: Optional[int] = None


def read_by_ethtool(interface: str, seconds: float) -> Reading:
    """Read an Ethernet interface."""
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
        return  # only some drivers support it


def read_by_mlxlink(program: str, port: ModulePort, seconds: float) -> Reading:
    """Read an InfiniBand port."""
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
