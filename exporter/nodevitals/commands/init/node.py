"""Reads the hardware of this node by one run of each probe.

The probes run in processes of their own with their deadlines, as in the agent: only the values of
a hanging driver are missing. Nothing is read from a mount.
"""

from __future__ import annotations

import logging
import re
import time

import msgspec

from nodevitals import probes
from nodevitals.agent import STOP_SECONDS, new_supervisor
from nodevitals.commands.terminal import CommandError
from nodevitals.config import Config, parse
from nodevitals.engine.configuration import plan_targets
from nodevitals.linux.host import Host, node_name
from nodevitals.linux.sysfs import read_bytes, read_text
from nodevitals.probes.mounts.mountinfo import Mount, find_mount, parse_mountinfo
from nodevitals.probes.nvidia.hardware import HardwareReader
from nodevitals.wire import ProbeResult

READ = ("nvidia", "ascend", "rdma", "network", "disks")
# Counting disks needs no request to any disk.
_CONFIG = b"probes: {disks: {health: false}}"
# Members of these groups may use a device (Ascend) or a socket (LLDP) that the unit's capabilities
# do not open.
_GROUPS = ("HwHiAiUser", "_lldpd", "lldpd")
# File systems on which jobs hang when the server does not answer.
_SHARED = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3"),
    *("orangefs", "panfs", "virtiofs", "wekafs"),
)
_LOCAL_FUSE = ("fuse.fuse-overlayfs", "fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal")
# Mounts below come and go with containers, pods and sessions.
_PASSING = (
    *("/proc", "/run", "/sys", "/var/lib/containerd", "/var/lib/containers"),
    *("/var/lib/docker", "/var/lib/kubelet"),
)


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: the result of each probe by its name, the mounts and the groups.

    `date` is today's, for comments; `gpus_on_bus` are not those passed through to virtual machines.
    """

    name: str
    date: str
    results: dict[str, ProbeResult] = {}
    gpus_on_bus: int = 0
    mounts: tuple[Mount, ...] = ()
    groups: tuple[str, ...] = ()

    def values(self, probe: str, family: str) -> dict[tuple[str, ...], float]:
        """The samples of a family by their labels."""
        result = self.results.get(probe)
        samples = result.samples if result is not None else ()
        return {sample.labels: sample.value for sample in samples if sample.family == family}


def read_node(host: Host) -> Node:
    """Read this node's hardware. Raises CommandError where no process can be started."""
    logging.getLogger().addHandler(logging.NullHandler())  # failures are in the results
    hardware = HardwareReader(host).read()  # a driver that hangs keeps the probe's count
    return Node(
        name=re.sub(r"[^A-Za-z0-9_.-]", "_", node_name()),
        date=time.strftime("%Y-%m-%d"),
        results=_run_probes(host, parse(_CONFIG, probes.registered())),
        gpus_on_bus=len(hardware.pci.keys() - hardware.passed_through),
        mounts=_shared_mounts(host),
        groups=groups_of(read_text(host.root("/etc/group")) or ""),
    )


def _run_probes(host: Host, config: Config) -> dict[str, ProbeResult]:
    """The last result of each probe. A process that cannot be ended is abandoned; its probe has a
    result too.
    """
    supervisor = new_supervisor(host)
    supervisor.journal.requeue()
    try:
        supervisor.processes.start()
    except OSError as error:
        raise CommandError(f"cannot start {error.filename}: {error.strerror}") from None
    supervisor.apply(plan_targets(config, only=READ))
    while supervisor.unfinished():
        supervisor.step()
    results = {
        target.spec.probe: target.last
        for target in supervisor.targets.values()
        if target.last is not None
    }
    supervisor.processes.stop()
    supervisor.processes.wait(STOP_SECONDS)
    return results


def _shared_mounts(host: Host) -> tuple[Mount, ...]:
    try:
        text = read_bytes(host.proc("self/mountinfo")).decode("utf-8", "replace")
    except OSError:
        return ()
    return shared_mounts(text, host.rootfs)


def shared_mounts(mountinfo: str, rootfs: str = "/") -> tuple[Mount, ...]:
    """The network and parallel file systems of a node, by mount point; where several are mounted at
    one point, the topmost.
    """
    mounts = parse_mountinfo(mountinfo)
    prefix = rootfs.rstrip("/")
    shared = {}
    for mount in mounts:
        path = mount.mountpoint[len(prefix) :] or "/"
        below = f"{mount.mountpoint}/".startswith(f"{prefix}/")
        watched = below and path.isprintable() and _is_watched(mount.fstype, path)
        if watched and find_mount(mounts, mount.mountpoint) is mount:
            shared[path] = msgspec.structs.replace(mount, mountpoint=path)
    return tuple(shared[path] for path in sorted(shared))


def _is_watched(fstype: str, path: str) -> bool:
    fuse = fstype.startswith("fuse.") and fstype not in _LOCAL_FUSE
    return (fuse or fstype in _SHARED) and not f"{path}/".startswith(
        tuple(f"{prefix}/" for prefix in _PASSING)
    )


def groups_of(text: str) -> tuple[str, ...]:
    """The groups in /etc/group that a probe may need."""
    names = {line.partition(":")[0] for line in text.splitlines()}
    return tuple(name for name in _GROUPS if name in names)
