"""The whole pipeline: faults on simulated mounts, alerts at a webhook, nothing left behind."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from testbed.node import ROOT


@pytest.mark.timeout(400)
def test_the_demos_tour_sees_every_alert_arrive_and_leaves_nothing() -> None:
    before = {process.pid for process in psutil.process_iter()}
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--once"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    alerts: tuple[str, ...] = (
        "MountContentMismatch",
        "MountReadOnly",
        "MountMissing",
        "MountHung",
    )
    alerts += ("AcceleratorLost", "EccUncorrectable", "NvidiaXid")
    alerts += ("NpuUnhealthy", "NpuLinkDown", "RdmaPortDown", "RdmaPortRateDegraded")
    for alert in (*alerts, "FilesystemSpaceLow", "ProbeFailing", "ExporterDown"):
        assert f"firing    {alert} " in done.stdout
    assert not (ROOT / ".demo").exists()
    left = [
        process.cmdline()
        for process in psutil.process_iter()
        if process.pid not in before and "python" in process.name()
    ]
    assert left == []
