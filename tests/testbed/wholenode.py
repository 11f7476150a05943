"""An agent on a machine with all hardware and with faults, with the probes of its configuration.

The golden exposition is that of these probes. One that is not among them is off: a new probe has no
series there until it gets its hardware and a key of the configuration here.
"""

from __future__ import annotations

import errno
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from nodevitals import probes
from testbed import conditions, gpus, processes, sshd
from testbed.bmc import Bmc
from testbed.disks import Machine as DiskMachine
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.kubelet import Kubelet, gpu_pods, gpu_uuid
from testbed.kubernetes_api.pods import PodApi
from testbed.mlxlink import Mlxlink
from testbed.modules import qsfp
from testbed.netlinkserver import Driver, EthtoolKernel
from testbed.nics import Machine as NicMachine
from testbed.node import ROOT, Node, wait_until
from testbed.npus import Machine as NpuMachine
from testbed.switches import topology
from testbed.systemd import BUS, Systemd, Unit
from testbed.trees import write
from testbed.workloads import Workloads


@contextmanager
def whole_node(folder: Path) -> Iterator[Node]:
    """The agent, once every target has run twice; then a disk vanishes."""
    (folder / "disk").mkdir()
    disks = every_disk(folder)
    bmc = Bmc(folder)
    bmc.event(0x0C, 0x6F, 0x01)
    bmc.answer("log", "@denied")
    (folder / "maintenance").write_text("kernel update")
    (folder / "profile.yaml").write_text("name: B200\nexpect: {accelerator.count: 8}\n")
    subprocess.run(["mount", "-t", "tmpfs", "disk", folder / "disk"], check=True)
    machine = Machine(folder, "B200", 3).start()
    machine.set(0, fabric="3 0 0x129 3")
    machine.set(1, fabric="3 0 0x329 3", fabric_place="7 1")
    machine.set(1, retired__0=0, retired__1=0, retired_pending=0)
    machine.set_field(1, gpus.C2C_LINKS, 1)
    machine.set_field(1, gpus.C2C_ERRORS[0], 0)
    machine.partition(0, "3g.90gb")
    machine.remove("1.remapped")
    machine.lose(2)
    nics = NicMachine(folder / "sys", mlx5_infiniband=1, mlx5_roce=2, irdma=1)
    nics.bond("bond0", *nics.interfaces.values(), speed=400_000)
    guid, switch = 0x02FE5A0000180001, 0x02FE5A00FF000002
    fabric = topology({guid: (switch, 3, "MF0;leaf-2:MQM9700/U1")})
    write(folder, {"fabric.txt": fabric})
    npus = NpuMachine(folder, "910B").start()
    npus.change(1, health="Alarm", codes=["80E01801"], new_ecc=True)
    npus.change(0, vnpus={100: "vir02"})
    write_scripts(folder)
    mountinfo = Path("/proc/self/mountinfo").read_text()
    write(folder / "proc", {"self/mountinfo": mountinfo})
    conditions.healthy(folder)
    processes.add_gpu_file(folder / "proc", f"{machine.slots[0]}.0", 0)
    processes.add_job(folder / "proc", 100, "4711", "/dev/nvidia0")
    Workloads(folder).slurm()
    machine.set(1, processes="100:1073741824")
    for process in (folder / "proc").glob("[0-9]*"):
        if not (process / "cgroup").exists():
            write(process, {"cgroup": "0::/"})
    pods = gpu_pods(gpus=1, pods=2)
    pods[1].devices = {"nvidia.com/hostdev": ["0000:c1:00.2"]}
    cluster = ExitStack()
    mlxlink = Mlxlink(folder)
    mlxlink.set("0000:18:00.0")
    kernel = cluster.enter_context(EthtoolKernel(folder))
    drivers = Driver(qsfp(), {2: 5, 3: 0, 4: 9}, {0: 100})
    kernel.interfaces = dict.fromkeys(nics.interfaces.values(), drivers)
    kernel.interfaces[[*nics.interfaces.values()][-1]] = Driver(error=errno.EIO)
    kubelet = cluster.enter_context(Kubelet(folder, pods))
    kubelet.allocatable = {"nvidia.com/gpu": [gpu_uuid(0)]}
    api = cluster.enter_context(PodApi(folder, pods))
    systemd = cluster.enter_context(Systemd(folder))
    systemd.units["kubelet.service"] = Unit()
    server = cluster.enter_context(sshd.Sshd(folder / "sshd", "127.0.0.2"))
    key = sshd.make_key(folder / "key")
    server.authorize(key)
    (folder / "known_hosts").write_text(server.known_host())
    kill = f"oom-kill:,task_memcg=/kubepods/pod{pods[0].uid}/{pods[0].container_id},task=a"
    with cluster, KernelLog(folder) as log, socket.create_server(("127.0.0.1", 0)) as peer:
        port = peer.getsockname()[1]
        log.write(f"NVRM: Xid (PCI:{machine.slots[1]}): 79, GPU has fallen off the bus.")
        log.write("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 12028, Fatal, Link 1 some error")
        log.write("mlx5_core 0000:41:00.0: device's health compromised - reached miss count")
        log.write(kill)
        target = {"path": str(folder / "disk"), "access": "write", "fstype": "tmpfs"}
        config: dict[str, dict[str, Any]] = {
            "labels": {"rack": "r1"},
            "defaults": {"interval": "500ms"},
            "probes": {
                "mounts": {"targets": [target]},
                "nvidia": {
                    "expected": 3,
                    "details": True,
                    "activity": True,
                    **machine.settings,
                },
                "kernel_log": {"path": str(log.path)},
                "kubernetes": {
                    "interval": "2s",
                    "socket": str(kubelet.path),
                    "node": "node-7",
                    "labels": {"tenant": ["user.id"]},
                    **api.settings,
                },
                "rdma": {"counters": ["rx_read_requests"]},
                "network": {},
                "node": {},
                "switches": {
                    "interval": "500ms",
                    "ports": {"mlx5_1/1": "leaf-1"},
                    "ibnetdiscover": str(folder / "fabric.txt"),
                },
                "services": {"interval": "500ms", "bus": str(folder / BUS), "private": "/none"},
                # What was read of a disk is old after three times as long.
                "disks": {"interval": "500ms", **disks.settings, "health_interval": "8s"},
                "bmc": {"interval": "4s", "timeout": "4s", **bmc.settings},
                "transceivers": {
                    "interval": "8s",
                    "timeout": "8s",
                    "mlxlink": str(mlxlink.program),
                },
                "maintenance": {"file": str(folder / "maintenance")},
                "profile": {"interval": "1s", "file": str(folder / "profile.yaml")},
                "jobs": {"enabled": True, "interval": "500ms"},
                "scripts": {
                    "folder": str(folder / "scripts"),
                    "interval": "4s",
                    "textfiles": [{"path": str(folder / "nccl"), "interval": "4s"}],
                },
                "peers": {
                    "interval": "8s",
                    "timeout": "8s",
                    "targets": [
                        {"host": "localhost", "port": 1},
                        {"host": "127.0.0.1", "port": port},
                        {"host": server.address, "protocol": "ssh"},
                    ],
                    "login": {
                        "user": sshd.USER,
                        "key_file": str(key),
                        "known_hosts_file": str(folder / "known_hosts"),
                        "timeout": "6s",
                    },
                },
                "ascend": {"interval": "8s", "timeout": "8s", "expected": 8, **npus.settings},
            },
        }
        others = (
            name
            for name, kind in probes.registered().items()
            if probes.is_own(kind) and name not in config["probes"]
        )
        config["probes"] |= {name: {"enabled": False} for name in others}
        flags = machine.flags
        environment = preloaded(machine.environment, disks.environment, kernel.environment)
        environment |= sshd.environment(environment.get("PATH"))
        with Node(
            folder, config, *flags, PYTHONPATH=str(ROOT / "exporter"), **environment
        ) as running:
            last = "nodevitals_nvidia_xid_last_timestamp_seconds"
            wait_until(lambda: running.value("nodevitals_nvidia_sxid_errors_total"))
            wait_until(lambda: running.value(last))
            wait_until(lambda: running.value("nodevitals_pod_oom_kills_total"))
            pages = "nodevitals_ascend_next_isolated_pages"
            wait_until(lambda: any(name == pages for name, _ in running.samples()))
            # Some values are a difference between two runs.
            wait_until(lambda: min(runs(running, besides=("ascend", "transceivers"))) >= 2)
            disks.vanish("nvme1")
            yield running
    subprocess.run(["umount", "-l", folder / "disk"], check=True)


