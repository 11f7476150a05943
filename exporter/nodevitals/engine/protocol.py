"""What the agent, its fork server and its workers send each other.

Worker channel: frames (`wire.py`), a Job first, then a Run for each run; back comes a ProbeResult
each; or a Load, and back comes Loaded. Fork server: one msgpack message per SOCK_SEQPACKET
datagram.
"""

from __future__ import annotations

import math
from typing import Optional, Union

import msgspec

from nodevitals.linux.host import Host
from nodevitals.probe import Timing
from nodevitals.web_config import WebConfiguration


class TargetSpec(msgspec.Struct, frozen=True, array_like=True):
    """One target as configured: `settings` is msgpack of its own settings. Equal specs are the same
    target across a reload.
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
        """Its identity in labels, in the journal and in the supervisor."""
        return self.probe, self.target


class Job(msgspec.Struct, frozen=True, tag="job"):
    """The probe and the target of the runs that follow: sent once, or where the process is shared
    before each run. `settings` is msgpack of the target's settings; `required` makes the absence of
    the hardware a failure; `shared`: the process may get the job of another target after a run.
    """

    probe: str
    target: str
    settings: bytes
    timing: Timing
    host: Host
    required: bool = False
    shared: bool = False


class Run(msgspec.Struct, frozen=True, tag="run", kw_only=True):
    """Sent for each run. `state` is msgpack of the probe's State, or b'' where there is none yet;
    `received`, `forgotten` and `interrupted` are as in `Readings`. `report_at`: when a run that
    goes on reports what it has read, on the monotonic clock, which the processes share.
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
    """What the agent uses of both files; or `errors`, one line each, and nothing else;
    `invalid` where a file's content is wrong, False where files could not be read.
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
    """From the fork server: reaped, or never started. `status` is an exit code, or a signal's
    number negated; `note` is the reason where the fork server ended it.
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
