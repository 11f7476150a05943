"""Probe `disks` on a simulated sysfs, a smartctl on PATH, and an ioctl answered below it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings, Timing
from nodevitals.probes.disks.probe import MAX_DISKS, DisksProbe, DisksState
from nodevitals.probes.disks.settings import DisksSettings, DisksTarget, RaidDisks
from nodevitals.wire import decode, encode
from testbed.disks import Machine, ata, nvme_output, page, refused, scsi
from testbed.faultytree import FaultyTree
from testbed.node import Node, wait_until
from testbed.trees import write

PREFIX = "nodevitals_disk_"
P = "nodevitals_"
BOOT = "11111111-2222-4333-8444-555555555555"


class Bench:
    """A machine and its probe, run in this process."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder)
        self.folder = folder
        self.state = DisksState()
        self.settings: dict[str, Any] = {"device_directory": str(self.machine.dev)}
        self.probes: dict[str, DisksProbe] = {}
        self.boot(BOOT)

    def boot(self, identifier: str) -> None:
        """The node is in this boot from now on."""
        write(self.folder / "proc", {"sys/kernel/random/boot_id": f"{identifier}\n"})

    def run(self, part: Any = "devices", *forgotten: str) -> Readings:
        """A run; the state goes through the engine's encoding."""
        if part not in self.probes:
            host = Host(sysfs=str(self.machine.sys), procfs=str(self.folder / "proc"))
            own = DisksSettings(**self.settings)
            timing = Timing(timeout_seconds=20.0)
            target = DisksTarget(part=part, settings=own)
            self.probes[part] = DisksProbe(host, target, part, timing)
            self.probes[part].open()
        probe = self.probes[part]
        probe.state = decode(encode(self.state), DisksState)
        readings = Readings((), forgotten, DisksProbe.families)
        try:
            probe.run(readings)
        finally:
            self.state = probe.state
        return readings

    def later(self) -> None:
        """The interval of the health reads is over."""
        reader = self.probes["health"]._reader
        assert reader is not None
        for slot in reader._slots.values():
            slot.due = 0.0

    def again(self, **settings: Any) -> None:
        """New workers, with further settings."""
        self.probes.clear()
        self.settings |= settings


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench(tmp_path)
    monkeypatch.setenv("PATH", found.machine.environment["PATH"])
    return found


def value(readings: Readings, family: str, *labels: str) -> float | None:
    found = {s.labels: s.value for s in readings.samples if s.family == P + family}
    return found.get(labels)


def devices(readings: Readings, family: str) -> set[str]:
    return {s.labels[0] for s in readings.samples if s.family == P + family}


def test_disks_of_a_node(bench: Bench) -> None:
    machine = bench.machine
    machine.nvme(0, namespaces=2, serial="EX 00 1")
    machine.sata("sda")
    machine.sas("sdb")
    found = bench.run()
    assert (value(found, "disks_present"), value(found, "disks_expected")) == (3, 3)
    labels = ("nvme0", "Example NVMe 4TB", "EX 00 1", "1.0", "pcie")
    assert value(found, "disk_info", *labels) == 1
    assert value(found, "disk_info", "sda", "Example HDD 8TB", "EXsda", "EX01", "ata") == 1
    assert value(found, "disk_info", "sdb", "EXAMPLE SAS 4TB", "EXsdb", "EX01", "sas") == 1
    assert value(found, "disk_namespaces", "nvme0") == 2
    assert devices(found, "disk_size_bytes") == {"nvme0n1", "nvme0n2", "sda", "sdb"}
    assert value(found, "disk_transferred_bytes_total", "sda", "discard") == 4_096_000
    assert value(found, "disk_operations_total", "nvme0n2", "flush") == 30
    assert value(found, "disk_operation_seconds_total", "sda", "write") == 0.5
    assert value(found, "disk_busy_seconds_total", "sda") == 0.7
    assert value(found, "disk_requests_in_flight", "sda") == 1
    conditions = {one.device: one.state for one in found.conditions}
    assert conditions == {"EX 00 1": "ok", "EXsda": "ok", "EXsdb": "ok"}


