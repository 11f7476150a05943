"""Runs one executable to its end, within a deadline, and reads a bounded part of its output.

Only for workers: processes that the executable starts are in the session of the worker. The fork
server ends them with the worker, also if they have left that session.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import selectors
import signal
import subprocess
import time
from typing import Any, Optional

import msgspec

from nodevitals.linux.process import processes
from nodevitals.linux.sysfs import read_text
from nodevitals.linux.tool import prepare
from nodevitals.probe import ProbeError

MAX_READ_BYTES = 64 * 1024
LOOK_SECONDS = 0.02
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
    "HOME": "/",
}
_START_FIELD = 19  # of /proc/PID/stat, counted after the command


class Ended(msgspec.Struct, frozen=True):
    """How an executable ended: its exit status, the negative number of a signal, or None at the
    deadline; and the first part of its output.
    """

    status: Optional[int]
    output: str
    error: str
    discarded_bytes: int
    left: tuple[tuple[int, str], ...] = ()
    """Processes that could not be killed: id, and start time as the kernel writes it."""


def run(argv: list[str], seconds: float, grace: float, user: Optional[str] = None) -> Ended:
    """Run a program; send TERM after `seconds`, and KILL `grace` later. Raises ProbeError if it
    cannot be started: `missing`, `user`, `start`.
    """
    process = _start(argv, user)
    assert process.stdout is not None
    assert process.stderr is not None
    streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    discarded = 0
    deadline = time.monotonic() + seconds
    signals = [signal.SIGTERM, signal.SIGKILL]
    family: dict[int, str] = {}
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        for descriptor in streams:
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ)
        # Do not wait for the end of the output: a daemon that the program started keeps it open.
        while True:
            ended = process.poll() is not None
            discarded += _read(selector, streams, 0.0 if ended else LOOK_SECONDS)
            if ended:
                break
            if time.monotonic() >= deadline and signals:
                family |= _family(os.getpid())
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    process.send_signal(signals.pop(0))
                deadline = time.monotonic() + grace
            elif time.monotonic() >= deadline:
                break  # the process hangs in the kernel
    late = len(signals) < 2
    output, error = (bytes(data).decode("utf-8", "replace") for data in streams.values())
    left = _end(family | _family(os.getpid()), grace) if late else ()
    return Ended(None if late else process.returncode, output, error, discarded, left)


def _start(argv: list[str], user: Optional[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=ENVIRONMENT,
            # After the change of user, which clears the settings of prctl.
            preexec_fn=prepare,
            **_identity(user),
        )
    except FileNotFoundError as error:
        raise ProbeError("missing", f"{argv[0]}, or its interpreter: {error.strerror}") from None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        raise ProbeError("start", f"{argv[0]} cannot be started: {text}") from None


def _identity(user: Optional[str]) -> dict[str, Any]:
    if user is None:
        return {}
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise ProbeError("user", f"no user {user} on this node: create it") from None
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _read(
    selector: selectors.BaseSelector, streams: dict[int, bytearray], wait_seconds: float
) -> int:
    """Read the available output, once per stream. Returns the number of discarded bytes."""
    discarded = 0
    if not selector.get_map():
        time.sleep(wait_seconds)
        return 0
    for key, _ in selector.select(wait_seconds):
        kept = streams[key.fd]
        with contextlib.suppress(BlockingIOError):
            data = os.read(key.fd, MAX_READ_BYTES)
            room = MAX_READ_BYTES - len(kept)
            kept += data[:room]
            discarded += len(data[room:])
            if not data:
                selector.unregister(key.fd)
    return discarded


def _family(own: int) -> dict[int, str]:
    """The descendants of this worker and the other processes of its session, with their start
    times. A script may start sessions of its own, as nhc does.
    """
    try:
        running = list(processes())
    except OSError:
        return {}
    session, kin = os.getsid(0), {own}
    size = 0
    while size != len(kin):  # until no further descendant is found
        size = len(kin)
        kin |= {
            process.pid
            for process in running
            if process.parent in kin or process.session == session
        }
    pairs = (
        (process.pid, started_at(process.pid)) for process in running if process.pid in kin - {own}
    )
    return {pid: start for pid, start in pairs if start}


def _end(family: dict[int, str], seconds: float) -> tuple[tuple[int, str], ...]:
    """Kill these processes. Returns those that still exist after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        left = tuple((pid, start) for pid, start in family.items() if started_at(pid) == start)
        if not left or time.monotonic() >= deadline:
            return left
        for pid, _ in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def started_at(pid: int) -> str:
    """When a process started, in the kernel's ticks since boot; '' if it has ended."""
    fields = (read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return fields[_START_FIELD] if len(fields) > _START_FIELD and fields[0] != "Z" else ""
