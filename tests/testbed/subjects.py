"""The probes of the sweep, each on a simulated node that has one of everything that can fail."""

from __future__ import annotations

from pathlib import Path

from nodevitals.linux.host import Host
from nodevitals.probe import Probe, Timing
from testbed import trees
from testbed.nics import Machine
from testbed.sweep import Subject

BOOT_ID = "sys/kernel/random/boot_id"


class _Ports:
    """RDMA ports and network interfaces: no counter is 0, and no two are the same."""

    recovery_seconds = 61.0
    recovery_runs = 0
    timings = ()
    streams = ()
    devices = {"mlx5_infiniband": 1, "mlx5_roce": 1}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        trees.procfs(folder / "proc")
        machine = Machine(folder / "sys", gid_rows=5, **self.devices)
        self.machine = machine
        home = machine.folder / "class"
        for number, path in enumerate(sorted(home.glob("*/*/**/*counters/*"))):
            if path.name != "lifespan" and path.is_file():
                path.write_text(f"{100 + number}\n")
        for port in machine.ports:
            for name, limit in (("link_downed", 3), ("local_link_integrity_errors", 4)):
                machine.set(port, **{f"counters__{name}": limit})
            machine.set(port, counters__port_rcv_data=5000, counters__port_xmit_data=6000)
        for number, name in enumerate(machine.interfaces.values()):
            machine.set_interface(name, carrier_down_count=7 + number, carrier_changes=31 + number)
            self.machine.set_interface(name, duplex="full" if number else "unknown")
            for at, path in enumerate(sorted((home / "net" / name / "statistics").iterdir())):
                path.write_text(f"{1000 * (number + 1) + at}\n")
        self._add_virtual_function()

    def _add_virtual_function(self) -> None:
        """A device that is not to be watched, with an interface."""
        home = self.machine.folder / "devices/0000:77:00.1"
        files = {"infiniband/mlx5_9/node_guid": "02fe:5a00:0077:0001"}
        port = "infiniband/mlx5_9/ports/1"
        files |= {f"{port}/state": "4: ACTIVE", f"{port}/link_layer": "InfiniBand"}
        files |= {f"{port}/rate": "400 Gb/sec (4X NDR)", f"{port}/phys_state": "5: LinkUp"}
        files |= {"net/ens77v1/ifindex": "77", "net/ens77v1/operstate": "up"}
        trees.write(home, {name: f"{text}\n" for name, text in files.items()})
        (home / "physfn").symlink_to("../0000:18:00.0")
        for group, name in (("infiniband", "mlx5_9"), ("net", "ens77v1")):
            (home / group / name / "device").symlink_to("../../../0000:77:00.1")
            link = self.machine.folder / "class" / group / name
            link.symlink_to(f"../../devices/0000:77:00.1/{group}/{name}")

    @property
    def host(self) -> Host:
        return Host(procfs=str(self.folder / "proc"), sysfs=str(self.folder / "sys"))

    def tick(self, run: int) -> None:
        pass


class RdmaSubject(_Ports):
    def new_probe(self) -> Probe:
        from nodevitals.probes.rdma.probe import RdmaProbe, RdmaSettings

        return RdmaProbe(self.host, RdmaSettings(), "rdma")


class NetworkSubject(_Ports):
    devices = {"mlx5_infiniband": 1, "mlx5_roce": 1, "bnxt_re": 1}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        first, second, *_ = self.machine.interfaces.values()
        self.machine.bond("bond0", first, second, speed=400_000)
        self.machine.virtual_interface("veth1")
        trees.write(folder, {"sys/class/net/bonding_masters": "bond0\n"})
        representor = self.machine.interfaces["bnxt_re0"]
        trees.write(folder, {f"sys/class/net/{representor}/phys_port_name": "pf0vf3\n"})
        self.machine.set_interface(second, phys_port_name="p0", dev_port=1)

    def new_probe(self) -> Probe:
        from nodevitals.probes.network.probe import NetworkProbe, NetworkSettings

        return NetworkProbe(self.host, NetworkSettings(), "network")


