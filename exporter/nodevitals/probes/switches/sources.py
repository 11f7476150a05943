"""The switches that are connected to the node, as lldpctl and the files of a site name them.

The output of ibnetdiscover has the switch and the switch's port of each port of an adapter:
https://github.com/linux-rdma/rdma-core/blob/master/infiniband-diags/man/ibnetdiscover.8.in.rst

`lldpctl -f json0` and `-f json` have the neighbours of each interface. json0 has a list wherever
there may be several values; json has a list only where there are, and the names of interfaces and
systems as keys. https://lldpd.github.io/usage.html

The CSV file that a site gives to all nodes has `host,device,port,switch,switch_port`: the first
line names the columns, in any order; `port` and `switch_port` may be left out. `host` may contain
wildcards. `port` is empty for an interface.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from glob import has_magic
from typing import Any

import msgspec

from nodevitals.linux import tool
from nodevitals.linux.beneath import MAX_FILE_BYTES, read_written_file
from nodevitals.probe import ProbeError

MAX_NAME_CHARACTERS = 128
# Names of devices as the kernel permits them.
_PORT = re.compile(r"(?P<device>[!-.0-~]{1,63})(?:/(?P<number>[0-9]{1,3}))?")


class Port(msgspec.Struct, frozen=True, order=True):
    """A port of an RDMA device, or a network interface: its `number` is ''."""

    device: str
    number: str = ""

    def __str__(self) -> str:
        return f"{self.device}/{self.number}" if self.number else self.device


class Neighbour(msgspec.Struct, frozen=True):
    """A switch by a name that an operator knows, and its port; '' where that is unknown."""

    switch: str
    switch_port: str = ""

    def __str__(self) -> str:
        return f"{self.switch} port {self.switch_port}" if self.switch_port else self.switch


def parse_port(name: str) -> Port | None:
    """The port `mlx5_0/1` or the interface `ens1f0`; None for any other text."""
    match = _PORT.fullmatch(name)
    return Port(match["device"], match["number"] or "") if match else None


def is_name(text: str) -> bool:
    """Whether a text from the network or from a file may be the value of a label."""
    return 0 < len(text) <= MAX_NAME_CHARACTERS and text.isprintable() and text == text.strip()


def spread(
    known: Mapping[Port, Neighbour],
    interfaces: Mapping[Port, str],
    bonds: Mapping[str, tuple[str, ...]],
) -> dict[Port, Neighbour]:
    """The neighbours, also of ports that share a cable: a bond whose members are all on one switch,
    an RDMA port and its interface (`interfaces`).
    """
    neighbours = dict(known)
    for bond, members in bonds.items():
        ends = [neighbours.get(Port(member)) for member in members]
        switches = {end.switch if end else "" for end in ends}
        if len(switches) == 1 and "" not in switches:
            ports = sorted({end.switch_port for end in ends if end and end.switch_port})
            neighbours.setdefault(Port(bond), Neighbour(switches.pop(), ",".join(ports)))
    for port, name in interfaces.items():
        interface = Port(name)
        if interface in neighbours:
            neighbours.setdefault(port, neighbours[interface])
        elif port in neighbours:
            neighbours[interface] = neighbours[port]
    return neighbours


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
    neighbours = {}
    for guid, (switch, port, description) in links.items():
        name = switch_name(description)
        if not is_name(name) or names[name] > 1:
            name = f"0x{switch:016x}"
        neighbours[guid] = Neighbour(name, str(port))
    return Topology(count, neighbours)


def switch_name(description: str) -> str:
    """The host name in a switch's description, or the description."""
    managed = _MANAGED.fullmatch(description)
    return (managed[1] if managed else description).strip()


# Types of a port identifier that are names; other types are numbers or addresses.
_NAMES = ("ifname", "ifalias")
_FORWARDS = ("Bridge", "Router")


