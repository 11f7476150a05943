"""The files that run preflight before a job: what each makes of a status."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from nodevitals.commands.cli import parser_of
from testbed import programs
from testbed.node import PYTHON, ROOT

FOLDER = ROOT / "exporter/packaging/preflight"
REPORT = 'CHECK  STATE    DETAIL\nnode   problem  memory mc0: 2 "uncorrected"\n'


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def shipped(folder: Path, file: str) -> Path:
    """A copy of a file whose search path begins with the programs of a test."""
    text = (FOLDER / file).read_text()
    assert text.count("\nPATH=/usr/local/sbin:") == 1
    copy = folder / file
    copy.write_text(text.replace("\nPATH=", f"\nPATH={folder / 'bin'}:"))
    return copy


def execute(folder: Path, file: str, status: int, report: str, **more: str) -> tuple[int, str]:
    """The status of a file, and the calls that it made."""
    folder.mkdir(exist_ok=True)
    log = folder / "calls"
    programs = folder / "bin"
    (folder / "report").write_text(report)
    shown = f'echo nodevitals "$@" >>{log}; cat {folder / "report"}; exit {status}'
    program(programs, "nodevitals", shown)
    program(programs, "scontrol", f'printf "%s|" scontrol "$@" >>{log}')
    argv: list[str | Path] = ["sh", shipped(folder, file)]
    environment = {"PATH": os.environ["PATH"], **more}
    ended = subprocess.run(argv, env=environment, capture_output=True, check=False)
    return ended.returncode, log.read_text()


# Status and output of preflight; a broken installation ends with the status 1 of Python.
ENDS = [
    *((0, ""), (1, REPORT), (2, "agent  unknown  refused\n"), (124, ""), (137, ""), (127, "")),
    (1, "Traceback (most recent call last):\nModuleNotFoundError: No module named 'msgspec'\n"),
]


@pytest.mark.parametrize(("status", "report"), ENDS)
def test_a_prolog_fails_for_a_defect_only(tmp_path: Path, status: int, report: str) -> None:
    job = {"SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NODELIST": "gpu-[1-2]"}
    ended, calls = execute(tmp_path, "slurm-prolog.sh", status, report, **job)
    assert ended == (1 if report == REPORT else 0)
    assert "--devices=0,1 --nodes=gpu-[1-2]" in calls
    assert "scontrol" not in calls
    _, calls_without_gpus = execute(tmp_path / "cpu", "slurm-prolog.sh", status, report)
    assert "--devices" not in calls_without_gpus
    words = calls.split()[1:]
    options = parser_of(words).parse_args(words)
    assert (options.nodes, options.this_node) == ("gpu-[1-2]", True)


HOSTILE = {
    "PATH": "/tmp/owned",
    "PYTHONPATH": "/tmp/owned",
    "PYTHONHOME": "/tmp/owned",
    "PYTHONSTARTUP": "/tmp/owned",
    "HOME": "/tmp/owned",
    "TMPDIR": "/tmp/owned",
    "LD_PRELOAD": "/tmp/owned/lib.so",
    "LD_LIBRARY_PATH": "/tmp/owned",
    "NODE_NAME": "other",
    "NODEVITALS_TOKEN_FILE": "/etc/shadow",
    "http_proxy": "http://192.0.2.1",
    "REQUESTS_CA_BUNDLE": "/tmp/owned",
    "SSH_AUTH_SOCK": "/tmp/owned",
    "IFS": "/",
    "ENV": "/tmp/owned/env",
}


@pytest.mark.parametrize("file", ["slurm-prolog.sh", "slurm-health-check.sh"])
def test_no_variable_reaches_preflight(tmp_path: Path, file: str) -> None:
    """Not even where the script is started with those of a user."""
    program(tmp_path / "bin", "nodevitals", f"env >{tmp_path}/environment")
    subprocess.run(["/bin/sh", shipped(tmp_path, file)], env=HOSTILE, check=True)
    found = (tmp_path / "environment").read_text()
    assert "owned" not in found
    assert "192.0.2.1" not in found
    names = {line.partition("=")[0] for line in found.splitlines()}
    assert names <= {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}  # the others are those of sh


@pytest.mark.parametrize(
    "nodes",
    [
        *("@/etc/shadow", "@{secret}", "@", "-", "--", "-oProxyCommand=touch {touched}", "--ssh"),
        *("a\n@{secret}", "[1-999999999]", "a[1-999999999]", "a[1-9999,1-9999,1-9999]", "a[", "\n"),
        *(f"a[1-1{'0' * 5000}]", "$(touch {touched})", "`touch {touched}`", "; touch {touched}"),
        *("\x1b]0;owned\x07", "a" * 100_000, "a," * 40_000, "\udcff\udcfe"),
    ],
    ids=lambda text: repr(text[:24]),
)
@pytest.mark.parametrize("name", ["SLURM_JOB_NODELIST", "SLURM_JOB_GPUS"])
def test_a_hostile_value_of_a_job_drains_no_node(tmp_path: Path, name: str, nodes: str) -> None:
    """The real command, as root: the job starts, no file is shown, nothing is executed."""
    secret, touched = tmp_path / "secret", tmp_path / "touched"
    secret.write_text("hidden-content")
    python = f"PYTHONPATH={ROOT / 'exporter'} exec {PYTHON} -m nodevitals"
    url = "--url http://127.0.0.1:1 --timeout 2s"  # --timeout 20s comes before it
    program(tmp_path / "bin", "nodevitals", f'shift; {python} preflight "$@" {url}')
    value = nodes.replace("{secret}", str(secret)).replace("{touched}", str(touched))
    ended = subprocess.run(
        ["/bin/sh", shipped(tmp_path, "slurm-prolog.sh")],
        env={"PATH": os.environ["PATH"], name: value},
        stderr=subprocess.PIPE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr
    assert b"hidden-content" not in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert b"a defect of nodevitals" not in ended.stderr
    assert b"\x1b" not in ended.stderr
    assert len(ended.stderr) < 4000
    assert not touched.exists()


@pytest.mark.parametrize("name", ["SLURM_JOB_NODELIST", "SLURM_JOB_GPUS"])
@pytest.mark.parametrize("value", ["a --ssh --ssh-option=oProxyCommand=x", "$(touch x)", "*", ""])
def test_a_prolog_passes_each_value_as_one_argument(tmp_path: Path, name: str, value: str) -> None:
    """It runs as root: a blank in a value must not add an option, and no pattern is expanded."""
    program(tmp_path / "bin", "timeout", f'printf "%s\\n" "$@" >{tmp_path}/arguments')
    argv: list[str | Path] = ["sh", shipped(tmp_path, "slurm-prolog.sh")]
    environment = {"PATH": os.environ["PATH"], name: value}
    subprocess.run(argv, env=environment, cwd=tmp_path, check=True)
    option = {"SLURM_JOB_NODELIST": "--nodes", "SLURM_JOB_GPUS": "--devices"}[name]
    found = (tmp_path / "arguments").read_text().splitlines()
    assert [one for one in found if one.startswith(option)] == (
        [f"{option}={value}"] if value else []
    )
    assert not any(one.startswith("--ssh") for one in found)
    assert "" not in found


@pytest.mark.parametrize(("status", "report"), ENDS)
def test_a_health_check_drains_for_a_defect_only(tmp_path: Path, status: int, report: str) -> None:
    ended, calls = execute(tmp_path, "slurm-health-check.sh", status, report)
    assert ended == 0
    words = calls.splitlines()[0].split()[1:]
    assert parser_of(words).parse_args(words).devices == "all"  # no job is on the node
    assert "scontrol" in calls if report == REPORT else "scontrol" not in calls


DEFECT = "preflight: node problem memory mc0: 2 uncorrected"


@pytest.mark.parametrize(
    ("state", "reason", "after"),
    [
        ("IDLE", "", ("IDLE+DRAIN", DEFECT)),
        ("IDLE+CLOUD", "", ("IDLE+DRAIN", DEFECT)),
        *((state, "replace the fan", None) for state in ("IDLE+DRAIN", "MIXED+DRAIN", "DOWN")),
        *((state, "", None) for state in ("IDLE+DRAIN", "DOWN+NOT_RESPONDING", "IDLE+FAIL")),
        ("IDLE+REBOOT_REQUESTED", "kernel update", None),
        ("IDLE", "a note", None),
        ("MIXED", "", None),  # a job has started meanwhile, and has processes
        ("ALLOCATED", "", None),
        ("", "", None),  # Slurm does not have the node
    ],
)
def test_a_health_check_leaves_what_another_has_decided(
    tmp_path: Path, state: str, reason: str, after: tuple[str, str] | None
) -> None:
    """It also runs on drained nodes. An update replaces the reason and who gave it."""
    kept = tmp_path / "slurm.json"
    node = {"state": state, "reason": reason, "cpus": 0}
    kept.write_text(json.dumps({"nodes": {"gpu-7": node} if state else {}, "calls": []}))
    programs.install(tmp_path / "bin", "slurm", ["scontrol"], str(kept))
    (tmp_path / "report").write_text(REPORT)
    program(tmp_path / "bin", "nodevitals", f"cat {tmp_path / 'report'}; exit 1")
    argv: list[str | Path] = ["/bin/sh", shipped(tmp_path, "slurm-health-check.sh")]
    ended = subprocess.run(argv, env={"SLURMD_NODENAME": "gpu-7"}, capture_output=True, check=True)
    found = json.loads(kept.read_text())
    if after is None:
        assert all(call[0] == "show" for call in found["calls"]), ended.stderr
    else:
        assert (found["nodes"]["gpu-7"]["state"], found["nodes"]["gpu-7"]["reason"]) == after


def test_the_init_container_calls_the_command() -> None:
    """Other pods may use the node: their processes must not count."""
    job = yaml.safe_load((FOLDER / "init-container.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["initContainers"]
    words = container["command"][1:]
    options = parser_of(words).parse_args(words)
    assert (options.timeout, options.devices) == ("20s", "")