def test_virtual_and_removable_devices_are_left_out(bench: Bench) -> None:
    machine = bench.machine
    machine.sata("sda")
    machine.scsi_device("sdu", "usb1/1-1/host9", "Virtual", "Floppy", "0", removable="1\n")
    for name in ("loop0", "ram1", "zram0", "dm-0", "md0", "sr0", "nvme0c0n1"):
        write(machine.sys, {f"block/{name}/stat": "1 " * 11, f"block/{name}/size": "8"})
    write(machine.sys, {"block/sr0/device/vendor": "x", "block/nvme0c0n1/device/x": "x"})
    found = bench.run()
    assert devices(found, "disk_size_bytes") == {"sda"}
    bench.again(include=("dm-*", "md0"), exclude=("sda",))
    assert devices(bench.run(), "disk_size_bytes") == {"dm-0", "md0"}


@pytest.mark.parametrize(
    ("place", "transport"),
    [
        ("ata3/host2", "ata"),
        ("host0/port-0:1/end_device-0:1", "sas"),
        ("usb2/2-1/2-1:1.0/host7", "usb"),
        ("host8/session1", "iscsi"),
        ("host3/rport-3:0-1", "fc"),
        ("virtio2/host4", "virtio"),
        ("host0/target0:2:0", "other"),
    ],
)
def test_transport_of_a_disk(bench: Bench, place: str, transport: str) -> None:
    bench.machine.scsi_device("sda", place, "EXAMPLE", "DISK", "EX1")
    found = bench.run()
    assert value(found, "disk_info", "sda", "EXAMPLE DISK", "EX1", "EX01", transport) == 1
    counted = value(found, "disks_present") == 1
    assert counted == (transport in ("ata", "sas"))


def test_detached_volume_of_a_cloud_is_not_missing(bench: Bench) -> None:
    machine = bench.machine
    machine.nvme(0)
    machine.nvme(1, model="Amazon Elastic Block Store")
    machine.nvme(2, transport="tcp")
    machine.scsi_device("sdq", "host8/session1", "IET", "LUN", "EX9")
    before = bench.run()
    assert (value(before, "disks_present"), value(before, "disks_expected")) == (1, 1)
    for name in ("nvme1", "nvme2", "sdq"):
        machine.vanish(name)
    after = bench.run()
    assert (value(after, "disks_present"), value(after, "disks_expected")) == (1, 1)
    assert devices(after, "disk_missing") == set()


def test_missing_disk_is_named_until_it_is_forgotten(bench: Bench) -> None:
    machine = bench.machine
    machine.nvme(0)
    machine.nvme(1)
    bench.run()
    machine.vanish("nvme1")
    bench.again()  # the agent restarts
    found = bench.run()
    assert (value(found, "disks_present"), value(found, "disks_expected")) == (1, 2)
    assert value(found, "disk_missing", "nvme1", "EXNVME0001") == 1
    assert {c.device: c.state for c in found.conditions}["EXNVME0001"] == "missing"
    found = bench.run("devices", "EXNVME0001")
    assert (value(found, "disks_present"), value(found, "disks_expected")) == (1, 1)


def test_reboot_forgets_and_the_configuration_does_not(bench: Bench) -> None:
    machine = bench.machine
    machine.nvme(0)
    machine.nvme(1)
    bench.run()
    machine.vanish("nvme1")
    bench.boot("22222222-2222-4333-8444-555555555555")
    assert value(bench.run(), "disks_expected") == 1
    bench.again(expected=2)
    assert value(bench.run(), "disks_expected") == 2


def test_dead_controller_is_present(bench: Bench) -> None:
    """The probe node reports it; it is not missing as well."""
    bench.machine.nvme(0)
    bench.machine.nvme(1)
    bench.run()
    write(bench.machine.sys, {"class/nvme/nvme1/state": "dead\n"})
    assert value(bench.run(), "disks_present") == 2


