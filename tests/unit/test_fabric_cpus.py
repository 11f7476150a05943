"""The CPUs on which a tool runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.linux.host import Host
from nodevitals.probes.fabric.node.cpus import (
    MAX_CPUS,
    cpus_near,
    cpus_of,
    parse_cpus,
    pinned,
    spelled,
)
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools.process import ToolProcess
from testbed.node import wait_until

RDMA = TestSettings(tool="perftest", operation="write_bw", device="mlx5_1")


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8-9,11", {0, 1, 2, 3, 8, 9, 11}),
        ("5", {5}),
        ("3-1", set()),
        ("", set()),
        ("-1", set()),
        ("0-3;reboot", set()),
        ("0-9999999999", set()),
        ("0-9999", set(range(MAX_CPUS + 1))),
    ],
)
def test_a_list_of_cpus(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


@given(st.frozensets(st.integers(0, MAX_CPUS)))
def test_a_list_is_read_as_it_is_spelled(cpus: frozenset[int]) -> None:
    assert parse_cpus(spelled(cpus)) == cpus


def near(folder: Path, text: str) -> frozenset[int]:
    device = folder / "class/infiniband/mlx5_1/device"
    device.mkdir(parents=True, exist_ok=True)
    (device / "local_cpulist").write_text(f"{text}\n")
    return cpus_near(RDMA, Host(sysfs=str(folder)))


def test_a_tool_runs_on_the_cpus_of_its_device(tmp_path: Path) -> None:
    """By the kernel's account; where the list leaves no choice, it is not pinned."""
    own = sorted(os.sched_getaffinity(0))
    assert near(tmp_path, spelled(own)) == frozenset()
    assert near(tmp_path, "8000-8001") == frozenset()
    assert near(tmp_path, "N/A") == frozenset()
    assert cpus_near(RDMA, Host(sysfs=str(tmp_path / "none"))) == frozenset()
    assert pinned(["ib_write_bw"], cpus_of({})) == ["ib_write_bw"]
    cpus = {own[-1]}
    assert near(tmp_path, f"{own[-1]},8000") == (cpus if len(own) > 1 else set())
    process = ToolProcess(["grep", "Cpus_allowed_list", "/proc/self/status"], cpus)
    wait_until(lambda: process.status() is not None)
    assert process.text().split() == ["Cpus_allowed_list:", str(own[-1])]
    process.end()
    words = ["taskset", "-c", str(own[-1]), "grep"]
    assert pinned(process.argv, process.cpus)[:4] == words


def test_cpus_that_are_gone_end_no_test() -> None:
    process = ToolProcess(["true"], {8000})
    wait_until(lambda: process.status() is not None)
    assert process.status() == 0
    process.end()
