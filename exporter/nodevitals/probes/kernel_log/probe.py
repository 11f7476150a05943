"""Probe `kernel_log`: what the kernel and its drivers have logged since boot, counted.

In: /dev/kmsg from the last record of the last run on, also over restarts of the agent, and
messages from the probe `nvidia`: the name of the GPU at each bus id, and the Xids that NVML
reported. Out: Xids and SXids with the one action for each, the events of `events.py`, and messages
to the probe `kubernetes`, OOM kills of pods, and to `services`, stopped file systems. It calls no
driver, and where another run hangs in the process that it shares, it goes on in another one.
"""

from __future__ import annotations

import time
from typing import Optional, Union

from nodevitals.document.local import LocalFile
from nodevitals.linux.host import BOOT_ID
from nodevitals.linux.kmsg import Follower
from nodevitals.probe import Absent, Probe, ProbeError, ProbeSettings, Readings
from nodevitals.probes.common.device_names import DeviceNames
from nodevitals.probes.kernel_log.families import FAMILIES, LOST
from nodevitals.probes.kernel_log.messages import NvmlXids
from nodevitals.probes.kernel_log.state import KernelLogState
from nodevitals.probes.kernel_log.tally import Tally

# A run ends well within its deadline, whatever the log contains; the next run continues.
READ_SECONDS = 0.5
RECORDS_PER_READ = 1000


class KernelLogSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which log."""

    path: LocalFile = "/dev/kmsg"
    """The kernel's log."""


class KernelLogProbe(Probe):
    """The kernel log: Xids, OOM kills, hung tasks, errors of NFS, I/O, memory, PCIe and NVMe. Each
    Xid and SXid has one action; events are counted once over restarts.
    """

    name = "kernel_log"
    families = FAMILIES
    Settings = KernelLogSettings
    State = KernelLogState
    Message = Union[DeviceNames, NvmlXids]
    resident = True
    persistent = True
    prompt = True
    settings: KernelLogSettings
    state: KernelLogState
    _boot_id = ""
    _follower: Optional[Follower] = None
    _live = False
    """Whether a run has reached the end of the log: records read later have just been written."""

    def wakes_on(self) -> Optional[int]:
        """The descriptor of the log, which is readable if there is a new record."""
        return None if self._follower is None else self._follower.fileno()

    def close(self) -> None:
        """Close the log."""
        if self._follower is not None:
            self._follower.close()

    def run(self, readings: Readings) -> None:
        """Read the new records, then count the Xids that only NVML reported."""
        self._boot_id = self._boot_id or self.host.boot_id()
        if self._boot_id:
            self.state = self.state.in_boot(self._boot_id)
        for message in readings.received:
            self.state.receive(message)
        if not self._boot_id and self.state.boot_id:
            # Records of another boot have other numbers, and no record may be counted twice.
            text = f"{self.host.proc(BOOT_ID)}: cannot be read; the log is read when it can"
            raise ProbeError("boot_id", text)
        tally = Tally(
            self.state, readings, now=time.time(), monotonic=time.monotonic(), live=self._live
        )
        problem: OSError | None = None
        finished = True
        try:
            finished = self._read(tally, readings)
        except OSError as error:
            problem = error
            tally.leave_out_events()
        if finished:
            tally.add_xids_only_in_nvml()
            if problem is None:
                tally.send_filesystems()
            self._live = self._live or problem is None
        tally.finish()
        if isinstance(problem, FileNotFoundError):
            text = f"there is no {self.settings.path}"
            if not self.state.devices:
                raise Absent(text)
            if self.settings.required:
                raise ProbeError("absent", text)
            return  # a container without the device: the Xids of NVML count
        if problem is not None:
            raise ProbeError(
                "kernel_log",
                f"{self.settings.path}: {problem.strerror}; reading it requires root or CAP_SYSLOG",
            )

    def _read(self, tally: Tally, readings: Readings) -> bool:
        """Read for READ_SECONDS at most. Returns whether the end was reached. Raises OSError."""
        if self._follower is None:
            self._follower = Follower(self.settings.path, self.state.sequence)
        follower = self._follower
        finished, until = False, time.monotonic() + READ_SECONDS
        readings.increment(LOST, 0)
        while not finished and time.monotonic() < until:
            records, finished = follower.read(RECORDS_PER_READ)
            # From here on all these records count; after an error above, none does.
            self.state.sequence = follower.sequence
            readings.increment(LOST, follower.lost)
            follower.lost = 0
            for record in records:
                tally.add_record(record)
        return finished
