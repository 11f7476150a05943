"""Runs the vendor's tools one at a time on the whole node, within one time budget per run.

npu-smi and hccn_tool take locks of the driver: two at once make both slow, and some versions fail.
A lock file (flock) separates agents and scripts that use it; a tool that runs without the lock is
found among the processes. Neither can block the probe for ever, unless it is a tool that hangs in
the driver: a second one beside it would hang as well. Without the tool there is no lock file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from nodevitals.linux.beneath import InterferenceError, open_file
from nodevitals.linux.host import Host
from nodevitals.linux.process import processes, seconds_since_start
from nodevitals.linux.sysfs import read_text
from nodevitals.linux.tool import run
from nodevitals.probe import ProbeError

TOOLS = ("npu-smi", "hccn_tool")
POLL_SECONDS = 0.05
# No call takes this long. A process that holds the lock longer hangs elsewhere; a tool that runs
# longer is a watch (npu-smi info watch) or is stopped.
HOLD_SECONDS = 120.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a lock, and the longest time for which it may hold it."""

    pid: int
    seconds: float


class LockFile:
    """A lock file (flock) that no unprivileged user can lock, replace, or turn into a link. Every
    process that can open a file can lock it, so only the owner may open this one.
    """

    def __init__(self, path: str) -> None:
        """Open the file; create it and its directory if they are missing. Raises ProbeError
        `lock`.
        """
        self._path = path
        try:
            self.descriptor = self._open()
        except InterferenceError as problem:
            raise _failure(path, str(problem)) from None
        except OSError as error:
            raise _failure(path, str(error.strerror)) from None

    def _open(self) -> int:
        folder, name = os.path.split(self._path)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check_directory(os.fstat(directory), folder)
            descriptor = _open_or_make(directory, name)
        finally:
            os.close(directory)
        try:
            _check_file(descriptor, name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def try_lock(self) -> bool:
        """Take the lock if it is free and the path still leads to the same file."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if self._is_at_path():
            os.utime(self.descriptor)  # the time since which a surviving process holds it
            return True
        return False

    def holder(self, host: Host) -> Holder | None:
        """The process that holds the lock; None if none of this PID namespace does."""
        status = os.fstat(self.descriptor)
        text = read_text(host.proc("locks")) or ""
        pid = parse_holder(text, status.st_dev, status.st_ino)
        if pid is None:
            return None
        # An old process may have just taken the lock, and a script does not change the time of the
        # file: so the later of the two times counts. A time in the future is ignored.
        ages = [seconds_since_start(host.procfs, pid), time.time() - status.st_mtime]
        return Holder(pid, min((age for age in ages if age is not None and age >= 0), default=0.0))

    def remove(self) -> None:
        """Remove the file, so that its holder keeps a file without a name."""
        try:
            if self._is_at_path():
                os.unlink(self._path)
        except OSError as error:
            raise _failure(self._path, str(error.strerror)) from None

    def close(self) -> None:
        """Close the descriptor; a program that inherited it holds the lock until its end."""
        os.close(self.descriptor)

    def _is_at_path(self) -> bool:
        try:
            status = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(status, os.fstat(self.descriptor))


def parse_holder(text: str, device: int, inode: int) -> int | None:
    """The process that holds the flock on a file, by the text of /proc/locks (proc_locks(5)); None
    if none is listed.
    """
    place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for line in text.splitlines():
        fields = line.split()
        # A process that waits has `->` as its second field.
        if len(fields) > 5 and (fields[1], fields[5]) == ("FLOCK", place) and fields[4].isdecimal():
            return int(fields[4])
    return None


def _open_or_make(directory: int, name: str) -> int:
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=directory)
    except FileExistsError:
        return open_file(directory, name, os.O_RDWR)


def _check_directory(status: os.stat_result, path: str) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise InterferenceError(f"{path} belongs to uid {status.st_uid}")
    writable = stat.S_IWOTH | (stat.S_IWGRP if status.st_gid != 0 else 0)
    if status.st_mode & writable and not status.st_mode & stat.S_ISVTX:
        raise InterferenceError(f"{path} is writable by other users")


def _check_file(descriptor: int, name: str) -> None:
    """Deny other users access to a lock file that a script made; refuse the file of a user."""
    status = os.fstat(descriptor)
    if status.st_uid not in (0, os.geteuid()) or status.st_nlink > 1:
        text = f"{name} belongs to uid {status.st_uid} and has {status.st_nlink} links"
        raise InterferenceError(f"{text}: remove it")
    if status.st_mode & _OTHERS:
        os.fchmod(descriptor, 0o600)


def _failure(path: str, problem: str) -> ProbeError:
    return ProbeError("lock", f"{path}: {problem}; use a directory that only root can write to")


class ToolRunner:
    """Runs tools until the budget is spent."""

    def __init__(self, host: Host, lock_path: str, budget_seconds: float) -> None:
        self._host = host
        self._lock_path = lock_path
        self._deadline = time.monotonic() + budget_seconds
        self.used_seconds = 0.0
        """Time during which a tool of this runner has run."""
        self.slowest_seconds = 0.0
        """Duration of the slowest tool."""

    @property
    def left_seconds(self) -> float:
        """Seconds that are left of the budget."""
        return self._deadline - time.monotonic()

    def run(self, argv: Sequence[str]) -> str:
        """Wait for the lock, then run the program and return what it printed.

        Raises ProbeError: `busy`, `lock`, `crashed`, or as `tool.run`.
        """
        if shutil.which(argv[0], os.F_OK) is None:
            raise ProbeError("missing", f"{argv[0]}: No such file or directory")
        lock = self._acquire_lock()
        started = time.monotonic()
        try:
            output = run(argv, max(0.0, self.left_seconds), keep=(lock.descriptor,))
            if output.status < 0:  # the output may be incomplete
                text = f"{' '.join(argv)} was ended by signal {-output.status}"
                raise ProbeError("crashed", text)
            return output.text
        finally:
            lock.close()
            duration = time.monotonic() - started
            self.used_seconds += duration
            self.slowest_seconds = max(self.slowest_seconds, duration)

    def _acquire_lock(self) -> LockFile:
        while True:
            lock = LockFile(self._lock_path)
            running = tool_is_running(self._host)
            if not running and lock.try_lock():
                return lock
            try:
                problem = f"another process runs {' or '.join(TOOLS)}"
                if not running:
                    problem = self._held(lock)
            finally:
                lock.close()
            if problem and self.left_seconds <= 0:
                raise ProbeError("busy", problem)
            time.sleep(POLL_SECONDS)

    def _held(self, lock: LockFile) -> str:
        """The process that holds the lock; '' if the file was removed because that process
        hangs.
        """
        holder = lock.holder(self._host)
        if holder is None:
            return f"{self._lock_path} is held, by a process of another pid namespace"
        if holder.seconds > HOLD_SECONDS:
            lock.remove()
            return ""
        return f"process {holder.pid} holds {self._lock_path}"


def tool_is_running(host: Host) -> bool:
    """Whether a tool runs that no second tool may run beside: it started within HOLD_SECONDS, or it
    hangs in the kernel.
    """
    try:
        running = list(processes(host.procfs))
    except OSError:
        return False  # the lock is what remains
    for process in running:
        command = read_text(host.proc(f"{process.pid}/comm"))
        if command not in TOOLS or process.state == "Z":
            continue
        age = seconds_since_start(host.procfs, process.pid)
        if process.state == "D" or age is None or age < HOLD_SECONDS:
            return True
    return False
