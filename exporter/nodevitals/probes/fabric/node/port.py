"""The port that a test uses on its node: its rate, and the counters of its traffic.

In: sysfs, here or as a script prints it on another node. Out: bytes per second; None where they are
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from nodevitals.linux.host import Host
from nodevitals.linux.pci import BUS_ID
from nodevitals.linux.sysfs import exists, link_name, read_text
from nodevitals.probes.common.interface import parse_speed
from nodevitals.probes.common.rdma import parse_rate
from nodevitals.probes.fabric.admission import TestedLink
from nodevitals.probes.fabric.settings import TestSettings

# Emulated PCI functions of hypervisors and clouds, and virtual functions inside a virtual machine,
# where no link leads to the physical function.
_VIRTUAL_DRIVERS = (
    *("vmxnet3", "ena", "efa", "gve", "mana", "erdma"),
    *("iavf", "ixgbevf", "igbvf"),
)
# The list of mlx5: https://github.com/torvalds/linux/blob/master/drivers/net/ethernet/mellanox/mlx5/core/main.c
_VIRTUAL_FUNCTIONS = (
    *("0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e"),
    "0xa2d3",
)
# Only soft-RoCE has the file `parent`, and siw has this description; for a real device, the host
# sets the text.
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
"""Script that prints the facts of a port; arguments: the port's directory, the file of its rate."""


def place_of(test: TestSettings) -> tuple[str, str]:
    """The directory of the device below sysfs, and the file in it with the rate of the port."""
    if test.tool == "perftest":
        return f"class/infiniband/{test.device}", f"ports/{test.ib_port}/rate"
    return f"class/net/{test.device}", "speed"


def promised_here(test: TestSettings, host: Host) -> Optional[float]:
    """The rate of the physical port that the test uses on this node, in bytes per second. None if
    it is unknown, and for devices without a port of their own (veth, bridges, bonds, virtio,
    soft-RoCE, virtual functions), whose rate is invented or shared.
    """
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
        if exists(folder / path) is not False:  # also if that cannot be read
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
    return _parse_rate(test, facts.get("rate", ""))


def _parse_rate(test: TestSettings, text: str) -> Optional[float]:
    return parse_rate(text) if test.tool == "perftest" else parse_speed(text)


def link_of(test: TestSettings, host: Host) -> TestedLink:
    """The link whose traffic shows that it is in use."""
    rate = _parse_rate(test, read_text(host.sys("/".join(place_of(test)))) or "")
    if test.tool == "perftest":
        folder = f"class/infiniband/{test.device}/ports/{test.ib_port}"
        files = tuple(f"{folder}/counters/{name}" for name in ("port_xmit_data", "port_rcv_data"))
        return TestedLink(files, 4, rate)
    folder = f"class/net/{test.device}"
    files = tuple(f"{folder}/statistics/{name}" for name in ("tx_bytes", "rx_bytes"))
    return TestedLink(files, 1, rate)
