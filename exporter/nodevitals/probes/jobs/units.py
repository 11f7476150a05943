"""Jobs and users with the device files that they have. Pure.

A process belongs to its job, or else to its user. A device that Slurm allocated to a job counts for
it also while no process has it open: only the job's environment says so, which its user can change,
and what the kernel says of others goes before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from nodevitals.probes.common.device_files import DeviceFile


class Unit(msgspec.Struct, frozen=True, order=True):
    """A job or user, with the labels of the family."""

    namespace: str
    pod: str
    job_name: str
    owner: str
    queue: str


def with_allocations(
    opened: Iterable[tuple[Unit, DeviceFile]], allocated: Mapping[Unit, Iterable[DeviceFile]]
) -> set[tuple[Unit, DeviceFile]]:
    """What each has open, and what is allocated to it and that no other has open."""
    pairs = set(opened)
    holders: dict[DeviceFile, set[Unit]] = {}
    for unit, file in pairs:
        holders.setdefault(file, set()).add(unit)
    free = {
        (unit, file)
        for unit, files in allocated.items()
        for file in files
        if holders.get(file, set()) <= {unit}
    }
    return pairs | free
