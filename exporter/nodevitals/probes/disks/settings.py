"""The configuration of the probe `disks`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated, Literal, Optional

import msgspec

from nodevitals.document.local import LocalFolder, LocalProgram
from nodevitals.probe import ProbeSettings, Problem, Seconds
from nodevitals.quantities import shown

_DEVICE = re.compile(r"[A-Za-z0-9_-]{1,32}")
# smartctl(8), -d: names of disks behind a controller. The pattern excludes options.
_TYPE = re.compile(r"[a-z0-9_]+(?:[+][a-z0-9_]+)?,[0-9a-fx/,]+")


class RaidDisks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Disks behind one RAID controller, which the kernel does not show."""

    device: str
    """A block device of the controller. Example: `sda`"""
    types: tuple[str, ...]
    """What smartctl takes as -d, one per disk. Example: `["megaraid,0", "megaraid,1"]`"""


class DisksSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which disks are expected, and how their health is read."""

    expected: Optional[Annotated[int, msgspec.Meta(ge=0, le=1024)]] = None
    """Expected number of local disks: NVMe controllers on PCIe, SATA and SAS disks. Otherwise the
    highest since boot. Example: `10`"""
    exclude: tuple[str, ...] = ()
    """Patterns of disks to leave out. Example: `["sdb", "nvme9*"]`"""
    include: tuple[str, ...] = ()
    """Patterns of virtual block devices whose I/O is read as well. Example: `["dm-*", "md*"]`"""
    health: bool = True
    """Whether to read SMART data; it needs CAP_SYS_ADMIN, and smartctl CAP_SYS_RAWIO."""
    health_interval: Seconds = 300.0
    """Time between two reads of one disk's SMART data."""
    smartctl: LocalProgram = "smartctl"
    """Path of smartctl, or its name on PATH: for SATA and SAS disks."""
    smartctl_timeout: Seconds = 30.0
    """Time after which a call of smartctl is killed."""
    raid: tuple[RaidDisks, ...] = ()
    """Disks behind RAID controllers. Example: `[{device: sda, types: ["megaraid,0"]}]`"""
    device_directory: LocalFolder = "/dev"
    """Directory of the device files, as this process sees it."""

    @property
    def required(self) -> bool:
        """Whether the absence of disks is a failure."""
        return self.enabled is True or bool(self.expected)

    def problems(self) -> Iterator[Problem]:
        """Paths that are not absolute; texts that smartctl would read as something else."""
        if not os.path.isabs(self.device_directory) or "\0" in self.device_directory:
            yield Problem("device_directory", "not an absolute path: begin it with /")
        seen = set()
        for index, raid in enumerate(self.raid):
            if not _DEVICE.fullmatch(raid.device):
                yield Problem(f"raid[{index}].device", "no block device: write it like sda")
            for kind in raid.types:
                where = f"raid[{index}].types"
                if not _TYPE.fullmatch(kind):
                    yield Problem(where, f"{shown(kind)} is no disk: write it like megaraid,0")
                if (raid.device, kind) in seen:
                    yield Problem(
                        where, f"{shown(kind)} of {raid.device} is listed twice: remove one"
                    )
                seen.add((raid.device, kind))


class DisksTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker reads: `devices` (sysfs) or `health` (SMART)."""

    part: Literal["devices", "health"]
    settings: DisksSettings
