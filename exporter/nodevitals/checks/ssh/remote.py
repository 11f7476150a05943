"""Runs commands on other nodes by ssh, without passwords. `timeout` on the node ends the command,
also when this process or the connection dies.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from nodevitals.linux.process import WORKER
from nodevitals.linux.sysfs import parse_integer
from nodevitals.probes.common.device_files import WATCHERS
from nodevitals.probes.common.rdma import Gid, choose, parse_gid
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools import process as tool_process
from nodevitals.probes.fabric.tools.process import TCP_TABLES, ToolMissingError, ToolProcess

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")
REACH_SECONDS = 15.0
POLL_SECONDS = 0.02
# Only root may write this file, because root restores the governors from it. Like the governors,
# the file is gone after a reboot.
GOVERNORS = "/run/nodevitals-governors"
# Governors that a crashed check has saved are the original ones, and are not overwritten.
_SAVE_AND_SET = f"""\
set -e; cd /sys/devices/system/cpu; ls cpu*/cpufreq/scaling_governor >/dev/null 2>&1 || exit 0
[ -e {GOVERNORS} ] ||
  {{ grep -H . cpu*/cpufreq/scaling_governor >{GOVERNORS}.new; mv {GOVERNORS}.new {GOVERNORS}; }}
for file in cpu*/cpufreq/scaling_governor; do echo performance >$file; done"""
_RESTORE = f"""\
[ -e {GOVERNORS} ] || exit 0; cd /sys/devices/system/cpu
while IFS=: read -r file governor; do echo $governor >$file; done <{GOVERNORS}; rm {GOVERNORS}"""
_IN_USE = (
    r"ls /proc/1/fd >/dev/null 2>&1 || exit 3; "
    r"find /proc -maxdepth 3 -path '*/fd/*' \( -lname '/dev/nvidia[0-9]*' -o "
    r"-lname '/dev/davinci[0-9]*' \) 2>/dev/null | cut -d/ -f3 | sort -u | "
    r"while read -r pid; do cat /proc/$pid/comm 2>/dev/null || true; done"
)
Value = TypeVar("Value")


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
    on_each(nodes, lambda node: run(node, ["sh", "-c", _SAVE_AND_SET], 10))


def restore_governors(nodes: Iterable[str]) -> None:
    """Restore the governors, also those that a crashed check has changed."""
    on_each(nodes, lambda node: run(node, ["sh", "-c", _RESTORE], 10))


def gid_indexes(nodes: Iterable[str], test: TestSettings) -> dict[str, int | None]:
    """The GID index that each node's port should use: nodes may differ. None on InfiniBand."""
    folder = f"/sys/class/infiniband/{test.device}/ports/{test.ib_port}"
    script = f"cd {shlex.quote(folder)} && grep -H . gids/* gid_attrs/types/* gid_attrs/ndevs/*"
    outputs = on_each(nodes, lambda node: run(node, ["sh", "-c", f"{script} 2>/dev/null"], 10))
    return {node: _gid_index(parse_gids(done.text)) for node, done in outputs.items()}


def port_rates(nodes: Iterable[str], test: TestSettings) -> dict[str, float | None]:
    """The rate of each node's port in bytes per second; None where it is unknown."""
    if not test.device:
        return dict.fromkeys(nodes)
    directory, rate = measurement.place_of(test)
    argv = ["sh", "-c", measurement.PORT_SCRIPT, "sh", f"/sys/{directory}", rate]
    outputs = on_each(nodes, lambda node: run(node, argv, 10))
    return {node: measurement.promised_there(test, done.text) for node, done in outputs.items()}


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


def _gid_index(gids: Iterable[Gid]) -> int | None:
    gid = choose(gids)
    return None if gid is None else gid.index


def last_line(text: str) -> str:
    """The last line that is not empty."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no answer")
