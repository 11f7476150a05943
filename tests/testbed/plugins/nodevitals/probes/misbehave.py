"""A probe whose targets each misbehave in one way.

The agent finds it because its directory is on PYTHONPATH, as it finds a site's own probes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from nodevitals.probe import (
    Absent,
    Families,
    Family,
    Probe,
    ProbeError,
    ProbeSettings,
    Readings,
    Timing,
)
from nodevitals.wire import ProbeResult, Sample, Wanted, frame

metrics = Families("misbehave", "item")
VALUE = metrics.gauge("value", "A value.")
EVENTS = metrics.counter("events_total", "Number of events.")
# The behaviours of targets that do well.
WELL = ("healthy", "process", "counts")


class MisbehaveSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The behaviours of the targets."""

    behaviours: tuple[str, ...] = ()
    """Name of each target; the part before a hyphen is its behaviour."""
    folder: str = ""
    """Directory that `hangs` lists."""
    series: int = 1
    """Number of series of `healthy`."""
    healthy_seconds: float = 0.0
    """What a run of a target that does well may take, also over the interval; 0: as the others."""


def write_raw(data: bytes) -> None:
    """Write to the worker's channel without its protocol."""
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, data)
        except OSError:
            continue
        return


def _sleep_forever() -> NoReturn:
    while True:
        time.sleep(3600)


class _Behaviours:
    def healthy(self, readings: Readings, settings: Any) -> None:
        for item in range(settings.series):
            readings.add(VALUE, item, f"item-{item}")
        readings.increment(EVENTS, 1, "run")

    def process(self, readings: Readings, _: Any) -> None:
        readings.add(VALUE, os.getpid(), "process")

    def sends(self, readings: Readings, settings: Any) -> None:
        """One message, while a run of the receiver is in flight. The agent has delivered it when it
        starts another run of the sender.
        """
        folder = Path(settings.folder)
        if (folder / "sent").exists():
            (folder / "delivered").touch()
        elif (folder / "running").exists():
            readings.send("misbehave_prompt", Wanted("misbehave", "sends"))
            (folder / "sent").touch()

    def sleeps(self, *_: Any) -> None:
        _sleep_forever()

    def hangs(self, _: Readings, settings: Any) -> None:
        os.listdir(settings.folder)

    def hangs_at_device(self, readings: Readings, _: Any) -> None:
        """The second of three devices hangs, and a run reads last what hung before."""
        devices = ["device 0", "device 1", "device 2"]
        for device in sorted(devices, key=lambda one: one in readings.interrupted):
            readings.at(device, "driver_read")
            if device == "device 1":
                _sleep_forever()
            readings.add(VALUE, 1, device)

    def segfaults(self, *_: Any) -> None:
        ctypes.string_at(0)

    def spins(self, *_: Any) -> None:
        while True:
            pass

    def allocates(self, *_: Any) -> None:
        hoard = []
        while True:
            hoard.append(bytearray(1 << 20))

    def garbage(self, *_: Any) -> None:
        write_raw(b"\x00\x00\x00\x08garbage!")
        _sleep_forever()

    def garbage_text(self, *_: Any) -> None:
        """A result that is whole but for one text, which is no UTF-8."""
        write_raw(frame(ProbeResult(outcome="error", text="abc")).replace(b"abc", b"\xff\xfe\xfd"))
        _sleep_forever()

    def surrogates(self, readings: Readings, _: Any) -> None:
        """A label as os.fsdecode makes it of a file's name."""
        readings.add(VALUE, 1, os.fsdecode(b"name \xff"))

    def huge_header(self, *_: Any) -> None:
        write_raw(b"\xff\xff\xff\xff" + bytes(65536))
        _sleep_forever()

    def extra_results(self, *_: Any) -> None:
        answer = frame(ProbeResult(outcome="ok"))
        while True:
            write_raw(answer * 100)

    def wants_without_end(self, *_: Any) -> None:
        asked = frame(Wanted("misbehave_kept", "wants_without_end"))
        while True:
            write_raw(asked * 10)

    def half_frame(self, *_: Any) -> None:
        write_raw(b"\x00\x00\x10\x00half")
        os._exit(0)

    def forks(self, *_: Any) -> None:
        while True:
            try:
                os.fork()
            except OSError:
                time.sleep(0.01)

    def leaves_orphans(self, _: Readings, settings: Any) -> None:
        for _index in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.execvp("sleep", ["sleep", "4242"])
                os._exit(0)

    def ignores_term(self, *_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _sleep_forever()

    def floods_stderr(self, readings: Readings, _: Any) -> None:
        for _index in range(2000):
            with contextlib.suppress(BlockingIOError):
                os.write(2, b"flood " * 10000)
        readings.add(VALUE, 1, "flooded")

    def raises(self, *_: Any) -> None:
        raise KeyError("unexpected\nerror")

    def fails(self, readings: Readings, _: Any) -> None:
        readings.add(VALUE, 0, "before the error")
        raise ProbeError("broken", "the thing is broken")

    def absent(self, *_: Any) -> None:
        raise Absent("no such hardware")

    def undeclared(self, readings: Readings, _: Any) -> None:
        """A bug in the probe."""
        other = Family(name="nodevitals_undeclared", kind="gauge", help="Not declared.")
        readings.add(other, 1)

    def invalid(self, readings: Readings, _: Any) -> None:
        """Memory that a library has overwritten: not checked by Readings."""
        readings.samples.append(Sample("nodevitals_undeclared", (), 1.0))

    def duplicate(self, readings: Readings, _: Any) -> None:
        sample = Sample(VALUE.name, ("same",), 1.0)
        readings.samples += [sample, sample]

    def state_too_large(self, *_: Any) -> None:
        write_raw(frame(ProbeResult(outcome="ok", state=bytes(4 * 1024 * 1024 - 200))))
        os._exit(0)

    def result_too_large(self, readings: Readings, _: Any) -> None:
        for item in range(100):
            readings.add(VALUE, item, f"{item}" + "x" * 100_000)

    def exits(self, *_: Any) -> None:
        sys.stderr.write("bye\n")
        sys.stderr.flush()
        os._exit(3)


BEHAVIOURS = tuple(name for name in vars(_Behaviours) if not name.startswith("_"))


def _behaviour(target: str) -> str:
    return target.partition("-")[0]


class MisbehaveProbe(Probe):
    """One behaviour."""

    name = "misbehave"
    families = metrics
    Settings = MisbehaveSettings

    @classmethod
    def targets(cls, settings: MisbehaveSettings) -> Iterable[tuple[str, MisbehaveSettings]]:
        """One target per behaviour."""
        well = msgspec.structs.replace(settings, behaviours=())
        own = msgspec.structs.replace(well, healthy_seconds=0.0)
        return [(name, well if _behaviour(name) in WELL else own) for name in settings.behaviours]

    @classmethod
    def target_timing(cls, own: MisbehaveSettings, timing: Timing) -> Timing:
        """What a run with more time has exposed stays until after the next one."""
        seconds = own.healthy_seconds
        if not seconds:
            return timing
        stale = max(timing.stale_after_seconds, 2 * seconds)
        more = {"timeout_seconds": seconds, "stale_after_seconds": stale}
        return msgspec.structs.replace(timing, **more)

    def run(self, readings: Readings) -> None:
        """Misbehave."""
        getattr(_Behaviours(), _behaviour(self.target))(readings, self.settings)
