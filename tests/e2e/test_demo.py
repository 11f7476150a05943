"""`make demo ONCE=1`: every alert of the tour arrives, and no process or file is left."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import psutil
import pytest

from testbed.node import ROOT

ALERTS = (
    *("AcceleratorLost", "EccUncorrectable", "NvidiaXid", "RdmaPortDown", "RdmaPortRateDegraded"),
    *("NpuUnhealthy", "NpuLinkDown", "MountHung", "MountContentMismatch", "MountReadOnly"),
    *("MountMissing", "ProbeFailing", "NodeDown"),
)


@pytest.mark.timeout(400)
def test_tour_receives_every_alert_and_leaves_nothing_behind() -> None:
    mark = uuid.uuid4().hex  # every process that the demo starts inherits it
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
    for alert in ALERTS:
        assert f"firing    {alert} " in done.stdout
    assert not (ROOT / ".demo").exists()
    assert [one.cmdline() for one in psutil.process_iter() if is_marked(one, mark)] == []


def is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("STARTED_BY") == mark
    except psutil.Error:
        return False
