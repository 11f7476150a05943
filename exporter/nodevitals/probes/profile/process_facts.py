"""Facts of running processes, the operating system, and the node's name.

In: procfs, files of /etc, the name service. Out: texts by fact.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping
from typing import Optional

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


def process_names(host: Host) -> dict[str, list[str]]:
    """The process ids by the kernel's name of a process, at most 15 characters."""
    found: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        for pid, head in process_heads(host.procfs, "comm", b"\n"):
            if head is not None:
                found.setdefault(head.decode("utf-8", "replace").strip(), []).append(pid)
    return found


def read_processes(host: Host, names: Mapping[str, list[str]], limited: Iterable[str]) -> Facts:
    """Time daemons, container runtimes, limits of services."""
    facts: Facts = {}
    if not names:
        return facts
    for fact, wanted in (("clock.daemon", TIME_DAEMONS), ("container.runtime", RUNTIMES)):
        running = [name for name in wanted if name in names]
        facts[fact] = {"": ", ".join(running) or "none"}
    for name in (*LIMITED, *limited):
        for pid in sorted(names.get(name[:15], ()), key=int)[:1]:
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
