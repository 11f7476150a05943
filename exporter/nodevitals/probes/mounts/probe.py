"""Probe `mounts`: is it mounted, is it what it should be, does it take and give back data.

In: mountinfo, statvfs, and for `access: write` a file of our own in a directory of our own. Out:
`nodevitals_mount_*`. One worker a mount: any call after mountinfo may hang for ever, and then the
agent ends the worker, or counts for how long it has been stuck.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Annotated, ClassVar, Literal

import msgspec

from nodevitals.config import ProbeSettings
from nodevitals.document import Problem
from nodevitals.linux.host import node_name
from nodevitals.probe import Family, Probe, ProbeError, Readings

_LABELS = ("mountpoint", "fstype", "source")
STEPS = ("statvfs", "create", "write", "fsync", "open", "read", "list", "delete")
METHODS = ("direct", "dropped", "cached")

PRESENT = Family(
    name="nodevitals_mount_present",
    kind="gauge",
    help="Whether something is mounted at a configured mount point.",
    labels=_LABELS,
)
AS_EXPECTED = Family(
    name="nodevitals_mount_as_expected",
    kind="gauge",
    help="Whether the file system type and source are the configured ones.",
    labels=_LABELS,
)
READ_ONLY = Family(
    name="nodevitals_mount_read_only",
    kind="gauge",
    help="Whether the mount or its file system is read-only.",
    labels=_LABELS,
)
WRITABLE = Family(
    name="nodevitals_mount_writable",
    kind="gauge",
    help="Whether the last write, fsync and delete of our own file succeeded.",
    labels=_LABELS,
)
READABLE = Family(
    name="nodevitals_mount_readable",
    kind="gauge",
    help="Whether the last read or listing succeeded.",
    labels=_LABELS,
)
CONTENT_INTACT = Family(
    name="nodevitals_mount_content_intact",
    kind="gauge",
    help="Whether what was read back is what was written.",
    labels=_LABELS,
)
MISMATCHES = Family(
    name="nodevitals_mount_content_mismatches_total",
    kind="counter",
    help="Runs that read back other bytes than they had written.",
    labels=_LABELS,
)
WRITE_SECONDS = Family(
    name="nodevitals_mount_write_seconds",
    kind="gauge",
    help="Time to create, write and fsync our own file.",
    labels=_LABELS,
)
READ_SECONDS = Family(
    name="nodevitals_mount_read_seconds",
    kind="gauge",
    help="Time to open and read, or to list.",
    labels=_LABELS,
)
STEP_SECONDS = Family(
    name="nodevitals_mount_step_seconds",
    kind="gauge",
    help="Time of each step of the last run that came as far.",
    labels=(*_LABELS, "step"),
    closed={"step": STEPS},
)
READ_METHOD = Family(
    name="nodevitals_mount_read_method_info",
    kind="gauge",
    help="Always 1; how the page cache was kept out of reading back: O_DIRECT, dropped, or not.",
    labels=(*_LABELS, "method"),
    closed={"method": METHODS},
)
SIZE = Family(
    name="nodevitals_mount_size_bytes",
    kind="gauge",
    help="Size of the file system.",
    labels=_LABELS,
)
FREE = Family(
    name="nodevitals_mount_free_bytes",
    kind="gauge",
    help="Space that users without privileges can still fill.",
    labels=_LABELS,
)
INODES = Family(
    name="nodevitals_mount_inodes",
    kind="gauge",
    help="Inodes of the file system; missing where it has no such limit.",
    labels=_LABELS,
)
INODES_FREE = Family(
    name="nodevitals_mount_inodes_free",
    kind="gauge",
    help="Inodes not in use.",
    labels=_LABELS,
)

FOLDER = ".nodevitals"
PAGE_BYTES = 4096
# What is younger may belong to a second agent under this node's name; measured by the file
# server's clock on both sides.
LEFTOVER_SECONDS = 120.0
MAX_SWEPT_ENTRIES = 1000
MAX_LISTED_ENTRIES = 100
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "hugetlbfs")
_REASONS = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "quota",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.ESTALE: "stale_handle",
    errno.EROFS: "read_only",
    errno.EIO: "io_error",
    errno.ENOENT: "not_found",
    errno.ENOTCONN: "server_gone",
    errno.ETIMEDOUT: "server_timeout",
    errno.EHOSTDOWN: "server_timeout",
    errno.EMFILE: "descriptors",
}


class MountTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mount. `file` is what `access: read` reads; without it the directory is listed."""

    path: str
    access: Literal["none", "read", "write"] = "read"
    fstype: str | None = None
    source: str | None = None
    file: str | None = None


class MountsSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mounts to look at and how much a write probe writes."""

    targets: tuple[MountTarget, ...] = ()
    block_bytes: Annotated[
        int, msgspec.Meta(ge=PAGE_BYTES, le=64 * 1024 * 1024, multiple_of=PAGE_BYTES)
    ] = 64 * 1024

    def problems(self) -> Iterator[Problem]:
        """Paths must be absolute, plain, and there once."""
        seen = set()
        for index, target in enumerate(self.targets):
            where = f"targets[{index}]"
            parts = target.path.split("/")
            if not target.path.startswith("/") or {".", ".."} & set(parts):
                yield Problem(f"{where}.path", "not an absolute path without . and ..")
            elif target.path != "/" and "" in parts[1:]:
                yield Problem(f"{where}.path", "write it without doubled or closing slashes")
            if target.path in seen:
                yield Problem(f"{where}.path", f"{target.path} is there twice")
            seen.add(target.path)
            if target.file is not None and (target.access != "read" or "/" in target.file):
                yield Problem(f"{where}.file", "a plain file name, and only with access: read")


class Mount(msgspec.Struct, frozen=True):
    """One line of mountinfo: what is mounted where."""

    mountpoint: str
    fstype: str
    source: str
    read_only: bool


class Seen(msgspec.Struct, array_like=True, frozen=True):
    """What was last mounted, so that a missing mount keeps its name."""

    fstype: str = ""
    source: str = ""


def parse_mountinfo(text: str) -> list[Mount]:
    """/proc/PID/mountinfo (proc_pid_mountinfo(5)); lines of another shape are left out."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        tail = fields[fields.index("-", 6) + 1 :]
        if len(tail) < 3:
            continue
        options = {*fields[5].split(","), *tail[2].split(",")}
        mounts.append(Mount(_unescape(fields[4]), tail[0], _unescape(tail[1]), "ro" in options))
    return mounts