def test_node_without_disks(bench: Bench) -> None:
    with pytest.raises(Absent):
        bench.run()
    with pytest.raises(Absent):
        bench.run("health")
    bench.again(expected=2)
    with pytest.raises(ProbeError, match="no disk in"):
        bench.run()
    bench.machine.sys.joinpath("block").rename(bench.folder / "elsewhere")
    bench.machine.sys.joinpath("class").rename(bench.folder / "class")
    with pytest.raises(ProbeError, match=r"is --path\.sysfs right"):
        bench.run()


def test_sysfs_that_cannot_be_listed_makes_no_disk_missing(tmp_path: Path) -> None:
    with FaultyTree(tmp_path) as tree:
        machine = Machine(tree.backing)
        machine.nvme(0)
        bench = Bench(tmp_path / "bench")
        bench.machine.sys = tree.mountpoint / "sys"
        bench.run()
        before = bench.state
        tree.fail("sys/class/nvme", "EACCES")
        with pytest.raises(ProbeError, match="cannot be listed"):
            bench.run()
        assert bench.state == before
        tree.fail("sys/class/nvme", None)
        assert value(bench.run(), "disks_present") == 1


def test_unreadable_file_affects_only_its_own_samples(tmp_path: Path) -> None:
    with FaultyTree(tmp_path) as tree:
        Machine(tree.backing).nvme(0)
        Machine(tree.backing).array()
        bench = Bench(tmp_path / "bench")
        bench.machine.sys = tree.mountpoint / "sys"
        before = {(s.family, s.labels) for s in bench.run().samples}
        files = [p for p in (tree.backing / "sys").rglob("*") if p.is_file()]
        for path in sorted(files):
            name = str(path.relative_to(tree.backing))
            for error in ("EIO", "ENODEV"):
                tree.fail(name, error)
                bench.again()
                after = {(s.family, s.labels) for s in bench.run().samples}
                tree.fail(name, None)
                allowed = 13 if path.name == "stat" else 3
                assert len(before - after) <= allowed, (name, error)


def test_array_and_its_members(bench: Bench) -> None:
    bench.machine.array(
        degraded="1",
        sync_action="recover",
        sync_completed="25 / 100",
        mismatch_cnt="128",
        **{"dev-nvme1n1__state": "spare,write_error,unheard_of"},
    )
    found = bench.run()
    assert value(found, "disk_array_degraded", "md0") == 1
    assert value(found, "disk_array_members", "md0") == 2
    assert value(found, "disk_array_state", "md0", "active") == 1
    assert value(found, "disk_array_info", "md0", "raid1") == 1
    assert value(found, "disk_array_sync_action", "md0", "recover") == 1
    assert value(found, "disk_array_sync_progress_ratio", "md0") == 0.25
    assert value(found, "disk_array_mismatched_sectors", "md0") == 128
    members = {s.labels[1:] for s in found.samples if s.family.endswith("array_member_state")}
    assert members == {
        ("nvme0n1", "in_sync"),
        ("nvme1n1", "spare"),
        ("nvme1n1", "write_error"),
    }


def test_array_without_redundancy_has_no_degraded_members(bench: Bench) -> None:
    bench.machine.array(level="raid0", degraded="", sync_action="", sync_completed="")
    found = bench.run()
    assert value(found, "disk_array_degraded", "md0") is None
    assert devices(found, "disk_array_sync_action") == set()


def test_mappings_and_paths(bench: Bench) -> None:
    machine = bench.machine
    for name in ("sda", "sdb"):
        machine.scsi_device(name, f"host3/rport-3:0-{name}", "EX", "LUN", "EX1")
    machine.mapping("dm-0", "vg 1-scratch", "LVM-abc")
    machine.mapping("dm-1", "mpatha", "mpath-3600", ("sda", "sdb"))
    (machine.sys / "block/dm-0/dm/suspended").write_text("1\n")
    state = machine.sys / "block/sda/device/state"
    state.write_text("offline\n")
    found = bench.run()
    assert value(found, "disk_mapping_info", "dm-0", "vg 1-scratch", "lvm") == 1
    assert value(found, "disk_mapping_suspended", "dm-0") == 1
    assert value(found, "disk_multipath_paths", "dm-1") == 2
    assert value(found, "disk_multipath_paths_running", "dm-1") == 1
    assert value(found, "disk_multipath_paths", "dm-0") is None
    state.write_text("unheard of\n")
    assert value(bench.run(), "disk_multipath_paths_running", "dm-1") is None


