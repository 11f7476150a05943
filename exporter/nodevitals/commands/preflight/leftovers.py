"""Finds accelerators that are not free when a job starts: leftover processes, used memory.

In: the samples of /metrics, and the indices of the accelerators that the job will use. Out:
findings. Other jobs may use the other accelerators: without a choice nothing is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

from nodevitals.commands.doctor.findings import (
    OFF,
    OK,
    PROBLEM,
    UNKNOWN,
    Finding,
    Samples,
    listed,
    printable,
)

# A driver and its daemons keep some memory of each device themselves.
MAX_USED_SHARE = 0.1
MAX_FINDINGS = 32
_USED, _TOTAL, _RUNNING = (
    f"nodevitals_accelerator_{name}"
    for name in ("memory_used_bytes", "memory_total_bytes", "processes")
)
_ALL = "all"
_GIB = 1 << 30
_REMEDY = "end the processes that are left: nvidia-smi, npu-smi info; fuser -v /dev/nvidia*"
_OFF = "not checked: without --devices, processes of other jobs on this node would count"
_CHOOSE = "--devices LIST, or on an idle node --devices all"
_HELD = "no process is seen: fuser -v /dev/nvidia*; reset the device, or reboot the node"

Device = tuple[str, str]
"""Vendor and index."""


class InUse(NamedTuple):
    """An accelerator that is not free; None for values that the agent could not read."""

    device: Device
    memory_bytes: Optional[float]
    processes: Optional[float]
    bus_id: str


Choice = Optional[frozenset[str]]
"""Indices; None for all."""


def chosen(devices: str) -> Choice:
    """What `--devices` chooses."""
    return None if devices == _ALL else frozenset(filter(None, devices.split(",")))


def in_use(samples: Samples, devices: Choice) -> list[InUse]:
    """The chosen accelerators that are not free."""
    used = _by_device(samples, _USED)
    total = _by_device(samples, _TOTAL)
    running = _by_device(samples, _RUNNING)
    info = samples.values.get("nodevitals_accelerator_info", ())
    bus_ids = {_device(labels): labels.get("pci_bus_id", "") for labels, _ in info}
    accelerators = []
    for device in sorted({*used, *running}):
        if devices is not None and device[1] not in devices:
            continue
        memory, processes = used.get(device), running.get(device)
        share = (memory or 0.0) / total[device] if total.get(device) else 0.0
        if (processes or 0) > 0 or share > MAX_USED_SHARE:
            accelerators.append(InUse(device, memory, processes, bus_ids.get(device, "")))
    return accelerators


def leftover_findings(
    samples: Samples,
    devices: Choice,
    used: list[InUse],
    holders: Mapping[str, str],
) -> Iterator[Finding]:
    """A finding per accelerator that is not free; `holders` are its processes by NVML's index. An
    accelerator that the agent does not report counts as not free.
    """
    present = _indices(samples)
    if devices is not None and not devices:
        if present:
            yield Finding("left over", OFF, _OFF, _CHOOSE)
        return
    for use in used[:MAX_FINDINGS]:
        vendor, index = use.device
        processes = holders.get(index, "") if vendor == "nvidia" else ""
        if not processes and use.processes:
            processes = f"{use.processes:g} processes"
        memory = "" if use.memory_bytes is None else f"{use.memory_bytes / _GIB:.3g} GiB "
        text = f"{vendor} {index}: {memory}in use before the job starts"
        text = f"{text} ({processes})" if processes else text
        yield Finding("left over", PROBLEM, printable(text), _REMEDY if processes else _HELD)
    if len(used) > MAX_FINDINGS:
        text = f"and {len(used) - MAX_FINDINGS} more accelerators in use"
        yield Finding("left over", PROBLEM, text, _REMEDY)
    known = {index for family in (_USED, _RUNNING) for _, index in _by_device(samples, family)}
    missing = sorted((present if devices is None else devices) - known)
    if missing:
        text = f"accelerator {listed(missing)}: the agent does not know whether it is free"
        yield Finding("left over", UNKNOWN, printable(text), "check --devices; nodevitals doctor")
    if known and not used and not missing:
        yield Finding("left over", OK, "no process on an accelerator, memory is free")


def _by_device(samples: Samples, family: str) -> dict[Device, float]:
    """The finite values of a family, by device."""
    series = samples.values.get(family, ())
    return {_device(labels): value for labels, value in series if math.isfinite(value)}


def _indices(samples: Samples) -> set[str]:
    """The indices of all accelerators, also where a value is missing."""
    families = (_USED, _TOTAL, _RUNNING)
    return {_device(labels)[1] for name in families for labels, _ in samples.values.get(name, ())}


def _device(labels: Mapping[str, str]) -> Device:
    return labels.get("vendor", ""), labels.get("device", "")
