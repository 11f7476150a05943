"""The configuration of self-checks, and the meter of how long tools run in any 24 hours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Optional

import msgspec

from nodevitals.probe import BytesPerSecond, ProbeSettings, Problem, Seconds
from nodevitals.probes.fabric.admission import GateSettings
from nodevitals.probes.selfcheck.results import Kind
from nodevitals.probes.selfcheck.tools import dcgm


class Spent(msgspec.Struct, array_like=True, frozen=True):
    """The cost of one check: its start (seconds since the epoch) and its duration."""

    time: float
    seconds: float


class Meter:
    """The cost of the checks of the last day. Setting the clock back frees nothing."""

    def __init__(self, seconds_per_day: float, spent: tuple[Spent, ...] = ()) -> None:
        self._limit = seconds_per_day
        self._spent = list(spent)

    def allows(self, now: float, seconds: float) -> bool:
        """Whether one more check with this highest cost fits."""
        self._spent = [spent for spent in self._spent if now - spent.time < DAY]
        return sum(spent.seconds for spent in self._spent) + seconds <= self._limit

    def charge(self, now: float, seconds: float) -> None:
        """Charge a check that has ended, whatever its outcome."""
        self._spent.append(Spent(now, seconds))

    def spent(self) -> tuple[Spent, ...]:
        """The costs, which must be kept over a restart."""
        return tuple(self._spent)


DAY = 86400.0


class ExpectedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bandwidths of a healthy node, in bits per second; a lower one is slow."""

    host_to_device: Optional[BytesPerSecond] = None
    """Copies from the host to one accelerator. Example: `400Gb/s`"""
    device_to_host: Optional[BytesPerSecond] = None
    """Copies from one accelerator to the host. Example: `400Gb/s`"""
    memory: Optional[BytesPerSecond] = None
    """Copies of the host's memory by one thread. Example: `80Gb/s`"""
    rdma_loopback: Optional[BytesPerSecond] = None
    """RDMA writes of a port to itself. Example: `380Gb/s`"""
    collective: Optional[BytesPerSecond] = None
    """Bus bandwidth of an all-reduce over the accelerators of the node. Example: `3000Gb/s`"""

    def of(self, kind: Kind) -> float | None:
        """Expected bytes per second; None if nothing is expected."""
        rate: float | None = getattr(self, kind, None)
        return rate


class CheckBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit for any 24 hours."""

    seconds_per_day: Annotated[float, msgspec.Meta(gt=0, le=DAY)] = 1800.0
    """Time for which tools may run on this node. A check starts only where its longest time
    fits."""


class SelfcheckSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be configured. The command `nodevitals selfcheck` uses it too, but for the times."""

    every: Seconds = DAY
    """Time until a check is repeated; it waits while the node is in use. After a bad result it is
    repeated after 1h, after one of a tool that failed after 6h."""
    kinds: tuple[Kind, ...] = (
        *("host_to_device", "device_to_host", "memory", "rdma_loopback", "collective"),
    )
    """Checks: host_to_device, device_to_host, memory, rdma_loopback, collective, dcgm.
    One whose tool the node does not have is left out."""
    dcgm_level: Literal[1, 2, 3] = 1
    """Level of `dcgmi diag`: 1 takes seconds, 2 minutes, 3 up to an hour."""
    memory_mebibytes: Annotated[int, msgspec.Meta(ge=16, le=65536)] = 1024
    """Size of each of the two arrays that the memory check copies."""
    expected: ExpectedSettings = ExpectedSettings()
    """Bandwidths of a healthy node."""
    gate: GateSettings = GateSettings()
    """Conditions under which no check runs."""
    budget: CheckBudget = CheckBudget()
    """Limits for a day."""

    def problems(self) -> Iterator[Problem]:
        """Report what cannot work."""
        if len(set(self.kinds)) != len(self.kinds):
            yield Problem("kinds", "names a check twice: remove one")
        if self.every < 600:
            yield Problem("every", "is under 10m: the node would be under load all the time")
        longest = dcgm.TIMEOUT_SECONDS[self.dcgm_level] if "dcgm" in self.kinds else 0.0
        if longest > self.budget.seconds_per_day:
            yield Problem(
                "budget.seconds_per_day",
                f"is under the {longest:g} that level {self.dcgm_level} of dcgmi diag may take: "
                "raise it, or lower dcgm_level",
            )
