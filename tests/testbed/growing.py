"""A counter that grows with the clock, as a FUSE file: two reads differ by what the time between
them makes of it, however busy the machine is.

`GrowingCounter(folder, per_second)` mounts it. Run as a program, this module is the server:
`python -m testbed.growing PER_SECOND MOUNTPOINT`.
"""

from __future__ import annotations

import stat
import sys
import time
from pathlib import Path
from typing import Any

from testbed.faultyfs import FuseServer


class GrowingCounter(FuseServer):
    """One counter; `path` is its file."""

    def __init__(self, folder: Path, per_second: float) -> None:
        mountpoint = folder / "counter"
        self.path = mountpoint / "count"
        super().__init__(mountpoint, "testbed.growing", str(per_second), str(mountpoint))

    def __enter__(self) -> GrowingCounter:
        self.mount()
        return self


def _serve(per_second: str, mountpoint: str) -> None:
    import mfusepy

    class Operations(mfusepy.Operations):  # type: ignore[misc]
        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            return {"st_mode": stat.S_IFREG | 0o444, "st_nlink": 1, "st_size": 0}

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", "count"]

        def open(self, path: str, flags: int) -> int:
            return 1

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            count = int(time.monotonic() * float(per_second))
            return b"" if offset else f"{count}\n".encode()

        def flush(self, path: str, fh: int) -> int:
            return 0

        def release(self, path: str, fh: int) -> int:
            return 0

    mfusepy.FUSE(Operations(), mountpoint, foreground=True, fsname="counter", direct_io=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
