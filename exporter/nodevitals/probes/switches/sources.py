"""Reads what switches are connected to the node: lldpctl, and the files that a site writes."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from nodevitals.linux import tool
from nodevitals.linux.beneath import MAX_FILE_BYTES, read_written_file
from nodevitals.probe import ProbeError
from nodevitals.probes.switches.ibnetdiscover import parse_topology
from nodevitals.probes.switches.listing import parse_list
from nodevitals.probes.switches.lldp import parse_neighbours
from nodevitals.probes.switches.ports import Neighbour, Port

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
