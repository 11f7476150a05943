"""Who takes part: names, where they listen, which group they are in.

In: lists in the configuration, file_sd files, a name service. Out: the same roster on every node
that sees the same lists.
"""

from __future__ import annotations

import glob
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from nodevitals.document import DocumentError, Problem, convert, parse_yaml
from nodevitals.linux.host import Host, node_name
from nodevitals.probe import ProbeError
from nodevitals.probes.common.names import resolve
from nodevitals.probes.common.targets import is_address, parse_address
from nodevitals.probes.fabric.plan import Roster
from nodevitals.probes.fabric.settings import DEFAULT_PORT, FabricSettings, StaticPeers

NAME_SECONDS = 3.0
MAX_MEMBERS = 50_000


class Member(msgspec.Struct, frozen=True):
    """Where a member listens, and its group ('' where there are none)."""

    host: str
    port: int
    group: str


def load(settings: FabricSettings, host: Host) -> dict[str, Member]:
    """All members by name. Raises ProbeError where a list cannot be had: half a list would make
    another plan than everybody else's.
    """
    groups = list(settings.static)
    for pattern in settings.file_sd:
        files = sorted(glob.glob(host.root(pattern)))
        if not files:
            raise ProbeError("list", f"{pattern}: no such file")
        for file in files:
            groups += _read(file)
    addresses = resolve(settings.dns_sd, time.monotonic() + NAME_SECONDS)
    for name in settings.dns_sd:
        if not addresses.get(name):
            raise ProbeError("list", f"{name}: the name service has no address of it")
        groups.append(StaticPeers(targets=tuple(sorted(addresses[name]))))
    return _members(groups, settings.group_by)


def _members(groups: list[StaticPeers], group_by: str) -> dict[str, Member]:
    members: dict[str, Member] = {}
    for group in groups:
        for target in group.targets:
            try:
                host, port = parse_address(target, DEFAULT_PORT)
            except ValueError as error:
                raise ProbeError("list", str(error)) from None
            members[host] = Member(host, port, str(group.labels.get(group_by, "")))
    if len(members) > MAX_MEMBERS:
        raise ProbeError("list", f"{len(members)} members, over {MAX_MEMBERS}")
    return members


def _read(file: str) -> list[StaticPeers]:
    problems: list[Problem] = []
    try:
        found = convert(parse_yaml(Path(file).read_bytes()), tuple[StaticPeers, ...], "", problems)
    except OSError as error:
        raise ProbeError("list", f"{file}: {error.strerror}") from None
    except DocumentError as error:
        raise ProbeError("list", f"{file}: {error}") from None
    if problems:
        raise ProbeError("list", f"{file}: {problems[0]}")
    return list(found)


def roster_of(members: Mapping[str, Member], across_pairs: int) -> Roster:
    """The plan's view of them."""
    return Roster(((name, member.group) for name, member in members.items()), across_pairs)


def own_name(members: Mapping[str, Member], configured: str) -> str:
    """Which member we are. Raises ProbeError for none."""
    for name in (configured, node_name()):
        if name in members:
            return name
    if not configured:
        for name in members:
            if is_address(name) and _is_ours(name):
                return name
    raise ProbeError("not_listed", f"{configured or node_name()} is not among the peers; set name")


def _is_ours(address: str) -> bool:
    """Whether an address is of this node: only then can it be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
