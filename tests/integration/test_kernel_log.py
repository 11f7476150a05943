"""Probe `kernel_log` on a simulated /dev/kmsg: each record is counted once, also over failures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import astuple

from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError, Readings
from nodevitals.probes.common.device_names import DeviceName, DeviceNames
from nodevitals.probes.kernel_log.messages import NvmlXids
from nodevitals.probes.kernel_log.probe import KernelLogProbe, KernelLogSettings
from nodevitals.probes.kernel_log.state import KernelLogState
from nodevitals.wire import decode, encode
from testbed import conditions, trees
from testbed.faultyfs import FaultyFileSystem
from testbed.kmsg import USER_NOTICE, KernelLog
from testbed.node import ROOT, Node, run, wait_until

XIDS = "nodevitals_nvidia_xid_errors_total"
LOST = "nodevitals_kernel_log_lost_total"
OOM_KILL = "Out of memory: Killed process 1 (x)"
# The agent waits so long for the state directory; otherwise 10 s.
SHORT_HISTORY_TIMEOUT = """
from nodevitals.engine import configuration
configuration.HISTORY_TIMEOUT_SECONDS = 1
"""


def xid_line(code: int, bus: str = "0000:1a:00") -> str:
    return f"NVRM: Xid (PCI:{bus}): {code}, pid=7, name=trainer, something happened"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KernelLog]:
    with KernelLog(tmp_path) as made:
        yield made


def node(folder: Path, log: KernelLog, **others: object) -> Node:
    """Return a node with this probe and others, and a boot of its own."""
    trees.procfs(folder / "proc")
    probe = {"interval": "100ms", "path": str(log.path)}
    return Node(
        folder,
        {"probes": {"node": {"enabled": False}, "kernel_log": probe, **others}},
        f"--path.procfs={folder / 'proc'}",
        f"--path.sysfs={folder / 'sys'}",
        PYTHONPATH=str(ROOT / "exporter"),
    )


def events(of: Node, event: str) -> float | None:
    return of.value("nodevitals_kernel_events_total", event=event)


def history(of: Node) -> list[dict[str, Any]]:
    done = run("history", f"--config.file={of.config_file}", "--json")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_events_are_counted_from_0(tmp_path: Path, log: KernelLog) -> None:
    with node(tmp_path, log) as running:
        wait_until(lambda: events(running, "oom_kill") == 0)
        log.write(OOM_KILL, "nfs: server f not responding, timed out")
        wait_until(lambda: events(running, "oom_kill") == 1)
        assert events(running, "nfs_timeout") == 1
        wait_until(lambda: any(row["state"] == "oom_kill" for row in history(running)))


def test_file_system_that_the_kernel_stopped_is_read_only_until_it_is_mounted_anew(
    tmp_path: Path, log: KernelLog
) -> None:
    """Also after a restart of the agent, which does not read these records again."""
    made = node(tmp_path, log, services={"interval": "100ms", "bus": "/none"})
    conditions.healthy(tmp_path)

    def read_only(value: float) -> None:
        family = "nodevitals_node_filesystem_read_only"
        wait_until(lambda: made.value(family, mountpoint="/data") == value)
        assert made.value(family, mountpoint="/") == 0

    log.write("XFS (nvme1n1): Log I/O Error (0x6) detected at x.  Shutting down filesystem.")
    with made:
        read_only(1)
    with made:
        read_only(1)
        log.write("XFS (nvme1n1): Mounting V5 Filesystem 09bb549a-4bd2-49f8-b6a0-9faab0bf0de4")
        read_only(0)


def test_records_of_user_space_are_not_counted(tmp_path: Path, log: KernelLog) -> None:
    with node(tmp_path, log) as running:
        log.write(xid_line(79), OOM_KILL, priority=USER_NOTICE)
        log.write("INFO: task x:1 blocked for more than 120 seconds.")
        wait_until(lambda: events(running, "hung_task") == 1)
        assert events(running, "oom_kill") == 0
        assert running.value(XIDS) is None


def test_counts_continue_after_kill_and_restart_and_reset_with_the_boot(
    tmp_path: Path, log: KernelLog
) -> None:
    """Records from before, during and after a restart of the agent are each counted once."""
    log.write(*[OOM_KILL] * 3)
    running = node(tmp_path, log).start()
    wait_until(lambda: events(running, "oom_kill") == 3)
    wait_until(lambda: len(history(running)) >= 1)
    running.kill()
    log.write(*[OOM_KILL] * 2)
    with running:
        wait_until(lambda: events(running, "oom_kill") == 5)
    with running:
        log.write(OOM_KILL)
        wait_until(lambda: events(running, "oom_kill") == 6)
    trees.write(
        tmp_path / "proc", {"sys/kernel/random/boot_id": "22222222-2222-4333-8444-555555555555\n"}
    )
    log.unmount()
    with KernelLog(tmp_path, "next") as fresh:
        running.write({"probes": {"kernel_log": {"path": str(fresh.path), "interval": "100ms"}}})
        fresh.write(OOM_KILL)
        with running:
            wait_until(lambda: events(running, "oom_kill") == 1)


def test_killed_worker_counts_no_record_twice(tmp_path: Path, log: KernelLog) -> None:
    with node(tmp_path, log) as running:
        wait_until(lambda: events(running, "oom_kill") == 0)
        for count in range(1, 6):
            log.write(OOM_KILL)
            for child in running.fork_server().children():
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            wait_until(lambda count=count: events(running, "oom_kill") == count)  # type: ignore[misc]
        assert events(running, "oom_kill") == 5


def test_overwritten_records_are_counted_as_lost(tmp_path: Path) -> None:
    with KernelLog(tmp_path, capacity=50) as log, node(tmp_path, log) as running:
        wait_until(lambda: running.value(LOST) == 0)
        log.write(*["something or other"] * 500, OOM_KILL)
        # A run's counts appear together: then all that was overwritten before it is counted, too.
        wait_until(lambda: events(running, "oom_kill") == 1)
        before = running.value(LOST) or 0
        assert before > 0
        log.write(OOM_KILL)
        wait_until(lambda: events(running, "oom_kill") == 2)
        assert running.value(LOST) == before


def test_flood_is_counted_completely(tmp_path: Path, log: KernelLog) -> None:
    """The history gets one row per minute and event."""
    lines = [xid_line(31), OOM_KILL, "noise", "more noise"]
    with node(tmp_path, log) as running:
        running.write({"probes": {"kernel_log": {"path": str(log.path), "interval": "3s"}}})
        running.hang_up()
        began = time.monotonic()
        log.write(*lines * 1_500)
        wait_until(lambda: events(running, "oom_kill") == 1_500)
        rows = [row for row in history(running) if row["state"] == "oom_kill"]
        assert len(rows) <= 2 + (time.monotonic() - began) / 60


def test_run_reads_for_a_limited_time_and_the_next_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Xid from NVML waits for the end of the log, where its record may be."""
    monkeypatch.setattr("nodevitals.probes.kernel_log.probe.READ_SECONDS", 0.001)
    log = tmp_path / "kmsg"
    lines = [*[OOM_KILL] * 30_000, xid_line(79)]
    log.write_text("".join(f"4,{number},0,-;{line}\n" for number, line in enumerate(lines)))
    probe = KernelLogProbe(Host(procfs=str(tmp_path)), KernelLogSettings(path=str(log)))
    names = DeviceNames({"0000:1a:00": DeviceName("0", "GPU-0")})
    received: tuple[object, ...] = (names, NvmlXids([("0000:1a:00", 79)]))
    oom_kills: list[float] = []
    xids: list[float] = []
    while sum(oom_kills) < 30_000 or sum(xids) == 0:
        readings = Readings(received, families=KernelLogProbe.families)
        probe.run(readings)
        counts = {sample.labels: sample.value for sample in readings.increments}
        oom_kills.append(counts["oom_kill",])
        xids.append(counts["0", "GPU-0", "79", "reboot_node"])
        received = ()
    probe.close()
    assert (sum(oom_kills), sum(xids), len(oom_kills) > 1) == (30_000, 1, True)