def test_health_of_sata_sas_and_disks_behind_a_controller(bench: Bench) -> None:
    machine = bench.machine
    machine.sata("sda", raw_197=3)
    machine.sas("sdb", defects=2)
    machine.scsi_device("sdc", "host0/target0:2:0", "EXRAID", "VOLUME", "EX2")
    machine.smart("sdc", ata(raw_5=9), "megaraid,4")
    bench.again(raid=(RaidDisks(device="sdc", types=("megaraid,4",)),))
    found = bench.run("health")
    assert value(found, "disk_sectors", "sda", "pending") == 3
    assert value(found, "disk_sectors", "sdb", "grown_defects") == 2
    assert value(found, "disk_sectors", "sdc/megaraid,4", "reallocated") == 9
    labels = ("sdc/megaraid,4", "Example HDD 8TB", "EXHDD0001", "EX01", "other")
    assert value(found, "disk_info", *labels) == 1
    assert value(found, "disk_smart_passed", "sda") == 1
    assert devices(found, "disk_unreadable") == set()
    # The volume itself has no health, and no controller is asked that is not configured.
    detected = {Path(argv[-1]).name for argv in machine.calls() if "-d" not in argv}
    assert detected == {"sda", "sdb"}


def test_sleeping_disk_is_not_woken(bench: Bench) -> None:
    bench.machine.sata("sda")
    assert value(bench.run("health"), "disk_standby", "sda") == 0
    bench.machine.smart("sda", refused("/dev/sda", "Device is in STANDBY mode, exit(2)"))
    bench.later()
    found = bench.run("health")
    assert value(found, "disk_standby", "sda") == 1
    assert devices(found, "disk_unreadable") == devices(found, "disk_temperature_celsius") == set()
    assert all(argv[2:4] == ["-n", "standby"] for argv in bench.machine.calls())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "malformed"),
        (json.dumps(ata())[:500], "malformed"),
        ("@flood", "malformed"),
        ("@hang", "timeout"),
        (json.dumps(refused("/dev/sdb", "open failed: Permission denied")), "permission"),
    ],
)
def test_disk_whose_smartctl_fails_affects_no_other(bench: Bench, answer: str, reason: str) -> None:
    machine = bench.machine
    machine.sata("sda")
    machine.sas("sdb")
    machine.smart("sdb", answer)
    bench.again(smartctl_timeout=2.0)
    found = bench.run("health")
    assert value(found, "disk_unreadable", "sdb", reason) == 1
    assert devices(found, "disk_unreadable") == {"sdb"}
    assert value(found, "disk_smart_passed", "sda") == 1
    assert value(found, "disk_smart_passed", "sdb") is None


def test_disk_that_cannot_be_read_now_keeps_its_last_values(bench: Bench) -> None:
    bench.machine.sata("sda", raw_5=4)
    bench.run("health")
    bench.machine.smart("sda", "")
    bench.later()
    found = bench.run("health")
    assert value(found, "disk_unreadable", "sda", "malformed") == 1
    assert value(found, "disk_sectors", "sda", "reallocated") == 4


def test_missing_smartctl_is_no_failure_unless_disks_are_required(bench: Bench) -> None:
    bench.machine.sata("sda")
    bench.again(smartctl=str(bench.folder / "nowhere"))
    assert value(bench.run("health"), "disk_unreadable", "sda", "tool_missing") == 1
    bench.again(enabled=True)
    with pytest.raises(ProbeError, match="nowhere"):
        bench.run("health")


def times_asked(bench: Bench, name: str) -> int:
    """How often smartctl was started for a disk."""
    return sum(call[-1].endswith(f"/{name}") for call in bench.machine.calls())


