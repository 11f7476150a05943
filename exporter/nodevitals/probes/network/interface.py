"""A network interface: what does not change while it exists, and its speed.

In: its directory in /sys/class/net. Out: `Interface`, or None where it is not to be watched.
"""

from __future__ import annotations

import os
import re

import msgspec

from nodevitals.linux.sysfs import link_name, parse_integer, read_text

_MEGABIT_BYTES = 1e6 / 8
# Drivers report an unknown speed as -1, also as an unsigned number of 16 or 32 bits.
_UNKNOWN_SPEEDS = (0, 65535, 4294967295)
# `pf0vf3`, `c1pf0vf3`, `pf0sf8`: the switch side of a virtual function or a subfunction.
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+")


class Interface(msgspec.Struct, frozen=True):
    """An interface. `kind` is `physical` or `bond`; `place` is the PCI address, '' for a bond."""

    kind: str
    place: str
    driver: str
    address: str


def read_interface(directory: str) -> Interface | None:
    """The interface; None for a virtual one, a virtual function, and a representor of one."""
    address = read_text(f"{directory}/address") or ""
    if os.path.isdir(f"{directory}/bonding"):
        return Interface("bond", "", "", address)
    place = link_name(f"{directory}/device")
    if not place or os.path.lexists(f"{directory}/device/physfn"):
        return None
    if is_representor(read_text(f"{directory}/phys_port_name") or ""):
        return None
    return Interface("physical", place, link_name(f"{directory}/device/driver"), address)


def is_representor(port_name: str) -> bool:
    """Whether a `phys_port_name` is that of a virtual function's representor."""
    return _REPRESENTOR.fullmatch(port_name) is not None


def parse_speed(text: str) -> float | None:
    """Bytes per second of a speed in Mb/s; None where the driver does not know it."""
    speed = parse_integer(text)
    return None if speed is None or speed in _UNKNOWN_SPEEDS else speed * _MEGABIT_BYTES
