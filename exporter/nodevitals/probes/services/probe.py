"""Probe `services`: systemd's units, and conditions of the node that jobs do not survive.

In: systemd over D-Bus; procfs. Out: `nodevitals_services_*` for units; `nodevitals_node_*` for file
systems that became read-only, zombies, processes that hang in the kernel, and threads. The probe
`profile` gets the states of the units.
A bus that hangs does not keep the conditions from being read: each has a process of its own.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Optional

import msgspec

from nodevitals.linux.process import parse_load_average
from nodevitals.linux.sysfs import exists, read_bytes, read_integer, read_text
from nodevitals.probe import Absent, Probe, ProbeError, ProbeSettings, Problem, Readings, Seconds
from nodevitals.probes.common.device_files import sees_kernel
from nodevitals.probes.common.facts import send_facts
from nodevitals.probes.services import families, filesystems
from nodevitals.probes.services.filesystems import LocalFilesystem, local_filesystems
from nodevitals.probes.services.messages import StoppedFilesystems
from nodevitals.probes.services.processes import WAITS, Sleeper, hung, look
from nodevitals.probes.services.unit_names import UNIT_NAME, WATCHED, Watch

UNITS = "units"
CONDITIONS = "conditions"
# Share of the timeout: our own error is more precise than the end of the process.
_SHARE = 0.8
# A node has thousands of processes, and a hung process hangs for longer: every second run looks at
# them, and each run does while one is in uninterruptible sleep.
_INTERVALS_PER_LOOK = 1.5
UnitName = Annotated[str, msgspec.Meta(pattern=UNIT_NAME)]


class ServicesSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which units count, and when a process hangs."""

    interval: Optional[Seconds] = 60.0
    """Time between two runs."""
    expected: tuple[UnitName, ...] = ()
    """Units that must be active. Example: `[kubelet.service]`"""
    watched: tuple[UnitName, ...] = WATCHED
    """Units that must be active where they are enabled; those that are not there are left out."""
    ignored: tuple[str, ...] = ()
    """Units to leave out, also of the number of failed ones: names or patterns such as
    `user@*.service`."""
    bus: str = "/run/dbus/system_bus_socket"
    """Socket of the system bus."""
    private: str = "/run/systemd/private"
    """Socket of systemd itself, for root where the bus does not answer."""
    hung_after: Seconds = 120.0
    """Time in uninterruptible sleep after which a process counts as hung."""

    def problems(self) -> Iterator[Problem]:
        """Paths must be absolute; what must be active cannot be ignored."""
        for key, path in (("bus", self.bus), ("private", self.private)):
            if not path.startswith("/") or "\0" in path:
                yield Problem(key, "not an absolute path: begin it with /")
        watch = Watch(self.expected, self.watched, self.ignored)
        for index, name in enumerate(self.expected):
            if watch.ignores(name):
                yield Problem(f"expected[{index}]", f"{name} is ignored, too: remove it from one")


class Looked(msgspec.Struct):
    """The last look at all processes: number of zombies, number of hung processes by what they wait
    in, and the monotonic seconds of the look.
    """

    zombies: int
    hung: dict[str, int]
    at: float


class ServicesState(msgspec.Struct):
    """The state after the last run: the restarts of each unit, the sleeping processes by ID, the
    last look at all processes, and the writable file systems; and the devices whose file systems
    accept no writes by the kernel's log.
    """

    restarts: dict[str, int] = {}
    sleepers: dict[int, Sleeper] = {}
    looked: Optional[Looked] = None
    writable: list[str] = []
    stopped: list[str] = []


