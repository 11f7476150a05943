"""What a process that stays sends of each of its runs."""

from __future__ import annotations

import socket
from pathlib import Path

from nodevitals.engine.protocol import Job, Run
from nodevitals.engine.worker import _Runner
from nodevitals.engine.worker_end import Outlet
from nodevitals.linux.host import Host
from nodevitals.probe import Timing
from nodevitals.probes.kernel_log.probe import KernelLogSettings
from nodevitals.wire import ProbeResult, encode

LOCKUP = "4,{number},{number}000,-;watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1]\n"


def run(runner: _Runner, state: bytes) -> ProbeResult:
    result = runner.run(Run(state=state))
    assert result.outcome == "ok", result.text
    return result


def test_counters_are_declared_once(tmp_path: Path) -> None:
    """The kernel log's are a hundred, and it runs every two seconds."""
    log = tmp_path / "kmsg"
    log.write_text(LOCKUP.format(number=1))
    host = Host(procfs="/proc", sysfs=str(tmp_path), rootfs=str(tmp_path))
    settings = encode(KernelLogSettings(path=str(log)))
    job = Job("kernel_log", "kernel_log", settings, Timing(), host)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        runner = _Runner(job, Outlet(theirs))
        first = run(runner, b"")
        assert len(first.increments) > 10
        assert len({(one.family, one.labels) for one in first.increments}) > 10
        assert sum(one.value for one in first.increments) > 0, first.increments
        assert run(runner, first.state).increments == ()
        with log.open("a") as more:
            more.write(LOCKUP.format(number=2))
        third = run(runner, first.state)
        assert third.increments
        assert all(one.value for one in third.increments)
        # A new process knows nothing of what the one before has declared.
        assert len(run(_Runner(job, Outlet(theirs)), third.state).increments) > 10
        runner.close()
