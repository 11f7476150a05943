"""The probes of the sweep, each on a simulated node that has one of everything that can fail."""

from __future__ import annotations

import atexit
import re
import subprocess
from pathlib import Path

import msgspec

from nodevitals.linux.host import Host
from nodevitals.probe import Probe, Readings, Timing
from testbed import npus, processes, switches, trees
from testbed.nics import Machine
from testbed.sweep import Subject
from testbed.tmpfs import mount_tmpfs, unmount

BOOT_ID = "sys/kernel/random/boot_id"


class _Ports:
    """RDMA ports and network interfaces: no counter is 0, and no two are the same."""

    recovery_seconds = 61.0
    recovery_runs = 0
    timings = ()
    streams = ()
    tool_calls = ()
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

    def break_call(self, call: str, how: str | None) -> None:
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
        from nodevitals.probes.network import NetworkProbe, NetworkSettings

        return NetworkProbe(self.host, NetworkSettings(), "network")


class SwitchesSubject(_Ports):
    """A switch that lldpctl reports, one of the output of ibnetdiscover, and one of a list."""

    recovery_seconds = 15.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        guid = 0x02FE5A0000180001
        files = {
            "switches.csv": "host,device,port,switch\n*,eno9,,tor-1\n",
            "fabric.txt": switches.topology({guid: (0x10, 3, "MF0;leaf-a3:MQM9700/U1")}),
        }
        trees.write(folder / "root/etc", files)
        program = folder / "bin/lldpctl"
        seen = [("ens32f0np0", switches.neighbour("leaf-1", "Ethernet7"))]
        trees.write(folder, {"bin/lldpctl": f"#!/bin/sh\necho '{switches.json0(seen)}'\n"})
        program.chmod(0o755)

    @property
    def host(self) -> Host:
        return msgspec.structs.replace(super().host, rootfs=str(self.folder / "root"))

    def new_probe(self) -> Probe:
        from nodevitals.probes.switches.probe import SwitchesProbe, SwitchesSettings

        settings = SwitchesSettings(
            ports_file="/etc/switches.csv",
            ibnetdiscover="/etc/fabric.txt",
            lldpctl=str(self.folder / "bin/lldpctl"),
        )
        return SwitchesProbe(self.host, settings, "switches")


class NodeSubject:
    """A machine whose processor is busy by a third."""

    recovery_seconds = 121.0  # the next look at the processes
    recovery_runs = 1  # a rate needs two
    timings = ()
    streams = ()
    tool_calls = ()

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

    def break_call(self, call: str, how: str | None) -> None:
        pass

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
    tool_calls = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        trees.procfs(folder / "proc")
        trees.write(folder, {"dev/kmsg": KERNEL_LOG})
        self.host = Host(procfs=str(folder / "proc"))

    def tick(self, run: int) -> None:
        pass

    def break_call(self, call: str, how: str | None) -> None:
        pass

    def new_probe(self) -> Probe:
        from nodevitals.probes.common.device_names import DeviceName
        from nodevitals.probes.kernel_log.probe import KernelLogProbe, KernelLogSettings

        settings = KernelLogSettings(path=str(self.folder / "dev/kmsg"))
        probe = KernelLogProbe(self.host, settings, "kernel_log")
        probe.state.devices = {"0000:18:00": DeviceName("0", "GPU-1")}
        return probe


class JobsSubject:
    """A job of Slurm and a user on two GPUs, by the files of the GPUs."""

    recovery_seconds = 30.0
    recovery_runs = 0
    timings = ()
    streams = ()
    tool_calls = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        processes.kernel(folder / "proc")
        passwd = "alice:x:1000:5::/:\nbob:x:1001:5::/:\n"
        trees.write(folder / "root", {"etc/slurm/slurm.conf": "", "etc/passwd": passwd})
        processes.add_gpu(folder, "0000:18:00.0", 0, "GPU-1")
        processes.add_gpu(folder, "0000:2a:00.0", 1, "GPU-2")
        processes.add_job(folder / "proc", 100, "7", "/dev/nvidia0")
        processes.add(folder / "proc", 200, "/dev/nvidia1", uid=1001)
        root, proc, sys = (str(folder / name) for name in ("root", "proc", "sys"))
        self.host = Host(rootfs=root, procfs=proc, sysfs=sys)

    def tick(self, run: int) -> None:
        pass

    def break_call(self, call: str, how: str | None) -> None:
        pass

    def new_probe(self) -> Probe:
        from nodevitals.probes.jobs.probe import JobsProbe, JobsSettings

        return JobsProbe(self.host, JobsSettings(), "jobs")


class PeersSubject:
    """Two lists of peers, one of them found by a pattern; no peer accepts."""

    recovery_seconds = 15.0
    recovery_runs = 0
    timings = ()
    streams = ()
    tool_calls = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lists = {"etc/one.json": '[{"targets": ["127.0.0.1:9"]}]'}
        lists |= {"etc/more/two.json": '[{"targets": ["127.0.0.2:9", "127.0.0.3:9"]}]'}
        trees.write(folder / "root", lists)
        self.host = Host(rootfs=str(folder / "root"))

    def tick(self, run: int) -> None:
        pass

    def break_call(self, call: str, how: str | None) -> None:
        pass

    def new_probe(self) -> Probe:
        from nodevitals.probes.peers.probe import PeersProbe, PeersSettings

        settings = PeersSettings(file_sd=("/etc/one.json", "/etc/more/*.json"))
        return PeersProbe(self.host, settings, "peers")


