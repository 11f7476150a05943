"""Calls that may hang in a driver, one after the other in a child of the worker.

In: names, and a function that reads one of them. Out: its result for each name, as bytes. A child
whose call does not return in time is ended, and another child continues with the remaining names:
such a call affects only its own name. A child that does not end is left behind; while it lives, its
name is not read again.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import time
from collections.abc import Callable, Sequence

import msgspec

from nodevitals.linux.process import die_with_parent, seconds_since_start

_FRAME = struct.Struct("=I")
MAX_BYTES = 256 * 1024
_REAP_SECONDS = 0.5
# With more hung calls, the driver hangs for all ports: the remaining names are not tried.
_MAX_HANGING = 3
# Tolerance for the age of a process, which is read in ticks.
_AGE_SECONDS = 1.0


class Left(msgspec.Struct, frozen=True, array_like=True):
    """A child that could not be ended, and when it was started (monotonic seconds)."""

    pid: int
    started: float

    def lives(self) -> bool:
        """Whether the child still exists; another process may have got its identifier."""
        age = seconds_since_start("/proc", self.pid)
        return age is not None and abs(time.monotonic() - age - self.started) < _AGE_SECONDS


class Answers:
    """The results by name; `hung` are the names whose call was given up, `failed` the names whose
    child ended without an answer, `left` the children that still run, `unread` the names not tried.
    """

    def __init__(self) -> None:
        self.read: dict[str, bytes] = {}
        self.hung: list[str] = []
        self.failed: list[str] = []
        self.left: dict[str, Left] = {}
        self.unread: list[str] = []


def read_all(
    names: Sequence[str], read: Callable[[str], bytes], seconds: float, deadline: float
) -> Answers:
    """Read all names; each may take `seconds`, and all together until `deadline` (monotonic)."""
    answers = Answers()
    rest = list(names)
    while rest and len(answers.hung) < _MAX_HANGING and time.monotonic() < deadline:
        rest = _read_in_child(rest, read, seconds, deadline, answers)
    answers.unread = rest
    return answers


def _read_in_child(
    names: list[str],
    read: Callable[[str], bytes],
    seconds: float,
    deadline: float,
    answers: Answers,
) -> list[str]:
    """Read until the end, or until one name hangs or fails. Returns the names that are left."""
    started = time.monotonic()
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_the_child(names, read, into)
    os.close(into)
    ended = False
    try:
        for number, name in enumerate(names):
            until = min(time.monotonic() + seconds, deadline)
            body = _receive(out, until)
            if body:
                answers.read[name] = body
                continue
            ended = body is not None
            (answers.failed if ended else answers.hung).append(name)
            return names[number + 1 :]
        return []
    finally:
        os.close(out)
        if not _end(pid) and answers.hung:
            answers.left[answers.hung[-1]] = Left(pid, started)


def _be_the_child(names: list[str], read: Callable[[str], bytes], into: int) -> None:
    status = 1
    try:
        die_with_parent(signal.SIGKILL)
        # The agent must notice the end of the worker, also while this process hangs.
        os.closerange(3, into)
        os.closerange(into + 1, 256)
        for name in names:
            body = read(name)
            os.write(into, _FRAME.pack(len(body)))
            sent = 0
            while sent < len(body):
                sent += os.write(into, body[sent:])
        status = 0
    finally:
        os._exit(status)


def _receive(out: int, until: float) -> bytes | None:
    """One answer; b'' if the child ended, None if it took too long."""
    head = _receive_exactly(out, _FRAME.size, until)
    if not head:
        return head
    size = _FRAME.unpack(head)[0]
    return _receive_exactly(out, size, until) if 0 < size <= MAX_BYTES else b""


def _receive_exactly(out: int, size: int, until: float) -> bytes | None:
    data = b""
    poll = select.poll()
    poll.register(out, select.POLLIN)
    while len(data) < size:
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        part = os.read(out, size - len(data))
        if not part:
            return b""
        data += part
    return data


def _end(pid: int) -> bool:
    """End a child. Returns whether it is gone."""
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + _REAP_SECONDS
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
