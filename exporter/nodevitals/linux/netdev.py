"""A network interface's folder in sysfs: what probes of several kinds need of it."""

from __future__ import annotations

from nodevitals.linux.sysfs import read_attribute, read_integer

# https://docs.kernel.org/networking/operstates.html
_NOT_UP = ("down", "lowerlayerdown", "dormant", "testing", "notpresent")


def is_up(folder: str) -> bool | None:
    """Whether the interface can carry traffic; None where the kernel does not tell."""
    state = read_attribute(f"{folder}/operstate")
    if state == "unknown":  # a driver that does not keep the state: its carrier says the same
        carrier = read_integer(f"{folder}/carrier")
        return None if carrier is None else carrier == 1
    return True if state == "up" else False if state in _NOT_UP else None


def drops(folder: str) -> int | None:
    """How often the interface has lost its carrier, as the kernel counts; None where unknown."""
    count = read_integer(f"{folder}/carrier_down_count")
    if count is None:
        changes = read_integer(f"{folder}/carrier_changes")
        count = None if changes is None else changes // 2
    return count
