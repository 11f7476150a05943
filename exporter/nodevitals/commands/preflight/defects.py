"""What makes a node unfit for a job, as its agent exposes it now.

In: the samples of /metrics. Out: findings; good ones too, one per part of the node. The same facts
alert after their wait: a job that starts now cannot wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodevitals.commands.doctor.findings import OK, PROBLEM, Finding, printable
from nodevitals.commands.doctor.samples import Samples
from nodevitals.commands.preflight.defect_table import DEFECTS, Defect

Labels = Mapping[str, str]
MAX_PART_FINDINGS = 64
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
        yield from found[:MAX_PART_FINDINGS]
        if len(found) > MAX_PART_FINDINGS:
            text = f"and {len(found) - MAX_PART_FINDINGS} more defects"
            yield Finding(part, PROBLEM, text, found[-1].remedy)
        seen = len(
            {(one.family, _key(labels)) for one in mine for labels, _ in _mine(one, samples)}
        )
        if seen and not found:
            yield Finding(part, OK, f"no defect in {seen} values")


def _series(samples: Samples, family: str) -> list[tuple[Labels, float]]:
    return samples.values.get(f"nodevitals_{family}", [])


def _mine(defect: Defect, samples: Samples) -> Iterator[tuple[Labels, float]]:
    for labels, value in _series(samples, defect.family):
        if all(labels.get(name) == text for name, text in defect.where.items()):
            yield labels, value


def _found(defect: Defect, samples: Samples) -> Iterator[Finding]:
    limits = {_key(labels): value for labels, value in _series(samples, defect.other)}
    label, good = GOOD_LABELS.get(defect.family, ("", ()))
    for labels, value in _mine(defect, samples):
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
