"""The port that a test uses on its node: its rate, what limits it, and the counters of its traffic.

In: sysfs, here or as a script prints it on another node. Out: bytes per second; None where they are
unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from nodevitals.linux.host import Host
from nodevitals.linux.pci import BUS_ID, MLX5_VIRTUAL_FUNCTIONS
from nodevitals.linux.sysfs import exists, link_name, parse_integer, read_text
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
# Only soft-RoCE has the file `parent`, and siw has this description; for a real device, the host
# sets the text.
_SOFTWARE = ("rxe", "Software iWARP stack")
# The link to the PCI device; what the device can do, and the slot, which is the port above it.
_NOW = ("device/current_link_speed", "device/current_link_width")
_POSSIBLE = (
    ("device/max_link_speed", "device/max_link_width"),
    ("device/../max_link_speed", "device/../max_link_width"),
)
CPUS_FILE = "device/local_cpulist"
_FILES = ("node_desc", "device/device", CPUS_FILE, *_NOW, *_POSSIBLE[0], *_POSSIBLE[1])
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?")
_TRANSACTION_SHARE = 256 / (256 + 24)
"""Share of a PCIe link that is data: 24 bytes of headers and checks for each 256 bytes, the usual
largest payload (R. Neugebauer et al., https://doi.org/10.1145/3230543.3230560, section 3)."""
PORT_SCRIPT = f"""\
cd "$1" 2>/dev/null || exit 0
for file in {" ".join(_FILES)}; do
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


def facts_here(test: TestSettings, host: Host) -> dict[str, str]:
    """What sysfs says of the port that the test uses on this node."""
    if not test.device:
        return {}
    directory, rate = place_of(test)
    folder = host.sys(directory)
    facts = {name: read_text(folder / name) for name in _FILES}
    facts["device"] = link_name(folder / "device")
    facts["device/driver"] = link_name(folder / "device/driver")
    facts["rate"] = read_text(folder / rate)
    for path in ("parent", "device/physfn"):
        if exists(folder / path) is not False:  # also if that cannot be read
            facts[path] = "yes"
    return {name: text for name, text in facts.items() if text is not None}


def facts_there(printed: str) -> dict[str, str]:
    """The same, from what PORT_SCRIPT printed on a node."""
    pairs = (line.partition(" ") for line in printed.splitlines())
    return {name: text.strip() for name, _, text in pairs}


def promised(test: TestSettings, facts: Mapping[str, str]) -> Optional[float]:
    """The rate that the physical port promises, in bytes per second: at most what its slot can
    carry. None if it is unknown, and for devices without a port of their own (veth, bridges, bonds,
    virtio, soft-RoCE, virtual functions), whose rate is invented or shared.
    """
    virtual = (
        BUS_ID.fullmatch(facts.get("device", "")) is None
        or facts.keys() & {"parent", "device/physfn"}
        or facts.get("device/driver") in _VIRTUAL_DRIVERS
        or facts.get("device/device") in MLX5_VIRTUAL_FUNCTIONS
        or facts.get("node_desc", "").startswith(_SOFTWARE)
    )
    if virtual:
        return None
    rate, slot = _parse_rate(test, facts.get("rate", "")), pcie_rate(*_possible(facts))
    return min(rate, slot) if rate and slot else rate


def limit_of(test: TestSettings, facts: Mapping[str, str]) -> str:
    """What keeps the port from the promised rate: a link to the PCI device that was negotiated
    below what device and slot can do, such as `PCIe 8.0 GT/s x8 of 32.0 GT/s x16`; '' for nothing.
    """
    now, possible = _pcie(facts, *_NOW), _possible(facts)
    rate, carried = promised(test, facts), pcie_rate(*now)
    if rate is None or carried is None or carried >= rate or not pcie_rate(*possible):
        return ""
    return f"PCIe {now[0]:.1f} GT/s x{now[1]} of {possible[0]:.1f} GT/s x{possible[1]}"


def pcie_rate(speed: float, width: int) -> Optional[float]:
    """Bytes per second of data that a PCIe link of so many GT/s and lanes carries in one direction;
    None for 0, which is unknown. Its encoding is 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s
    (PCIE_SPEED2MBS_ENC of the kernel's drivers/pci/pci.h), and 236 of 256 bytes of a flit above.
    """
    encoding = 8 / 10 if speed <= 5 else 128 / 130 if speed <= 32 else 236 / 256
    return speed * 1e9 / 8 * width * encoding * _TRANSACTION_SHARE or None


def _possible(facts: Mapping[str, str]) -> tuple[float, int]:
    """What both the device and its slot can do: GT/s and lanes, 0 where they are unknown. The port
    above a device is not known inside a virtual machine.
    """
    ends = [_pcie(facts, *names) for names in _POSSIBLE]
    known = [end for end in ends if all(end)]
    if not all(ends[0]):
        return (0.0, 0)
    return (min(speed for speed, _ in known), min(width for _, width in known))


def _pcie(facts: Mapping[str, str], speed_file: str, width_file: str) -> tuple[float, int]:
    speed = _SPEED.fullmatch(facts.get(speed_file, ""))
    width = parse_integer(facts.get(width_file, "")) or 0
    return (float(speed[1]) if speed else 0.0, width if 0 < width <= 32 else 0)


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
