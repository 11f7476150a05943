"""Which pod, job or user has which accelerator: the family that all sources of it fill.

`namespace` and `pod` name the unit of work everywhere: a pod of Kubernetes, a job of Slurm
(`slurm`, its id), the processes of a user (`user`, the name).
"""

from __future__ import annotations

from nodevitals.probe import Families
from nodevitals.probes.common.accelerators import DEVICE_LABELS

OWNER_LABELS = ("job_name", "owner", "queue")
WORKLOAD_LABELS = ("namespace", "pod", "container", *OWNER_LABELS)

metrics = Families("pod", *WORKLOAD_LABELS)
ACCELERATOR_INFO = metrics.open_gauge(
    "accelerator_info",
    "Always 1; the pod (or job of another scheduler) that has the accelerator; of a MIG instance, "
    "uuid is that of its GPU.",
    *DEVICE_LABELS,
)
