"""Decides how often GPUs are tried again whose driver did not return. Pure.

A run that reads such a GPU is ended at its deadline, and NVML starts again. So the GPU is left out
of the next runs: 1, then 2, 4 and so on up to `MOST_RUNS`, with one try after each.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

MOST_RUNS = 16


class HungGpu(msgspec.Struct):
    """The next `wait` runs leave the GPU out; after the next hang, twice `period` runs do."""

    wait: int = 0
    period: int = 0


class HungGpus(msgspec.Struct):
    """The hung GPUs by uuid; a part of the probe's state."""

    gpus: dict[str, HungGpu] = {}

    def begin(self, listed: Iterable[str], interrupted: Iterable[str]) -> set[str]:
        """Begin a run. Returns the GPUs that it leaves out. `listed` are all GPUs that NVML lists,
        `interrupted` the GPUs at which runs were ended since the last run that returned; the
        changes that those runs made to this state are lost.
        """
        for uuid in interrupted:
            gpu = self.gpus.setdefault(uuid, HungGpu())
            gpu.period = gpu.wait = min(MOST_RUNS, 2 * gpu.period or 1)
        listed = set(listed)
        self.gpus = {uuid: gpu for uuid, gpu in self.gpus.items() if uuid in listed}
        left_out = {uuid for uuid, gpu in self.gpus.items() if gpu.wait > 0}
        for uuid in left_out:
            self.gpus[uuid].wait -= 1
        return left_out

    def returned(self, uuid: str) -> None:
        """Record that the driver of a GPU has returned, with any result."""
        self.gpus.pop(uuid, None)
