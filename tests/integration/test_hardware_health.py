"""The health of disks and modules under the systemd unit: without the drop-in, and with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from nodevitals.linux.capabilities import NUMBERS
from nodevitals.linux.process import FORK_SERVER
from testbed import confinement
from testbed.disks import Machine
from testbed.modules import osfp
from testbed.netlinkserver import Driver, EthtoolKernel
from testbed.nics import Machine as Ports
from testbed.node import PYTHON, ROOT, Node, run, wait_until

PACKAGING = ROOT / "exporter/packaging"
UNIT = PACKAGING / "nodevitals.service"
DROP_IN = PACKAGING / "nodevitals-hardware-health.conf"
SERVICE = confinement.parse_service(DROP_IN.read_text())
GRANTED = confinement.capabilities(SERVICE)
CONFINEMENT = ROOT / "tests/testbed/confinement.py"
HEALTH = frozenset({"SYS_ADMIN", "SYS_RAWIO"})
TEXT = SERVICE["Environment"][0].strip('"').partition("=")[2]


def wrapper(*changes: str) -> list[str]:
    """The command that confines another one."""
    return [sys.executable, str(CONFINEMENT), str(UNIT), *changes, "--"]


class HealthNode:
    """A node with an NVMe disk, a SATA disk and a RoCE port with a module."""

    def __init__(self, folder: Path, kernel: EthtoolKernel, interval: str = "1s") -> None:
        disks, ports = Machine(folder), Ports(folder / "sys", mlx5_roce=1)
        disks.nvme(0)
        disks.sata("sda")
        [self.interface] = ports.interfaces.values()
        kernel.interfaces[self.interface] = Driver(osfp(), {2: 1})
        self.environment = {**kernel.environment, **disks.environment}
        libraries = (kernel.environment["LD_PRELOAD"], disks.environment["LD_PRELOAD"])
        self.environment["LD_PRELOAD"] = ":".join(libraries)
        probes = {
            "disks": {**disks.settings, "interval": interval},
            "transceivers": {"interval": "2s"},
        }
        self.node = Node(folder, {"probes": probes}, *ports.flags, **self.environment)

    def reason(self, device: str) -> str:
        """Why the health of a disk is unknown; '' where it is known."""
        found = self.node.family("nodevitals_disk_unreadable")
        reasons = [dict(labels) for labels in found]
        return next((one["reason"] for one in reasons if one["device"] == device), "")

    def known(self) -> set[str]:
        """The disks and ports whose health is exposed."""
        samples = self.node.samples()
        return {
            dict(labels).get("interface") or dict(labels)["device"]
            for name, labels in samples
            if name
            in ("nodevitals_disk_temperature_celsius", "nodevitals_transceiver_temperature_celsius")
        }


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HealthNode]:
    with EthtoolKernel(tmp_path) as kernel:
        yield HealthNode(tmp_path, kernel)


def effective(pid: int) -> set[str]:
    """The capabilities of a process."""
    found = re.search(r"^CapEff:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    mask = int(found[1], 16)
    return {name for number, name in enumerate(confinement.CAPABILITIES) if mask >> number & 1}


def test_unit_alone_reads_no_health_and_says_what_is_missing(made: HealthNode) -> None:
    made.node.wrapper = wrapper()
    with made.node:
        wait_until(lambda: made.reason("nvme0") == made.reason("sda") == "permission")
        labels = {"interface": made.interface, "reason": "permission"}
        wait_until(lambda: made.node.value("nodevitals_transceiver_unreadable", **labels) == 1)
        assert made.known() == set()
        # No probe fails.
        wait_until(lambda: 0 not in made.node.family("nodevitals_probe_success").values())
        done = run("doctor", f"--url=http://127.0.0.1:{made.node.port}/metrics")
    rows = [line for line in done.stdout.splitlines() if line.startswith("rights of")]
    assert len(rows) == 2, done.stdout
    assert "health of nvme0, sda cannot be read without CAP_SYS_ADMIN and CAP_SYS_RAWIO" in rows[0]
    assert f"modules of {made.interface} cannot be read without CAP_NET_ADMIN" in rows[1]
    for row in rows:
        assert " off " in row
        assert "add the drop-in nodevitals-hardware-health.conf; in Kubernetes nodes.NAME" in row


def test_probe_prints_what_is_missing(tmp_path: Path) -> None:
    command = [PYTHON, "-m", "nodevitals", "probe", "disks"]
    with EthtoolKernel(tmp_path) as kernel:
        # One run has to read all: with a timeout of a second, smartctl may be late.
        made = HealthNode(tmp_path, kernel, interval="30s")
        done = subprocess.run(
            [*wrapper(), *command, f"--config.file={made.node.config_file}", *made.node.flags],
            env={**os.environ, **made.environment},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    text = "disks: health of nvme0, sda cannot be read without CAP_SYS_ADMIN and CAP_SYS_RAWIO; add"
    assert text in done.stderr


def test_drop_in_grants_the_health_and_only_its_workers_keep_it(made: HealthNode) -> None:
    made.node.wrapper = wrapper(str(DROP_IN))
    with made.node:
        wait_until(lambda: made.known() == {"nvme0", "sda", made.interface})
        assert (made.reason("nvme0"), made.reason("sda")) == ("", "")
        wait_until(lambda: made.node.value("nodevitals_disks_present") == 2)
        assert "NODEVITALS_CAPABILITIES" not in made.node.log()
        agent = psutil.Process(made.node.process.pid)
        server = made.node.fork_server()
        assert effective(agent.pid) >= GRANTED
        seen: set[frozenset[str]] = set()

        def both() -> bool:
            for worker in server.children():
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    name = Path(f"/proc/{worker.pid}/comm").read_text().strip()
                    if name != FORK_SERVER:  # it has not taken its job yet
                        seen.add(frozenset(effective(worker.pid) & GRANTED))
            return {HEALTH, frozenset()} <= seen

        wait_until(both)
    # That of the disks' health, while it runs, and those of the others.
    assert seen <= {HEALTH, frozenset({"NET_ADMIN"}), frozenset()}


def test_each_line_of_the_drop_in_is_needed(made: HealthNode) -> None:
    """With all but SYS_RAWIO, all but the SATA disk is read."""
    granted = confinement.capabilities(confinement.parse_service(UNIT.read_text()))
    kept = sorted(f"CAP_{name}" for name in (granted | GRANTED) - {"SYS_RAWIO"})
    made.node.wrapper = wrapper(str(DROP_IN), f"CapabilityBoundingSet={' '.join(kept)}")
    with made.node:
        wait_until(lambda: made.known() == {"nvme0", made.interface})
        wait_until(lambda: made.reason("sda") == "permission")


def test_agent_says_when_workers_cannot_give_up_what_they_have(made: HealthNode) -> None:
    """A site's drop-in that forgot the call, or a container's filter."""
    without_call = SERVICE["SystemCallFilter"]
    assert without_call == ["capset"]
    unit = confinement.parse_service(UNIT.read_text())
    changes = [f"CapabilityBoundingSet={' '.join(f'CAP_{one}' for one in sorted(GRANTED))}"]
    changes.append(f"Environment={SERVICE['Environment'][0]}")
    assert "capset" not in " ".join(unit["SystemCallFilter"])
    made.node.wrapper = wrapper(*changes)
    with made.node:
        wait_until(lambda: "add SystemCallFilter=capset to the drop-in" in made.node.log())
        wait_until(lambda: made.known() == {"nvme0", "sda", made.interface})


@pytest.mark.parametrize(
    ("probe", "lost"),
    [
        ("disks", {"NET_ADMIN"}),
        ("transceivers", {"SYS_ADMIN", "SYS_RAWIO"}),
        ("scripts", {"SYS_ADMIN", "SYS_RAWIO", "NET_ADMIN"}),
    ],
)
def test_programs_that_a_worker_starts_have_no_more_than_it(probe: str, lost: set[str]) -> None:
    """Root's programs would have all of the bounding set again."""
    code = (
        "import os; from nodevitals.linux.capabilities import keep_own;"
        f"keep_own({probe!r}); os.execvp('cat', ['cat', '/proc/self/status'])"
    )
    environment = {**os.environ, "NODEVITALS_CAPABILITIES": TEXT}
    done = subprocess.run(
        [PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    found = re.search(r"^CapEff:\s*(\w+)", done.stdout, re.MULTILINE)
    assert found is not None
    mask = int(found[1], 16)
    assert {name for name in GRANTED if not mask >> NUMBERS[name] & 1} == lost
    assert re.search(r"^NoNewPrivs:\s*1$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("disks", "'disks': write it like disks=SYS_ADMIN,SYS_RAWIO"),
        ("disks=", "'disks=': write it like"),
        ("disks=SYS_ADMIN disks=NET_ADMIN", "disks is listed twice: remove one"),
        ("disks=CAP_SYS_ADMIN", "'CAP_SYS_ADMIN' is no capability that can be kept; known: BPF"),
        ("disk=SYS_ADMIN", "unknown probe 'disk'; known probes: ascend"),
    ],
)
def test_wrong_text_is_named_at_the_start(text: str, problem: str) -> None:
    done = run("serve", NODEVITALS_CAPABILITIES=text)
    assert done.returncode == 2
    assert f"NODEVITALS_CAPABILITIES: {problem}" in done.stderr
