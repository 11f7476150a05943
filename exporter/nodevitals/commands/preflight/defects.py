"""What makes a node unfit for a job, as its agent exposes it now.

In: the samples of /metrics. Out: findings; good ones too, one per part of the node. The same facts
alert after their wait: a job that starts now cannot wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodevitals.commands.doctor.findings import OK, PROBLEM, Finding, listed, printable
from nodevitals.commands.doctor.samples import Samples
from nodevitals.commands.preflight.defect_table import DEFECTS, Defect

Labels = Mapping[str, str]
# A driver and its daemons keep some memory of each device themselves.
MAX_USED_SHARE = 0.1


# Labels whose series are no defect, whatever their value is.
GOOD_LABELS = {
    "nvidia_recovery_action": ("vendor_action", ("none",)),
    "nvidia_fabric_state": ("state", ("completed",)),
    "node_hung_processes": ("wait", ("paused",)),
}
PARTS = tuple(dict.fromkeys(one.part for one in DEFECTS))


def defect_findings(samples: Samples) -> Iterator[Finding]:
    """One finding per defect; a good one per part that has samples and no defect."""
    for part in PARTS:
        mine = [one for one in DEFECTS if one.part == part]
        found = [finding for one in mine for finding in _found(one, samples)]
        yield from found
        seen = sum(len(_series(samples, family)) for family in {one.family for one in mine})
        if seen and not found:
            yield Finding(part, OK, f"no defect in {seen} values")


def _series(samples: Samples, family: str) -> list[tuple[Labels, float]]:
    return samples.values.get(f"nodevitals_{family}", [])


def _found(defect: Defect, samples: Samples) -> Iterator[Finding]:
    limits = {_key(labels): value for labels, value in _series(samples, defect.other)}
    label, good = GOOD_LABELS.get(defect.family, ("", ()))
    for labels, value in _series(samples, defect.family):
        if any(labels.get(name) != text for name, text in defect.where.items()):
            continue
        if label and labels.get(label, "") in good:
            continue
        limit = limits.get(_key(labels)) if defect.other else defect.limit
        if limit is not None and defect.wrong(value, limit):
            words = _Words(labels, value=f"{value:g}", limit=f"{limit:g}")
            subject = printable(defect.subject.format_map(words), 80)
            text = printable(f"{subject}: {defect.text.format_map(words)}")
            yield Finding(defect.part, PROBLEM, text, printable(defect.remedy.format_map(words)))


def _key(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


class _Words(dict[str, str]):
    """Labels for a text; a label without a value is not in the exposition."""

    def __init__(self, labels: Labels, **more: str) -> None:
        super().__init__({**labels, **more})

    def __missing__(self, key: str) -> str:
        return ""


def leftover_findings(samples: Samples, devices: frozenset[str]) -> Iterator[Finding]:
    """Accelerators that are not free: processes of an earlier job, or memory that one still holds.
    `devices` are the indices that the job will use; all where there are none.
    """
    used: list[str] = []
    total = dict(_by_device(samples, "accelerator_memory_total_bytes"))
    running = dict(_by_device(samples, "accelerator_processes"))
    for device, memory in _by_device(samples, "accelerator_memory_used_bytes"):
        if devices and device[1] not in devices:
            continue
        share = memory / total[device] if total.get(device) else 0.0
        processes = running.get(device)
        if processes:
            used.append(f"{' '.join(device)} ({processes:g} processes)")
        elif share > MAX_USED_SHARE:
            used.append(f"{' '.join(device)} ({share:.0%} of its memory)")
    if used:
        text = f"in use: {listed(used)}"
        remedy = "end the processes that are left: nvidia-smi, npu-smi info; fuser -v /dev/nvidia*"
        yield Finding("left over", PROBLEM, printable(text), remedy)
    elif total:
        yield Finding("left over", OK, "no process on an accelerator, memory is free")


def _by_device(samples: Samples, family: str) -> Iterator[tuple[tuple[str, str], float]]:
    for labels, value in _series(samples, family):
        yield (labels.get("vendor", ""), labels.get("device", "")), value
