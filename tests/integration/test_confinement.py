"""Every probe under the restrictions of the systemd unit, and what is lost with fewer rights."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed import confinement, gpus, nics, npus
from testbed.faultyfs import FaultyFileSystem
from testbed.kmsg import KernelLog
from testbed.loopback import Loopback
from testbed.node import ROOT, Node, wait_until
from testbed.tmpfs import mount_tmpfs, unmount

UNIT = ROOT / "exporter/packaging/nodevitals.service"
SERVICE = confinement.parse_service(UNIT.read_text())
GRANTED = confinement.capabilities(SERVICE)
SUCCESS = "nodevitals_probe_success"
NAMES = {"scratch", "closed", "remote", "kernel_log", "peers", "node", "history"}


def wrapper(*changes: str) -> list[str]:
    """The command that confines another one, with changes of the unit."""
    program = ROOT / "tests/testbed/confinement.py"
    return [sys.executable, str(program), str(UNIT), *changes, "--"]


def without(capability: str) -> str:
    """The change that takes a capability away."""
    assert capability in GRANTED
    kept = sorted(f"CAP_{name}" for name in GRANTED - {capability})
    return f"CapabilityBoundingSet={' '.join(kept)}"


def confined(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command under the unit's restrictions."""
    return subprocess.run(
        [*wrapper(), *command], capture_output=True, text=True, check=False, timeout=300
    )


class KernelNode:
    """A node whose probes read this machine's kernel: mounts, a kernel log, peers."""

    def __init__(self, folder: Path, *changes: str) -> None:
        self.scratch = folder / "scratch"
        self.closed = folder / "closed"
        self.remote = FaultyFileSystem(folder, name="remote")
        self.log = KernelLog(folder, restricted=True)
        targets: list[dict[str, Any]] = [
            {"path": str(self.scratch), "access": "write"},
            {"path": str(self.closed), "access": "read"},
            {"path": str(self.remote.mountpoint), "access": "write"},
        ]
        probes = {
            "mounts": {"interval": "1s", "targets": targets},
            "kernel_log": {"enabled": True, "interval": "1s", "path": str(self.log.path)},
            "peers": {"interval": "1s", "targets": [{"host": "localhost", "port": 1}]},
            "node": {"interval": "1s"},
            "network": {"interval": "1s"},
        }
        self.node = Node(folder, {"probes": probes})
        self.node.wrapper = wrapper(*changes)

    def __enter__(self) -> KernelNode:
        for point in (self.scratch, self.closed):
            point.mkdir()
            mount_tmpfs(point)
        self.closed.chmod(0)
        self.remote.__enter__()
        self.log.__enter__()
        self.node.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.node.__exit__()
        self.log.__exit__()
        self.remote.__exit__()
        for point in (self.scratch, self.closed):
            unmount(point)

    def names(self, success: float) -> set[str]:
        """The probes and mounts with this success."""
        return {
            Path(dict(labels)["target"]).name
            for labels, value in self.node.family(SUCCESS).items()
            if value == success
        }


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[Node]:
    """A node with simulated GPUs, NPUs and NICs."""
    machine = gpus.Machine(tmp_path, "H100").start()
    nics.Machine(tmp_path / "sys", mlx5_infiniband=1, mlx5_roce=1)
    chips = npus.Machine(tmp_path).start()
    probes = {
        "nvidia": {**machine.settings, "enabled": True, "expected": 8, "interval": "2s"},
        "ascend": {**chips.settings, "enabled": True, "expected": 8, "interval": "5s"},
        "rdma": {"enabled": True, "interval": "1s"},
        "network": {"enabled": True, "interval": "1s"},
    }
    node = Node(tmp_path, {"probes": probes}, *machine.flags, **machine.environment)
    node.wrapper = wrapper()
    with node:
        yield node


def succeeds(node: Node, probe: str) -> bool:
    return node.value(SUCCESS, probe=probe) == 1


def test_device_probes_work(devices: Node) -> None:
    for probe in ("nvidia", "ascend", "rdma", "network", "node", "history"):
        wait_until(partial(succeeds, devices, probe), 60, probe)
    up = "nodevitals_accelerator_up"
    samples = devices.samples()
    assert sum(value for (name, _), value in samples.items() if name == up) == 16