def test_next_process_knows_what_was_read_and_asks_when_it_is_due(bench: Bench) -> None:
    """The process of a run ends with it; a disk is asked once per interval."""
    bench.machine.sata("sda", raw_5=4)
    bench.machine.sas("sdb")
    bench.machine.smart("sdb", "")
    for _ in range(3):
        bench.again()
        found = bench.run("health")
        assert not bench.probes["health"].stays()
        assert value(found, "disk_sectors", "sda", "reallocated") == 4
        assert value(found, "disk_unreadable", "sdb", "malformed") == 1
    assert [times_asked(bench, name) for name in ("sda", "sdb")] == [1, 1]
    # The clock of these times began with the boot.
    bench.boot("99999999-2222-4333-8444-555555555555")
    bench.again()
    bench.run("health")
    assert [times_asked(bench, name) for name in ("sda", "sdb")] == [2, 2]


def test_what_failed_is_asked_again_after_a_restart_or_with_other_settings(bench: Bench) -> None:
    """Somebody has mended a right, or installed smartctl."""
    bench.machine.sata("sda")
    bench.machine.sas("sdb")
    bench.machine.smart("sdb", "")
    bench.run("health")
    bench.state.health.reader = "of another agent"
    bench.again()
    bench.run("health")
    assert [times_asked(bench, name) for name in ("sda", "sdb")] == [1, 2]
    bench.again(smartctl_timeout=20.0)
    bench.run("health")
    assert [times_asked(bench, name) for name in ("sda", "sdb")] == [1, 3]


def test_disk_without_smart_data_is_left_out(bench: Bench) -> None:
    bench.machine.sata("sda")
    bench.machine.smart("sda", ata() | {"smart_support": {"available": False}})
    found = bench.run("health")
    assert found.samples == []


def test_disk_that_vanishes_between_list_and_read(bench: Bench) -> None:
    bench.machine.sata("sda")
    (bench.machine.dev / "sda").unlink()
    assert value(bench.run("health"), "disk_unreadable", "sda", "gone") == 1
    bench.machine.vanish("sda")
    bench.machine.sata("sdb")
    assert devices(bench.run("health"), "disk_unreadable") == set()


def test_sixty_four_disks_and_more(bench: Bench) -> None:
    for number in range(64):
        bench.machine.nvme(number)
    found = bench.run()
    assert value(found, "disks_present") == 64
    assert len(devices(found, "disk_info")) == 64
    # No ioctl is answered here: each device file is an ordinary file.
    found = bench.run("health")
    assert len(devices(found, "disk_unreadable")) == 64
    for number in range(64, MAX_DISKS + 9):
        bench.machine.nvme(number)
    assert len(devices(bench.run(), "disk_info")) == MAX_DISKS


def test_names_that_no_device_has_are_left_out(bench: Bench) -> None:
    bench.machine.sata("sda")
    for name in ("sd b", "sdc\n", "..x y", "sd\u00e9"):
        write(bench.machine.sys, {f"block/{name}/stat": "1 " * 11})
    assert devices(bench.run(), "disk_size_bytes") == {"sda"}


# The ioctl is answered in another process: the agent's.


