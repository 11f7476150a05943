"""The metrics of NCCL Inspector's Prometheus mode, in base units. Pure: samples in, samples out.

The plugin writes one file per GPU, `nccl_inspector_metrics_UUID.prom`, every 30 s or less often:
https://github.com/NVIDIA/nccl/blob/master/plugins/profiler/inspector/README.md
"""

from __future__ import annotations

import re
from typing import Optional

import msgspec

from nodevitals.probe import Family
from nodevitals.probes.scripts import families
from nodevitals.probes.scripts.textfile import TextSample

_FILE = re.compile(
    r"nccl_inspector_metrics_([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.prom"
)
_COUNT = re.compile(r"[0-9]{1,9}")
_SIZE = re.compile(r"[0-9]{1,12}(?:-[0-9]{1,12})?(?:B|KB|MB|GB|TB)")
_WORD = re.compile(r"[A-Za-z0-9]{1,32}")
_ALGORITHM = re.compile(r"[A-Za-z0-9_]{0,64}")
# What the plugin writes for what it does not know.
_UNKNOWN = "unknown"


class Metric(msgspec.Struct, frozen=True):
    """Where a metric of the plugin goes, and what its value is multiplied by."""

    family: Family
    factor: float


METRICS = {
    "nccl_bus_bandwidth_gbs": Metric(families.BUS_BANDWIDTH, 1e9),
    "nccl_collective_exec_time_microseconds": Metric(families.COLLECTIVE_SECONDS, 1e-6),
    "nccl_p2p_bus_bandwidth_gbs": Metric(families.P2P_BANDWIDTH, 1e9),
    "nccl_p2p_exec_time_microseconds": Metric(families.P2P_SECONDS, 1e-6),
}


class Row(msgspec.Struct, frozen=True):
    """One sample for a declared family; its value is None where the plugin has measured nothing."""

    family: Family
    labels: tuple[str, ...]
    value: Optional[float]


def gpu_of(file: str) -> str:
    """The GPU's UUID as NVML writes it, by the name of its file; '' for any other file."""
    match = _FILE.fullmatch(file)
    return f"GPU-{match[1]}" if match else ""


def parse_row(sample: TextSample, uuid: str) -> Row | None:
    """A sample of one of the METRICS; None where its labels or its value are not the plugin's."""
    metric = METRICS[sample.name]
    found = dict(sample.labels)
    known = {name: "" if text == _UNKNOWN else text for name, text in found.items()}
    collective = "collective" in metric.family.labels
    operation = found.get("collective" if collective else "p2p_operation", "")
    algorithm = known.get("algo_proto", "")
    if not (
        sample.value >= 0
        and _COUNT.fullmatch(found.get("nranks", ""))
        and _COUNT.fullmatch(found.get("n_nodes", ""))
        and _SIZE.fullmatch(found.get("message_size", ""))
        and _WORD.fullmatch(operation)
        and _ALGORITHM.fullmatch(algorithm)
    ):
        return None
    labels = (
        uuid,
        known.get("gpu", ""),
        known.get("node", ""),
        known.get("slurm_job_id", ""),
        known.get("comm_name", ""),
        found["n_nodes"],
        found["nranks"],
        found["message_size"],
        operation,
    )
    # 0 is the plugin's mean of no measurement.
    value = sample.value * metric.factor if sample.value > 0 else None
    return Row(metric.family, (*labels, algorithm) if collective else labels, value)
