"""Runs a vendor's program and reads what it prints, within a deadline.

Only for workers: a program that hangs in the kernel cannot be killed, and is left to the fork
server.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from nodevitals.errors import ProbeError
from nodevitals.linux.process import die_with_parent

MAX_OUTPUT_BYTES = 1024 * 1024
REAP_SECONDS = 0.5


class UnfinishedError(ProbeError):
    """A program was killed; `printed` is what it had printed before."""

    def __init__(self, reason: str, message: str, printed: str) -> None:
        super().__init__(reason, message)
        self.printed = printed


class Output(msgspec.Struct, frozen=True):
    """The output of a program, standard error after standard output, and its exit status."""

    text: str
    status: int


def run(argv: Sequence[str], deadline_seconds: float, keep: Sequence[int] = ()) -> Output:
    """Run a program to its end. `keep` are descriptors that it inherits: a lock on one is held
    while the program lives, also where this process ends before.

    Raises ProbeError: `missing`, `start` (it exists and cannot be started), `stuck` (cannot be
    killed); as UnfinishedError: `timeout`, `too_long` (killed).
    """
    try:
        # In the process group of the worker, so that it is killed with the worker.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=keep,
            preexec_fn=prepare,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ProbeError("missing", f"{argv[0]}: {error.strerror}") from None
    except (OSError, subprocess.SubprocessError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        raise ProbeError("start", f"{argv[0]}: {text}") from None
    try:
        return _collected(process, argv, time.monotonic() + deadline_seconds)
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def prepare() -> None:
    """Prepare the child before the program starts: the program ends with the thread that started
    it, and is not subject to the worker's memory limit.
    """
    die_with_parent(signal.SIGKILL)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _collected(process: subprocess.Popen[bytes], argv: Sequence[str], deadline: float) -> Output:
    assert process.stdout is not None
    assert process.stderr is not None
    streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}

    def killed(reason: str, what: str) -> UnfinishedError:
        _kill(process, argv)
        return UnfinishedError(reason, f"{' '.join(argv)} {what}", _text(streams.values()))

    with selectors.DefaultSelector() as selector:
        for descriptor in streams:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise killed("timeout", "did not end in time and was killed")
            for key, _ in selector.select(left):
                data = os.read(key.fd, 65536)
                streams[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
                elif sum(map(len, streams.values())) > MAX_OUTPUT_BYTES:
                    raise killed("too_long", f"printed over {MAX_OUTPUT_BYTES} bytes")
    with suppress(subprocess.TimeoutExpired):
        status = process.wait(max(0.0, deadline - time.monotonic()))
        return Output(_text(streams.values()), status)
    raise killed("timeout", "closed its output, did not end in time and was killed")


def _text(parts: Iterable[bytearray]) -> str:
    return b"".join(parts).decode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes], argv: Sequence[str]) -> None:
    process.kill()
    try:
        process.wait(REAP_SECONDS)
    except subprocess.TimeoutExpired:
        raise ProbeError(
            "stuck", f"{' '.join(argv)} hangs in the kernel and cannot be killed"
        ) from None