@pytest.mark.parametrize("required", [False, True])
def test_without_a_log_the_xids_of_nvml_count_and_no_event_is_0(
    tmp_path: Path, required: bool
) -> None:
    """As in a container that may not have it: a failure only where the log is asked for."""
    settings = KernelLogSettings(path="/nonexistent/kmsg", enabled=required or "auto")
    probe = KernelLogProbe(Host(procfs=str(tmp_path)), settings)
    names = DeviceNames({"0000:1a:00": DeviceName("0", "GPU-0")})
    received = (names, NvmlXids([("0000:1a:00", 79)]))
    readings = Readings(received, families=KernelLogProbe.families)
    if required:
        with pytest.raises(ProbeError, match="there is no /nonexistent/kmsg"):
            probe.run(readings)
    else:
        probe.run(readings)
    counts = {sample.labels: sample.value for sample in readings.increments}
    assert counts["0", "GPU-0", "79", "reboot_node"] == 1
    assert {sample.family for sample in readings.increments} == {XIDS}


def test_xid_of_an_unnamed_gpu_is_counted_later_with_its_bus_id(tmp_path: Path) -> None:
    """Where the probe nvidia is off or hangs from the start; also over a restart of the agent."""
    log = tmp_path / "kmsg"
    log.write_text(f"4,1,0,-;{xid_line(79)}\n4,2,0,-;{xid_line(79)}\n4,3,0,-;{xid_line(13)}\n")
    host, settings = Host(procfs=str(tmp_path)), KernelLogSettings(path=str(log))
    probe = KernelLogProbe(host, settings)
    first = Readings()
    probe.run(first)
    probe.close()
    assert not [sample for sample in first.increments if sample.family == XIDS]

    state = decode(encode(probe.state), KernelLogState)
    for xid in state.unnamed:
        xid.until = 0.0  # as if the time had passed
    probe = KernelLogProbe(host, settings)
    probe.state = state
    second = Readings(families=KernelLogProbe.families)
    probe.run(second)
    probe.close()
    assert [sample[1:] for sample in map(astuple, second.increments) if sample[0] == XIDS] == [
        (("", "0000:1a:00", "79", "reboot_node"), 2),
        (("", "0000:1a:00", "13", "restart_app"), 1),
    ]