class ServicesProbe(Probe):
    """systemd units, read-only file systems, processes hung in the kernel, zombies, threads."""

    name = "services"
    families = families.metrics
    Settings = ServicesSettings
    State = ServicesState
    Message = StoppedFilesystems
    settings: ServicesSettings
    state: ServicesState

    @classmethod
    def targets(cls, settings: ServicesSettings) -> list[tuple[str, ServicesSettings]]:
        """The units and the conditions."""
        return [(UNITS, settings), (CONDITIONS, settings)]

    @classmethod
    def preload(cls) -> None:
        """Import the D-Bus library, which nothing else in the agent needs."""
        importlib.import_module("nodevitals.probes.services.units")

    def run(self, readings: Readings) -> None:
        """Run the part of the target."""
        if self.target == UNITS:
            self._units(readings)
        else:
            self._conditions(readings)

    def _units(self, readings: Readings) -> None:
        from nodevitals.probes.services.bus import connect
        from nodevitals.probes.services.units import Manager, report_failed, report_units

        settings = self.settings
        watch = Watch(settings.expected, settings.watched, settings.ignored)
        bus, private = self.host.root(settings.bus), self.host.root(settings.private)
        if exists(bus) is False and exists(private) is False:
            text = f"neither {bus} nor {private} is there"
            if settings.expected:
                raise ProbeError("missing", f"{text}: is this node run by systemd?")
            raise Absent(f"{text}: no systemd, or not within this container")
        seconds = self.timing.timeout_seconds * _SHARE
        with closing(connect(bus, private, seconds)) as connection:
            manager = Manager(connection)
            report_units(manager, watch, self.state.restarts, readings)
            report_failed(manager, watch, readings)
        state = families.STATE.name
        states = [sample.labels for sample in readings.samples if sample.family == state]
        facts = {f"unit.{unit}": {"": text} for unit, text in states}
        send_facts(readings, self.name, (), facts)

    def _conditions(self, readings: Readings) -> None:
        if not sees_kernel(self.host.procfs):
            text = f"{self.host.procfs} does not show the node's processes"
            raise Absent(f"{text}: in a container, hostPID is needed")
        self._filesystems(readings)
        self._threads(readings)
        self._processes(readings)

    def _filesystems(self, readings: Readings) -> None:
        """Check the mounts of PID 1: the agent's own mounts may be read-only because of its
        unit.
        """
        for message in readings.received:
            self.state.stopped = message.devices
        try:
            data = read_bytes(self.host.proc("1/mountinfo"))
        except OSError as error:
            raise ProbeError("mountinfo", f"1/mountinfo: {error.strerror}") from None
        were, writable = set(self.state.writable), []
        for filesystem in local_filesystems(data.decode("utf-8", "replace")):
            if filesystem.for_writing or filesystem.device in were:
                writable.append(filesystem.device)
                self._filesystem(filesystem, readings)
        self.state.writable = writable

    def _filesystem(self, filesystem: LocalFilesystem, readings: Readings) -> None:
        """Report whether it accepts writes, by its mount, the kernel's log and its own record."""
        labels = (filesystem.mountpoint, filesystem.fstype, filesystem.source)
        name = filesystems.device_name(self.host, filesystem.device)
        stopped = filesystem.read_only or not filesystem.for_writing or name in self.state.stopped
        if name is not None and filesystem.fstype in filesystems.TYPES:
            record = filesystems.read_record(self.host, name, time.time())
            if record is not None:
                readings.add(families.ERRORS, record.errors, *labels)
                stopped = stopped or record.stopped
        readings.add(families.READ_ONLY, stopped, *labels)

    def _threads(self, readings: Readings) -> None:
        try:
            average = parse_load_average(read_text(self.host.proc("loadavg")) or "")
            readings.add(families.THREADS, average.threads)
        except (ValueError, IndexError):
            pass
        files = ("threads-max", "pid_max")
        limits = [read_integer(self.host.proc(f"sys/kernel/{file}")) for file in files]
        known = [limit for limit in limits if limit]
        readings.add(families.THREADS_MAXIMUM, min(known) if known else None)

    def _processes(self, readings: Readings) -> None:
        looked, now = self.state.looked, time.monotonic()
        seconds = _INTERVALS_PER_LOOK * self.timing.interval_seconds
        if looked is None or self.state.sleepers or not 0 <= now - looked.at < seconds:
            current = look(self.host, self.state.sleepers, now)
            counts = hung(self.host, current, self.settings.hung_after)
            self.state.sleepers = current.sleepers
            looked = self.state.looked = Looked(current.zombies, counts, now)
        readings.add(families.ZOMBIES, looked.zombies)
        for wait in WAITS:
            readings.add(families.HUNG, looked.hung.get(wait, 0), wait)
