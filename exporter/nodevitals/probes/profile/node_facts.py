"""Facts of the kernel, the CPUs, the memory, the processes, the operating system, the node's name.

In: procfs, sysfs, files of /etc, the name service. Out: texts by fact and device. What cannot be
read is missing.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterable, Iterator
from typing import Optional

import msgspec

from nodevitals.linux.beneath import read_written_file
from nodevitals.linux.host import Host, node_name
from nodevitals.linux.process import process_heads
from nodevitals.linux.sysfs import (
    can_be_listed,
    exists,
    list_names,
    parse_integer,
    read_integer,
    read_label,
    read_text,
)
from nodevitals.probes.common.facts import Values

Facts = dict[str, Values]

MODULES = ("nvidia_peermem", "gdrdrv", "nvidia_fs", "nvidia_uvm", "mlx5_core", "mlx5_ib")
SYSCTLS = (
    "kernel.numa_balancing",
    "kernel.pid_max",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "vm.max_map_count",
    "vm.overcommit_memory",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
)
_CHOSEN = re.compile(r"\[([a-z_]+)\]")
_CPU = re.compile(r"cpu[0-9]+")
_NUMA_NODE = re.compile(r"node[0-9]+")
_CONTROLLER = re.compile(r"mc[0-9]+")
_DIMM = re.compile(r"(?:dimm|rank)[0-9]+")
# Names that a site configures become parts of paths.
_SYSCTL = re.compile(r"[a-zA-Z0-9_-]+(?:[./][a-zA-Z0-9_:-]+){1,8}\Z")
_MODULE = re.compile(r"[a-zA-Z0-9_]{1,56}\Z")
_MAX_SYSCTL_CHARACTERS = 128


def parse_cmdline(text: str) -> dict[str, str]:
    """The parameters of /proc/cmdline; without a value: `set`; the last of equal names counts."""
    parameters = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        parameters[name] = value.strip('"') if equals else "set"
    return parameters


def parse_chosen(text: str) -> Optional[str]:
    """The chosen word in a file such as `always [madvise] never`; None without one."""
    match = _CHOSEN.search(text)
    return match[1] if match else None


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by name in /proc/meminfo, of the lines in kB."""
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        number = parse_integer(words[0]) if len(words) == 2 and words[1] == "kB" else None
        if number is not None:
            sizes[name] = number * 1024
    return sizes


def parse_os_release(text: str) -> dict[str, str]:
    """Values by name in os-release(5)."""
    pairs = (line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}


def parse_name_servers(text: str) -> list[str]:
    """The addresses of the name servers in resolv.conf(5)."""
    words = (line.split() for line in text.splitlines())
    return [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]


def read_kernel(host: Host, modules: Iterable[str], sysctls: Iterable[str]) -> Facts:
    """Release, modules, parameters."""
    facts: Facts = {}
    _put(facts, "kernel.release", read_label(host.proc("sys/kernel/osrelease")))
    source = "devices/system/clocksource/clocksource0/current_clocksource"
    _put(facts, "clock.source", read_label(host.sys(source)))
    if can_be_listed(host.sys("module")) and list_names(host.sys("module")):
        for module in filter(_MODULE.match, (*MODULES, *modules)):
            loaded = exists(host.sys(f"module/{module}"))
            words = {True: "loaded", False: "not loaded"}
            _put(facts, f"module.{module}", None if loaded is None else words[loaded])
            _put(facts, f"module_version.{module}", _label(host, f"module/{module}/version"))
    for name in (*SYSCTLS, *sysctls):
        text = _sysctl(host, name)
        _put(facts, f"sysctl.{name}", text)
    return facts


def read_cmdline(host: Host, names: Iterable[str]) -> Facts:
    """The requested parameters of the command line; `not set` for a missing one."""
    text = read_text(host.proc("cmdline"))
    if not text:
        return {}
    parameters = parse_cmdline(text)
    return {f"cmdline.{name}": {"": parameters.get(name, "not set") or "set"} for name in names}


def _sysctl(host: Host, name: str) -> Optional[str]:
    """A kernel parameter; a dot within a part is written as `/`, as in sysctl(8)."""
    if not _SYSCTL.match(name) or ".." in name:
        return None
    swapped = name.translate(str.maketrans("./", "/."))
    text = read_text(host.proc(f"sys/{swapped}"))
    return None if text is None else " ".join(text.split())[:_MAX_SYSCTL_CHARACTERS]


