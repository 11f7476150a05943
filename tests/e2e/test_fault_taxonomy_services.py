"""Services and conditions of a node: each cause, injected below the agent, is exposed in the family
that docs/fault-coverage.md names, and what looks alike is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from testbed import conditions
from testbed.conditions import DATA_MOUNT, ROOT_BROKEN, ROOT_MOUNT
from testbed.kmsg import KernelLog
from testbed.node import ROOT, Node, wait_until
from testbed.systemd import BUS, Systemd, Unit
from testbed.trees import write

DOCUMENT = (ROOT / "docs/fault-coverage.md").read_text()
RUNS_TOTAL = "nodevitals_probe_runs_total"
ACTIVE = "nodevitals_services_unit_active"
STATE = "nodevitals_services_unit_state"
EXPECTED = "nodevitals_services_unit_expected"
RESTARTS = "nodevitals_services_unit_restarts_total"
FAILED = "nodevitals_services_failed_units"
READ_ONLY = "nodevitals_node_filesystem_read_only"
HUNG = "nodevitals_node_hung_processes"
ZOMBIES = "nodevitals_node_zombie_processes"
THREADS = "nodevitals_node_threads"
# As many runs as a fault may take, and one that had begun before it.
RUNS = 3
UNITS = {"kubelet": Unit(), "slurmd": Unit(), "munge": Unit(), "containerd": Unit()}
IMAGE = DATA_MOUNT.replace("259:5 / /data", "8:1 / /image").replace(" rw,", " ro,")
BIND = DATA_MOUNT.replace("40 29", "41 29").replace("/ /data rw", "/x /data/x ro")


class SimulatedNode(msgspec.Struct):
    """A running agent, its systemd, its procfs and its kernel log."""

    agent: Node
    systemd: Systemd
    procfs: Path
    log: KernelLog

    def look(self, family: str, labels: dict[str, str]) -> float | None:
        """Return the value of the one sample with these labels."""
        return self.agent.value(family, **labels)

    def runs(self, target: str) -> float:
        """Return the number of runs of a target that succeeded."""
        wanted = {("probe", "services"), ("target", target), ("outcome", "ok")}
        return sum(
            value
            for (name, labels), value in self.agent.samples().items()
            if name == RUNS_TOTAL and wanted <= labels
        )

    def after_runs(self, target: str) -> None:
        """Wait for two runs that began after this call."""
        before = self.runs(target)
        wait_until(lambda: self.runs(target) >= before + RUNS, 60)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedNode]:
    folder = tmp_path_factory.mktemp("s")
    procfs = conditions.healthy(folder)
    settings = {
        "interval": "1s",
        # A run that a busy machine ends takes nothing away.
        "stale_after": "1m",
        "hung_after": "1s",
        "bus": str(folder / BUS),
        "private": "/none",
        "ignored": ["user@*.service"],
        "expected": ["kubelet.service"],
    }
    write(procfs, {"sys/kernel/random/boot_id": "11111111-2222-4333-8444-555555555555\n"})
    flags = (f"--path.procfs={procfs}", f"--path.sysfs={folder / 'sys'}")
    with Systemd(folder) as systemd, KernelLog(folder) as log:
        config = {"probes": {"services": settings, "kernel_log": {"path": str(log.path)}}}
        systemd.units |= {f"{name}.service": unit for name, unit in UNITS.items()}
        agent = Node(folder, config, *flags, PYTHONPATH=str(ROOT / "exporter"))
        with agent:
            made = SimulatedNode(agent, systemd, procfs, log)
            wait_until(lambda: made.look(ACTIVE, {"unit": "kubelet.service"}) == 1)
            wait_until(lambda: made.look(ZOMBIES, {}) == 0)
            yield made
        assert systemd.mistakes == []


class Fault(msgspec.Struct, frozen=True):
    """A cause, how it is injected, the sample that must show it, and the target that reads it. With
    `silent`, a case that looks alike: the sample must be as it was after two further runs.
    """

    cause: str
    inject: Callable[[SimulatedNode], object]
    family: str
    labels: dict[str, str]
    value: float | None = 1
    target: str = "units"
    silent: Callable[[SimulatedNode], object] | None = None
    silent_family: str = ""
    silent_labels: dict[str, str] = {}
    silent_value: float | None = None


def change(name: str, **fields: object) -> Callable[[SimulatedNode], None]:
    """Return what changes a unit, or adds it."""

    def inject(on: SimulatedNode) -> None:
        unit = on.systemd.units.get(f"{name}.service", Unit())
        on.systemd.units[f"{name}.service"] = msgspec.structs.replace(unit, **fields)

    return inject


def remove(name: str) -> Callable[[SimulatedNode], object]:
    """Return what removes a unit."""
    return lambda on: on.systemd.units.pop(f"{name}.service")


def mounts(*lines: str) -> Callable[[SimulatedNode], None]:
    """Return what replaces the mounts."""
    return lambda on: conditions.mounts(on.procfs, *lines)


def ext4_error(on_error: str) -> Callable[[SimulatedNode], None]:
    """Return what makes ext4 of the root record an error, and go on or not."""
    ticks = 100 * (conditions.UPTIME_SECONDS - 3600)
    return lambda on: conditions.ext4_errors(
        on.procfs.parent, "nvme0n1p2", 1, int(time.time()), ticks, on_error
    )


def messages(*texts: str) -> Callable[[SimulatedNode], None]:
    """Return what the kernel logs."""
    return lambda on: on.log.write(*texts)


def process(pid: int, **fields: object) -> Callable[[SimulatedNode], None]:
    """Return what adds a process."""
    return lambda on: conditions.process(on.procfs, pid, **fields)  # type: ignore[arg-type]


def of(name: str) -> dict[str, str]:
    return {"unit": f"{name}.service"}


FAULTS = [
    Fault(
        "Service failed",
        change("slurmd", active="failed"),
        STATE,
        {**of("slurmd"), "state": "failed"},
        silent=change("docker", active="failed", file_state="disabled"),
        silent_family=EXPECTED,
        silent_labels=of("docker"),
        silent_value=0,
    ),
    Fault(
        "Service stopped",
        change("munge", active="inactive"),
        ACTIVE,
        of("munge"),
        0,
        silent=change("autofs", active="inactive", condition=False),
        silent_family=EXPECTED,
        silent_labels=of("autofs"),
        silent_value=0,
    ),
    Fault(
        "Service crash loop",
        change("containerd", restarts=4),
        RESTARTS,
        of("containerd"),
        4,
        silent=change("munge", active="active", restarts=0),
        silent_family=RESTARTS,
        silent_labels=of("munge"),
        silent_value=0,
    ),
    Fault(
        "Service never started",
        remove("kubelet"),
        ACTIVE,
        of("kubelet"),
        0,
        silent=remove("autofs"),
        silent_family=ACTIVE,
        silent_labels=of("autofs"),
    ),
    Fault(
        "Any unit failed",
        change("backup", active="failed"),
        FAILED,
        {},
        3,  # with slurmd and docker
        silent=change("user@1000", active="failed"),
        silent_family=FAILED,
        silent_value=3,
    ),
    Fault(
        "Root read-only after a disk error",
        mounts(ROOT_BROKEN, DATA_MOUNT),
        READ_ONLY,
        {"mountpoint": "/"},
        target="conditions",
        silent=mounts(ROOT_MOUNT, DATA_MOUNT, IMAGE),
        silent_family=READ_ONLY,
        silent_labels={"mountpoint": "/image"},
    ),
    Fault(
        "Local file system remounted read-only",
        mounts(ROOT_MOUNT, DATA_MOUNT.replace(" rw,", " ro,")),
        READ_ONLY,
        {"mountpoint": "/data"},
        target="conditions",
        silent=mounts(ROOT_MOUNT, DATA_MOUNT, BIND),
        silent_family=READ_ONLY,
        silent_labels={"mountpoint": "/data"},
        silent_value=0,
    ),
    Fault(
        "Root stopped by an ext4 error while the kernel shows `rw`",
        ext4_error("remount-ro"),
        READ_ONLY,
        {"mountpoint": "/"},
        target="conditions",
        silent=ext4_error("continue"),
        silent_family=READ_ONLY,
        silent_labels={"mountpoint": "/"},
        silent_value=0,
    ),
    Fault(
        "XFS shut down after an error while the kernel shows `rw`",
        messages("XFS (nvme1n1): Log I/O Error (0x2) detected at x.  Shutting down filesystem."),
        READ_ONLY,
        {"mountpoint": "/data"},
        target="conditions",
        silent=messages(
            "XFS (nvme1n1): Mounting V5 Filesystem",
            "XFS (nvme1n1): Metadata corruption detected at xfs_inode_buf_verify+0x1aa/0x1d0",
        ),
        silent_family=READ_ONLY,
        silent_labels={"mountpoint": "/data"},
        silent_value=0,
    ),
    Fault(
        "Driver does not return",
        process(300, wchan="_nv012345rm"),
        HUNG,
        {"wait": "nvidia"},
        target="conditions",
        silent=process(301, wchan="_nv012345rm", flags=0x200040),
        silent_family=HUNG,
        silent_labels={"wait": "nvidia"},
        silent_value=1,
    ),
    Fault(
        "File server hangs, mount not monitored",
        process(302),
        HUNG,
        {"wait": "nfs"},
        target="conditions",
        silent=process(303, state="S"),
        silent_family=HUNG,
        silent_labels={"wait": "nfs"},
        silent_value=1,
    ),
    Fault(
        "Container frozen",
        process(304, wchan="__refrigerator"),
        HUNG,
        {"wait": "paused"},
        target="conditions",
    ),
    Fault("Parent does not wait", process(305, state="Z"), ZOMBIES, {}, target="conditions"),
    Fault(
        "Runaway threads",
        lambda on: write(on.procfs, {"loadavg": "9 9 9 2/4000000 77\n"}),
        THREADS,
        {},
        4_000_000,
        target="conditions",
    ),
    Fault(  # the last: nothing answers any more
        "systemd does not answer",
        lambda on: setattr(on.systemd, "fault", "reject"),
        "nodevitals_probe_success",
        {"probe": "services", "target": "units"},
        0,
        target="conditions",
        silent=lambda on: None,
        silent_family=ZOMBIES,
        silent_value=1,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.cause)
def test_cause_is_exposed_and_what_looks_alike_is_not(node: SimulatedNode, fault: Fault) -> None:
    assert node.look(fault.family, fault.labels) != fault.value, "exposed before its injection"
    fault.inject(node)
    wait_until(lambda: node.look(fault.family, fault.labels) == fault.value, 60)
    if fault.silent is not None:
        fault.silent(node)
        node.after_runs(fault.target)
        assert node.look(fault.silent_family, fault.silent_labels) == fault.silent_value
    rows = [line for line in DOCUMENT.splitlines() if line.startswith(f"| {fault.cause} |")]
    assert any(f"`{fault.family}" in row for row in rows), "missing in docs/fault-coverage.md"


def test_every_row_of_the_page_has_its_case() -> None:
    table = DOCUMENT.partition("| cause | shown by | not shown |")[2]
    lines = table.partition("\n\n")[0].strip().splitlines()[1:]
    rows = [row.split("|")[1].strip() for row in lines]
    assert sorted(rows) == sorted(fault.cause for fault in FAULTS)
