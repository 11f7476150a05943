"""A list of ports and switches for many nodes: the CSV file that a site gives to all of them. Pure.

`host,device,port,switch,switch_port`: the first line names the columns, in any order; `port` and
`switch_port` may be left out. `host` may contain wildcards. `port` is empty for an interface.
"""

from __future__ import annotations

import csv
from fnmatch import fnmatchcase
from glob import has_magic

from nodevitals.probes.switches.ports import Neighbour, Port, is_name, parse_port

MAX_PATTERNS = 5_000
MAX_HOST_CHARACTERS = 253
_REQUIRED = ("host", "device", "switch")
_COLUMNS = (*_REQUIRED, "port", "switch_port")


def parse_list(text: str, node: str) -> dict[Port, Neighbour]:
    """The ports of a node; of a port that is listed twice, the first row. A host matches the node's
    name with or without its domain. Raises ValueError with the line and what is wrong.
    """
    if not text.endswith("\n"):  # a half-written name is a name, too
        raise ValueError("the last line has no end: is the file half written?")
    try:
        return _parse_rows(text, node)
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from None


def _parse_rows(text: str, node: str) -> dict[Port, Neighbour]:
    reader = csv.reader(text.splitlines())
    columns: list[str] = []
    found: dict[Port, Neighbour] = {}
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
            found.setdefault(port, neighbour)
    if not columns:
        raise ValueError("empty: the first line must be host,device,port,switch,switch_port")
    return found


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
