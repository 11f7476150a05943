"""A FUSE file system over a directory, with faults that a control file turns on and off.

`FaultyFileSystem(folder)` mounts it and owns its server process. After `fault("hang")` every call
hangs until `fault("none")`, and no signal ends it; after `stop()` every call hangs until
`resume()`, or until a signal ends its process. The other faults are in `FAULTS`. `owners` is how
it treats users: `kept`; `squashed`, as NFS with root_squash does: the client is `ANONYMOUS`; or
`none`, as vfat and CIFS do: every file belongs to root and has mode 0755. Run as a program, this
module is the server: `python -m testbed.faultyfs BACKING CONTROL MOUNTPOINT SOURCE OWNERS`.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parents[2]
# The errno that data calls return under each fault; 0 where the fault is another one.
FAULTS: dict[str, int] = {
    "none": 0,
    "hang": 0,
    "slow": 0,
    "corrupt": 0,
    "short": 0,
    "replaced": 0,
    "eio": errno.EIO,
    "enospc": errno.ENOSPC,
    "edquot": errno.EDQUOT,
    "estale": errno.ESTALE,
    "eacces": errno.EACCES,
}
SLOW_SECONDS = 0.05
ANONYMOUS = 65534


def library_path() -> str:
    """Return the libfuse that tools/setup unpacked."""
    return str(next((ROOT / ".tools/root").rglob("libfuse3.so.3")))


class FuseServer:
    """One mount, served by a module of the test bed that runs as a program."""

    def __init__(self, mountpoint: Path, module: str, *arguments: str) -> None:
        self.mountpoint = mountpoint
        self._command = [sys.executable, "-m", module, *arguments]
        self._server: subprocess.Popen[bytes] | None = None

    def mount(self) -> None:
        """Start the server and wait until it is mounted."""
        self.mountpoint.mkdir()
        # libfuse writes warnings to stderr
        log_file = self.mountpoint.with_suffix(".log")
        with log_file.open("wb") as log:
            self._server = subprocess.Popen(
                self._command,
                env={**os.environ, "FUSE_LIBRARY_PATH": library_path()}
                | {"PYTHONPATH": str(ROOT / "tests")},
                stderr=log,
                start_new_session=True,  # ^C is for the program that mounts
            )
        deadline = time.monotonic() + 120
        while str(self.mountpoint) not in Path("/proc/self/mountinfo").read_text():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no FUSE mount at {self.mountpoint}: {log_file.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server, so that it reads no request from the kernel. What waits for that can be
        killed, as on a hard NFS mount: fuse_request_wait_answer() in fs/fuse/dev.c.
        """
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._server is not None
        self._server.send_signal(number)

    def unmount(self) -> None:
        """Unmount lazily, also while calls hang."""
        subprocess.run(["umount", "--lazy", str(self.mountpoint)], check=True)

    def __exit__(self, *_: object) -> None:
        # Killing the server aborts the connection: hung calls end with ENOTCONN.
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        with suppress(subprocess.CalledProcessError):
            self.unmount()


class FaultyFileSystem(FuseServer):
    """One mount, as a context manager; at its end the server is killed, which unmounts."""

    def __init__(
        self,
        folder: Path,
        source: str = "filer:/export",
        name: str = "mount",
        owners: Literal["kept", "squashed", "none"] = "kept",
    ) -> None:
        self.backing = folder / f"{name}.backing"
        self._control = folder / f"{name}.fault"
        paths = map(str, (self.backing, self._control, folder / name))
        super().__init__(folder / name, "testbed.faultyfs", *paths, source, owners)

    def __enter__(self) -> FaultyFileSystem:
        self.backing.mkdir()
        self.fault("none")
        self.mount()
        return self

    def fault(self, name: str) -> None:
        """Switch to one fault of FAULTS."""
        assert name in FAULTS
        draft = self._control.with_suffix(".new")
        draft.write_text(name)
        draft.replace(self._control)


def _permit(directory: str, wanted: int) -> None:
    """Raise PermissionError where the anonymous user has not `wanted` (rwx) in a directory."""
    status = os.stat(directory)
    bits = status.st_mode >> 6 if status.st_uid == ANONYMOUS else status.st_mode
    if wanted & ~bits:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)


