"""The members: the nodes that take part, with their addresses and groups.

In: lists in the configuration, file_sd files, a name service. Out: the same roster on every node
that reads the same lists.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

import msgspec

from nodevitals.linux.host import Host, node_name
from nodevitals.probe import ProbeError
from nodevitals.probes.common.addresses import ListedTarget, is_address, parse_address
from nodevitals.probes.common.discovery import Discovery, DiscoveryState
from nodevitals.probes.fabric.plan import Roster
from nodevitals.probes.fabric.settings import DEFAULT_PORT, FabricSettings

NAME_SECONDS = 3.0
MAX_MEMBERS = 50_000


class Membership(msgspec.Struct, frozen=True):
    """All members by name with their addresses, the plan's roster of them, and the name of this
    node among them.
    """

    name: str
    members: dict[str, ListedTarget]
    roster: Roster


class MemberLists:
    """The membership by the last good lists. Half a list would give another plan than that of the
    other nodes, so all lists are read, or none is used.
    """

    def __init__(self, settings: FabricSettings, host: Host) -> None:
        self._settings = settings
        self._host = host
        self._slot = -1
        self.membership: Membership | None = None
        self.problem = ""
        """Why the lists could not be read for this slot, in one line."""

    def load(self) -> None:
        """Read all lists. Raises ProbeError."""
        settings = self._settings
        members = load_members(settings, self._host)
        name = own_name(members, settings.name)
        self.membership = Membership(name, members, roster_of(members, settings.across_pairs))

    def refresh(self, slot: int) -> None:
        """Read all lists once per slot; the last good ones stay in use while that fails."""
        if slot == self._slot:
            return
        self._slot = slot
        try:
            self.load()
            self.problem = ""
        except ProbeError as error:
            self.problem = error.message


def load_members(settings: FabricSettings, host: Host) -> dict[str, ListedTarget]:
    """All members by name. Raises ProbeError where any list cannot be read."""
    members = {target.host: target for target in _static(settings)}
    discovery = Discovery(
        host, DiscoveryState(), DEFAULT_PORT, settings.group_by, require_files=True
    )
    deadline = time.monotonic() + NAME_SECONDS
    for _, target in discovery.targets(settings.file_sd, settings.dns_sd, deadline):
        members[target.host] = target
    for problem in discovery.problems:
        raise ProbeError("list", problem.message)
    if len(members) > MAX_MEMBERS:
        raise ProbeError("list", f"{len(members)} members, over {MAX_MEMBERS}")
    return members


def _static(settings: FabricSettings) -> list[ListedTarget]:
    found = []
    for source in settings.static:
        group = source.labels.get(settings.group_by, "")
        for text in source.targets:
            try:
                found.append(ListedTarget(*parse_address(text, DEFAULT_PORT), group))
            except ValueError as error:
                raise ProbeError("list", str(error)) from None
    return found


def roster_of(members: Mapping[str, ListedTarget], across_pairs: int) -> Roster:
    """The roster of these members."""
    return Roster(((name, member.group) for name, member in members.items()), across_pairs)


def own_name(members: Mapping[str, ListedTarget], configured: str) -> str:
    """The name of this node on the lists. Raises ProbeError where it is not listed."""
    for name in (configured, node_name()):
        if name in members:
            return name
    if not configured:
        for name in members:
            if is_address(name) and _is_own(name):
                return name
    text = f"{configured or node_name()} is not among the peers; set probes.fabric.name"
    raise ProbeError("not_listed", text)


def _is_own(address: str) -> bool:
    """Whether an address belongs to this node: only then can it be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
