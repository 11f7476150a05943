"""Probe `mounts`: whether each file system is mounted, is the expected one, and stores data.

In: mountinfo, statvfs, and with `access: write` a file in the directory `.nodevitals` of the mount.
Out: `nodevitals_mount_*`. One worker per mount: any call after mountinfo may hang for ever, and
then only this mount has no data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Annotated, Literal, Optional

import msgspec

from nodevitals.linux.sysfs import read_bytes
from nodevitals.probe import (
    Probe,
    ProbeError,
    ProbeSettings,
    Problem,
    Readings,
    TargetTiming,
    Timing,
)
from nodevitals.probes.mounts import families
from nodevitals.probes.mounts.access import MountAccess
from nodevitals.probes.mounts.mountinfo import Mount, find_mount, mount_ids, parse_mountinfo

_PAGE_BYTES = 4096
# Whole pages, as O_DIRECT requires.
BlockBytes = Annotated[
    int, msgspec.Meta(ge=_PAGE_BYTES, le=64 * 1024 * 1024, multiple_of=_PAGE_BYTES)
]


class MountTarget(TargetTiming, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mount of the configuration."""

    path: str
    """Mount point: an absolute path. Example: `/data`"""
    access: Literal["none", "read", "write"] = "read"
    """`none`: statvfs only; `read`: also read or list; `write`: also write and read back."""
    fstype: Optional[str] = None
    """Expected file system type; nothing is read from or written to another one.
    Example: `nfs4`"""
    source: Optional[str] = None
    """Expected source; nothing is read from or written to another one.
    Example: `"filer-1:/export"`"""
    file: Optional[str] = None
    """Regular file in the mount point to read with `access: read`; links are not followed. Without
    it the directory is listed. Example: `README`"""


class MountsSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mounts to check, and the amount of data to write."""

    targets: tuple[MountTarget, ...] = ()
    """The mounts to check, each in a process of its own."""
    block_bytes: BlockBytes = 64 * 1024
    """Size of the file that `access: write` writes; a multiple of 4096."""

    def problems(self) -> Iterator[Problem]:
        """Paths must be absolute, normalized and unique; `file` needs `access: read`."""
        seen = set()
        for index, target in enumerate(self.targets):
            where = f"targets[{index}]"
            parts = target.path.split("/")
            if not target.path.startswith("/") or {".", ".."} & set(parts):
                yield Problem(f"{where}.path", "not an absolute path: begin it with /, no . or ..")
            elif target.path != "/" and "" in parts[1:]:
                yield Problem(f"{where}.path", "write it without double slashes or one at the end")
            if target.path in seen:
                yield Problem(f"{where}.path", f"{target.path} is listed twice: remove one of them")
            seen.add(target.path)
            if target.file is not None and (target.access != "read" or not _is_name(target.file)):
                yield Problem(
                    f"{where}.file", "not used like this: write a plain name, and access: read"
                )


def _is_name(file: str) -> bool:
    return file not in ("", ".", "..") and not {"/", "\0"} & set(file)


class MountTargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker of one mount needs."""

    mount: MountTarget
    block_bytes: BlockBytes


class MountState(msgspec.Struct):
    """The last mount, whose labels are used while it is missing."""

    fstype: str = ""
    source: str = ""


class MountsProbe(Probe):
    """Mounts: mounted, the expected type, writable, returns what was written, space and inodes."""

    name = "mounts"
    families = families.metrics
    shared = True
    Settings = MountsSettings
    TargetSettings = MountTargetSettings
    State = MountState
    settings: MountTargetSettings
    state: MountState

    needs = ("targets",)

    @classmethod
    def targets(cls, settings: MountsSettings) -> list[tuple[str, MountTargetSettings]]:
        """One target per mount, by its path."""
        return [
            (mount.path, MountTargetSettings(mount=mount, block_bytes=settings.block_bytes))
            for mount in settings.targets
        ]

    @classmethod
    def target_timing(cls, own: MountTargetSettings, timing: Timing) -> Timing:
        """A mount may have a timing of its own."""
        return timing.changed_by(own.mount)

    def run(self, readings: Readings) -> None:
        """Check the mount, then use it as far as its `access` permits."""
        wanted = self.settings.mount
        path = self.host.root(wanted.path)
        mount, identities = self._find(readings, path)
        labels = (wanted.path, mount.fstype, mount.source)
        readings.add(families.READ_ONLY, mount.read_only, *labels)
        self._check_expectation(readings, mount, labels)
        with closing(MountAccess(readings, labels, path, identities)) as access:
            access.statvfs(wanted.access)
            if wanted.access == "write":
                access.write_and_read_back(self.settings.block_bytes, mount.fstype)
            elif wanted.access == "read":
                access.read_or_list(wanted.file)

    def _find(self, readings: Readings, path: str) -> tuple[Mount, frozenset[int]]:
        """The mount at the path, and the kernel's identifiers of all mounts there."""
        wanted, state = self.settings.mount, self.state
        mounts = self._mounts()
        mount = find_mount(mounts, path)
        if mount is not None and mount.fstype == "autofs":
            with suppress(OSError):
                os.stat(f"{path}/.")  # makes the automounter mount the file system
            mounts = self._mounts()
            mount = find_mount(mounts, path)
        if mount is None or mount.fstype == "autofs":
            fstype, source = state.fstype or wanted.fstype, state.source or wanted.source
            readings.add(families.PRESENT, 0, wanted.path, fstype or "", source or "")
            raise ProbeError("missing", f"nothing is mounted at {path}")
        state.fstype, state.source = mount.fstype, mount.source
        readings.add(families.PRESENT, 1, wanted.path, mount.fstype, mount.source)
        return mount, mount_ids(mounts, path)

    def _mounts(self) -> list[Mount]:
        try:
            data = read_bytes(self.host.proc("self/mountinfo"))
        except OSError as error:
            raise ProbeError("mountinfo", f"mountinfo: {error.strerror}") from None
        mounts = parse_mountinfo(data.decode("utf-8", "replace"))
        if not mounts:  # every process has a root mount, so this is not the table
            raise ProbeError("mountinfo", "mountinfo lists no mount")
        return mounts

    def _check_expectation(self, readings: Readings, mount: Mount, labels: tuple[str, ...]) -> None:
        wanted = self.settings.mount
        differing = [
            (what, actual, expected)
            for what, actual, expected in (
                ("fstype", mount.fstype, wanted.fstype),
                ("source", mount.source, wanted.source),
            )
            if expected is not None and actual != expected
        ]
        if wanted.fstype is not None or wanted.source is not None:
            readings.add(families.AS_EXPECTED, not differing, *labels)
        for what, actual, expected in differing:
            # Raised before any write: the file system belongs to another owner.
            raise ProbeError(
                f"unexpected_{what}", f"{wanted.path}: {what} is {actual}, expected {expected}"
            )