def test_kernel_probes_work(tmp_path: Path) -> None:
    with KernelNode(tmp_path) as made:
        # All of them at once: on a busy machine one run may take longer than its second.
        wait_until(lambda: made.names(1.0) >= NAMES and not made.names(0.0), 60)
        assert made.node.fork_server().nice() == -10
        # The kernel's clock is read with a call that is in systemd's group @clock.
        assert made.node.value("nodevitals_node_clock_synchronized") is not None


def test_restrictions_hold_for_every_process(tmp_path: Path) -> None:
    """The test would pass without any, where the harness applied none."""
    with KernelNode(tmp_path) as made:
        wait_until(lambda: made.names(1.0))
        mask = sum(1 << confinement.CAPABILITIES.index(name) for name in GRANTED)
        agent = psutil.Process(made.node.process.pid)
        statuses = []
        for process in (agent, *agent.children(recursive=True)):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                statuses.append(Path(f"/proc/{process.pid}/status").read_text())
        assert len(statuses) >= 2
        for status in statuses:
            assert f"CapBnd:\t{mask:016x}" in status
            assert f"CapEff:\t{mask:016x}" in status
            assert "NoNewPrivs:\t1" in status
            assert "Seccomp:\t2" in status
        files = wait_until(lambda: list((tmp_path / "state").glob("*.db")))
        assert all(file.stat().st_mode & 0o077 == 0 for file in files)


@pytest.mark.parametrize(
    ("capability", "lost"), [("SYSLOG", "kernel_log"), ("DAC_READ_SEARCH", "closed")]
)
def test_probe_is_lost_without_its_capability(tmp_path: Path, capability: str, lost: str) -> None:
    """That probe or mount alone."""
    with KernelNode(tmp_path, without(capability)) as made:
        wait_until(lambda: made.names(1.0) >= NAMES - {lost}, 60)
        wait_until(lambda: made.names(0.0) == {lost})


def test_fork_server_has_no_priority_without_its_capability(tmp_path: Path) -> None:
    with KernelNode(tmp_path, without("SYS_NICE")) as made:
        wait_until(lambda: made.names(1.0))
        assert made.node.fork_server().nice() == 0


@pytest.mark.parametrize("capability", ["", "SYS_PTRACE", "DAC_READ_SEARCH"])
def test_fabric_tests_need_to_see_processes(tmp_path: Path, capability: str) -> None:
    """Process 1 has capabilities that the agent has not; 4242 is another user's."""
    with Loopback(tmp_path, 2) as made:
        for name, node in made.nodes.items():
            processes = made.folder / name / "proc"
            (processes / "1/fd").rmdir()
            (processes / "1/fd").symlink_to("/proc/1/fd")
            (processes / "4242/fd").mkdir(parents=True)
            (processes / "4242/fd").chmod(0)
            node.wrapper = wrapper(*([without(capability)] if capability else []))
        made.start()
        wait_until(partial(outcomes, list(made.nodes.values()), not capability), 60)


def outcomes(nodes: list[Node], tested: bool) -> bool:
    """Whether each node has finished a test, or skipped one as it cannot see processes."""
    family, labels = (
        ("nodevitals_fabric_runs_total", {"outcome": "ok"})
        if tested
        else ("nodevitals_fabric_skipped_total", {"reason": "processes_unseen"})
    )
    return all((node.value(family, **labels) or 0) >= 1 for node in nodes)


def test_no_process_becomes_another_user() -> None:
    """So CAP_KILL is not needed: all processes that the agent must end are root's."""
    done = confined(sys.executable, "-c", "import os; os.setuid(65534)")
    assert "PermissionError" in done.stderr
    assert confined("setpriv", "--reuid=65534", "--clear-groups", "true").returncode != 0


def test_device_of_a_group_needs_the_group(tmp_path: Path) -> None:
    """As /dev/davinci*: the unit names the drop-in for Ascend nodes."""
    device = tmp_path / "davinci0"
    device.touch()
    device.chmod(0o660)
    os.chown(device, 4242, 4243)
    command = (sys.executable, "-c", f"open({str(device)!r}, 'r+')")
    assert "PermissionError" in confined(*command).stderr
    grouped = [*wrapper("SupplementaryGroups=4243"), *command]
    assert subprocess.run(grouped, check=False).returncode == 0


def test_unknown_restriction_is_refused_by_the_harness() -> None:
    """A new line of the unit is applied here, or these tests fail."""
    command = [*wrapper("ProtectEverything=yes"), "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "not implemented: {'ProtectEverything'}" in done.stderr