def _serve(backing: str, control: str, mountpoint: str, source: str, owners: str) -> None:
    import mfusepy

    class Operations(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def _path(self, path: str) -> str:
            return backing + path

        def _changes(self, path: str) -> str:
            """The path of an entry that the client creates or removes."""
            if owners == "squashed":
                _permit(os.path.dirname(self._path(path)), 3)
            return self._path(path)

        def _made(self, path: str) -> None:
            if owners == "squashed":
                os.chown(self._path(path), ANONYMOUS, ANONYMOUS)

        def _fault(self, data_call: bool = True) -> str:
            with open(control, encoding="ascii") as handle:
                name = handle.read()
            while name == "hang":
                time.sleep(0.05)
                with open(control, encoding="ascii") as handle:
                    name = handle.read()
            if name == "slow":
                time.sleep(SLOW_SECONDS)
            if FAULTS[name] and (data_call or name in ("estale", "eio")):
                raise mfusepy.FuseOSError(FAULTS[name])
            return name

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            self._fault(data_call=False)
            status = os.lstat(self._path(path))
            names = ["st_atime", "st_ctime", "st_gid", "st_mode", "st_mtime"]
            names += ["st_nlink", "st_size", "st_uid", "st_ino"]
            values = {name: getattr(status, name) for name in names}
            if owners == "none":
                mode = stat.S_IFMT(status.st_mode) | 0o755
                values |= {"st_uid": 0, "st_gid": 0, "st_mode": mode}
            times = ("st_atime", "st_ctime", "st_mtime")
            return values | {name: int(values[name] * 1e9) for name in times}

        def statfs(self, path: str) -> dict[str, int]:
            self._fault(data_call=False)
            status = os.statvfs(self._path(path))
            names = ["f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree"]
            names += ["f_files", "f_flag", "f_frsize", "f_namemax"]
            return {name: getattr(status, name) for name in names}

        def opendir(self, path: str) -> int:
            if owners == "squashed":
                _permit(self._path(path), 4)
            return 0

        def readdir(self, path: str, fh: int) -> list[str]:
            self._fault(data_call=False)
            return [".", "..", *os.listdir(self._path(path))]

        def mkdir(self, path: str, mode: int) -> int:
            self._fault()
            os.mkdir(self._changes(path), mode)
            self._made(path)
            return 0

        def rmdir(self, path: str) -> int:
            os.rmdir(self._changes(path))
            return 0

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            self._fault()
            handle = os.open(self._changes(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            self._made(path)
            return handle

        def open(self, path: str, flags: int) -> int:
            if self._fault(data_call=False) == "replaced":
                # Another client was faster: the server does not know the old file any more.
                os.rename(self._path(path), f"{self._path(path)}.{time.monotonic_ns()}")
                os.close(os.open(self._path(path), os.O_CREAT))
                raise mfusepy.FuseOSError(errno.ESTALE)
            return os.open(self._path(path), flags & ~os.O_DIRECT)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            self._fault()
            return os.pwrite(fh, data, offset)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            name = self._fault(data_call=False)
            data = os.pread(fh, size, offset)
            if name == "corrupt" and data:
                return data[:-1] + bytes([data[-1] ^ 1])
            if name == "short":
                return data[: len(data) // 2] if offset == 0 else b""
            return data

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            self._fault()
            return 0

        def flush(self, path: str, fh: int) -> int:
            return 0

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

        def rename(self, old: str, new: str, flags: int = 0) -> int:
            # libfuse renames a file that is unlinked before its release to .fuse_hidden…
            os.rename(self._path(old), self._path(new))
            return 0

        def unlink(self, path: str) -> int:
            self._fault(data_call=False)
            os.unlink(self._changes(path))
            return 0

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    options = {"fsname": source, "subtype": "faulty", "direct_io": True, "foreground": True}
    # Files have the server's inode numbers, and are not cached: other clients change them as well.
    shared = {"use_ino": True, "attr_timeout": 0, "entry_timeout": 0}
    mfusepy.FUSE(Operations(), mountpoint, **options, **shared)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
