"""Memory, CPU time and series of an agent at default intervals, with every probe that a GPU node of
Kubernetes can have.

The vendors' programs (ipmitool, mlxlink, smartctl) are files that a shell prints: the shell's time
is in the figures, under `runs`, and so is the stand-in of NVML. A vendor's own time is not. The
agent runs in a network namespace with interfaces of the names that its sysfs tree has: the kernel
announces their changes, as on a node, and the ports of InfiniBand are looked at every second.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import trustme

from bench.idle import parts
from bench.measure import Scraper, additions_seconds, pss_bytes, table
from bench.scrape import is_ready
from testbed import bmc, disks, mlxlink, processes
from testbed.gpus import Machine
from testbed.kubelet import Kubelet, gpu_pods
from testbed.kubernetes_api.pods import PodApi
from testbed.modules import osfp
from testbed.netlinkserver import Driver, EthtoolKernel
from testbed.nics import Machine as NicMachine
from testbed.node import Node, free_port, wait_until
from testbed.systemd import Systemd, Unit
from testbed.tmpfs import mount_tmpfs, unmount
from testbed.trees import write

SECONDS = 600.0
SCRAPE_SECONDS = 15.0
SETTLE_SECONDS = 60.0
KERNEL_THREADS, USER_PROCESSES = 1500, 500
UNITS = ("kubelet", "containerd", "nvidia-persistenced", "nvidia-fabricmanager", "chronyd")
# No installation of the agent alone has it. Here type checks need it, and msgspec would import it,
# and with it 1 MiB of modules.
PRELUDE = "import sys; sys.modules['typing_extensions'] = None"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of unshare(2)
PROFILE = {"name": "everything", "expect": {"accelerator.count": 8, "nvidia.mig": "off"}}


def printing(program: Path, *cases: tuple[str, Path]) -> Path:
    """A shell's program that prints a file by a pattern of its arguments."""
    program.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{case}) exec cat '{file}' ;;" for case, file in cases]
    program.write_text("\n".join(["#!/bin/sh", 'case "$*" in', *lines, "*) exit 1 ;;", "esac\n"]))
    program.chmod(0o755)
    return program


