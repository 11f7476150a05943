"""Parses what Slurm writes into the environment of a process. Pure.

A user can change the environment of their processes. The cgroup shows the job of a process:
probes/common/cgroups.py.
"""

from __future__ import annotations

import msgspec

from nodevitals.linux.sysfs import parse_integer
from nodevitals.wire import without_controls

MAX_TEXT_CHARACTERS = 64
MAX_DEVICES = 64


def parse_uid(status: str) -> int | None:
    """The real user of a process by its /proc/PID/status (proc_pid_status(5))."""
    # `splitlines` also splits at characters that the name of the process may contain.
    for line in status.split("\n"):
        if line.startswith("Uid:"):
            return parse_integer([*line.split(), ""][1])
    return None


class JobTexts(msgspec.Struct, frozen=True):
    """The environment of a process of a job. `devices` are the numbers of the device files that
    Slurm allocated to the job or step on this node.
    """

    name: str = ""
    partition: str = ""
    devices: tuple[int, ...] = ()


def parse_environment(data: bytes, job_id: str) -> JobTexts | None:
    """The texts of a job in /proc/PID/environ; None if the environment belongs to another job.

    SLURM_JOB_GPUS and SLURM_STEP_GPUS have the numbers of the device files, also where the devices
    are constrained: https://github.com/SchedMD/slurm, src/plugins/gres/common/gres_common.c.
    """
    variables: dict[str, str] = {}
    for entry in data.split(b"\0"):
        if entry.startswith(b"SLURM_"):
            name, _, value = entry.decode("utf-8", "replace").partition("=")
            variables.setdefault(name, value)
    if variables.get("SLURM_JOB_ID") != job_id:
        return None
    devices = variables.get("SLURM_JOB_GPUS") or variables.get("SLURM_STEP_GPUS", "")
    return JobTexts(
        label_text(variables.get("SLURM_JOB_NAME", "")),
        label_text(variables.get("SLURM_JOB_PARTITION", "")),
        _numbers(devices),
    )


def label_text(text: str) -> str:
    """A user's text as the value of a label: one line, and of bounded length."""
    return without_controls(text[:MAX_TEXT_CHARACTERS])


def _numbers(text: str) -> tuple[int, ...]:
    """`0,1,3`; none for any other text."""
    words = text.split(",") if len(text) <= 5 * MAX_DEVICES else []
    numbers = [parse_integer(word) for word in words]
    known = [number for number in numbers if number is not None]
    return tuple(known) if len(known) == len(numbers) <= MAX_DEVICES else ()
