"""The probe `nvidia` in this process, on the stand-in library: a thousand runs take seconds.

What the engine does around a run is done here too: the state is encoded and decoded, and a run that
does not say that it stays has a new probe after it.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

import msgspec

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings
from nodevitals.probes.nvidia.probe import NvidiaProbe, NvidiaSettings, NvidiaState
from testbed import gpus
from testbed.gpus import Machine

Series = tuple[str, tuple[str, ...]]


class Outcome(NamedTuple):
    """What one run returned: its samples, and the reason and text of its failure ('' if none)."""

    samples: dict[Series, float]
    reason: str = ""
    text: str = ""

    def of(self, family: str) -> dict[tuple[str, ...], float]:
        """The values of one family, named without the prefix, by their labels."""
        name = f"nodevitals_{family}"
        return {labels: value for (one, labels), value in self.samples.items() if one == name}

    def of_device(self, uuid: str) -> dict[Series, float]:
        """The samples with a GPU's uuid."""
        return {series: value for series, value in self.samples.items() if uuid in series[1]}


class ProbeRunner:
    """Runs the probe on a machine, again and again."""

    def __init__(self, machine: Machine, **settings: object) -> None:
        os.environ |= machine.environment
        self._host = Host(procfs=str(machine.folder / "proc"), sysfs=str(machine.folder / "sys"))
        self._settings = NvidiaSettings(**machine.settings, **settings)  # type: ignore[arg-type]
        self._state = b""
        self._probe: NvidiaProbe | None = None
        self.processes = 0
        """Number of processes that the engine would have started."""

    @property
    def ended(self) -> bool:
        """Whether the next run is in a new process."""
        return self._probe is None

    def restart(self) -> None:
        """Let the next run be in a new process."""
        self._probe = None

    def run(self) -> Outcome:
        """Run once. An exception that is not a ProbeError is a bug, and is raised."""
        probe = self._probe or NvidiaProbe(self._host, self._settings)
        if self._probe is None:
            probe.open()
            self.processes += 1
        self._probe = probe
        probe.state = (
            msgspec.msgpack.decode(self._state, type=NvidiaState) if self._state else NvidiaState()
        )
        readings = Readings((), (), NvidiaProbe.families)
        reason = text = ""
        try:
            probe.run(readings)
        except ProbeError as error:
            reason, text = error.reason, error.message
            if not error.stays:
                self._probe = None
        except Absent as error:
            self._probe = None
            return Outcome({}, "absent", str(error))
        if not reason and not probe.stays():
            self._probe = None
        self._state = msgspec.msgpack.encode(probe.state)
        samples = {(one.family, one.labels): one.value for one in readings.samples}
        return Outcome(samples, reason, text)


def forget_calls() -> None:
    """Let `functions_called` and `fields_asked` return only what is called from now on."""
    ctypes.CDLL(str(gpus.library())).nvmlTestbedForget()


def functions_called() -> set[str]:
    """The names of the library's functions that were called in this process."""
    library = ctypes.CDLL(str(gpus.library()))
    library.nvmlTestbedCalled.restype = ctypes.c_char_p
    names = set()
    index = 0
    while name := library.nvmlTestbedCalled(index):
        names.add(name.decode())
        index += 1
    return names


def fields_asked() -> set[int]:
    """The ids of the field values that the library was asked for in this process."""
    library = ctypes.CDLL(str(gpus.library()))
    return {field for field in range(1024) if library.nvmlTestbedFieldAsked(field)}


def event_sets() -> int:
    """The number of event sets that exist in this process."""
    return int(ctypes.CDLL(str(gpus.library())).nvmlTestbedEventSets())
