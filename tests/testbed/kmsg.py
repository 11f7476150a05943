"""A kernel log with the semantics of /dev/kmsg, as a FUSE file: one record per read, EAGAIN at the
end, EPIPE once after records were overwritten before they were read.

`KernelLog(folder)` mounts it; `write` appends what the kernel would. Run as a program, this
module is the server: `python -m testbed.kmsg RECORDS MOUNTPOINT`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

from testbed.faultyfs import FuseServer

KERNEL_WARNING = 4
USER_NOTICE = 13
CAP_SYSLOG = 34


class KernelLog(FuseServer):
    """One log; `path` is the value for `probes.kernel_log.path`."""

    def __init__(
        self, folder: Path, name: str = "kmsg", capacity: int = 1_000_000, restricted: bool = False
    ) -> None:
        """`restricted`: only processes with CAP_SYSLOG open it, as with kernel.dmesg_restrict."""
        self._records = folder / f"{name}.records"
        self.path = folder / name / "kmsg"
        self._capacity = capacity
        paths = (str(self._records), str(folder / name))
        super().__init__(folder / name, "testbed.kmsg", *paths, *["restricted"] * restricted)

    def __enter__(self) -> KernelLog:
        self._records.write_text(f"{self._capacity}\n")
        self.mount()
        return self

    def write(self, *texts: str, priority: int = KERNEL_WARNING) -> None:
        """Append records."""
        microseconds = time.monotonic_ns() // 1000
        with self._records.open("a") as records:
            fcntl.flock(records, fcntl.LOCK_EX)  # until it is closed: no reader sees a part of them
            records.write("".join(f"{priority},{{}},{microseconds},-;{text}\n" for text in texts))


def _has_syslog(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> CAP_SYSLOG & 1)


def _serve(records: str, mountpoint: str, restricted: str = "") -> None:
    import mfusepy

    class Operations(mfusepy.Operations):  # type: ignore[misc]
        def __init__(self) -> None:
            self._file = open(records, encoding="utf-8")  # noqa: SIM115 - open until the process is killed
            self._capacity = int(self._file.readline())
            self._size = 0
            self._ring: list[str] = []
            self._next: dict[int, int] = {}

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            return {"st_mode": stat.S_IFREG | 0o644, "st_nlink": 1, "st_size": 0}

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", "kmsg"]

        def open(self, path: str, flags: int) -> int:
            if restricted and not _has_syslog(mfusepy.fuse_get_context()[2]):
                raise mfusepy.FuseOSError(errno.EPERM)
            self._read_records()
            handle = len(self._next) + 1
            self._next[handle] = max(0, len(self._ring) - self._capacity)
            return handle

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            self._read_records()
            oldest = len(self._ring) - self._capacity
            position = self._next[fh]
            if position < oldest:
                self._next[fh] = oldest
                raise mfusepy.FuseOSError(errno.EPIPE)
            if position == len(self._ring):
                raise mfusepy.FuseOSError(errno.EAGAIN)
            self._next[fh] += 1
            priority, _, rest = self._ring[position].partition(",{},")
            return f"{priority},{position},{rest}".encode()

        def _read_records(self) -> None:
            if os.fstat(self._file.fileno()).st_size == self._size:
                return
            fcntl.flock(self._file, fcntl.LOCK_SH)
            try:
                self._size = os.fstat(self._file.fileno()).st_size
                self._ring += self._file.readlines()
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

        def flush(self, path: str, fh: int) -> int:
            return 0

        def release(self, path: str, fh: int) -> int:
            return 0

    mfusepy.FUSE(Operations(), mountpoint, foreground=True, fsname="kmsg", direct_io=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