def parse_neighbours(text: str) -> dict[Port, list[Neighbour]]:
    """The switches at each interface; switches that LLDP reports come before other protocols.

    Raises ValueError if the text contains no such document.
    """
    # Warnings are printed before or after the document.
    start, end = text.find("{"), text.rfind("}") + 1
    try:
        document = msgspec.json.decode(text[max(start, 0) : end])
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("no JSON document") from None
    if not isinstance(document, dict) or "lldp" not in document:
        raise ValueError("no document of lldpctl")
    seen: dict[Port, list[tuple[bool, Neighbour]]] = {}
    for top in _items(document["lldp"]):
        for name, interface in _named(top.get("interface"), "via"):
            port, neighbour = parse_port(name), _neighbour(interface)
            if port is not None and not port.number and neighbour is not None:
                other = interface.get("via") != "LLDP"
                seen.setdefault(port, []).append((other, neighbour))
    return {
        port: [neighbour for _, neighbour in sorted(entries, key=lambda pair: pair[0])]
        for port, entries in seen.items()
    }


def _neighbour(interface: dict[str, Any]) -> Neighbour | None:
    """The switch at an interface; None if the neighbour is no switch, such as the processor of a
    network adapter, or has no name.
    """
    for name, chassis in _named(interface.get("chassis"), "id"):
        capabilities = [*_items(chassis.get("capability"))]
        if capabilities and not any(
            capability.get("type") in _FORWARDS and capability.get("enabled") in (True, "on")
            for capability in capabilities
        ):
            continue
        switch = name or _text(chassis.get("name")) or _text(chassis.get("id"))
        if is_name(switch):
            port = _port_name(next(_items(interface.get("port")), {}))
            return Neighbour(switch, port if is_name(port) else "")
    return None


def _port_name(port: dict[str, Any]) -> str:
    """The name of the switch's port: the identifier or, if that is a number or an address, the
    description.
    """
    identifier = next(_items(port.get("id")), {})
    value, description = _text(identifier), _text(port.get("descr"))
    named = identifier.get("type") in _NAMES or (
        identifier.get("type") == "local" and not value.isdecimal()
    )
    return value if named else description or value


def _items(value: object) -> Iterator[dict[str, Any]]:
    """The objects of a list, or the one object that stands for a list of one."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item


def _named(value: object, inner: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Objects with their names: `{"name": …, inner: …}` in json0, `{NAME: {inner: …}}` in json."""
    for item in _items(value):
        if inner in item and not (isinstance(item[inner], dict) and inner in item[inner]):
            yield _text(item.get("name")), item
        else:
            yield from ((name, entry) for name, entry in item.items() if isinstance(entry, dict))


def _text(value: Any) -> str:
    """The text in `"…"`, `{"value": "…"}` or `[{"value": "…"}]`; '' in anything else."""
    if isinstance(value, list):
        value = value[0] if value else ""
    if isinstance(value, dict):
        value = value.get("value")
    return value.strip() if isinstance(value, str) else ""


MAX_PATTERNS = 5_000
MAX_HOST_CHARACTERS = 253
_REQUIRED = ("host", "device", "switch")
_COLUMNS = (*_REQUIRED, "port", "switch_port")


def parse_list(text: str, node: str) -> dict[Port, Neighbour]:
    """The ports of a node; the first row of a port that is listed twice. A host matches the node's
    name with or without its domain. Raises ValueError with the line and what is wrong.
    """
    if not text.endswith("\n"):  # a truncated name would look like a name
        raise ValueError("the last line has no end: is the file half written?")
    try:
        return _parse_rows(text, node)
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from None


def _parse_rows(text: str, node: str) -> dict[Port, Neighbour]:
    reader = csv.reader(text.splitlines())
    columns: list[str] = []
    neighbours: dict[Port, Neighbour] = {}
    patterns = 0
    for row in reader:
        if not row or row[0].startswith("#"):
            continue
        if not columns:
            columns = _parse_head(row)
            continue
        if len(row) != len(columns):
            raise ValueError(f"line {reader.line_num}: {len(row)} fields, not {len(columns)}")
        fields = {name: field.strip() for name, field in zip(columns, row)}
        patterns += has_magic(fields["host"])
        if patterns > MAX_PATTERNS:
            raise ValueError(f"line {reader.line_num}: over {MAX_PATTERNS} hosts with wildcards")
        if _fits(fields["host"], node):
            port, neighbour = _parse_row(fields, reader.line_num)
            neighbours.setdefault(port, neighbour)
    if not columns:
        raise ValueError("empty: the first line must be host,device,port,switch,switch_port")
    return neighbours


