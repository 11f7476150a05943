"""The state of a network interface, from its directory in /sys/class/net."""

from __future__ import annotations

from nodevitals.linux.sysfs import read_integer, read_text

# https://docs.kernel.org/networking/operstates.html
_NOT_UP = ("down", "lowerlayerdown", "dormant", "testing", "notpresent")


def is_up(directory: str) -> bool | None:
    """Whether the interface can carry traffic; None where that is unknown."""
    state = read_text(f"{directory}/operstate")
    if state == "unknown":  # the driver does not maintain operstate
        carrier = read_integer(f"{directory}/carrier")
        return None if carrier is None else carrier == 1
    return True if state == "up" else False if state in _NOT_UP else None


def carrier_down_count(directory: str) -> tuple[int, str] | None:
    """Number of times the interface lost its carrier, by the kernel, and the file that holds it:
    two files count from different starts. None where unknown.
    """
    for file, divisor in (("carrier_down_count", 1), ("carrier_changes", 2)):
        count = read_integer(f"{directory}/{file}")
        if count is not None:
            return count // divisor, file
    return None


def is_switched_on(directory: str) -> bool | None:
    """Whether the interface is administratively up (IFF_UP); None where that is unknown."""
    try:
        return bool(int(read_text(f"{directory}/flags") or "", 16) & 1)
    except ValueError:
        return None
