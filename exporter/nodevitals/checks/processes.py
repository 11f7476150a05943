"""Runs a program to its end in the event loop, with a limit on its output and its time.

The program runs under `timeout` in a session of its own. When this process dies, the kernel sends
SIGTERM to `timeout`, which then ends the program and, after a grace, kills its process group.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Optional

import msgspec

from nodevitals.checks.deadlines import within
from nodevitals.linux.process import die_with_parent

HEAD_BYTES = 256 * 1024
TAIL_BYTES = 768 * 1024
# Time to read the output after the end of the program: a child of it may keep the pipe open.
DRAIN_SECONDS = 1.0
REAP_SECONDS = 5.0
CANNOT_RUN = 126
TIMED_OUT = (124, 137, -signal.SIGKILL)
"""Statuses of `timeout` for a program that it ended, or killed together with itself."""


class Excerpt:
    """The beginning and the end of an output of any length."""

    def __init__(self, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        self._limits = (head, tail)
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Append output."""
        room = self._limits[0] - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > 2 * self._limits[1]:
            self._cut()

    def text(self) -> str:
        """The output; where it was too long, whole lines of its beginning and its end."""
        self._cut()
        if not self._left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        head = self._head[: self._head.rfind(b"\n") + 1]
        tail = self._tail[self._tail.find(b"\n") + 1 :]
        mark = f"[{self._left_out} bytes left out]\n".encode()
        return bytes(head + mark + tail).decode("utf-8", "replace")

    def _cut(self) -> None:
        over = len(self._tail) - self._limits[1]
        if over > 0:
            del self._tail[:over]
            self._left_out += over


class Ended(msgspec.Struct, frozen=True):
    """The output of a program on both streams, and its exit status."""

    text: str
    status: int

    @property
    def timed_out(self) -> bool:
        """Whether the program was ended at its time limit."""
        return self.status in TIMED_OUT


async def run(
    argv: Sequence[str],
    seconds: float,
    grace: float = 2.0,
    environment: Optional[dict[str, str]] = None,
    output: Optional[Excerpt] = None,
) -> Ended:
    """Run a program for at most `seconds`; after SIGTERM it has `grace` seconds to end. It is ended
    in the same way where the task is canceled. A status of 127: there is no such program. `output`
    has its output while it runs.
    """
    excerpt = output or Excerpt()
    reader, outer, transport = await _pipe()
    reading = asyncio.ensure_future(_read(reader, excerpt))
    words = ["timeout", f"--kill-after={grace:g}", f"{seconds:g}", *argv]
    starting = asyncio.ensure_future(_start(words, outer, environment or {}))
    try:
        process = await asyncio.shield(starting)
        with suppress(asyncio.TimeoutError):
            await within(process.wait(), seconds + grace + REAP_SECONDS)
        await asyncio.wait({reading}, timeout=DRAIN_SECONDS)
    except OSError as error:
        return Ended(f"{argv[0]}: {error.strerror}\n", CANNOT_RUN)
    finally:
        await _finish(starting, grace)
        reading.cancel()
        transport.close()
    return Ended(excerpt.text(), -1 if process.returncode is None else process.returncode)


async def _pipe() -> tuple[asyncio.StreamReader, int, asyncio.ReadTransport]:
    """A pipe: its reader, its writing end, and the reader's transport. Python's own pipe is not
    used: its versions differ in how long they read the pipe of an ended process.
    """
    reader = asyncio.StreamReader()
    inner, outer = os.pipe()
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(inner, "rb", 0)
        )
    except BaseException:
        os.close(outer)
        raise
    return reader, outer, transport


async def _start(
    words: Sequence[str], output: int, environment: dict[str, str]
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_end_with_this_process,
            env={**os.environ, "LC_ALL": "C", **environment},
        )
    finally:
        os.close(output)


async def _finish(starting: asyncio.Future[asyncio.subprocess.Process], grace: float) -> None:
    """End the program if it runs, also where the task was canceled while it started."""
    with suppress(OSError):
        process = await starting
        if process.returncode is None:
            await _end(process, grace)


async def _read(reader: asyncio.StreamReader, excerpt: Excerpt) -> None:
    while True:
        data = await reader.read(65536)
        if not data:
            return
        excerpt.add(data)


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    """Make `timeout` end the program; if it hangs after the grace, kill its process group."""
    # Signal the group: `timeout` forwards no signal that it receives before the program starts.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    waiting = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({waiting}, timeout=grace + 1.0)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    await asyncio.wait({waiting}, timeout=REAP_SECONDS)


def _end_with_this_process() -> None:
    die_with_parent(signal.SIGTERM)