def _fits(host: str, node: str) -> bool:
    if not has_magic(host):
        return node in (host, host.partition(".")[0]) or host == node.partition(".")[0]
    names = (node, node.partition(".")[0])
    return len(host) <= MAX_HOST_CHARACTERS and any(fnmatchcase(name, host) for name in names)


def _parse_head(row: list[str]) -> list[str]:
    columns = [field.strip() for field in row]
    missing = [name for name in _REQUIRED if name not in columns]
    unknown = [name for name in columns if name not in _COLUMNS]
    if missing or unknown or len(set(columns)) != len(columns):
        what = f"no column {missing[0]}" if missing else f"column {(unknown or columns)[0]!r:.60}"
        raise ValueError(f"{what}: the first line must be host,device,port,switch,switch_port")
    return columns


def _parse_row(fields: dict[str, str], line: int) -> tuple[Port, Neighbour]:
    number, switch_port = fields.get("port", ""), fields.get("switch_port", "")
    port = parse_port(f"{fields['device']}/{number}" if number else fields["device"])
    if port is None or port.number != number:
        raise ValueError(f"line {line}: no port: write a device and a number, or an interface")
    if not is_name(fields["switch"]) or (switch_port and not is_name(switch_port)):
        raise ValueError(f"line {line}: no name of a switch, or of its port")
    return port, Neighbour(fields["switch"], switch_port)


# The output for 10,000 nodes with eight ports each has some 30 MB.
MAX_TOPOLOGY_BYTES = 4 * MAX_FILE_BYTES
_SHOWN_CHARACTERS = 160


def call_lldpctl(program: str, seconds: float) -> dict[Port, list[Neighbour]]:
    """The neighbours by interface. Raises ProbeError: those of `tool.run`, `lldp`."""
    argv = [program, "-f", "json0"]
    output = tool.run(argv, seconds)
    try:
        # Some versions exit with 0.
        if output.status != 0 or "unable to connect to" in output.text:
            raise ValueError(f"exit status {output.status}")
        return parse_neighbours(output.text)
    except ValueError as error:
        printed = " ".join(output.text.split())[:_SHOWN_CHARACTERS]
        advice = "systemctl status lldpd; the agent must be in the group of its socket"
        raise ProbeError("lldp", f"{' '.join(argv)}: {error}: {printed!r}: {advice}") from None


def read_list(path: str, node: str) -> dict[Port, Neighbour]:
    """The node's ports in a CSV file. Raises ProbeError: `ports_file`."""
    try:
        data, _ = read_written_file(path)
        if len(data) >= MAX_FILE_BYTES:
            raise ValueError(f"over {MAX_FILE_BYTES} bytes")
        return parse_list(data.decode("utf-8-sig"), node)
    except OSError as error:
        raise ProbeError("ports_file", f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProbeError("ports_file", f"{path}: not in UTF-8") from None
    except ValueError as error:
        raise ProbeError("ports_file", f"{path}: {error}") from None


def read_topology(path: str, guids: AbstractSet[int]) -> tuple[dict[int, Neighbour], float]:
    """The neighbours by GUID in a file with the output of ibnetdiscover, and the Unix time at which
    the file was written. Raises ProbeError: `ibnetdiscover`.
    """
    try:
        data, written = read_written_file(path, MAX_TOPOLOGY_BYTES)
    except OSError as error:
        raise ProbeError("ibnetdiscover", f"{path}: {error.strerror}") from None
    if len(data) >= MAX_TOPOLOGY_BYTES:
        raise ProbeError("ibnetdiscover", f"{path}: over {MAX_TOPOLOGY_BYTES} bytes")
    topology = parse_topology(data, guids)
    if not topology.links:
        text = f"{path}: no line of a port of an adapter: is it the output of ibnetdiscover?"
        raise ProbeError("ibnetdiscover", text)
    return topology.neighbours, written
