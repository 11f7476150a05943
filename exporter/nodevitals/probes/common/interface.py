"""A network interface: what does not change while it exists, and its speed.

In: its directory in /sys/class/net. Out: `Interface`.
"""

from __future__ import annotations

import re

import msgspec

from nodevitals.linux.sysfs import exists, link_name, parse_integer, read_text

_MEGABIT_BYTES = 1e6 / 8
# Drivers report an unknown speed as -1, some as an unsigned number of 16 or 32 bits.
_UNKNOWN_SPEEDS = (0, 65535, 4294967295)
# `pf0vf3`, `c1pf0vf3`, `pf0sf8`: the switch side of a virtual function or a subfunction.
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+")


_PORT_NAME = re.compile(r"[0-9a-z_]{1,15}")
# A hardware address of Ethernet or of InfiniBand.
_ADDRESS = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5,31}")


class Interface(msgspec.Struct, frozen=True):
    """An interface. `kind` is `physical`, `bond`, `virtual` (also a virtual function) or
    `representor` (of one); '' where that is not known yet. `place` is the PCI address, '' for a
    bond.
    """

    kind: str = ""
    place: str = ""
    driver: str = ""
    address: str = ""

    @property
    def watched(self) -> bool:
        """Whether to report it; true also if it is unknown whether it is virtual."""
        return self.kind not in ("virtual", "representor")


def read_interface(directory: str, last: Interface) -> Interface:
    """The interface; what cannot be read keeps its last value."""
    kind = _read_kind(directory, last.kind)
    address = read_text(f"{directory}/address") or ""
    address = address if _ADDRESS.fullmatch(address) else last.address
    if kind == "bond":
        return Interface(kind, "", "", address)
    place, driver = link_name(f"{directory}/device"), link_name(f"{directory}/device/driver")
    place = last.place if place is None else place
    return Interface(kind, place, last.driver if driver is None else driver, address)


def _read_kind(directory: str, last: str) -> str:
    """The kind. A physical interface or a bond keeps its kind if its links are gone: the kernel may
    be removing it.
    """
    bond, device = exists(f"{directory}/bonding"), exists(f"{directory}/device")
    function = device and exists(f"{directory}/device/physfn")
    if bond or function:
        return "bond" if bond else "virtual"
    if bond is None or device is None or (device and function is None):
        return last
    if not device:
        return last if last in ("physical", "bond") else "virtual"
    name = read_text(f"{directory}/phys_port_name") or ""
    if is_representor(name) or (last == "representor" and not _PORT_NAME.fullmatch(name)):
        return "representor"
    return "physical"


def is_representor(port_name: str) -> bool:
    """Whether a `phys_port_name` is that of a virtual function's representor."""
    return _REPRESENTOR.fullmatch(port_name) is not None


def parse_speed(text: str) -> float | None:
    """Bytes per second of a speed in Mb/s; None if the driver does not know it."""
    speed = parse_integer(text) or 0
    return None if speed in _UNKNOWN_SPEEDS else speed * _MEGABIT_BYTES
