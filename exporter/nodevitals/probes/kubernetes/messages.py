"""The messages that the probe `kubernetes` receives: the accelerators of the node from `nvidia` and
`ascend`, and the OOM kills that `kernel_log` has read.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nodevitals.probe import Readings
from nodevitals.probes.common.accelerators import Inventory

PROBE = "kubernetes"
# One takes up to 105 bytes of a message, which may have 64 KiB.
MAX_KILLS = 500


class Accelerators(msgspec.Struct, frozen=True, tag="accelerators"):
    """All known accelerators of a vendor, uuid by index, and the GPU of each MIG instance, by
    uuid; it replaces the vendor's last message.
    """

    vendor: str
    uuids: dict[str, str]
    gpus: dict[str, str] = {}


class OomKill(msgspec.Struct, frozen=True, array_like=True):
    """A process of a pod that the OOM killer ended: the pod's uid, the container's id, '' where the
    cgroup has none.
    """

    pod_uid: str
    container_id: str


class OomKills(msgspec.Struct, frozen=True, tag="oom_kills"):
    """OOM kills since the last message."""

    kills: list[OomKill]


def send_oom_kills(readings: Readings, kills: list[OomKill]) -> None:
    """Send these kills, of more than a message may have the newest."""
    if kills:
        readings.send(PROBE, OomKills(kills[-MAX_KILLS:]))


def send_accelerators(
    readings: Readings, vendor: str, inventory: Inventory, gpus: Mapping[str, str] | None = None
) -> None:
    """Send the vendor's known accelerators."""
    devices = [one.device for one in inventory.known]
    uuids = {device.index: device.uuid for device in devices if device.index}
    readings.send(PROBE, Accelerators(vendor, uuids, dict(gpus or {})))