def _unescape(text: str) -> str:
    r"""Undo the kernel's octal escapes of space, tab, newline and backslash (\040)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def find_mount(mounts: list[Mount], path: str) -> Mount | None:
    """What is on top at a mount point: the last line there wins."""
    return next((mount for mount in reversed(mounts) if mount.mountpoint == path), None)


class MountsProbe(Probe):
    """One mount."""

    name: ClassVar[str] = "mounts"
    families: ClassVar[tuple[Family, ...]] = (
        PRESENT,
        AS_EXPECTED,
        READ_ONLY,
        WRITABLE,
        READABLE,
        CONTENT_INTACT,
        MISMATCHES,
        WRITE_SECONDS,
        READ_SECONDS,
        STEP_SECONDS,
        READ_METHOD,
        SIZE,
        FREE,
        INODES,
        INODES_FREE,
    )
    Settings: ClassVar[type[ProbeSettings]] = MountsSettings

    @classmethod
    def targets(cls, settings: MountsSettings) -> tuple[str, ...]:
        """One a mount, by its path."""
        return tuple(target.path for target in settings.targets)

    def run(self, readings: Readings) -> None:
        """Look at the mount, then use it as far as its access allows."""
        wanted = next(item for item in self.settings.targets if item.path == self.target)
        path = self.host.root(wanted.path)
        mount = self._find(readings, wanted, path)
        labels = (wanted.path, mount.fstype, mount.source)
        readings.add(READ_ONLY, mount.read_only, *labels)
        self._check_expectation(readings, wanted, mount, labels)
        use = _Use(readings, labels, path)
        use.sizes(wanted.access)
        if wanted.access == "write":
            use.write_and_read_back(self.settings.block_bytes, mount)
        elif wanted.access == "read":
            use.read_only_look(wanted.file)

    def _find(self, readings: Readings, wanted: MountTarget, path: str) -> Mount:
        seen = Seen(wanted.fstype or "", wanted.source or "")
        if readings.previous:
            seen = msgspec.msgpack.decode(readings.previous, type=Seen)
        mount = find_mount(self._mounts(), path)
        if mount is not None and mount.fstype == "autofs":
            with suppress(OSError):
                os.stat(f"{path}/.")  # asks the automounter for the real one
            mount = find_mount(self._mounts(), path)
        if mount is None or mount.fstype == "autofs":
            readings.carry = msgspec.msgpack.encode(seen)
            readings.add(PRESENT, 0, wanted.path, seen.fstype, seen.source)
            raise ProbeError("missing", f"nothing is mounted at {path}")
        readings.carry = msgspec.msgpack.encode(Seen(mount.fstype, mount.source))
        readings.add(PRESENT, 1, wanted.path, mount.fstype, mount.source)
        return mount

    def _mounts(self) -> list[Mount]:
        try:
            data = self.host.proc("self/mountinfo").read_bytes()
        except OSError as error:
            raise ProbeError("mountinfo", f"mountinfo: {error.strerror}") from None
        return parse_mountinfo(data.decode("utf-8", "replace"))

    def _check_expectation(
        self, readings: Readings, wanted: MountTarget, mount: Mount, labels: tuple[str, ...]
    ) -> None:
        differing = [
            (what, found, expected)
            for what, found, expected in (
                ("fstype", mount.fstype, wanted.fstype),
                ("source", mount.source, wanted.source),
            )
            if expected is not None and found != expected
        ]
        if wanted.fstype is not None or wanted.source is not None:
            readings.add(AS_EXPECTED, not differing, *labels)
        for what, found, expected in differing:
            # Not written to: it is somebody else's file system.
            raise ProbeError(
                f"unexpected_{what}", f"{wanted.path}: {what} is {found}, expected {expected}"
            )


class _Use:
    """The steps on one mount, each timed, each failure told by its reason."""

    def __init__(self, readings: Readings, labels: tuple[str, ...], path: str) -> None:
        self._readings = readings
        self._labels = labels
        self._path = path

    @contextmanager
    def _step(self, name: str, *failing: Family) -> Iterator[None]:
        """Time a step. Where it fails, `failing` are 0 and the errno becomes a reason."""
        started = time.monotonic()
        try:
            yield
        except OSError as error:
            for family in failing:
                self._readings.add(family, 0, *self._labels)
            number = error.errno or 0
            reason = _REASONS.get(number, errno.errorcode.get(number, "unknown").lower())
            text = f"{self._path}: {name}: {error.strerror or error}"
            raise ProbeError(reason, text) from None
        self._readings.add(STEP_SECONDS, time.monotonic() - started, *self._labels, name)

    def sizes(self, access: str) -> None:
        """Space and inodes; where even they are not to be had, nothing can be read or written."""
        failing = {"none": (), "read": (READABLE,), "write": (READABLE, WRITABLE)}[access]
        with self._step("statvfs", *failing):
            status = os.statvfs(self._path)
        unit = status.f_frsize
        self._readings.add(SIZE, status.f_blocks * unit, *self._labels)
        self._readings.add(FREE, status.f_bavail * unit, *self._labels)
        if status.f_files:  # 0: made as needed, without a limit
            self._readings.add(INODES, status.f_files, *self._labels)
            self._readings.add(INODES_FREE, status.f_ffree, *self._labels)

    def read_only_look(self, file: str | None) -> None:
        """Read the head of a file, or list the directory."""
        started = time.monotonic()
        if file is None:
            with self._step("list", READABLE), os.scandir(self._path) as entries:
                for _, _ in zip(entries, range(MAX_LISTED_ENTRIES), strict=False):
                    pass
        else:
            with self._step("open", READABLE):
                handle = os.open(os.path.join(self._path, file), os.O_RDONLY | os.O_NONBLOCK)
            stream = os.fdopen(handle, "rb", buffering=0)
            with closing(stream), self._step("read", READABLE):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                stream.read(PAGE_BYTES)
        self._readings.add(READ_SECONDS, time.monotonic() - started, *self._labels)
        self._readings.add(READABLE, 1, *self._labels)

    def write_and_read_back(self, size: int, mount: Mount) -> None:
        """Write random bytes into a file of our own and see whether they come back."""
        self._readings.increment(MISMATCHES, 0, *self._labels)
        started = time.monotonic()
        name = f"{_own_prefix()}{secrets.token_hex(8)}.probe"
        with self._step("create", WRITABLE):
            folder = self._folder()
            handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, dir_fd=folder)
        try:
            self._sweep(folder, name, os.fstat(handle).st_mtime)
            written = self._write(handle, size)
            self._readings.add(WRITE_SECONDS, time.monotonic() - started, *self._labels)
            returned = self._read_back(handle, folder, name, size, mount)
        except BaseException:
            with suppress(OSError):  # the first failure is the one to tell
                os.unlink(name, dir_fd=folder)
            raise
        finally:
            with suppress(OSError):  # a failed close repeats what fsync has told
                os.close(handle)
        with self._step("delete", WRITABLE):
            os.unlink(name, dir_fd=folder)
        self._readings.add(WRITABLE, 1, *self._labels)
        self._judge(written, returned)

    def _folder(self) -> int:
        """Our directory, opened so that no link somebody put there leads us elsewhere."""
        with suppress(FileExistsError):
            os.mkdir(os.path.join(self._path, FOLDER), 0o700)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        return os.open(os.path.join(self._path, FOLDER), flags)

    def _write(self, handle: int, size: int) -> bytes:
        with mmap.mmap(-1, size) as block:  # page-aligned, as O_DIRECT file systems like it
            block.write(secrets.token_bytes(size))
            with self._step("write", WRITABLE):
                done = 0
                while done < size:
                    done += os.write(handle, memoryview(block)[done:])
            with self._step("fsync", WRITABLE):
                os.fsync(handle)
            return block[:]

    def _read_back(self, handle: int, folder: int, name: str, size: int, mount: Mount) -> bytes:
        started = time.monotonic()
        with self._step("open", READABLE):
            reader, method = self._open_past_the_cache(handle, folder, name, mount)
        try:
            with self._step("read", READABLE), mmap.mmap(-1, size) as block:
                done = 0
                while done < size:
                    count = os.readv(reader, [memoryview(block)[done:]])
                    if count == 0:
                        break
                    done += count
                returned = block[:done]
        finally:
            os.close(reader)
        self._readings.add(READ_SECONDS, time.monotonic() - started, *self._labels)
        self._readings.add(READ_METHOD, 1, *self._labels, method)
        return returned

    def _open_past_the_cache(
        self, handle: int, folder: int, name: str, mount: Mount
    ) -> tuple[int, str]:
        flags = os.O_RDONLY | os.O_NOFOLLOW
        if mount.fstype in _MEMORY_FILE_SYSTEMS:
            return os.open(name, flags, dir_fd=folder), "cached"
        try:
            return os.open(name, flags | os.O_DIRECT, dir_fd=folder), "direct"
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)  # drops pages only after fsync
        return os.open(name, flags, dir_fd=folder), "dropped"

    def _judge(self, written: bytes, returned: bytes) -> None:
        if len(returned) < len(written):
            self._readings.add(READABLE, 0, *self._labels)
            text = f"{self._path}: read back {len(returned)} of {len(written)} bytes"
            raise ProbeError("short_read", text)
        self._readings.add(READABLE, 1, *self._labels)
        self._readings.add(CONTENT_INTACT, returned == written, *self._labels)
        if returned != written:
            self._readings.increment(MISMATCHES, 1, *self._labels)
            first = next(
                index
                for index, pair in enumerate(zip(written, returned, strict=True))
                if pair[0] != pair[1]
            )
            text = f"{self._path}: read back other bytes than written, from byte {first} on"
            raise ProbeError("mismatch", text)

    def _sweep(self, folder: int, own: str, now: float) -> None:
        """Remove what crashed runs of this node left, by the file server's own clock."""
        with suppress(OSError), os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(MAX_SWEPT_ENTRIES), strict=False):
                if entry.name == own or not _is_leftover(entry.name):
                    continue
                with suppress(OSError):
                    status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                    old = now - status.st_mtime > LEFTOVER_SECONDS
                    if old and stat.S_ISREG(status.st_mode):
                        os.unlink(entry.name, dir_fd=folder)


def _own_prefix() -> str:
    """What our files on a shared mount begin with, and no other node's."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", node_name()) + "."


def _is_leftover(name: str) -> bool:
    """A probe file of this node, or what NFS and FUSE make of one unlinked while open."""
    ours = re.fullmatch(re.escape(_own_prefix()) + r"[0-9a-f]{16}\.probe", name)
    return bool(ours) or name.startswith((".nfs", ".fuse_hidden"))
