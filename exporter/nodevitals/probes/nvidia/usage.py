"""How one GPU is used: what its settings select of throughput, details, activity and instances."""

from __future__ import annotations

from typing import NamedTuple

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.activity import ActivityReader
from nodevitals.probes.nvidia.details import DetailReader
from nodevitals.probes.nvidia.mig import read_mig
from nodevitals.probes.nvidia.nvml import Handle
from nodevitals.probes.nvidia.throughput import ThroughputReader


class UsageOptions(NamedTuple):
    """What is read beyond throughput and MIG instances."""

    details: bool = False
    activity: bool = False


class UsageReader:
    """Reads one GPU."""

    def __init__(self, options: UsageOptions) -> None:
        self._throughput = ThroughputReader()
        self._details = DetailReader() if options.details else None
        self._activity = ActivityReader() if options.activity else None

    def read(
        self, handle: Handle, answers: bool, readings: Readings, labels: tuple[str, ...]
    ) -> None:
        """Read everything that is on. `answers`: the GPU has returned something in this run. Raises
        LostError.
        """
        self._throughput.read(handle, answers, readings, labels)
        gpu_instances = read_mig(handle, readings, labels)
        if self._details is not None:
            self._details.read(handle, readings, labels)
        if self._activity is not None:
            self._activity.read(handle, gpu_instances, readings, labels)