def every_disk(folder: Path) -> DiskMachine:
    """Return disks of each kind; a multipath device; an array that is checked; one disk is gone."""
    disks = DiskMachine(folder)
    disks.nvme(0)
    disks.nvme(1)
    disks.nvme(2)
    disks.answer(2, "errno 5")
    disks.sata()
    disks.sas()
    disks.array(sync_action="check", sync_completed="1 / 2")
    disks.mapping("dm-0", "mpatha", "mpath-3600", ("sda", "sdb"))
    return disks


def write_scripts(folder: Path) -> None:
    """Write a check of the site, and text files of a job."""
    write(folder, {"scripts/check": "#!/bin/sh\necho 'OK|used=50% runs=3c'\n"})
    (folder / "scripts/check").chmod(0o755)
    shared = 'slurm_job_id="1",node="n",gpu="GPU0",comm_name="c",n_nodes="1",nranks="8"'
    collective = f'{{{shared},collective="AllReduce",message_size="4-5GB",algo_proto="Ring_ll"}}'
    p2p = f'{{{shared},p2p_operation="Send",message_size="4-5GB"}}'
    lines = (
        f"nccl_bus_bandwidth_gbs{collective} 300",
        f"nccl_collective_exec_time_microseconds{collective} 9000",
        f"nccl_p2p_bus_bandwidth_gbs{p2p} 300",
        f"nccl_p2p_exec_time_microseconds{p2p} 9000",
        'rccl_errors{tenant="a"} 0',
    )
    text = "".join(f"{line}\n" for line in lines)
    write(folder, {"nccl/a.prom": text})


def preloaded(*environments: dict[str, str]) -> dict[str, str]:
    """All of these; libraries that several preload come one after the other."""
    libraries = [one["LD_PRELOAD"] for one in environments if "LD_PRELOAD" in one]
    merged = {key: value for one in environments for key, value in one.items()}
    return {**merged, "LD_PRELOAD": ":".join(libraries)}


def runs(node: Node, besides: tuple[str, ...] = ()) -> list[float]:
    """The number of runs of each target, besides those of some probes."""
    totals: dict[str, float] = {}
    for (name, pairs), value in node.samples().items():
        labels = dict(pairs)
        if name == "nodevitals_probe_runs_total" and labels["probe"] not in besides:
            key = f"{labels['probe']}/{labels['target']}"
            totals[key] = totals.get(key, 0) + value
    return list(totals.values())