def read_cpus(host: Host) -> Facts:
    """Model, numbers, governor, multithreading, microcode."""
    facts: Facts = {}
    root = host.sys("devices/system/cpu")
    cpus = [name for name in list_names(root) if _CPU.fullmatch(name)]
    online = [name for name in cpus if read_text(root / name / "online") in (None, "1")]
    packages = {read_integer(root / name / "topology/physical_package_id") for name in online}
    if online:
        facts["cpu.online"] = {"": str(len(online))}
    if packages and None not in packages:
        facts["cpu.sockets"] = {"": str(len(packages))}
    _put(facts, "cpu.model", _cpu_model(read_text(host.proc("cpuinfo")) or ""))
    nodes = [
        name for name in list_names(host.sys("devices/system/node")) if _NUMA_NODE.fullmatch(name)
    ]
    if nodes:
        facts["cpu.numa_nodes"] = {"": str(len(nodes))}
    files = {"governor": "cpufreq/scaling_governor", "microcode": "microcode/version"}
    for fact, file in files.items():
        texts = {name: read_label(root / name / file) for name in online}
        known = {name: text for name, text in texts.items() if text}
        if known:
            facts[f"cpu.{fact}"] = known
    _put(facts, "cpu.smt", _label(host, "devices/system/cpu/smt/control"))
    return facts


def _cpu_model(cpuinfo: str) -> Optional[str]:
    """The model of the first CPU in /proc/cpuinfo; None on architectures without this line."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return None


def read_memory(host: Host) -> Facts:
    """Sizes, modules, huge pages."""
    facts: Facts = {}
    meminfo = parse_meminfo(read_text(host.proc("meminfo")) or "")
    for fact, name in (("memory.bytes", "MemTotal"), ("memory.swap_bytes", "SwapTotal")):
        _put(facts, fact, str(meminfo[name]) if name in meminfo else None)
    huge = read_text(host.sys("kernel/mm/transparent_hugepage/enabled"))
    _put(facts, "memory.thp", parse_chosen(huge or ""))
    for size in ("2048kB", "1048576kB"):
        number = read_integer(host.sys(f"kernel/mm/hugepages/hugepages-{size}/nr_hugepages"))
        _put(facts, f"memory.hugepages_{size}", None if number is None else str(number))
    sizes: Values = {}
    errors: Values = {}
    for name, path in _dimms(host):
        megabytes = read_integer(f"{path}/size")
        counts = [read_integer(f"{path}/dimm_{kind}_count") for kind in ("ce", "ue")]
        if megabytes:
            sizes[name] = str(megabytes << 20)
            if None not in counts:
                errors[name] = str(sum(count or 0 for count in counts))
    if sizes:
        facts["memory.dimms"] = {"": str(len(sizes))}
        facts["memory.dimm_bytes"] = sizes
    if errors:
        facts["memory.dimm_errors"] = errors
    return facts


def _dimms(host: Host) -> Iterator[tuple[str, str]]:
    """Memory modules that EDAC lists: the label on the board, or else the location, and the folder.
    A slot without a module has the size 0.
    """
    root = host.sys("devices/system/edac/mc")
    for controller in filter(_CONTROLLER.fullmatch, list_names(root)):
        for name in list_names(root / controller):
            if _DIMM.fullmatch(name):
                path = root / controller / name
                label = read_label(path / "dimm_label")
                yield f"{controller}/{name} {label or ''}".strip(), str(path)


def _label(host: Host, path: str) -> Optional[str]:
    return read_label(host.sys(path))


def _put(facts: Facts, name: str, text: Optional[str]) -> None:
    if text:
        facts[name] = {"": text}


TIME_DAEMONS = ("chronyd", "ntpd", "ptp4l", "phc2sys", "systemd-timesyn")
RUNTIMES = ("containerd", "dockerd", "crio", "podman")
LIMITED = ("slurmd", "containerd", "dockerd", "kubelet", "sshd")
# A node has thousands of processes: while the wanted ones still run, all processes are looked at
# less and less often, at the latest after this time.
LOOK_SECONDS = 600.0
_LIMITS = {"memlock": "Max locked memory", "nofile": "Max open files"}
_MAX_FILE_BYTES = 65536


def parse_limits(text: str) -> dict[str, str]:
    """Soft limits of /proc/PID/limits by the name of ulimit(1)."""
    limits = {}
    for line in text.splitlines():
        for name, head in _LIMITS.items():
            words = line.removeprefix(head).split() if line.startswith(head) else []
            if words and (words[0].isdigit() or words[0] == "unlimited"):
                limits[name] = words[0]
    return limits


class Running(msgspec.Struct):
    """The processes that facts are about: the lowest id by the kernel's name of the process (at
    most 15 characters); the names that were looked for; and the monotonic seconds of the first and
    the last look at all processes with this result.
    """

    pids: dict[str, int]
    names: tuple[str, ...]
    since: float
    at: float


def find_processes(
    host: Host, limited: Iterable[str], before: Optional[Running], now: float
) -> Optional[Running]:
    """The processes that run now; None if they cannot be listed. The last result is returned if
    each process in it still runs and all processes were looked at recently.
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
        present = [name for name in wanted if name in running.pids]
        facts[fact] = {"": ", ".join(present) or "none"}
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
    """Whether the node's own name has an address; may take as long as the name servers need."""
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
