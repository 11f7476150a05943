"""Runs commands on other nodes by ssh, without passwords. `timeout` on the node ends the command,
also when this process or the connection dies.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Optional, TypeVar

import msgspec
from msgspec.structs import replace

from nodevitals.linux.process import WORKER
from nodevitals.linux.sysfs import parse_integer
from nodevitals.probes.common.device_files import WATCHERS
from nodevitals.probes.common.rdma import Gid, choose, parse_gid
from nodevitals.probes.fabric.node import cpus, governors, port
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools import process as tool_process
from nodevitals.probes.fabric.tools.process import TCP_TABLES, ToolMissingError, ToolProcess

# Only errors of ssh itself: a banner and a warning would be read as the output of the node.
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR")
REACH_SECONDS = 15.0
POLL_SECONDS = 0.02
_IN_USE = (
    r"ls /proc/1/fd >/dev/null 2>&1 || exit 3; "
    r"find /proc -maxdepth 3 -path '*/fd/*' \( -lname '/dev/nvidia[0-9]*' -o "
    r"-lname '/dev/davinci[0-9]*' \) 2>/dev/null | cut -d/ -f3 | sort -u | "
    r"while read -r pid; do cat /proc/$pid/comm 2>/dev/null || true; done"
)
_RDMA_DEVICES = """\
cd /sys/class/infiniband 2>/dev/null || exit 0
for device in *; do echo "$device $(cat $device/ports/1/state 2>/dev/null)"; done"""
_INTERFACES = """\
cd /sys/class/net; for device in */; do echo "${device%/} $(cat $device/operstate)"; done"""
_DEVICE = "# "
"""Begins the line with the name of a device, before what is printed of it."""
_ADDRESS = re.compile(r"^\d+: \S+ +(inet6?) ([0-9a-f.:]+)/", re.MULTILINE)
Value = TypeVar("Value")


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a node, as its tests need it."""

    gid_index: Optional[int] = None
    """None on InfiniBand, and for iperf3."""
    bytes_per_second: Optional[float] = None
    """Rate of a physical port; None where it is unknown."""
    limit: str = ""
    """What keeps it from that rate; '' for nothing."""
    cpus: frozenset[int] = frozenset()
    """Processors of its NUMA node; none where they are unknown."""
    address: str = ""
    """Address of the network interface; '' where it has none, and for perftest."""


class Done(msgspec.Struct, frozen=True):
    """The output of a remote command on both streams, and its status: -1 where no answer came in
    time.
    """

    text: str
    status: int


def command(node: str, argv: Sequence[str], seconds: float, user: str = "") -> list[str]:
    """Return the local command line of a remote command with a time limit."""
    there = ["timeout", "--kill-after=1", f"{seconds:g}", *argv]
    return [*SSH, *(["-l", user] if user else []), node, "--", shlex.join(there)]


def run(node: str, argv: Sequence[str], seconds: float, user: str = "") -> Done:
    """Run a remote command to its end. It is ended where its output is too long."""
    try:
        process = ToolProcess(command(node, argv, seconds, user))
    except ToolMissingError as error:
        return Done(str(error), 127)
    try:
        deadline = time.monotonic() + seconds + REACH_SECONDS
        while process.status() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        status = process.status()
        return Done(process.text(), -1 if status is None else status)
    finally:
        process.end()


def on_each(nodes: Iterable[str], act: Callable[[str], Value]) -> dict[str, Value]:
    """Call `act` for all nodes at once."""
    names = list(nodes)
    with ThreadPoolExecutor(max_workers=64) as threads:
        return dict(zip(names, threads.map(act, names)))


def unreachable(nodes: Iterable[str], user: str = "") -> dict[str, str]:
    """Nodes that ssh cannot log in to, each with the last line of ssh's output."""
    outputs = on_each(nodes, lambda node: run(node, ["true"], 5, user))
    return {node: last_line(done.text) for node, done in outputs.items() if done.status != 0}


def in_use(nodes: Iterable[str], user: str = "") -> dict[str, str]:
    """Nodes where a process has an accelerator open, with the names of these processes; also nodes
    where that is unknown.
    """
    outputs = on_each(nodes, lambda node: run(node, ["sh", "-c", _IN_USE], 10, user))
    used = {}
    for node, done in outputs.items():
        names = set(done.text.split()) - set(WATCHERS)
        users = sorted(name for name in names if not name.startswith(WORKER))
        if done.status != 0:
            used[node] = "may be in use: its processes cannot be seen (log in as root)"
        elif users:
            used[node] = f"is in use by {', '.join(users)}"
    return used


