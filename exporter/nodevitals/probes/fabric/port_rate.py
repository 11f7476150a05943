"""The rate that the port of a test promises: that of a physical port.

In: its files in sysfs, of this node, or as PORT_SCRIPT prints them on another one. Out: bytes per
second; None where it is unknown, and for what has no port of its own (veth, bridges, bonds, virtio,
soft-RoCE, virtual functions): their rate is invented, or shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from nodevitals.linux.host import Host
from nodevitals.linux.pci import BUS_ID
from nodevitals.linux.sysfs import exists, link_name, read_text
from nodevitals.probes.common.interface import parse_speed
from nodevitals.probes.common.rdma_fields import parse_rate
from nodevitals.probes.fabric.settings import TestSettings

# PCI functions that hypervisors emulate, of clouds, and virtual functions inside a machine, where
# nothing links to the physical one.
_VIRTUAL_DRIVERS = (
    *("vmxnet3", "ena", "efa", "gve", "mana", "erdma"),
    *("iavf", "ixgbevf", "igbvf"),
)
# Of mlx5: https://github.com/torvalds/linux/blob/master/drivers/net/ethernet/mellanox/mlx5/core/main.c
_VIRTUAL_FUNCTIONS = (
    *("0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e"),
    "0xa2d3",
)
# `parent` is a file of soft-RoCE alone. siw describes itself so; the text of a real device is its
# host's, and may be anything else.
_SOFTWARE = ("rxe", "Software iWARP stack")
PORT_SCRIPT = """\
cd "$1" 2>/dev/null || exit 0
for file in node_desc device/device; do
  [ -f $file ] && echo "$file $(cat $file 2>/dev/null)"
done
for link in device device/driver; do
  [ -L $link ] && echo "$link $(basename "$(readlink $link)")"
done
for path in parent device/physfn; do
  [ -e $path ] || [ -L $path ] && echo "$path yes"
done
echo "rate $(cat "$2" 2>/dev/null)"
"""
"""Prints the facts of the port whose directory and file of its rate are its arguments."""


def place_of(test: TestSettings) -> tuple[str, str]:
    """The directory of the device below sysfs, and in it the file with the rate of the port."""
    if test.tool == "perftest":
        return f"class/infiniband/{test.device}", f"ports/{test.ib_port}/rate"
    return f"class/net/{test.device}", "speed"


def promised_here(test: TestSettings, host: Host) -> Optional[float]:
    """The rate of the test's port on this node."""
    if not test.device:
        return None
    directory, rate = place_of(test)
    folder = host.sys(directory)
    facts = {
        "node_desc": read_text(folder / "node_desc"),
        "device/device": read_text(folder / "device/device"),
        "device": link_name(folder / "device"),
        "device/driver": link_name(folder / "device/driver"),
        "rate": read_text(folder / rate),
    }
    for path in ("parent", "device/physfn"):
        if exists(folder / path) is not False:  # also where that cannot be read
            facts[path] = "yes"
    return _promised(test, {name: text for name, text in facts.items() if text is not None})


def promised_there(test: TestSettings, printed: str) -> Optional[float]:
    """The same, from what PORT_SCRIPT printed on a node."""
    pairs = (line.partition(" ") for line in printed.splitlines())
    return _promised(test, {name: text.strip() for name, _, text in pairs})


def _promised(test: TestSettings, facts: Mapping[str, str]) -> Optional[float]:
    virtual = (
        BUS_ID.fullmatch(facts.get("device", "")) is None
        or facts.keys() & {"parent", "device/physfn"}
        or facts.get("device/driver") in _VIRTUAL_DRIVERS
        or facts.get("device/device") in _VIRTUAL_FUNCTIONS
        or facts.get("node_desc", "").startswith(_SOFTWARE)
    )
    if virtual:
        return None
    text = facts.get("rate", "")
    return parse_rate(text) if test.tool == "perftest" else parse_speed(text)