class Site:
    """An agent whose NVMe controllers are answered."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.machine = Machine(folder)
        probes = {"disks": {"interval": "300ms", **self.machine.settings, **settings}}
        flags, environment = self.machine.flags, self.machine.environment
        self.node = Node(folder, {"probes": probes}, *flags, **environment)

    def value(self, family: str, **labels: str) -> float | None:
        """The value of one sample."""
        return self.node.value(PREFIX + family, **labels)

    def shows(self, expected: float | None, family: str, **labels: str) -> None:
        """Wait until the sample has this value."""
        wait_until(lambda: self.value(family, **labels) == expected, what=f"{family}{labels}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    found.machine.nvme(0)
    found.machine.nvme(1)
    with found.node:
        found.shows(311 - 273, "temperature_celsius", device="nvme0")
        found.shows(311 - 273, "temperature_celsius", device="nvme1")
        yield found


def test_device_file_that_a_container_was_not_given(site: Site) -> None:
    (site.machine.dev / "nvme0").unlink()
    site.shows(1, "unreadable", device="nvme0", reason="device_file_missing")
    assert site.value("namespaces", device="nvme0") == 1


def test_health_page_is_read_by_ioctl(site: Site) -> None:
    assert site.value("temperature_limit_celsius", device="nvme0") == 70
    assert site.value("used_ratio", device="nvme0") == 0.03
    site.machine.page(0, warnings=1, spare=5, media_errors=8, used=101)
    site.shows(1, "critical_warning", device="nvme0", warning="spare_low")
    assert site.value("critical_warning", device="nvme1", warning="spare_low") == 0
    assert site.value("spare_ratio", device="nvme0") == 0.05
    assert site.value("media_errors_total", device="nvme0") == 8
    assert site.value("used_ratio", device="nvme0") == 1.01


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("errno 19", "gone"),
        ("errno 11", "gone"),
        ("errno 5", "io_error"),
        ("status 0x4006", "io_error"),
        ("errno 13", "permission"),
    ],
)
def test_controller_that_fails_affects_no_other(site: Site, how: str, reason: str) -> None:
    # Where the ioctl is not allowed, smartctl is asked, which has no more rights here.
    site.machine.smart("nvme0", refused("/dev/nvme0", "open failed: Permission denied"))
    site.machine.answer(0, how)
    site.shows(1, "unreadable", device="nvme0", reason=reason)
    assert site.value("temperature_celsius", device="nvme1") == 38
    site.shows(None, "temperature_celsius", device="nvme0")
    site.machine.answer(0, "")
    site.shows(None, "unreadable", device="nvme0")
    site.shows(38, "temperature_celsius", device="nvme0")


def test_controller_without_the_page_is_not_unreadable(site: Site) -> None:
    site.machine.answer(0, "status 0x4002")
    site.shows(None, "temperature_celsius", device="nvme0")
    assert site.value("unreadable", device="nvme0") is None


def test_page_of_ones_is_of_no_healthy_disk(site: Site) -> None:
    site.machine.page(0, b"\xff" * 512)
    site.shows(1, "unreadable", device="nvme0", reason="malformed")
    site.machine.page(0, page(media_errors=(1 << 128) - 2))
    site.shows(float(1 << 128), "media_errors_total", device="nvme0")


def most_threads(node: Node) -> int:
    """The threads of the probe's worker that has most; 0 without one. Other workers come and go."""
    found = [0]
    for pid in node.tree():
        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(pid)
            found += [worker.num_threads()] if worker.name() == "nodevitals-disk" else []
    return max(found)


def test_controller_that_hangs_costs_only_itself(site: Site) -> None:
    """Its thread stays; the worker goes on and starts no other for it."""
    site.machine.answer(0, "hang")
    site.shows(None, "temperature_celsius", device="nvme0")
    wait_until(lambda: most_threads(site.node) >= 2)
    before = most_threads(site.node)
    runs = f"{P}probe_runs_total"
    labels = {"probe": "disks", "target": "health", "outcome": "ok"}
    was = site.node.value(runs, **labels) or 0
    site.machine.page(1, media_errors=3)
    site.shows(3, "media_errors_total", device="nvme1")
    wait_until(lambda: (site.node.value(runs, **labels) or 0) >= was + 3)
    assert most_threads(site.node) <= before + 1  # that of nvme1, at most
    assert site.node.value(f"{P}worker_processes", state="stuck") == 0
    site.machine.answer(0, "")
    site.shows(38, "temperature_celsius", device="nvme0")


def test_smartctl_is_asked_where_the_ioctl_is_not_allowed(tmp_path: Path) -> None:
    """A site may let smartctl have the right that the agent lacks."""
    site = Site(tmp_path)
    site.machine.nvme(0)
    site.machine.answer(0, "errno 1")
    site.machine.smart("nvme0", nvme_output(media_errors=6))
    with site.node:
        site.shows(6, "media_errors_total", device="nvme0")
        assert site.value("unreadable", device="nvme0") is None


def test_every_family_is_exposed_without_health(tmp_path: Path) -> None:
    site = Site(tmp_path, health=False)
    site.machine.nvme(0)
    site.machine.smart("nvme0", scsi())
    with site.node:
        site.shows(1, "namespaces", device="nvme0")
        targets = {dict(pairs).get("target") for _, pairs in site.node.samples()}
        assert "devices" in targets
        assert "health" not in targets
