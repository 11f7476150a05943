"""Accelerators that are not free when a job starts, and who has them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nodevitals.commands.doctor.findings import OFF, OK, PROBLEM, UNKNOWN, parse_samples
from nodevitals.commands.preflight import holders
from nodevitals.commands.preflight.leftovers import chosen, in_use, leftover_findings
from testbed import processes

GIB = 1 << 30
SLOT = "0000:18:00"


def gpu(device: str, used: object = 0, running: object = 0, vendor: str = "nvidia") -> str:
    """A GPU of 80 GiB; None for a value that the agent could not read."""
    labels = f'{{vendor="{vendor}",device="{device}",uuid="GPU-{device}"}}'
    values = {"memory_total_bytes": 80 * GIB, "memory_used_bytes": used, "processes": running}
    return "".join(
        f"nodevitals_accelerator_{name}{labels} {value}\n"
        for name, value in sorted(values.items())
        if value is not None
    )


def lines(text: str, devices: str = "all", found: dict[str, str] | None = None) -> list[str]:
    ordered = "".join(sorted(text.splitlines(keepends=True)))
    samples = parse_samples(ordered.encode())
    wanted = chosen(devices)
    used = in_use(samples, wanted)
    findings = leftover_findings(samples, wanted, used, found or {})
    return [f"{one.state} {one.detail}" for one in findings]


FREE = f"{OK} no process on an accelerator, memory is free"
START = "in use before the job starts"
DOUBT = "the agent does not know whether it is free"


@pytest.mark.parametrize(
    ("text", "devices", "wanted"),
    [
        ("", "all", []),
        (gpu("0") + gpu("1", 7 * GIB), "all", [FREE]),
        (gpu("3", 41 * GIB), "all", [f"{PROBLEM} nvidia 3: 41 GiB {START}"]),
        (gpu("3", GIB, 2), "all", [f"{PROBLEM} nvidia 3: 1 GiB {START} (2 processes)"]),
        (gpu("3", None, 2), "all", [f"{PROBLEM} nvidia 3: {START} (2 processes)"]),
        (gpu("3", 41 * GIB, None), "all", [f"{PROBLEM} nvidia 3: 41 GiB {START}"]),
        (gpu("0") + gpu("3", 41 * GIB), "0", [FREE]),
        (gpu("5", 41 * GIB, vendor="ascend"), "all", [f"{PROBLEM} ascend 5: 41 GiB {START}"]),
        (gpu("0", "NaN", "NaN"), "all", [f"{UNKNOWN} accelerator 0: {DOUBT}"]),
        (gpu("0", None, None) + gpu("1"), "all", [f"{UNKNOWN} accelerator 0: {DOUBT}"]),
        (gpu("0"), "0,99", [f"{UNKNOWN} accelerator 99: {DOUBT}"]),
        (gpu("0"), "\x1b[31m", [f"{UNKNOWN} accelerator \\x1b[31m: {DOUBT}"]),
        (gpu("0"), "0,all", [f"{UNKNOWN} accelerator all: {DOUBT}"]),
        ("", "0", [f"{UNKNOWN} accelerator 0: {DOUBT}"]),
    ],
)
def test_what_is_in_use_is_named(text: str, devices: str, wanted: list[str]) -> None:
    assert lines(text, devices) == wanted


@pytest.mark.parametrize("devices", ["", ","])
def test_without_a_choice_nothing_is_checked(devices: str) -> None:
    """Accelerators that are in use may be those of other jobs."""
    (line,) = lines(gpu("3", 41 * GIB, 2), devices)
    assert line.startswith(f"{OFF} not checked: ")
    assert lines("", devices) == []


def test_a_flood_of_devices_is_cut() -> None:
    found = lines("".join(gpu(str(number), 41 * GIB) for number in range(200)))
    assert len(found) == 33
    assert found[-1] == f"{PROBLEM} and 168 more accelerators in use"


def described(procfs: Path, *indices: str, slot: str = SLOT, seconds: float = 60.0) -> str:
    started = holders.start(str(procfs), seconds)
    found = holders.descriptions(started, dict.fromkeys(indices, slot), time.monotonic() + seconds)
    return found.get("3", "")


@pytest.fixture
def procfs(tmp_path: Path) -> Path:
    """A node whose GPU 3 has the minor number 6."""
    processes.kernel(tmp_path)
    processes.add_gpu_file(tmp_path, f"{SLOT}.0", 6)
    processes.add_gpu_file(tmp_path, "0000:2a:00.0", 3)
    return tmp_path


def test_a_process_is_named_with_its_user_and_job(procfs: Path) -> None:
    processes.add(procfs, 4242, "/dev/nvidia6", uid=0)
    processes.add(procfs, 77, "/dev/nvidia3")
    processes.add_job(procfs, 5000, "815", "/dev/nvidia6", "/dev/nvidiactl")
    text = described(procfs, "3")
    assert text.startswith("process 4242 python, user root, process 5000 python, user ")
    assert text.endswith(", job 815")


def test_programs_that_watch_are_not_named(procfs: Path) -> None:
    agent = "0::/system.slice/nodevitals.service"
    processes.add(procfs, 10, "/dev/nvidia6", name="nvidia-persiste")
    processes.add(procfs, 11, "/dev/nvidia6", name="python3", cgroup=agent)
    processes.add(procfs, 12, "/dev/nvidia6", name="nodevitals")
    assert described(procfs, "3") == ""


def test_of_many_processes_some_are_named(procfs: Path) -> None:
    for pid in range(100, 120):
        processes.add(procfs, pid, "/dev/nvidia6", uid=0)
    assert described(procfs, "3").endswith("and 17 more")


@pytest.mark.parametrize("slot", ["", "garbage", "::", "0000:18:00/../../x", "ffff:ff:ff"])
def test_a_gpu_that_is_not_known_has_no_process(procfs: Path, slot: str) -> None:
    processes.add(procfs, 4242, "/dev/nvidia6")
    assert described(procfs, "3", slot=slot) == ""


def test_a_driver_that_hangs_costs_the_names_only(procfs: Path) -> None:
    """The file of a GPU calls the driver: reading it is left to a process that may hang."""
    processes.add(procfs, 4242, "/dev/nvidia6")
    file = procfs / "driver/nvidia/gpus/0000:2a:00.0/information"
    file.unlink()
    os.mkfifo(file)
    assert described(procfs, "3", seconds=0.5) == ""


def test_what_is_not_asked_is_not_looked_for(procfs: Path) -> None:
    assert described(procfs) == ""
    assert described(procfs / "nonexistent", "3") == ""


def test_no_child_is_left(procfs: Path) -> None:
    started = holders.start(str(procfs), 60)
    assert holders.descriptions(started, {}, time.monotonic()) == {}
    with pytest.raises(ProcessLookupError):
        os.kill(started.child.pid, 0)
