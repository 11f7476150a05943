"""A tool that runs: its output, its end, and the end of everything that it started.

`timeout` watches over it in a session of its own and gets SIGTERM from the kernel when this process
dies, also by SIGKILL: it then ends the tool's whole process group. Its output goes through pipes
that are read here: a limit on the size of files would also hold for the shared memory of NCCL.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from nodevitals.linux.process import die_with_parent

MAX_OUTPUT_BYTES = 1024 * 1024
# From SIGTERM to SIGKILL: dcgmi passes it on to the host engine. A job must not wait for a second.
GRACE_SECONDS = 0.4
REAP_SECONDS = 0.5
KILL_AFTER = "2"
"""Where `timeout` ends the tool, this process is dead or hangs."""
# Exit statuses of `timeout` for what it could not execute.
NOT_STARTED = (125, 126, 127)


class ChildError(Exception):
    """The tool could not be started."""


class Child:
    """One run of a tool, ended by `timeout` at the latest after `seconds`."""

    def __init__(self, argv: Sequence[str], seconds: float, more: Mapping[str, str]) -> None:
        self._chunks: tuple[list[bytes], list[bytes]] = ([], [])
        self._size = 0
        self._status: int | None = None
        try:
            self._process = subprocess.Popen(
                ["timeout", f"--kill-after={KILL_AFTER}", f"{seconds:.3f}", *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=_prepare,
                env={**os.environ, "LC_ALL": "C", **more},
            )
        except (OSError, subprocess.SubprocessError) as error:
            text = error.strerror if isinstance(error, OSError) else error
            raise ChildError(f"timeout: {text}") from None
        self._selector = selectors.DefaultSelector()
        for number, stream in enumerate((self._process.stdout, self._process.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, number)

    @property
    def session(self) -> int:
        """The session, and the process group, of all that it started."""
        return self._process.pid

    @property
    def too_long(self) -> bool:
        """Whether it printed more than is kept."""
        return self._size > MAX_OUTPUT_BYTES

    def wait(self, seconds: float) -> int | None:
        """Read its output for so long at most. Returns its status once it has ended: negative where
        a signal did it.
        """
        if self._status is not None:
            return self._status
        if not self._selector.get_map():
            time.sleep(seconds)  # it has closed its output
        for key, _ in self._selector.select(seconds):
            self._read(key)
        if not self._ended():
            return None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.session, signal.SIGKILL)  # what it left in its group
        self._drain()
        self._status = self._process.wait()
        return self._status

    def text(self) -> str:
        """What it has printed so far, standard error after standard output."""
        output = b"".join(self._chunks[0]) + b"\n" + b"".join(self._chunks[1])
        return output[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")

    def end(self) -> None:
        """End it and all that it started, where that has not ended. What hangs in the kernel is
        left behind: no signal reaches it.
        """
        if self._status is None:
            for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, 0.0)):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.session, number)
                self._wait_until_ended(seconds)
            with suppress(subprocess.TimeoutExpired):
                self._status = self._process.wait(REAP_SECONDS)
        self._selector.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _ended(self) -> bool:
        """Whether it has ended. It is not reaped, so that no other process group has its number."""
        return os.waitid(os.P_PID, self.session, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _wait_until_ended(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._ended():
            time.sleep(0.01)

    def _read(self, key: selectors.SelectorKey) -> bool:
        try:
            data = os.read(key.fd, 65536)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(key.fileobj)
            return False
        if not self.too_long:
            self._chunks[key.data].append(data)
        self._size += len(data)
        return True

    def _drain(self) -> None:
        """Read what is in the pipes, and no more: a process in another session may hold them."""
        for key in list(self._selector.get_map().values()):
            while self._read(key) and not self.too_long:
                pass


def _prepare() -> None:
    die_with_parent(signal.SIGTERM)
    # The worker's limit on memory is not for a tool.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
