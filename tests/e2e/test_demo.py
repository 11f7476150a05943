"""`make demo ONCE=1`: every alert of the tour arrives, people are notified and a node is taken out
of service and returned, the hub names the slow node, and no process or file is left.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import requests
from demo import respond
from demo.__main__ import exit_status
from demo.pipeline import Pipeline
from demo.report import Progress
from demo.start import OTHER_ALERTS, wait_until_healthy

from testbed.node import PATIENCE_SECONDS, ROOT, wait_until

ALERTS = (
    *("AcceleratorLost", "EccUncorrectable", "NvidiaXid", "RdmaPortDown", "RdmaPortRateDegraded"),
    *("NpuUnhealthy", "NpuLinkDown", "MountHung", "MountContentMismatch", "MountReadOnly"),
    *("MountMissing", "ProbeFailing", "NodeDown"),
)

# Of the messages, the node and its return, in this order.
RESPONSE = (
    "[FIRING 1] demo: GPU 3 lost on gpu-node-2",
    "[demo] Job at risk, save your work: team-vision/pretrain-0",
    "dry run: would be out of service",
    "at the API server: cordoned gpu-node-2, condition NodevitalsOutOfService True",
    "[RESOLVED 1] demo: GPU 3 lost on gpu-node-2",
    "its checks are good: node check: no fault found",
    "at the API server: cordoned no node, condition NodevitalsOutOfService False",
    "[DRILL] [FIRING 1] demo: Drill: accelerator_lost on gpu-node-2",
)


@pytest.mark.proof("pipeline")
def test_tour_receives_every_alert_and_leaves_nothing_behind() -> None:
    mark = uuid.uuid4().hex  # every process that the demo starts inherits it
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--once"],
        cwd=ROOT,
        env={**os.environ, "STARTED_BY": mark},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for alert in ALERTS:
        assert f"firing    {alert} " in done.stdout
    assert "/classic/alerts" in done.stdout
    places = [done.stdout.find(step) for step in RESPONSE]
    assert -1 not in places, done.stdout
    assert places == sorted(places), done.stdout
    # A pair that is slow by chance, on a busy machine, makes the column wider.
    assert re.search(r"^\s*gpu-7 +threshold ", done.stdout, re.MULTILINE), done.stdout
    assert "/checks/" in done.stderr
    assert not (ROOT / ".demo").exists()
    assert [one.cmdline() for one in psutil.process_iter() if is_marked(one, mark)] == []


def test_a_hub_that_cannot_start_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpus").mkdir()
    with respond.begun(tmp_path) as response:
        assert response.show() is None
    [_, line] = capsys.readouterr().out.splitlines()
    assert line.startswith("left out, what the hub does about alerts: ")
    assert f"{tmp_path}/gpus" in line


def test_a_chapter_that_is_left_out_is_no_success() -> None:
    assert exit_status([], True, True) == 0
    assert exit_status([], None, True) == 2
    assert exit_status([], None, False) == exit_status(["NodeDown not firing"], True, True) == 1


def test_the_pages_of_prometheus_have_all_that_they_load() -> None:
    static = ROOT / ".tools/root/usr/share/prometheus/web/static"
    links = [path for path in static.rglob("*") if path.is_symlink()]
    assert links
    assert [str(path) for path in links if not path.exists()] == []


@pytest.mark.parametrize("children", [1, 4, 7])
def test_interrupted_start_leaves_nothing_behind(children: int) -> None:
    mark = uuid.uuid4().hex
    argv = [sys.executable, "-m", "demo", "--once"]
    with subprocess.Popen(
        argv, cwd=ROOT, env={**os.environ, "STARTED_BY": mark}, stderr=subprocess.PIPE, text=True
    ) as process:
        own = psutil.Process(process.pid)
        wait_until(lambda: len(own.children(recursive=True)) >= children, 30)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, errors
    assert errors.strip() == "demo: ended by SIGINT"
    assert not (ROOT / ".demo").exists()
    assert [one.cmdline() for one in psutil.process_iter() if is_marked(one, mark)] == []


@pytest.mark.proof("pipeline")
def test_without_an_injected_fault_no_alert_is_pending_or_firing(tmp_path: Path) -> None:
    """Whatever this machine is like: its clock, for one, is not synchronized in a container."""
    with ExitStack() as stack:
        pipeline = Pipeline(stack, tmp_path / "demo")
        wait_until_healthy(pipeline, Progress("starting"))
        evaluated = 'count_over_time(ALERTS{alertname="Watchdog"}[1m]) > 15'
        found: list[str] = []

        def is_calm() -> bool:
            """A scrape that is late, on a busy machine, makes an alert pending for a moment."""
            alerts = pipeline.prometheus.query(f"last_over_time({OTHER_ALERTS}[8s])")
            found[:] = sorted({one["metric"]["alertname"] for one in alerts})
            return bool(pipeline.prometheus.query(evaluated)) and not alerts

        try:
            wait_until(is_calm, 60, "15 evaluations, and 8 s without an alert")
        except AssertionError as error:
            raise AssertionError(f"{error}; pending or firing: {found}") from None
        alerts_page = requests.get(f"{pipeline.prometheus.url}/classic/alerts", timeout=60)
        assert alerts_page.status_code == 200
        for node in pipeline.nodes:
            assert "misbehave" not in node.get("/").text


def is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("STARTED_BY") == mark
    except psutil.Error:
        return False
