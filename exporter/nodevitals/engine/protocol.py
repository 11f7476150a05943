"""The messages between the agent, its fork server and its workers.

Worker channel: frames (`wire.py`). The agent sends a Job, then a Run for each run; the worker
replies to each Run with a ProbeResult. Or the agent sends a Load, and the worker replies with
Loaded. Fork server: one msgpack message per SOCK_SEQPACKET datagram.
"""

from __future__ import annotations

import math
from typing import Optional, Union

import msgspec

from nodevitals.linux.host import Host
from nodevitals.probe import Timing
from nodevitals.web_config import WebConfiguration


class TargetSpec(msgspec.Struct, frozen=True, array_like=True):
    """One target as configured; `settings` is its own settings in msgpack. A target whose spec is
    equal after a reload goes on.
    """

    probe: str
    target: str
    settings: bytes
    timing: Timing
    resident: bool
    persistent: bool
    start_seconds: float
    required: bool
    shared: bool = False
    """Whether its process may have run another target before, and may run one afterwards."""
    prompt: bool = False
    """As `Probe.prompt`."""
    problem: str = ""
    """Why it cannot run at all: each of its runs fails with this, without a process."""

    @property
    def key(self) -> tuple[str, str]:
        """The target's identity in labels, in the journal and in the supervisor."""
        return self.probe, self.target


class Job(msgspec.Struct, frozen=True, tag="job"):
    """The probe and the target of the next runs: sent once, or before each run where the process is
    shared. `settings`: the target's settings in msgpack. `required`: absent hardware is a failure.
    `shared`: the process may get the job of another target after a run.
    """

    probe: str
    target: str
    settings: bytes
    timing: Timing
    host: Host
    required: bool = False
    shared: bool = False


class Run(msgspec.Struct, frozen=True, tag="run", kw_only=True):
    """Sent for each run. `state`: the probe's State in msgpack, or b'' where there is none yet.
    `received`, `forgotten` and `interrupted`: as in `Readings`. `report_at`: the monotonic time,
    equal in all processes, at which an unfinished run reports what it has read.
    """

    state: bytes = b""
    received: tuple[bytes, ...] = ()
    forgotten: tuple[str, ...] = ()
    report_at: float = math.inf
    interrupted: tuple[str, ...] = ()


class Files(msgspec.Struct, frozen=True):
    """The absolute paths of the configuration and of the web configuration; None for defaults."""

    config: Optional[str] = None
    web: Optional[str] = None

    def __str__(self) -> str:
        return " and ".join(path for path in (self.config, self.web) if path) or "no file"


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Sent instead of a Job: load the configuration, reply and end."""

    files: Files


class Loaded(msgspec.Struct, frozen=True):
    """What the agent uses of both files; or only `errors`, one line each. `invalid`: the content of
    a file is wrong; False where a file could not be read.
    """

    labels: dict[str, str] = {}
    state_directory: Optional[str] = None
    targets: tuple[TargetSpec, ...] = ()
    web: WebConfiguration = WebConfiguration()
    errors: tuple[str, ...] = ()
    invalid: bool = False
    warnings: tuple[str, ...] = ()


class Spawn(msgspec.Struct, frozen=True, tag="spawn"):
    """To the fork server, with two descriptors: the worker's channel and its stderr."""

    worker: int


class Kill(msgspec.Struct, frozen=True, tag="kill"):
    """To the fork server: send a signal to a worker's process group."""

    worker: int
    signal: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """To the fork server: reply with a Pong."""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """From the fork server: the worker's process id."""

    worker: int
    pid: int


class Signalled(msgspec.Struct, frozen=True, tag="signalled"):
    """From the fork server: a signal was sent to the worker's process group."""

    worker: int
    signal: int


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """From the fork server: the worker is reaped, or was never started. `status`: an exit code, or
    a signal's number negated. `note`: the reason, where the fork server ended it.
    """

    worker: int
    status: int
    note: str = ""


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """From the fork server: the reply to a Ping, with the number of workers."""

    workers: int


ToForkServer = Union[Spawn, Kill, Ping]
FromForkServer = Union[Started, Signalled, Exited, Pong]
ToWorker = Union[Job, Run, Load]
