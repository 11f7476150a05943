"""The whole pipeline: faults on simulated mounts, alerts at a webhook, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import psutil
import pytest

from testbed.node import ROOT


@pytest.mark.timeout(400)
def test_the_demos_tour_sees_every_alert_arrive_and_leaves_nothing() -> None:
    mark = uuid.uuid4().hex  # what it starts inherits this, and nobody else has it
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--once"],
        cwd=ROOT,
        env={**os.environ, "STARTED_BY": mark},
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
    assert [one.cmdline() for one in psutil.process_iter() if has(one, mark)] == []


def has(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("STARTED_BY") == mark
    except psutil.Error:
        return False
