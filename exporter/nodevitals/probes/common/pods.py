"""What the probes `kubernetes` and `jobs` share: the families of units of work.

A unit of work is a pod, a job of Slurm (namespace `slurm`, pod: the job's id) or the processes of a
user (namespace `user`, pod: the user's name).
"""

from __future__ import annotations

from nodevitals.probe import Families
from nodevitals.probes.common.accelerators import DEVICE_LABELS

metrics = Families("pod", "namespace", "pod", "container", "job_name", "owner", "queue")
ACCELERATOR_INFO = metrics.gauge(
    "accelerator_info",
    "Always 1; the pod, Slurm job or user that has the accelerator; for a MIG instance the uuid of "
    "its GPU.",
    *DEVICE_LABELS,
)
