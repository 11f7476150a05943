"""The faults of the demo: how each is injected and repaired, and the alert that it must cause."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from demo.pipeline import Pipeline
from testbed.tmpfs import mount_tmpfs

XID_79 = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class InjectedFault(msgspec.Struct, frozen=True):
    """A fault, its key in the menu, and the alert that must arrive with at least these labels.

    With `permanent`, the alert outlasts the demo even after the repair: data is damaged.
    """

    key: str
    title: str
    alert: str
    labels: dict[str, str]
    inject: Callable[[], object]
    repair: Callable[[], object]
    permanent: bool = False


def all_faults(pipeline: Pipeline) -> list[InjectedFault]:
    """Return every fault; the last one stops an agent, so it cannot overlap the others."""
    return [
        *gpu_faults(pipeline),
        *port_faults(pipeline),
        *npu_faults(pipeline),
        *filer_faults(pipeline),
        *mount_faults(pipeline),
        *agent_faults(pipeline),
    ]


def gpu_faults(pipeline: Pipeline) -> list[InjectedFault]:
    """Return faults of the simulated GPUs."""
    gpus, log = pipeline.gpus, pipeline.kernel_log

    def gpu(number: int) -> dict[str, str]:
        return {"instance": "gpu-node-1", "uuid": gpus.uuid(number)}

    return [
        InjectedFault(
            "g",
            "NVML returns GPU_IS_LOST for GPU 2",
            "AcceleratorLost",
            gpu(2),
            lambda: gpus.lose(2),
            lambda: gpus.recover(2),
        ),
        InjectedFault(
            "e",
            "GPU 4 counts an uncorrectable ECC error",
            "EccUncorrectable",
            gpu(4),
            lambda: gpus.set(4, ecc__1__0__2=1),
            lambda: None,
            permanent=True,
        ),
        InjectedFault(
            "x",
            "GPU 6 falls off the bus: Xid 79 in the kernel log",
            "NvidiaXid",
            gpu(6) | {"xid": "79", "action": "reboot_node"},
            lambda: log.write(f"NVRM: Xid (PCI:{gpus.slots[6]}): 79, {XID_79}"),
            lambda: None,
            permanent=True,
        ),
    ]


def port_faults(pipeline: Pipeline) -> list[InjectedFault]:
    """Return faults of the simulated RDMA ports."""
    nics = pipeline.nics
    node = {"instance": "gpu-node-1"}
    return [
        InjectedFault(
            "b",
            "RDMA device mlx5_3 falls off the bus",
            "RdmaPortDown",
            {**node, "device": "mlx5_3"},
            lambda: nics.vanish("mlx5_3"),
            lambda: nics.come_back("mlx5_3"),
        ),
        InjectedFault(
            "s",
            "RDMA port mlx5_5 trains at half its rate",
            "RdmaPortRateDegraded",
            {**node, "device": "mlx5_5"},
            lambda: nics.up("mlx5_5/1", "200 Gb/sec (2X NDR)"),
            lambda: nics.up("mlx5_5/1"),
        ),
    ]


def npu_faults(pipeline: Pipeline) -> list[InjectedFault]:
    """Return faults of the simulated NPUs."""
    npus = pipeline.npus
    node = {"instance": "npu-node-1"}
    codes = ["80E01801"]
    return [
        InjectedFault(
            "n",
            "NPU 3 reports an alarm: a multi-bit ECC error",
            "NpuUnhealthy",
            {**node, "device": "3"},
            lambda: npus.change(3, health="Alarm", codes=codes),
            lambda: npus.change(3, health="OK", codes=[]),
        ),
        InjectedFault(
            "l",
            "the RoCE port of NPU 5 goes down",
            "NpuLinkDown",
            {**node, "device": "5"},
            lambda: npus.change(5, link="DOWN"),
            lambda: npus.change(5, link="UP"),
        ),
    ]


def filer_faults(pipeline: Pipeline) -> list[InjectedFault]:
    """Return faults of the filers behind two mounts."""
    data, models = pipeline.data, pipeline.models
    return [
        InjectedFault(
            "h",
            "filer-1 hangs; /mnt/data hangs with it",
            "MountHung",
            on_storage_node(data.mountpoint),
            lambda: data.fault("hang"),
            lambda: data.fault("none"),
        ),
        InjectedFault(
            "c",
            "filer-2 returns other bytes than were written",
            "MountContentMismatch",
            on_storage_node(models.mountpoint),
            lambda: models.fault("corrupt"),
            lambda: models.fault("none"),
            permanent=True,
        ),
    ]


def mount_faults(pipeline: Pipeline) -> list[InjectedFault]:
    """Return faults of the memory file systems."""
    scratch, datasets = pipeline.scratch, pipeline.datasets
    return [
        InjectedFault(
            "r",
            "/mnt/scratch becomes read-only",
            "MountReadOnly",
            on_storage_node(scratch),
            lambda: remount(scratch, "ro"),
            lambda: remount(scratch, "rw"),
        ),
        InjectedFault(
            "u",
            "/mnt/datasets is unmounted",
            "MountMissing",
            on_storage_node(datasets),
            lambda: subprocess.run(["umount", "-l", datasets], check=True),
            lambda: mount_tmpfs(datasets),
        ),
    ]


def agent_faults(pipeline: Pipeline) -> list[InjectedFault]:
    """Return faults of an agent itself."""
    state = pipeline.gpu_node.folder / "state"
    node = {"instance": "gpu-node-1"}
    return [
        InjectedFault(
            "p",
            "the state directory of gpu-node-1 is damaged",
            "ProbeFailing",
            {**node, "probe": "history"},
            lambda: damage(state),
            lambda: shutil.rmtree(state),
        ),
        InjectedFault(
            "d",
            "gpu-node-1 goes down: its agent is killed, and nothing else reports the node",
            "NodeDown",
            node,
            pipeline.gpu_node.kill,
            pipeline.gpu_node.start,
        ),
    ]


def on_storage_node(point: Path) -> dict[str, str]:
    """Return the labels of a mount."""
    return {"instance": "storage-node-1", "mountpoint": str(point)}


def remount(point: Path, mode: str) -> None:
    """Switch a mount between ro and rw."""
    subprocess.run(["mount", "-o", f"remount,bind,{mode}", point], check=True)


def damage(state: Path) -> None:
    """Put a directory at the path of the history's file."""
    shutil.rmtree(state)
    (state / "history.db").mkdir(parents=True)
