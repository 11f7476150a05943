"""The ports of the node that may have a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

import msgspec

from nodevitals.linux import netdev
from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import link_name, list_names, read_integer, read_text
from nodevitals.probes.common.interface import Interface, read_interface
from nodevitals.probes.common.links import is_excluded
from nodevitals.probes.common.rdma_fields import ACTIVE, ACTIVE_DEFER, parse_id

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
        """Of its metrics."""
        return self.device, self.number, self.interface


def find_ports(host: Host, excluded: Iterable[str]) -> list[ModulePort]:
    """The ports, less the excluded ones."""
    patterns = tuple(excluded)
    found = [*_interfaces(host), *_infiniband_ports(host)]
    return [one for one in found if not is_excluded(one.name, patterns)][:MAX_PORTS]


def _interfaces(host: Host) -> Iterator[ModulePort]:
    root = str(host.sys("class/net"))
    for name in list_names(root):
        directory = f"{root}/{name}"
        if read_integer(f"{directory}/type") != _ETHERNET:
            continue
        one = read_interface(directory, Interface())
        if one.kind != "physical":
            continue
        devices = list_names(f"{directory}/device/infiniband")
        port = read_integer(f"{directory}/dev_port")
        known = len(devices) == 1 and port is not None
        yield ModulePort(
            device=devices[0] if known else "",
            number=str((port or 0) + 1) if known else "",
            interface=name,
            place=one.place,
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
