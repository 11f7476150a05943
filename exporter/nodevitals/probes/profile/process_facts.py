"""Facts of running processes, the operating system, and the node's name.

In: procfs, files of /etc, the name service. Out: texts by fact.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from typing import Optional

import msgspec

from nodevitals.linux.beneath import read_written_file
from nodevitals.linux.host import Host, node_name
from nodevitals.linux.process import process_heads
from nodevitals.linux.sysfs import read_text
from nodevitals.probes.common.facts import Values
from nodevitals.probes.profile.kernel_facts import parse_name_servers, parse_os_release

Facts = dict[str, Values]

TIME_DAEMONS = ("chronyd", "ntpd", "ptp4l", "phc2sys", "systemd-timesyn")
RUNTIMES = ("containerd", "dockerd", "crio", "podman")
LIMITED = ("slurmd", "containerd", "dockerd", "kubelet", "sshd")
# A node has thousands of processes: while those that count live on, the others are looked at as
# seldom as nothing has changed, at most after this time.
LOOK_SECONDS = 600.0
_LIMITS = {"memlock": "Max locked memory", "nofile": "Max open files"}
_MAX_FILE_BYTES = 65536


def parse_limits(text: str) -> dict[str, str]:
    """Soft limits of /proc/PID/limits by the name of ulimit(1)."""
    found = {}
    for line in text.splitlines():
        for name, head in _LIMITS.items():
            words = line.removeprefix(head).split() if line.startswith(head) else []
            if words and (words[0].isdigit() or words[0] == "unlimited"):
                found[name] = words[0]
    return found


class Running(msgspec.Struct):
    """The processes that facts are about: the lowest id by the kernel's name of it, which has at
    most 15 characters; the names that were looked for; in monotonic seconds, when all processes
    were looked at first and last with this result.
    """

    pids: dict[str, int]
    names: tuple[str, ...]
    since: float
    at: float


def find_processes(
    host: Host, limited: Iterable[str], before: Optional[Running], now: float
) -> Optional[Running]:
    """The processes that run now; None where they cannot be listed. Those of before, where each of
    them still runs and all processes were looked at not long ago.
    """
    names = tuple(sorted({name[:15] for name in (*TIME_DAEMONS, *RUNTIMES, *LIMITED, *limited)}))
    if before is not None and before.names == names and not _is_outdated(host, before, now):
        return before
    pids: dict[str, int] = {}
    listed = False
    with contextlib.suppress(OSError):
        for pid, head in process_heads(host.procfs, "comm", b"\n"):
            listed = True
            name = "" if head is None else head.decode("utf-8", "replace").strip()
            if name in names:
                pids[name] = min(int(pid), pids.get(name, int(pid)))
    same = before is not None and before.pids == pids and before.names == names
    since = before.since if before is not None and same else now
    return Running(pids, names, since, now) if listed else None


def _is_outdated(host: Host, last: Running, now: float) -> bool:
    if not 0 <= now - last.at < min(LOOK_SECONDS, last.at - last.since):
        return True
    return any(read_text(host.proc(f"{pid}/comm")) != name for name, pid in last.pids.items())


def read_processes(host: Host, running: Optional[Running], limited: Iterable[str]) -> Facts:
    """Time daemons, container runtimes, limits of services."""
    facts: Facts = {}
    if running is None:
        return facts
    for fact, wanted in (("clock.daemon", TIME_DAEMONS), ("container.runtime", RUNTIMES)):
        found = [name for name in wanted if name in running.pids]
        facts[fact] = {"": ", ".join(found) or "none"}
    for name in (*LIMITED, *limited):
        pid = running.pids.get(name[:15])
        if pid is not None:
            limits = parse_limits(read_text(host.proc(f"{pid}/limits")) or "")
            for limit, text in limits.items():
                facts[f"limit.{limit}.{name}"] = {"": text}
    return facts


def read_etc(host: Host) -> Facts:
    """The operating system and its name servers."""
    facts: Facts = {}
    release = parse_os_release(_text(host, "/etc/os-release", "/usr/lib/os-release") or "")
    version = " ".join(filter(None, (release.get("ID"), release.get("VERSION_ID"))))
    if version:
        facts["os.version"] = {"": version[:64]}
    servers = parse_name_servers(_text(host, "/etc/resolv.conf") or "")
    if servers:
        facts["dns.servers"] = {"": ", ".join(servers)[:128]}
    return facts


def read_own_name() -> Facts:
    """Whether the node's own name has an address; it may take as long as the name servers do."""
    try:
        socket.getaddrinfo(node_name(), None, proto=socket.IPPROTO_TCP)
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            return {"dns.own_name": {"": "does not resolve"}}
        return {}  # no name server answers: unknown
    except (OSError, UnicodeError):
        return {}
    return {"dns.own_name": {"": "resolves"}}


def _text(host: Host, *paths: str) -> Optional[str]:
    """The first regular file that can be read."""
    for path in paths:
        with contextlib.suppress(OSError):
            return read_written_file(host.root(path), _MAX_FILE_BYTES)[0].decode("utf-8", "replace")
    return None
