"""Probe `node` on the procfs and sysfs of a simulated node."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.linux.process import parse_process_stat
from nodevitals.probe import ProbeSettings, Readings
from nodevitals.probes.node import (
    CpuTimes,
    NodeProbe,
    NodeState,
    parse_loadavg,
    parse_vmstat,
    utilization,
)
from testbed import trees


def run(tmp_path: Path, state: NodeState | None = None) -> Readings:
    host = Host(procfs=str(tmp_path / "proc"), sysfs=str(tmp_path / "sys"))
    probe = NodeProbe(host, ProbeSettings(), "node")
    if state is not None:
        probe.state = state
    readings = Readings(families=NodeProbe.families)
    probe.run(readings)
    return readings


def values(readings: Readings) -> dict[tuple[str, ...], float]:
    return {
        (sample.family.removeprefix("nodevitals_node_"), *sample.labels): sample.value
        for sample in readings.samples
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    trees.procfs(tmp_path / "proc")
    trees.sysfs(tmp_path / "sys")
    return tmp_path


def test_every_family_of_a_node_is_exposed(tree: Path) -> None:
    found = values(run(tree))
    expected = {
        ("memory_total_bytes",): 131072000 * 1024,
        ("memory_available_bytes",): 98304000 * 1024,
        ("cpus",): 2,
        ("boot_timestamp_seconds",): 1699990000,
        ("load_average", "1"): 1.5,
        ("load_average", "15"): 3.0,
        ("processes",): 3,
        ("blocked_processes",): 1,
        ("file_descriptors",): 2048,
        ("oom_kills_total",): 3,
        ("memory_errors_total", "mc0", "corrected"): 7,
        ("memory_errors_total", "mc0", "uncorrected"): 1,
        ("nvme_live", "nvme0"): 1,
        ("nvme_live", "nvme1"): 0,
        ("nvme_info", "nvme0", "Example NVMe 4TB", "EX0001", "1.0"): 1,
    }
    assert expected.items() <= found.items()
    assert ("cpu_utilization_ratio",) not in found


def test_state_of_an_nvme_controller_is_recorded_by_its_serial(tree: Path) -> None:
    conditions = {item.device: item.state for item in run(tree).conditions}
    assert conditions == {"EX0001": "live", "EX0002": "dead"}


def test_time_of_the_node_is_that_of_its_clock(tree: Path) -> None:
    before = time.time()
    assert before <= values(run(tree))[("time_seconds",)] <= time.time()


def test_utilization_is_that_of_the_time_between_two_runs(tree: Path) -> None:
    state = NodeState()
    run(tree, state)
    stat = (tree / "proc/stat").read_text()
    (tree / "proc/stat").write_text(
        stat.replace("cpu  1000 50 300 8000 200", "cpu  1300 50 300 8600 300")
    )
    found = values(run(tree, state))
    assert found[("cpu_utilization_ratio",)] == pytest.approx(0.3)


def test_decreasing_counts_have_no_utilization() -> None:
    assert utilization(CpuTimes(10, 20), CpuTimes(5, 30)) is None
    assert utilization(CpuTimes(10, 20), CpuTimes(10, 20)) is None


@pytest.mark.parametrize("broken", ["", "garbage", "1 2", "\x00\xff"])
def test_malformed_file_affects_only_its_own_samples(tree: Path, broken: str) -> None:
    files = ["proc/vmstat", "proc/loadavg", "proc/sys/fs/file-nr"]
    files += ["sys/devices/system/edac/mc/mc0/ce_count"]
    for file in files:
        (tree / file).write_text(broken)
    found = values(run(tree))
    gone = {"oom_kills_total", "load_average", "file_descriptors", "file_descriptors_maximum"}
    assert not gone & {key[0] for key in found}
    assert ("memory_errors_total", "mc0", "corrected") not in found
    assert ("memory_errors_total", "mc0", "uncorrected") in found


def test_absent_edac_and_nvme_are_missing_not_zero(tmp_path: Path) -> None:
    trees.procfs(tmp_path / "proc")
    assert not {"memory_errors_total", "nvme_live"} & {key[0] for key in values(run(tmp_path))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42 (a b) c) D 7 8 9 0", (42, "D", 7, 9)),
        ("42 (a) S 1 42 42 0 -1", (42, "S", 1, 42)),
        ("42 (a", None),
        ("42 (a) S", None),
        ("", None),
    ],
)
def test_process_stat_is_parsed(text: str, expected: tuple[int, str, int, int] | None) -> None:
    assert parse_process_stat(text) == expected


def test_parsers_skip_malformed_text() -> None:
    assert parse_vmstat("oom_kill 3\nbad\nworse x\n") == {"oom_kill": 3}
    assert parse_loadavg("1 2 x") is None
