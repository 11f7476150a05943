"""Options that the subcommands share, and how they are read. Raises CommandError."""

from __future__ import annotations

import argparse

import msgspec

from nodevitals.checks.ssh import remote
from nodevitals.commands.options import load_config
from nodevitals.commands.terminal import CommandError
from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError
from nodevitals.probes.common.addresses import ListedTarget
from nodevitals.probes.fabric.members import load_members
from nodevitals.probes.fabric.settings import FabricSettings
from nodevitals.quantities import parse_bit_rate


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose nodes."""
    nodes = parser.add_mutually_exclusive_group()
    nodes.add_argument("--nodes", metavar="A,B,C", help="names or addresses of the nodes")
    pool = "the peers of --config.file in this pool, or the hub's nodes"
    nodes.add_argument("--pool", metavar="NAME", help=pool)
    parser.add_argument(
        "--config.file",
        dest="config",
        metavar="FILE",
        help="for --pool: the configuration with the peers (default: none)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="test also where a process has an accelerator open (default: refuse)",
    )


def chosen_nodes(options: argparse.Namespace, least: int = 2) -> list[str]:
    """The nodes of --nodes or --pool, at least `least`."""
    if options.nodes:
        names = [name.strip() for name in options.nodes.split(",") if name.strip()]
    else:
        if not options.pool:
            raise CommandError("which nodes? --nodes A,B,C or --pool NAME")
        if options.config is None:
            raise CommandError("--pool: which file has the peers? --config.file FILE")
        settings = msgspec.structs.replace(fabric_settings(options.config), group_by="pool")
        members = listed_members(settings, options.config)
        names = [name for name, member in members.items() if member.group == options.pool]
    if len(set(names)) < least:
        takes = "a pair takes two nodes" if least > 1 else "a collective takes a node or more"
        raise CommandError(f"{takes}; there are: {', '.join(names) or 'none'}")
    for name in names:
        if name.startswith("-"):
            raise CommandError(f"{name!r} is no node")
    return list(dict.fromkeys(names))


def refuse_nodes_in_use(nodes: list[str], options: argparse.Namespace) -> None:
    """Raise CommandError where any node is in use, unless --force is given."""
    used = {} if options.force else remote.in_use(nodes)
    if used:
        lines = (f"{node} {why}; --force tests all the same" for node, why in used.items())
        raise CommandError("\n".join(lines))


def expected_rate(text: str | None) -> float | None:
    """The rate of --expected in bytes per second."""
    try:
        return None if text is None else parse_bit_rate(text)
    except ValueError as error:
        raise CommandError(f"--expected: {error}") from None


def fabric_settings(path: str) -> FabricSettings:
    """The section `fabric` of a configuration file."""
    settings: FabricSettings = load_config(path).probes["fabric"]
    return settings


def listed_members(settings: FabricSettings, path: str) -> dict[str, ListedTarget]:
    """The members on the lists of a configuration file."""
    try:
        return load_members(settings, Host())
    except ProbeError as error:
        raise CommandError(f"{path}: {error.message}") from None
