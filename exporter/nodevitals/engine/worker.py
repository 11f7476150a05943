"""A worker: a forked child that is one probe on one target, and may hang or crash alone.

In: a Job, then a Run for each run, on the channel. Out: a ProbeResult frame for each Run. The
limits below are the worker's own; the deadline and the killing are the agent's.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import resource
import signal
import socket
import time
import traceback
from typing import NoReturn

import msgspec

from nodevitals.engine.protocol import FrameReader, Job, ProtocolError, Run, ToWorker, decode, frame
from nodevitals.linux.process import die_with_parent, set_nice
from nodevitals.probe import MAX_CARRY_BYTES, Absent, Probe, ProbeError, ProbeResult, Readings

# Stops a runaway at 248 MiB and still permits NVML's large reservations; RLIMIT_AS does not.
DATA_LIMIT_BYTES = 256 * 1024 * 1024


def become_worker(channel_fd: int, stderr_fd: int, server_pid: int) -> NoReturn:
    """Turn a fresh fork of the fork server into a worker; never returns."""
    status = 1
    try:
        _confine(channel_fd, stderr_fd, server_pid)
        _serve(socket.socket(fileno=channel_fd))
        status = 0
    finally:
        # Skips exit hooks and flushes of the fork server's, which are not ours to run.
        os._exit(status)


def _confine(channel_fd: int, stderr_fd: int, server_pid: int) -> None:
    set_nice(0)  # the fork server's own is not for us
    os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != server_pid:  # it died between fork and prctl
        os._exit(1)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(stderr_fd, 1)
    os.dup2(stderr_fd, 2)
    os.closerange(3, channel_fd)
    os.closerange(channel_fd + 1, 256)
    _set_limit(resource.RLIMIT_DATA, DATA_LIMIT_BYTES)
    _set_limit(resource.RLIMIT_CORE, 0)
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as handle:
        handle.write("1000")  # the kernel should choose a probe before anything that works
    faulthandler.enable(file=2)
    gc.enable()


def _set_limit(which: int, limit: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    # The soft one: a vendor's tool that a probe runs is given its own measure back.
    resource.setrlimit(which, (limit, hard))


def _serve(channel: socket.socket) -> None:
    reader = FrameReader()
    job: Job | None = None
    probe: Probe | None = None
    while data := _receive(channel):
        for body in reader.feed(data):
            message = decode(body, ToWorker)
            if isinstance(message, Job):
                job = message
                continue
            if job is None:
                raise ProtocolError("a run before its job")
            probe, result = _answer(job, probe, message)
            stays = probe is not None and job.stay
            # An agent that is gone may have left runs to do: the history's last batches.
            with contextlib.suppress(ConnectionError):
                channel.sendall(_framed(msgspec.structs.replace(result, stays=stays)))
            if not stays:
                return
    if probe is not None:
        probe.close()


def _receive(channel: socket.socket) -> bytes:
    try:
        return channel.recv(65536)
    except ConnectionError:  # the agent ended with our last answer unread
        return b""


def _framed(result: ProbeResult) -> bytes:
    try:
        return frame(result)
    except ProtocolError as error:
        return frame(ProbeResult(outcome="error", reason="too_large", message=str(error)))


def _answer(job: Job, probe: Probe | None, run: Run) -> tuple[Probe | None, ProbeResult]:
    """Run once. The probe comes back where its handles may be used again, else None."""
    readings = Readings(run.carry, run.received, run.forgotten)
    started = time.monotonic()
    try:
        if probe is None:
            probe = _opened(job)
        probe.run(readings)
        result = _result("ok", readings, started)
    except Absent as absent:
        outcome = "error" if job.required else "absent"
        result, probe = _result(outcome, Readings(), started, "absent", str(absent)), None
    except ProbeError as error:
        # Its handles may be what failed: the next run has a new process, as a driver may want.
        result = _result("error", readings, started, error.reason, error.message)
        _close(probe)
        probe = None
    except Exception as error:
        # The boundary: whatever a probe raises is told to the agent, once, with its trace.
        text = f"{type(error).__name__}: {error}"
        result = _result("error", Readings(), started, "exception", text, traceback.format_exc())
        probe = None
    if not job.stay:
        _close(probe)
    return probe, result


def _close(probe: Probe | None) -> None:
    if probe is not None:
        with contextlib.suppress(Exception):
            probe.close()


def _opened(job: Job) -> Probe:
    # Imported by name here: the history's writer is a worker too, and no probe of a site's.
    from nodevitals.catalogue import probe_class

    kind = probe_class(job.probe)
    probe = kind(job.host, decode(job.settings, kind.Settings), job.target)
    probe.open()
    return probe


def _result(
    outcome: str,
    readings: Readings,
    started: float,
    reason: str = "",
    message: str = "",
    trace: str = "",
) -> ProbeResult:
    if len(readings.carry) > MAX_CARRY_BYTES:
        raise ValueError(f"carry of {len(readings.carry)} bytes, over {MAX_CARRY_BYTES}")
    return ProbeResult(
        outcome=outcome,  # type: ignore[arg-type]
        samples=tuple(readings.samples),
        increments=tuple(readings.increments),
        conditions=tuple(readings.conditions),
        events=tuple(readings.events),
        letters=tuple(readings.letters),
        reason=reason,
        message=message,
        trace=trace,
        duration_seconds=time.monotonic() - started,
        carry=readings.carry,
    )
