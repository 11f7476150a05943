"""The RDMA ports and bonds of the node, from sysfs.

In: /sys/class/infiniband and /sys/class/net. Out: what joins a port to a neighbour that was found
by its GUID, its interface or the members of a bond. What cannot be read is left out.
"""

from __future__ import annotations

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import list_names, read_text
from nodevitals.probes.common.rdma_gids import parse_gid, read_gids
from nodevitals.probes.common.rdma_interfaces import find_interface
from nodevitals.probes.switches.ports import Port, parse_port


class Hardware(msgspec.Struct, frozen=True):
    """`guids` are those of the InfiniBand ports; `interfaces` the network interface of an RDMA
    port; `bonds` the members of each bond.
    """

    guids: dict[int, Port]
    interfaces: dict[Port, str]
    bonds: dict[str, tuple[str, ...]]


def read_hardware(host: Host) -> Hardware:
    """Read them."""
    guids: dict[int, Port] = {}
    interfaces: dict[Port, str] = {}
    infiniband, net = str(host.sys("class/infiniband")), str(host.sys("class/net"))
    for device in list_names(infiniband):
        for number in list_names(f"{infiniband}/{device}/ports"):
            port = parse_port(f"{device}/{number}")
            if port is None:
                continue
            directory = f"{infiniband}/{device}/ports/{number}"
            name = find_interface(f"{infiniband}/{device}", number, net)
            if read_text(f"{directory}/link_layer") == "Ethernet":
                gids, _ = read_gids(directory)
                # That of a device of a bond is the bond.
                name = gids[0].interface if gids else name
            else:
                gid = parse_gid(read_text(f"{directory}/gids/0") or "")
                if gid is not None and any(gid[8:]):
                    guids[int.from_bytes(gid[8:], "big")] = port
            if name:
                interfaces[port] = name
    return Hardware(guids, interfaces, _read_bonds(net))


def _read_bonds(net: str) -> dict[str, tuple[str, ...]]:
    members = {
        name: tuple((read_text(f"{net}/{name}/bonding/slaves") or "").split())
        for name in list_names(net)
    }
    return {name: found for name, found in members.items() if found}