def set_governors(nodes: Iterable[str]) -> None:
    """Let the processors run at full speed."""
    on_each(nodes, lambda node: run(node, governors.argv(governors.SET), 10))


def restore_governors(nodes: Iterable[str]) -> None:
    """Restore the governors, also those that a crashed check has changed."""
    on_each(nodes, lambda node: run(node, governors.argv(governors.RESTORE), 10))


def devices(nodes: Iterable[str], tool: str) -> dict[str, dict[str, bool]]:
    """The devices of each node, and whether they are up, as far as ssh can see them."""
    script = _INTERFACES if tool == "iperf3" else _RDMA_DEVICES
    outputs = on_each(nodes, lambda node: run(node, ["sh", "-c", script], 10))
    return {node: parse_devices(done.text) for node, done in outputs.items()}


def parse_devices(text: str) -> dict[str, bool]:
    """Names of devices, each with a word for its state."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: pair[-1] in ("ACTIVE", "up", "unknown") for pair in pairs if len(pair) > 1}


def ports(nodes: Iterable[str], tests: Sequence[TestSettings]) -> dict[tuple[str, str], Port]:
    """What the tests need to know of each node and device."""
    each = {
        name: replace(test, device=name)
        for test in tests
        for name in (test.device, test.peer_device)
        if name
    }
    # One login per node: it may take longer than all of these commands.
    script = "\n".join(
        f"echo '{_DEVICE}{name}'\n{_port_script(test)}" for name, test in each.items()
    )
    outputs = on_each(nodes, lambda node: run(node, ["sh", "-c", script], 10))
    found = {}
    for node, done in outputs.items():
        parts = (part.partition("\n") for part in f"\n{done.text}".split(f"\n{_DEVICE}"))
        printed = {name: text for name, _, text in parts}
        for name, test in each.items():
            found[node, name] = _port(test, printed.get(name, ""))
    return found


def _port_script(test: TestSettings) -> str:
    """Commands that print what is to be known of a device."""
    directory, rate = port.place_of(test)
    facts = shlex.join(["sh", "-c", port.PORT_SCRIPT, "sh", f"/sys/{directory}", rate])
    if test.tool == "iperf3":
        return (
            f"{facts}\n{shlex.join(['ip', '-o', 'addr', 'show', 'dev', test.device])} scope global"
        )
    folder = shlex.quote(f"/sys/class/infiniband/{test.device}/ports/{test.ib_port}")
    gids = "grep -H . gids/* gid_attrs/types/* gid_attrs/ndevs/*"
    return f"{facts}\n(cd {folder} && {gids}) 2>/dev/null"


def _port(test: TestSettings, printed: str) -> Port:
    facts = port.facts_there(printed)
    known = Port(
        bytes_per_second=port.promised(test, facts),
        limit=port.limit_of(test, facts),
        cpus=cpus.cpus_of(facts),
    )
    if test.tool == "iperf3":
        return replace(known, address=parse_address(printed))
    gid_index = test.gid_index
    if gid_index is None:
        gid = choose(parse_gids(printed))
        gid_index = None if gid is None else gid.index
    return replace(known, gid_index=gid_index)


def parse_address(text: str) -> str:
    """The first IPv4 address that `ip -o addr` prints, otherwise the first IPv6 address."""
    found = _ADDRESS.findall(text)
    return next((address for kind, address in sorted(found)), "")


def is_connected(node: str, port: int) -> bool:
    """Whether a process on the node is connected to this TCP port of another node."""
    return tool_process.is_connected(port, run(node, ["cat", *TCP_TABLES], 5).text)


def parse_gids(text: str) -> list[Gid]:
    """A port's GID table from `grep -H .` on its files, without incomplete rows."""
    files = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    numbers = (parse_integer(name[5:]) for name in files if name.startswith("gids/"))
    rows = []
    for index in sorted(number for number in numbers if number is not None):
        address = parse_gid(files.get(f"gids/{index}", ""))
        kind = files.get(f"gid_attrs/types/{index}")
        if address is not None and any(address) and kind is not None:
            rows.append(Gid(index, address, kind, files.get(f"gid_attrs/ndevs/{index}", "")))
    return rows


def last_line(text: str) -> str:
    """The last line that is not empty."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no answer")