class MountsSubject:
    """A real file system; the mount table is a file."""

    recovery_seconds = 15.0
    recovery_runs = 0
    timings = ("nodevitals_mount_step_seconds",)
    streams = ()
    tool_calls = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._point = folder.with_suffix(".mount")  # its own calls are not swept
        self._point.mkdir(parents=True)
        mount_tmpfs(self._point)
        atexit.register(unmount, self._point)
        trees.procfs(folder / "proc", Path("/proc/self/mountinfo").read_text())
        self.host = Host(procfs=str(folder / "proc"))

    def tick(self, run: int) -> None:
        pass

    def break_call(self, call: str, how: str | None) -> None:
        pass

    def new_probe(self) -> Probe:
        from nodevitals.probes.mounts.probe import (
            MountsProbe,
            MountTarget,
            MountTargetSettings,
        )

        point = str(self._point)
        mount = MountTarget(path=point, access="none")
        settings = MountTargetSettings(mount=mount, block_bytes=65536)
        return MountsProbe(self.host, settings, point)


class AscendSubject:
    """An NPU of which only the calls without a port are made."""

    kind = "950"
    chips = 1
    recovery_seconds = 3601.0  # the longest timer
    recovery_runs = 0
    # Outputs that could not be parsed are counted.
    timings = ("nodevitals_ascend_tool_seconds_total", "nodevitals_ascend_unparsed_total")
    streams = ()
    tool_calls: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        stat = "42 (bash) S 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 100\n"
        files = {"uptime": "5000.00 1.00\n", "42/comm": "bash\n", "42/stat": stat}
        boot_id = "11111111-2222-4333-8444-555555555555\n"
        trees.write(folder / "proc", files | {"sys/kernel/random/boot_id": boot_id})
        self.machine = npus.Machine(folder, self.kind)
        del self.machine.state["chips"][self.chips :]
        self.machine.state["chips"][0] |= {"codes": ["80E01801"], "vnpus": {100: "vir02"}}
        self.machine.start()
        self.host = Host(procfs=str(folder / "proc"), sysfs=str(folder / "sys"))
        self._outputs = folder.with_suffix(".outputs")
        self._play()

    def _play(self) -> None:
        """Replace the programs by ones that print what they printed, which start faster. The calls
        are those that a run makes.
        """
        self._outputs.mkdir()
        self.new_probe().run(Readings())
        for call in dict.fromkeys(self.machine.calls()):
            program, *arguments = call.split()
            command = [str(self.folder / "bin" / program), *arguments]
            done = subprocess.run(command, capture_output=True, check=True)
            (self._outputs / call).write_bytes(done.stdout)
        for program in ("npu-smi", "hccn_tool"):
            file = f'"{self._outputs}/{program} $*"'
            script = f"#!/bin/sh\n[ -x {file} ] && exec {file}\nexec cat {file}\n"
            (self.folder / "bin" / program).write_text(script)

    def tick(self, run: int) -> None:
        pass

    def break_call(self, call: str, how: str | None) -> None:
        pass

    def new_probe(self) -> Probe:
        from nodevitals.probes.ascend.probe import AscendProbe, AscendSettings

        timing = Timing(interval_seconds=60.0, timeout_seconds=30.0)
        lock = str(self.folder.with_suffix(".lock"))
        settings = AscendSettings(**{**self.machine.settings, "lock": lock})
        return AscendProbe(self.host, settings, "ascend", timing)


class AscendCallsSubject(AscendSubject):
    """An NPU with a port."""

    kind = "910B"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._whole = {path.name: path.read_bytes() for path in self._outputs.iterdir()}
        self.tool_calls = tuple(sorted(self._whole))

    @property
    def hanging(self) -> Path:
        """Exists while a program hangs."""
        return self.folder / "hanging"

    def break_call(self, call: str, how: str | None) -> None:
        path, whole = self._outputs / call, self._whole[call]
        path.unlink()
        self.hanging.unlink(missing_ok=True)
        scripts = {
            "exit 1": "exit 1",
            "exit 187": "echo 'dcmi module initialize failed. ret is -8005'; exit 187",
            "killed": f"head -c {len(whole) // 2} {self.folder}/whole; kill -9 $$",
            "on stderr": "echo 'the device is busy' >&2",
            "hang": f"touch {self.hanging}; exec sleep 600",
        }
        texts = {
            "empty": b"",
            "error text": b"Error parameter of -t\n",
            "garbage": b"garbage: 7 of \xc2\xb2 nan\n" * 30,
            "not UTF-8": whole.replace(b" ", b"\xff\0"),
            "400 digits": re.sub(rb"\d+", b"9" * 400, whole),
            "half": whole[: len(whole) // 2],
            "cut line": whole[: whole.rfind(b"\n", 0, len(whole) * 2 // 3) + 1],
        }
        path.write_bytes(texts.get(how or "", whole))
        if how in scripts:
            (self.folder / "whole").write_bytes(whole)
            path.write_text(f"#!/bin/sh\n{scripts[how]}\n")
            path.chmod(0o755)


SUBJECTS: dict[str, type] = {
    "rdma": RdmaSubject,
    "network": NetworkSubject,
    "switches": SwitchesSubject,
    "node": NodeSubject,
    "kernel_log": KernelLogSubject,
    "jobs": JobsSubject,
    "peers": PeersSubject,
    "mounts": MountsSubject,
    "ascend": AscendSubject,
    "ascend_calls": AscendCallsSubject,
}


def subject_of(name: str, folder: Path) -> Subject:
    """The probe of this name on a new node."""
    made: Subject = SUBJECTS[name](folder)
    return made
