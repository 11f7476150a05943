"""The messages that the probe `kubernetes` receives: the accelerators of the node from `nvidia` and
`ascend`, and the OOM kills that `kernel_log` has read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from nodevitals.probe import Readings
from nodevitals.probes.common.accelerators import Inventory

PROBE = "kubernetes"
# One kill takes up to 105 bytes of a message, which may have 64 KiB.
MAX_KILLS = 500


class Accelerators(msgspec.Struct, frozen=True, tag="accelerators"):
    """All known accelerators of a vendor, uuid by index, and the GPU of each MIG instance, by
    uuid; it replaces the vendor's last message.
    """

    vendor: str
    uuids: dict[str, str]
    gpus: dict[str, str] = {}


class OomKill(msgspec.Struct, frozen=True, array_like=True):
    """Processes of a pod that the OOM killer ended: the pod's uid, the container's id ('' if the
    cgroup has none), and the number of processes.
    """

    pod_uid: str
    container_id: str
    count: int = 1


class OomKills(msgspec.Struct, frozen=True, tag="oom_kills"):
    """OOM kills since the last message; `omitted` is the number of those that do not fit."""

    kills: list[OomKill]
    omitted: int = 0


def summed(kills: Iterable[OomKill]) -> list[OomKill]:
    """One record per container: a flood of kills in one leaves room for the others."""
    counts: Counter[tuple[str, str]] = Counter()
    for kill in kills:
        counts[kill.pod_uid, kill.container_id] += kill.count
    return [OomKill(*key, count) for key, count in counts.items()]


def send_oom_kills(readings: Readings, kills: list[OomKill]) -> None:
    """Send these kills; if there are too many containers for a message, only the last ones."""
    sums = summed(kills)
    if sums:
        omitted = sum(kill.count for kill in sums[:-MAX_KILLS])
        readings.send(PROBE, OomKills(sums[-MAX_KILLS:], omitted))


def send_accelerators(
    readings: Readings, vendor: str, inventory: Inventory, gpus: Mapping[str, str] | None = None
) -> None:
    """Send the vendor's known accelerators."""
    devices = [entry.device for entry in inventory.known]
    uuids = {device.index: device.uuid for device in devices if device.index}
    readings.send(PROBE, Accelerators(vendor, uuids, dict(gpus or {})))
