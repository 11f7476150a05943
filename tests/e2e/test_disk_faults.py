"""Every fault of a disk in the table of docs/fault-coverage.md: injected below the agent, it is
exposed in the family that the table names; what looks like it and is harmless is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from testbed.disks import Machine, ata, refused, scsi
from testbed.node import ROOT, Node, wait_until
from testbed.trees import write

DOCUMENT = (ROOT / "docs/fault-coverage.md").read_text().partition("\n## Disks\n")[2]
RULES = (ROOT / "rules/disks.yaml").read_text()
P = "nodevitals_disk"
STANDBY = "Device is in STANDBY mode, exit(2)"


class Shown(msgspec.Struct, frozen=True):
    """A sample and its value; None: it must be missing."""

    family: str
    value: float | None
    labels: dict[str, str] = {}


class Fault(msgspec.Struct, frozen=True):
    """A fault and what shows it; a harmless change, and what shows that it was read."""

    cause: str
    inject: Callable[[Machine], object]
    shown: Shown
    harmless: Callable[[Machine], object]
    evidence: Shown


def nvme(family: str, value: float | None, number: int, **labels: str) -> Shown:
    """A sample of one controller."""
    return Shown(P + family, value, {"device": f"nvme{number}", **labels})


def of(device: str, family: str, value: float | None, **labels: str) -> Shown:
    """A sample of another device."""
    return Shown(P + family, value, {"device": device, **labels})


FAULTS = [
    Fault(
        "NVMe: spare blocks used up",
        lambda on: on.page(0, warnings=1, spare=9),
        nvme("_critical_warning", 1, 0, warning="spare_low"),
        lambda on: on.page(0, spare=10),  # at its threshold of 10, not below it
        nvme("_spare_ratio", 0.1, 0),
    ),
    Fault(
        "NVMe: reliability degraded",
        lambda on: on.page(1, warnings=4),
        nvme("_critical_warning", 1, 1, warning="reliability_degraded"),
        lambda on: on.page(1, warnings=0xC0, hours=1001),  # reserved bits
        nvme("_power_on_seconds_total", 1001 * 3600, 1),
    ),
    Fault(
        "NVMe: read-only",
        lambda on: on.page(2, warnings=8),
        nvme("_critical_warning", 1, 2, warning="read_only"),
        lambda on: on.page(2, used=100),  # past its endurance, and it works
        nvme("_used_ratio", 1, 2),
    ),
    Fault(
        "NVMe: media errors",
        lambda on: on.page(3, media_errors=2),
        nvme("_media_errors_total", 2, 3),
        lambda on: on.page(3, log_entries=40),  # commands that it does not support
        nvme("_error_log_entries_total", 40, 3),
    ),
    Fault(
        "NVMe: too hot",
        lambda on: on.page(4, kelvin=345, warnings=2),
        nvme("_critical_warning", 1, 4, warning="temperature"),
        lambda on: on.page(4, kelvin=0),  # a sensor that reports nothing
        nvme("_temperature_celsius", None, 4),
    ),
    Fault(
        "NVMe: worn out",
        lambda on: on.page(5, used=97),
        nvme("_used_ratio", 0.97, 5),
        lambda on: on.page(5, units_written=9_000_000),
        nvme("_lifetime_bytes_total", 9_000_000 * 512_000, 5, operation="write"),
    ),
    Fault(
        "NVMe: controller that fell off the bus",
        lambda on: on.page(6, b"\xff" * 512),
        nvme("_unreadable", 1, 6, reason="malformed"),
        lambda on: on.page(6, media_errors=(1 << 128) - 1),  # a count that is not kept
        nvme("_media_errors_total", None, 6),
    ),
    Fault(
        "SATA: the disk expects to fail",
        lambda on: on.smart("sda", ata(status=1 << 3, passed=False)),
        of("sda", "_smart_passed", 0),
        lambda on: on.smart("sda", ata(status=1 << 2, temperature=36)),  # a command failed
        of("sda", "_temperature_celsius", 36),
    ),
    Fault(
        "SATA: attribute at its threshold",
        lambda on: on.smart("sdb", ata(status=1 << 4)),
        of("sdb", "_smart_finding", 1, finding="attribute_failing"),
        lambda on: on.smart("sdb", ata(status=7 << 5)),  # long ago
        of("sdb", "_smart_finding", 1, finding="attribute_failed_before"),
    ),
    Fault(
        "SATA: bad sectors",
        lambda on: on.smart("sdc", ata(raw_197=8)),
        of("sdc", "_sectors", 8, kind="pending"),
        lambda on: on.smart("sdc", ata(raw_199=70)),  # a cable
        of("sdc", "_interface_crc_errors_total", 70),
    ),
    Fault(
        "SATA: no answer",
        lambda on: on.smart("sdd", "@hang"),
        of("sdd", "_unreadable", 1, reason="timeout"),
        lambda on: on.smart("sdd", refused("/dev/sdd", STANDBY)),
        of("sdd", "_standby", 1),
    ),
    Fault(
        "SAS: grown defects",
        lambda on: on.smart("sde", scsi(defects=3)),
        of("sde", "_sectors", 3, kind="grown_defects"),
        lambda on: on.smart("sde", scsi(non_medium=900)),  # resets of the bus
        of("sde", "_non_medium_errors_total", 900),
    ),
    Fault(
        "A disk is gone",
        lambda on: on.vanish("nvme7"),
        nvme("_missing", 1, 7, serial="EXNVME0007"),
        lambda on: on.vanish("nvme8"),  # a volume of a cloud was detached
        nvme("_namespaces", None, 8),
    ),
    Fault(
        "Array without a member",
        lambda on: on.array(degraded="1", **{"dev-nvme1n1__state": "faulty"}),
        of("md0", "_array_degraded", 1),
        lambda on: on.array(sync_action="check", sync_completed="1 / 2"),
        of("md0", "_array_sync_progress_ratio", 0.5),
    ),
    Fault(
        "Multipath: a path is lost",
        lambda on: write(on.sys, {"block/sdf/device/state": "offline\n"}),
        of("dm-0", "_multipath_paths_running", 1),
        lambda on: write(on.sys, {"block/dm-1/dm/suspended": "1\n"}),  # a snapshot is made
        of("dm-1", "_mapping_suspended", 1),
    ),
]


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Node]]:
    folder: Path = tmp_path_factory.mktemp("disks")
    machine = Machine(folder)
    for number in range(8):
        machine.nvme(number)
    machine.nvme(8, model="Amazon Elastic Block Store")
    for name in ("sda", "sdb", "sdc", "sdd"):
        machine.sata(name)
    machine.sas("sde")
    for name in ("sdf", "sdg"):
        machine.scsi_device(name, f"host3/rport-3:0-{name}", "EXAMPLE", "LUN", "EX1")
    machine.array()
    machine.mapping("dm-0", "mpatha", "mpath-3600", ("sdf", "sdg"))
    machine.mapping("dm-1", "vg-scratch", "LVM-abc")
    own = {"interval": "500ms", "health_interval": "1s", "smartctl_timeout": "2s"}
    settings = {**machine.settings, **own}
    flags, environment = machine.flags, machine.environment
    with Node(folder, {"probes": {"disks": settings}}, *flags, **environment) as node:
        wait_until(lambda: node.value(f"{P}s_present") == 13)
        family = f"{P}_temperature_celsius"  # of the nine controllers and the five disks
        wait_until(lambda: sum(name == family for name, _ in node.samples()) == 14)
        yield machine, node


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.cause)
def test_fault_is_exposed_and_what_looks_like_it_is_not(
    disks: tuple[Machine, Node], fault: Fault
) -> None:
    machine, node = disks

    def is_shown(one: Shown) -> bool:
        return node.value(one.family, **one.labels) == one.value

    assert not is_shown(fault.shown), "exposed before its injection"
    fault.harmless(machine)
    wait_until(lambda: is_shown(fault.evidence), what=f"{fault.evidence}")
    assert not is_shown(fault.shown), "exposed for something harmless"
    if fault.cause == "A disk is gone":
        assert node.value(f"{P}s_expected") == node.value(f"{P}s_present")
    fault.inject(machine)
    wait_until(lambda: is_shown(fault.shown), what=f"{fault.shown}")
    rows = [line for line in DOCUMENT.splitlines() if line.startswith(f"| {fault.cause} |")]
    assert any(f"`{fault.shown.family}" in row for row in rows), "missing in fault-coverage.md"


def test_table_has_no_other_rows_and_its_alerts_exist() -> None:
    rows = [line.split("|") for line in DOCUMENT.splitlines() if line.startswith("| ")][1:]
    assert [row[1].strip() for row in rows] == [fault.cause for fault in FAULTS]
    for row in rows:
        alert = row[4].strip().split(" ")[0]
        assert alert == "\N{EN DASH}" or f"alert: {alert}\n" in RULES, alert
