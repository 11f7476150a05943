"""What Slurm says about a process in its environment. Pure.

The environment is the user's: any process may change its own. Its cgroup says to which job it
belongs: probes/common/cgroups.py.
"""

from __future__ import annotations

import msgspec

from nodevitals.linux.sysfs import parse_integer
from nodevitals.wire import without_controls

MAX_TEXT_CHARACTERS = 64
MAX_DEVICES = 64


def parse_uid(status: str) -> int | None:
    """The real user of a process by its /proc/PID/status (proc_pid_status(5))."""
    for line in _lines(status):
        if line.startswith("Uid:"):
            return parse_integer([*line.split(), ""][1])
    return None


def _lines(text: str) -> list[str]:
    """The lines as the kernel ends them. `splitlines` also ends one at a vertical tab and others,
    which the kernel permits in names of processes and cgroups.
    """
    return text.split("\n")


class JobTexts(msgspec.Struct, frozen=True):
    """What the environment of a job's process says. `devices` are numbers of device files: those
    that Slurm allocated to the job or step on this node.
    """

    name: str = ""
    partition: str = ""
    devices: tuple[int, ...] = ()


def parse_environment(data: bytes, job_id: str) -> JobTexts | None:
    """The texts of a job in /proc/PID/environ; None where the environment is not that of this job.

    SLURM_JOB_GPUS and SLURM_STEP_GPUS have the numbers of the device files, also where the devices
    are constrained: https://github.com/SchedMD/slurm, src/plugins/gres/common/gres_common.c.
    """
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        if entry.startswith(b"SLURM_"):
            name, _, value = entry.decode("utf-8", "replace").partition("=")
            found.setdefault(name, value)
    if found.get("SLURM_JOB_ID") != job_id:
        return None
    devices = found.get("SLURM_JOB_GPUS") or found.get("SLURM_STEP_GPUS", "")
    return JobTexts(
        label_text(found.get("SLURM_JOB_NAME", "")),
        label_text(found.get("SLURM_JOB_PARTITION", "")),
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
