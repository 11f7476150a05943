"""The files that run preflight before a job: what each makes of a status."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from nodevitals.commands.cli import parser_of
from testbed.node import ROOT

FOLDER = ROOT / "exporter/packaging/preflight"
REPORT = 'CHECK  STATE    DETAIL\nnode   problem  memory mc0: 2 "uncorrected"\n'


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def execute(folder: Path, file: str, status: int, **more: str) -> tuple[int, str]:
    """The status of a file, and the calls that it made."""
    log = folder / "calls"
    programs = folder / "bin"
    report = folder / "report"
    report.write_text(REPORT if status == 1 else "")
    program(programs, "nodevitals", f'echo nodevitals "$@" >>{log}; cat {report}; exit {status}')
    program(programs, "scontrol", f'printf "%s|" scontrol "$@" >>{log}')
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **more}
    ended = subprocess.run(["sh", FOLDER / file], env=environment, capture_output=True, check=False)
    return ended.returncode, log.read_text()


@pytest.mark.parametrize(("status", "wanted"), [(0, 0), (1, 1), (2, 0), (124, 0)])
def test_a_prolog_fails_for_a_defect_only(tmp_path: Path, status: int, wanted: int) -> None:
    job = {"SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NODELIST": "gpu-[1-2]"}
    ended, calls = execute(tmp_path, "slurm-prolog.sh", status, **job)
    assert ended == wanted
    assert "--devices=0,1 --nodes=gpu-[1-2]" in calls
    assert "scontrol" not in calls
    words = calls.split()[1:]
    assert parser_of(words).parse_args(words).nodes == "gpu-[1-2]"


@pytest.mark.parametrize("status", [0, 1, 2, 124])
def test_a_health_check_drains_for_a_defect_only(tmp_path: Path, status: int) -> None:
    ended, calls = execute(tmp_path, "slurm-health-check.sh", status)
    assert ended == 0
    assert ("scontrol|update|" in calls) == (status == 1)
    assert ("|Reason=preflight: node problem memory mc0: 2 uncorrected" in calls) == (status == 1)


def test_the_init_container_calls_the_command() -> None:
    job = yaml.safe_load((FOLDER / "init-container.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["initContainers"]
    words = container["command"][1:]
    assert parser_of(words).parse_args(words).timeout == "20s"
