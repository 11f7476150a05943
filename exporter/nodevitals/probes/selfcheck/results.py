"""The result of a self-check: the measurement on a device, or why there is none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Optional, get_args

import msgspec

Kind = Literal["host_to_device", "device_to_host", "memory", "rdma_loopback", "collective", "dcgm"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Outcome = Literal["ok", "slow", "warning", "failed", "skipped", "harness", "refused"]
"""`slow`: below the expected bandwidth. `failed`: the test found a fault of the hardware.
`skipped`: the tool has no such test for this device. `harness`: the tool crashed, hung or printed
text that cannot be parsed; the hardware is unknown. `refused`: the gate or the budget refused the
check."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# Outcomes of a complete round, worst first.
_WORST: tuple[Outcome, ...] = (
    *("failed", "slow", "harness", "refused", "warning", "ok", "skipped"),
)
MAX_BYTES_PER_SECOND = 1e14
"""More than any device has: a larger figure is invalid."""
MAX_MESSAGE = 300


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of results. `device` is the index of an accelerator or the name of an RDMA device;
    '' if the check has none, or if the tool does not report the device.
    """

    kind: Kind
    device: str = ""
    port: str = ""
    outcome: Outcome
    bandwidth_bytes_per_second: Optional[float] = None
    expected_bytes_per_second: Optional[float] = None
    message: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """The labels of the result."""
        return (self.kind, self.device, self.port)


def line(text: str) -> str:
    """A text of a tool as one line of a message."""
    return " ".join(text.split())[:MAX_MESSAGE]


def measured(
    kind: Kind, device: str, port: str, bandwidth: float, expected: float | None
) -> Result:
    """The result of a bandwidth test that ended well."""
    if not 0 < bandwidth <= MAX_BYTES_PER_SECOND:
        text = f"{bandwidth:g} bytes per second is no bandwidth"
        return Result(kind=kind, device=device, port=port, outcome="harness", message=text)
    return Result(
        kind=kind,
        device=device,
        port=port,
        outcome="slow" if expected is not None and bandwidth < expected else "ok",
        bandwidth_bytes_per_second=bandwidth,
        expected_bytes_per_second=expected,
    )


def for_all(
    kind: Kind, devices: Sequence[str], port: str, outcome: Outcome, message: str
) -> list[Result]:
    """The same result for each device of a check, or one result if it has no devices."""
    return [
        Result(kind=kind, device=device, port=port, outcome=outcome, message=line(message))
        for device in devices or ("",)
    ]


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The worst of these outcomes; None if there is none."""
    return min(outcomes, key=_WORST.index, default=None)