def announce(nics: NicMachine) -> None:
    """Enter a network namespace, and make the interfaces there that the tree has."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "a network namespace requires root: tools/private-mounts")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for name in nics.interfaces.values():
        subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
        nics.set_interface(name, ifindex=socket.if_nametoindex(name))


class Everything:
    """A node with eight GPUs, eight RDMA ports, ten NVMe and two SATA disks, 40 pods."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.preloaded: list[str] = []
        self.machine = Machine(folder, "H100").start()
        self.nics = NicMachine(folder / "sys", mlx5_infiniband=8, mlx5_roce=2)
        announce(self.nics)
        self.environment = dict(self.machine.environment)
        flags = (*self.machine.flags, f"--path.rootfs={folder}")
        probes = self.probes()
        self.environment["LD_PRELOAD"] = ":".join(self.preloaded)
        self.environment["NODE_NAME"] = "node-7"
        self.node = Node(folder, {"history": {}, "probes": probes}, *flags, **self.environment)
        self.node.prelude = PRELUDE

    def probes(self) -> dict[str, Any]:
        """The settings of each probe; only paths and lists differ from the defaults."""
        log = self.folder / "kmsg"  # nothing is logged, and a reader waits
        os.mkfifo(log)
        self.stack.callback(os.close, os.open(log, os.O_RDWR))
        scripts = self.folder / "scripts"
        for number in range(4):
            printing(scripts / f"check-{number}", ("*", self.text("fine", "FINE - well|load=0.5")))
        (self.folder / "profile.yaml").write_text(json.dumps(PROFILE))
        self.processes()
        return {
            "nvidia": self.machine.settings,
            "kernel_log": {"path": str(log)},
            "maintenance": {"file": str(self.folder / "maintenance")},
            "mounts": {"targets": [{"path": path} for path in self.mounts()]},
            "node": {},
            "network": {"enabled": True},
            "rdma": {"enabled": True},
            "profile": {"enabled": True, "file": str(self.folder / "profile.yaml")},
            "scripts": {"folder": str(scripts)},
            "peers": {"targets": self.peers()},
            "disks": {"enabled": True, **self.disks()},
            "bmc": {"enabled": True, **self.bmc()},
            "services": {"enabled": True, **self.services()},
            "transceivers": {"enabled": True, **self.transceivers()},
            "kubernetes": {"enabled": True, **self.kubernetes()},
            "fabric": self.fabric(),
        }

    def mounts(self) -> list[str]:
        """Four file systems, below the node's root."""
        paths = [f"/data-{number}" for number in range(4)]
        for path in paths:
            Path(f"{self.folder}{path}").mkdir()
            mount_tmpfs(Path(f"{self.folder}{path}"))
            self.stack.callback(unmount, Path(f"{self.folder}{path}"))
        lines = Path("/proc/self/mountinfo").read_text().splitlines(keepends=True)
        ours = "".join(line for line in lines if str(self.folder) in line)
        write(self.folder / "proc", {"self/mountinfo": ours, "1/mountinfo": ours})
        return paths

    def text(self, name: str, content: str) -> Path:
        """A file with this content."""
        file = self.folder / f"{name}.text"
        file.write_text(content if content.endswith("\n") else f"{content}\n")
        return file

    def processes(self) -> None:
        """As many as such a node has with 192 logical CPUs, most of them threads of the kernel."""
        procfs = self.folder / "proc"
        processes.kernel(procfs)
        for pid in (1, 2, 42, 77):
            write(procfs / str(pid), {"cgroup": "0::/\n"})
            (procfs / str(pid) / "fd").mkdir(exist_ok=True)
        for number in range(KERNEL_THREADS):
            stat = f"{number + 100} (kworker/{number}:0) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0\n"
            files = {"stat": stat, "comm": f"kworker/{number}:0\n", "cgroup": "0::/\n"}
            write(procfs / str(number + 100), files)
            (procfs / str(number + 100) / "fd").mkdir()
        for number in range(USER_PROCESSES):
            processes.add(procfs, 10_000 + number)
            write(procfs / str(10_000 + number), {"comm": "python\n"})

    def peers(self) -> list[dict[str, Any]]:
        """Sixteen, all on one listener."""
        listener = self.stack.enter_context(socket.create_server(("", 0), backlog=128))
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        return [{"host": f"127.0.1.{number}", "port": port} for number in range(1, 17)]

    def disks(self) -> dict[str, Any]:
        """Ten NVMe disks, two SATA disks in a mirror."""
        machine = disks.Machine(self.folder)
        for number in range(10):
            machine.nvme(number)
        cases = []
        for name in ("sda", "sdb"):
            machine.scsi_device(name, f"ata{name}", "ATA", "Example HDD 8TB", f"EX{name}")
            answer = json.dumps(disks.ata(f"/dev/{name}"))
            cases.append((f"*/{name}", self.text(f"smartctl-{name}", answer)))
        machine.array()
        printing(self.folder / "bin/smartctl", *cases)
        self.preloaded.append(machine.environment["LD_PRELOAD"])
        self.environment["PATH"] = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        self.environment["NVME_DEVICES"] = str(machine.dev)
        return {"device_directory": str(machine.dev)}

    def bmc(self) -> dict[str, Any]:
        """A BMC with 120 sensors and an empty event log."""
        made = bmc.Bmc(self.folder)
        more = "".join(
            f"Sensor {number:<9}| {number:02x}h | ok  |  7.1 | 40 degrees C\n"
            for number in range(100)
        )
        texts = {
            "*raw*": "".join(f" {byte:02x}" for byte in (0xFF, 0xFF, 1, 0, 2, *[0] * 13)),
            "*mc?info": bmc.CONTROLLER,
            "*sel?info": (made.folder / "sel").read_text(),
            "*dcmi*": bmc.POWER,
            "*sdr*": bmc.SENSORS + more,
        }
        cases = [(case, self.text(f"bmc{n}", text)) for n, (case, text) in enumerate(texts.items())]
        program = printing(self.folder / "bin/ipmitool", *cases)
        return {**made.settings, "ipmitool": str(program)}

    def services(self) -> dict[str, Any]:
        """The units of a Kubernetes node, and its storage clients."""
        systemd = self.stack.enter_context(Systemd(self.folder))
        for name in UNITS:
            systemd.units[f"{name}.service"] = Unit()
        return {}

    def transceivers(self) -> dict[str, Any]:
        """Optical modules in all ports."""
        kernel = self.stack.enter_context(EthtoolKernel(self.folder))
        for device, interface in self.nics.interfaces.items():
            if device in ("mlx5_8", "mlx5_9"):
                kernel.interfaces[interface] = Driver(osfp(), {2: 1000, 3: 0})
        self.preloaded.append(kernel.environment["LD_PRELOAD"])
        self.environment["NETLINK_SERVER"] = kernel.environment["NETLINK_SERVER"]
        output = {
            "Module Info": mlxlink.OPTICAL,
            "Physical Counters and BER Info": mlxlink.COUNTERS,
        }
        answer = self.text("mlxlink", mlxlink.document(output))
        return {"mlxlink": str(printing(self.folder / "bin/mlxlink", ("*", answer)))}

    def kubernetes(self) -> dict[str, Any]:
        """A kubelet and an API server with 40 pods, eight of them with a GPU."""
        pods = gpu_pods()
        kubelet = self.stack.enter_context(Kubelet(self.folder, pods))
        api = self.stack.enter_context(PodApi(self.folder, pods))
        return {"socket": str(kubelet.path), **api.settings}

    def fabric(self) -> dict[str, Any]:
        """A member that other nodes may test; no slot of its own comes."""
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        certificate.private_key_pem.write_to_path(str(self.folder / "key.pem"))
        certificate.cert_chain_pems[0].write_to_path(str(self.folder / "cert.pem"))
        authority.cert_pem.write_to_path(str(self.folder / "ca.pem"))
        token = self.text("token", "a token of the benchmark")
        token.chmod(0o600)
        files = {f"{name}_file": str(self.folder / f"{name}.pem") for name in ("cert", "key", "ca")}
        return {
            "enabled": True,
            "name": "127.0.0.1",
            "listen_address": f"127.0.0.1:{free_port()}",
            "static": [{"targets": ["127.0.0.1"]}],
            "token_file": str(token),
            "tls": files,
            "tests": [{"tool": "perftest", "operation": "write_bw", "device": "mlx5_0"}],
        }


