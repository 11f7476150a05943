"""The output of ibnetdiscover: the switch and the switch's port of each port of an adapter. Pure.

https://github.com/linux-rdma/rdma-core/blob/master/infiniband-diags/man/ibnetdiscover.8.in.rst
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Set as AbstractSet

import msgspec

from nodevitals.probes.switches.ports import Neighbour, is_name

# Switch	65 "S-b83fd20300a10002"		# "MF0;leaf-a3:MQM9700/U1" enhanced port 0 lid 12 lmc 0
_SWITCH = re.compile(
    rb'Switch\s+[0-9]+ +"S-([0-9a-f]{1,16})"\s+# "(.{0,128})" (?:base|enhanced) port 0'
)
# [1](9c63c00300a1b2c4) 	"S-b83fd20300a10002"[12]		# lid 33 lmc 0 "…" lid 12 4xNDR
_LINK = re.compile(
    rb"\[[0-9]{1,3}\](?:\[ext [0-9]{1,4}\])?\(([0-9a-f]{1,16})\)"
    rb'\s+"S-([0-9a-f]{1,16})"\[([0-9]{1,3})\](?:\[ext [0-9]{1,4}\])?'
    rb'\s+# lid [0-9]{1,6} lmc [0-9]{1,3} "(.{0,128})" lid [0-9]{1,6} '
)
# A managed switch: `MF0;` its host name `:` its model and the number of its chip.
_MANAGED = re.compile(r"MF0;([^:;]+):.*")


class Topology(msgspec.Struct, frozen=True):
    """The number of all links between an adapter and a switch, and the neighbours by the GUID of
    the adapter's port.
    """

    links: int
    neighbours: dict[int, Neighbour]


def parse_topology(text: bytes, guids: AbstractSet[int]) -> Topology:
    """The links of a fabric, with the neighbours of the ports with these GUIDs.

    A switch is named by its host name or description, or by its GUID where several have the same:
    unmanaged switches are described by their model. Lines that are not whole are left out.
    """
    links: dict[int, tuple[int, int, str]] = {}
    names: Counter[str] = Counter()
    count = 0
    for line in io.BytesIO(text):
        if line.startswith(b"Switch"):
            head = _SWITCH.match(line)
            if head:
                names[switch_name(head[2].decode("utf-8", "replace"))] += 1
        elif line.startswith(b"["):
            link = _LINK.match(line)
            count += link is not None
            if link and int(link[1], 16) in guids:
                description = link[4].decode("utf-8", "replace")
                links[int(link[1], 16)] = (int(link[2], 16), int(link[3]), description)
    found = {}
    for guid, (switch, port, description) in links.items():
        name = switch_name(description)
        if not is_name(name) or names[name] > 1:
            name = f"0x{switch:016x}"
        found[guid] = Neighbour(name, str(port))
    return Topology(count, found)


def switch_name(description: str) -> str:
    """The host name in a switch's description, or the description."""
    managed = _MANAGED.fullmatch(description)
    return (managed[1] if managed else description).strip()