def test_unreadable_log_is_an_error_and_a_missing_log_is_absent(
    tmp_path: Path,
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("probes: {kernel_log: {path: /nonexistent/kmsg}}")
    done = run("probe", "kernel_log", "--raw", f"--config.file={config}")
    assert (done.returncode, "not on this node" in done.stderr) == (0, True)
    config.write_text("probes: {kernel_log: {path: /nonexistent/kmsg, enabled: true}}")
    assert run("probe", "kernel_log", "--raw", f"--config.file={config}").returncode == 1
    config.write_text(f"probes: {{kernel_log: {{path: {tmp_path}}}}}")
    done = run("probe", "kernel_log", "--raw", f"--config.file={config}")
    assert (done.returncode, "kernel_log" in done.stderr) == (1, True)
    assert "CAP_SYSLOG" in done.stderr


def test_log_of_this_machine_is_read_or_fails_with_one_line() -> None:
    done = run("probe", "kernel_log", "--raw")
    if done.returncode:  # not root, and kernel.dmesg_restrict is set as usual
        assert "Operation not permitted" in done.stderr
    else:
        assert 'nodevitals_kernel_events_total{event="oom_kill"}' in done.stdout


def test_hung_state_directory_delays_counts_and_loses_none(tmp_path: Path, log: KernelLog) -> None:
    with FaultyFileSystem(tmp_path, name="disk") as disk:
        disk.fault("hang")
        running = node(tmp_path, log)
        running.prelude = SHORT_HISTORY_TIMEOUT
        config = json.loads(running.config_file.read_text())
        running.write({**config, "state_directory": str(disk.mountpoint / "state")})
        log.write(OOM_KILL)
        with running:
            wait_until(lambda: events(running, "oom_kill") == 1, 40)
            disk.fault("none")


def test_a_record_is_read_when_it_is_written(tmp_path: Path) -> None:
    """By the log's descriptor, long before the interval is over; a flood is read every two seconds.
    The log is a FIFO, which has nothing to read until something is written, as /dev/kmsg.
    """
    trees.procfs(tmp_path / "proc")
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # the reader meets no end of the file
    probe = {"interval": "10m", "timeout": "5s", "path": str(path)}
    config = {"probes": {"node": {"enabled": False}, "kernel_log": probe}}
    number = count()

    def write(text: str) -> None:
        os.write(writer, f"4,{next(number)},1000,-;{text}\n".encode())

    def has(of: Node, kills: int) -> bool:
        return events(of, "oom_kill") == kills

    def runs(of: Node) -> float:
        return of.value("nodevitals_probe_runs_total", probe="kernel_log", outcome="ok") or 0

    started = time.monotonic()
    with Node(tmp_path, config, f"--path.procfs={tmp_path / 'proc'}") as found:
        wait_until(lambda: events(found, "oom_kill") == 0)
        for kills in (1, 2):
            write(OOM_KILL)
            wait_until(partial(has, found, kills))
        began = time.monotonic()
        while time.monotonic() - began < 6:
            write("something else")
            time.sleep(0.01)  # a hundred records per second
        write(OOM_KILL)
        wait_until(partial(has, found, 3))
        # All runs since the start; a history that is slow exposes fewer, never more.
        assert runs(found) <= (time.monotonic() - started) / 2 + 2
    os.close(writer)
