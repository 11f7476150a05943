"""`nodevitals fast`: second-level monitoring of some nodes for some time, through the hub.

In: nodes, probes, a time. Out: leases of the hub, begun, ended or listed.
"""

from __future__ import annotations

import argparse

import msgspec

from nodevitals.commands.terminal import (
    FOUND_WRONG,
    GOOD,
    CommandError,
    Subparsers,
    local_time,
    print_json,
    print_table,
    printable,
)
from nodevitals.quantities import parse_duration

EXAMPLES = """\
examples:
  nodevitals fast gpu-7 gpu-8 --probe rdma,network --for 30m --hub https://hub.example.org
  nodevitals fast --where pool=train --probe rdma --hub https://hub.example.org
  nodevitals fast --hub https://hub.example.org
  nodevitals fast --end 4f1c20a9b3d7 --hub https://hub.example.org

Agents run these probes every second, and Prometheus' job nodevitals-fast scrapes them as
often; without nodes the leases are listed. Exit status: 0 good, 1 a node listed without
second-level monitoring, 2 could not tell, 130 interrupted."""
DEFAULT_DURATION = "30m"


class _Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease, as far as it is shown."""

    id: str
    nodes: tuple[str, ...]
    probes: tuple[str, ...]
    until: float
    note: str = ""


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node under leases."""

    name: str
    state: str
    probes: dict[str, str] = {}
    error: str = ""


class _Listed(msgspec.Struct, frozen=True, kw_only=True):
    """All leases of the hub."""

    leases: tuple[_Lease, ...]
    nodes: tuple[_Node, ...]


LEASES_PATH = "/api/v1/leases"


def add_to(commands: Subparsers) -> None:
    """Add `fast` to the command line."""
    from nodevitals.commands.hub.client import add_hub_options

    parser = commands.add_parser(
        "fast", help="run probes of some nodes every second for some time", epilog=EXAMPLES
    )
    add = parser.add_argument
    add("nodes", nargs="*", metavar="NODE", help="names of nodes (default: none, list the leases)")
    where = "nodes of the hub with this label; may be repeated (default: any)"
    add("--where", action="append", default=[], metavar="LABEL=VALUE", help=where)
    add("--probe", metavar="NAMES", help="probes, separated by commas, such as rdma,network")
    add(
        "--for",
        dest="duration",
        default=DEFAULT_DURATION,
        metavar="DURATION",
        help=f"how long, such as 30m (default {DEFAULT_DURATION})",
    )
    add("--note", default="", metavar="TEXT", help="why, for people (default: none)")
    add("--end", metavar="ID", help="end this lease (default: none)")
    add("--json", action="store_true", help="print JSON")
    add_hub_options(parser, needed=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Begin, end or list leases."""
    from nodevitals.commands.hub.client import client_of

    chosen = bool(options.nodes or options.where)
    if options.end and (chosen or options.probe):
        raise CommandError("--end: write only the lease to end")
    if options.probe and not chosen:
        raise CommandError("--probe: name nodes, or choose them by --where")
    if chosen and not options.probe:
        raise CommandError("--probe is missing: name the probes, such as --probe rdma,network")
    client = client_of(options)
    if options.end:
        lease = client.call("DELETE", f"{LEASES_PATH}/{_identity(options.end)}", _Lease)
        return _print_lease(lease, options, "ended")
    if chosen:
        lease = client.call("POST", LEASES_PATH, _Lease, _wanted(options))
        return _print_lease(lease, options, f"until {local_time(lease.until)}")
    return _print_all(client.call("GET", LEASES_PATH, _Listed), options)


def _wanted(options: argparse.Namespace) -> dict[str, object]:
    where = {}
    for text in options.where:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise CommandError(f"--where: {printable(text)}: write LABEL=VALUE")
        where[name] = value
    try:
        seconds = parse_duration(options.duration)
    except ValueError as error:
        raise CommandError(f"--for: {error}") from None
    probes = [name.strip() for name in options.probe.split(",") if name.strip()]
    wanted: dict[str, object] = {"nodes": options.nodes, "where": where, "probes": probes}
    return {**wanted, "seconds": seconds, "note": options.note}


def _identity(text: str) -> str:
    if not (text.isascii() and text.isalnum()):
        raise CommandError(f"--end: {printable(text)} is no lease: nodevitals fast lists them")
    return text


def _print_lease(lease: _Lease, options: argparse.Namespace, what: str) -> int:
    if options.json:
        print_json(lease)
    else:
        probes, nodes = ", ".join(lease.probes), len(lease.nodes)
        text = f"lease {lease.id}: {probes} on {nodes} node{'s' if nodes != 1 else ''}, {what}"
        print(printable(text))
    return GOOD


def _print_all(listed: _Listed, options: argparse.Namespace) -> int:
    if options.json:
        print_json(listed)
    else:
        rows = [
            (
                lease.id,
                ",".join(lease.probes),
                len(lease.nodes),
                local_time(lease.until),
                lease.note,
            )
            for lease in listed.leases
        ]
        print_table(("LEASE", "PROBES", "NODES", "UNTIL", "NOTE"), rows)
        print()
        states = [(node.name, node.state, _detail(node)) for node in listed.nodes]
        print_table(("NODE", "STATE", "PROBES"), states)
    wrong = any(node.state in ("refused", "unreachable") for node in listed.nodes)
    return FOUND_WRONG if wrong else GOOD


def _detail(node: _Node) -> str:
    return node.error or ", ".join(f"{name} {state}" for name, state in node.probes.items())