def accept(listener: socket.socket) -> None:
    """Accept and close, until the listener is closed."""
    with suppress(OSError):
        while True:
            listener.accept()[0].close()


def samples(node: Node) -> list[tuple[str, dict[str, str]]]:
    """Name and labels of each series."""
    return [(name, dict(labels)) for name, labels in node.samples()]


def main(folder: Path) -> None:
    """Print the tables."""
    with ExitStack() as stack:
        made = Everything(folder, stack)
        node = stack.enter_context(made.node)
        wait_until(partial(is_ready, node))
        time.sleep(SETTLE_SECONDS)
        scraper = Scraper(node.port)
        scraper.scrape()
        before, began = parts(node.process.pid), time.monotonic()
        memory, additions = [], []
        while time.monotonic() - began < SECONDS:
            time.sleep(SCRAPE_SECONDS)
            scraper.scrape()
            memory.append(pss_bytes(node.process.pid))
            additions.append(additions_seconds())
        took = time.monotonic() - began
        after = parts(node.process.pid)
        found = samples(node)
        failing = {
            labels["probe"] for name, labels in found if name == "nodevitals_probe_success"
        } - {
            dict(labels)["probe"]
            for (name, labels), value in node.samples().items()
            if name == "nodevitals_probe_success" and value == 1
        }
        assert not failing, failing
        series = Counter(name.split("_")[1] for name, _ in found)
    used = {part: (after[part] - before[part]) / took for part in after}
    print(
        f"CPU time over {took:.0f} s, as a share of one core, on which a million additions took "
        f"{median(additions) * 1e3:.0f} ms (median);\nmemory: the largest of each scrape.\n"
    )
    row = [f"{sum(used.values()):.3%}", *(f"{value:.3%}" for value in used.values())]
    largest = f"{max(memory) / 2**20:.1f} MiB"
    table(["all", *used, "PSS", "series"], [[*row, largest, str(len(found))]])
    table(["series of", "number"], [[name, str(count)] for name, count in series.most_common()])
