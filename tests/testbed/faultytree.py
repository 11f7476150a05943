"""A directory through FUSE, in which chosen files fail as files of sysfs do.

`FaultyTree(folder)` mounts `folder/tree.backing` at `folder/tree`. After `fail(path, "EINVAL")`
reads of that file fail with EINVAL, after "hang" they hang, after None they succeed. Run as a
program, this module is the server: `python -m testbed.faultytree BACKING CONTROL MOUNTPOINT`.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from testbed.faultyfs import FuseServer

# Errors of open(2); all others are errors of read(2).
AT_OPEN = ("EACCES", "EPERM", "ENOENT")


class FaultyTree(FuseServer):
    """One tree, as a context manager; changes in `backing` are visible immediately."""

    def __init__(self, folder: Path, name: str = "tree") -> None:
        self.backing = folder / f"{name}.backing"
        self._control = folder / f"{name}.faults"
        self._faults: dict[str, str] = {}
        paths = map(str, (self.backing, self._control, folder / name))
        super().__init__(folder / name, "testbed.faultytree", *paths)

    def __enter__(self) -> FaultyTree:
        self.backing.mkdir(exist_ok=True)
        self._write()
        self.mount()
        return self

    def fail(self, path: str, error: str | None) -> None:
        """Let a file fail, or succeed with None. `path` is below the root, without links."""
        assert os.path.lexists(self.backing / path), path
        self._faults.pop(f"/{path}", None)
        if error is not None:
            self._faults[f"/{path}"] = error
        self._write()

    def _write(self) -> None:
        draft = self._control.with_suffix(".new")
        draft.write_text(json.dumps(self._faults))
        draft.replace(self._control)


def _serve(backing: str, control: str, mountpoint: str) -> None:
    import mfusepy

    class Operations(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def __init__(self) -> None:
            self._read_from = (0, 0)
            self._faults: dict[str, str] = {}

        def _current(self) -> dict[str, str]:
            status = os.stat(control)
            version = (status.st_ino, status.st_mtime_ns)
            if version != self._read_from:
                self._faults = json.loads(Path(control).read_text())
                self._read_from = version
            return self._faults

        def _fault(self, path: str, at_open: bool) -> None:
            while (fault := self._current().get(path)) == "hang":
                time.sleep(0.05)
            if fault is not None and (fault in AT_OPEN) == at_open:
                raise mfusepy.FuseOSError(getattr(errno, fault))

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            status = os.lstat(backing + path)
            names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_ino")
            return {name: getattr(status, name) for name in names}

        def readdir(self, path: str, fh: int) -> list[str]:
            self._fault(path, at_open=True)
            return [".", "..", *os.listdir(backing + path)]

        def readlink(self, path: str) -> str:
            return os.readlink(backing + path)

        def open(self, path: str, flags: int) -> int:
            self._fault(path, at_open=True)
            return os.open(backing + path, os.O_RDONLY)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            self._fault(path, at_open=False)
            return os.pread(fh, size, offset)

        def flush(self, path: str, fh: int) -> int:
            return 0

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

    mfusepy.FUSE(
        Operations(),
        mountpoint,
        foreground=True,
        fsname="sysfs",
        direct_io=True,
        attr_timeout=3600,
        entry_timeout=3600,
        negative_timeout=0,
    )


if __name__ == "__main__":
    _serve(*sys.argv[1:])