class NodeSubject:
    """A machine whose processor is busy by a third."""

    recovery_seconds = 15.0
    recovery_runs = 1  # a rate needs two
    timings = ()
    streams = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        trees.procfs(folder / "proc")
        trees.sysfs(folder / "sys")
        self.host = Host(procfs=str(folder / "proc"), sysfs=str(folder / "sys"))

    def tick(self, run: int) -> None:
        more = f"cpu  {1000 + 10 * run} 50 300 {8000 + 20 * run} 200 10 20 20 0 0"
        lines = trees.PROC_STAT.splitlines()
        draft = self.folder.with_suffix(".draft")  # the file itself may be the one that fails
        draft.write_text("\n".join([more, *lines[1:]]) + "\n")
        draft.replace(self.folder / "proc/stat")

    def new_probe(self) -> Probe:
        from nodevitals.probe import ProbeSettings
        from nodevitals.probes.node import NodeProbe

        return NodeProbe(self.host, ProbeSettings(), "node")


KERNEL_LOG = """\
4,1,1000000,-;Memory cgroup out of memory: Killed process 4242 (trainer)
4,2,2000000,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.
4,9,3000000,-;INFO: task trainer:77 blocked for more than 120 seconds.
"""


class KernelLogSubject:
    """A log of which records were lost, and the names of the GPUs."""

    recovery_seconds = 15.0
    recovery_runs = 0
    timings = ()
    streams = ("dev/kmsg",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        trees.procfs(folder / "proc")
        trees.write(folder, {"dev/kmsg": KERNEL_LOG})
        self.host = Host(procfs=str(folder / "proc"))

    def tick(self, run: int) -> None:
        pass

    def new_probe(self) -> Probe:
        from nodevitals.probes.kernel_log.messages import DeviceName
        from nodevitals.probes.kernel_log.probe import KernelLogProbe, KernelLogSettings

        settings = KernelLogSettings(path=str(self.folder / "dev/kmsg"))
        probe = KernelLogProbe(self.host, settings, "kernel_log")
        probe.state.devices = {"0000:18:00": DeviceName("0", "GPU-1")}
        return probe


class PeersSubject:
    """Two lists of peers, one of them found by a pattern; no peer accepts."""

    recovery_seconds = 15.0
    recovery_runs = 0
    timings = ()
    streams = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lists = {"etc/one.json": '[{"targets": ["127.0.0.1:9"]}]'}
        lists |= {"etc/more/two.json": '[{"targets": ["127.0.0.2:9", "127.0.0.3:9"]}]'}
        trees.write(folder / "root", lists)
        self.host = Host(rootfs=str(folder / "root"))

    def tick(self, run: int) -> None:
        pass

    def new_probe(self) -> Probe:
        from nodevitals.probes.peers.probe import PeersProbe, PeersSettings

        settings = PeersSettings(file_sd=("/etc/one.json", "/etc/more/*.json"))
        return PeersProbe(self.host, settings, "peers")


class MountsSubject:
    """A file system of which only the mount table is simulated."""

    recovery_seconds = 15.0
    recovery_runs = 0
    timings = ("nodevitals_mount_step_seconds",)
    streams = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        point = folder / "data"
        point.mkdir(parents=True)
        table = f"36 35 98:0 / / rw - ext4 /dev/sda1 rw\n37 36 0:1 / {point} rw - nfs4 f:/x rw\n"
        trees.procfs(folder / "proc", table)
        self.host = Host(procfs=str(folder / "proc"))

    def tick(self, run: int) -> None:
        pass

    def new_probe(self) -> Probe:
        from nodevitals.probes.mounts.probe import (
            MountsProbe,
            MountTarget,
            MountTargetSettings,
        )

        point = str(self.folder / "data")
        mount = MountTarget(path=point, access="none")
        settings = MountTargetSettings(mount=mount, block_bytes=65536)
        return MountsProbe(self.host, settings, point)


SUBJECTS: dict[str, type] = {
    "rdma": RdmaSubject,
    "network": NetworkSubject,
    "node": NodeSubject,
    "kernel_log": KernelLogSubject,
    "peers": PeersSubject,
    "mounts": MountsSubject,
}


def subject_of(name: str, folder: Path) -> Subject:
    """The probe of this name on a new node."""
    made: Subject = SUBJECTS[name](folder)
    return made
